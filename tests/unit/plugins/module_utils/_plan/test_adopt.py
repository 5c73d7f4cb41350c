# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts as operators have them, adopted."""

from __future__ import annotations

import contextlib
import string
from typing import Any

import pytest
import yaml
from ansible_collections.inferops.serving.plugins.module_utils._plan.adopt import Adoption, adopt
from ansible_collections.inferops.serving.plugins.module_utils._plan.running import AdoptProblem, names_secret
from ansible_collections.inferops.serving.plugins.module_utils._server.systemd import exec_start
from ansible_collections.inferops.serving.plugins.module_utils._sglang.command_line import parse_argv, server_argv
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import flag_table
from hypothesis import given
from hypothesis import strategies as st

SERVER = "python3 -m sglang.launch_server"
TABLE = flag_table("0.5.23")

SCRIPT = r"""#!/bin/bash
set -e
MODEL=/models/kimi
SPEC="--speculative-algo EAGLE3 --speculative-draft-model-path /models/drafter"
source /opt/sglang-0.5.11/bin/activate
export NCCL_DEBUG=INFO HF_TOKEN=hf_hidden
CUDA_VISIBLE_DEVICES=0,1,2,3 nohup numactl --membind=0 python3 -u -m sglang.launch_server \
  --model-path $MODEL --tp=4 $SPEC \
  --api-key sk-hidden --chat-template '{{ x }}' > /var/log/sglang.log 2>&1 &
"""

UNIT = r"""# /etc/systemd/system/kimi.service
[Unit]
Description=Kimi --tp 9
[Service]
User=sglang
Environment="A=b c" PORT=30001 X=50%%
Environment=API_TOKEN=hidden
EnvironmentFile=-/etc/kimi.env
ExecStart=
ExecStart=-/opt/engines/0.5.23-abc/bin/python -m sglang.launch_server \
    --model-path "/srv/a b" --port ${PORT} \
# a comment in between
    --served-model-name=100%%$$ --log-level %i
[Install]
WantedBy=multi-user.target
"""

DOCKER = r"""
docker run -itd --name sglang-kimi --gpus '"device=0,1"' --shm-size 32g --ipc=host -p 127.0.0.1:8000:30000/tcp \
    -v /data/models:/models -e HF_TOKEN=hf_hidden --env NCCL_DEBUG=INFO -e HTTP_PROXY --env-file ./kimi.env \
    --log-opt token=hidden registry.example.org:5000/lmsysorg/sglang:v0.5.11-cu129 \
    bash -c "python3 -m sglang.launch_server --model-path /models/k2 --host 0.0.0.0 --tp 2"
"""

COMPOSE = """
services:
  proxy: {image: nginx}
  llm:
    image: lmsysorg/sglang:v0.5.11
    entrypoint: [python3, -m, sglang.launch_server]
    command: >
      --model-path /models/k2 --trust-remote-code
    environment:
      HF_TOKEN: hf_hidden
      NCCL_DEBUG: INFO
      SGLANG_X: true
    ports: ["8080:30000"]
    volumes: ["/data:/models"]
    deploy: {replicas: 1}
"""


def told(adoption: Adoption) -> str:
    return " ".join(adoption.notes)


def args(adoption: Adoption) -> Any:
    return adoption.variables["sglang_server_args"]


def rules(adoption: Adoption) -> list[str]:
    return [problem.finding.rule for problem in adoption.fleet.problems]


def test_a_script() -> None:
    adopted = adopt(SCRIPT)
    assert dict(adopted.variables) == {
        "sglang_engine_version": "0.5.11",
        "sglang_server_name": "main",
        "sglang_server_args": {
            "model_path": "/models/kimi",
            "tp_size": 4,
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": "/models/drafter",
            "chat_template": "{{ x }}",
        },
        "sglang_server_env": {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0,1,2,3"},
    }
    assert list(args(adopted)) == [
        "model_path",
        "tp_size",
        "speculative_algorithm",
        "speculative_draft_model_path",
        "chat_template",
    ]
    for words in ("nohup, numactl --membind=0", "set, source", "4 GPUs", "api_key is not repeated"):
        assert words in told(adopted)
    assert "flag-holds-secret" in rules(adopted)


def test_a_unit() -> None:
    adopted = adopt(UNIT, gpu="h200")
    assert dict(adopted.variables) == {
        "sglang_engine_version": "0.5.23",
        "sglang_server_name": "main",
        "sglang_server_args": {
            "model_path": "/srv/a b",
            "port": 30001,
            "served_model_name": "100%$",
            "log_level": "%i",
        },
        "sglang_server_env": {"A": "b c", "PORT": "30001", "X": "50%"},
        "sglang_plan_gpu": "h200",
    }
    for words in ("/etc/kimi.env", "specifier %i", "not carried over: User."):
        assert words in told(adopted)


def test_a_container() -> None:
    adopted = adopt(DOCKER)
    assert dict(adopted.variables) == {
        "sglang_engine_version": "0.5.11",
        "sglang_server_name": "kimi",
        "sglang_server_args": {"model_path": "/models/k2", "host": "127.0.0.1", "tp_size": 2, "port": 8000},
        "sglang_server_env": {"NCCL_DEBUG": "INFO"},
    }
    for words in (
        "./kimi.env",
        "HTTP_PROXY came from the environment",
        "--shm-size 32g, --ipc host, --volume /data/models:/models, --log-opt.",
        "on the host it is /data/models/k2",
        "2 GPUs",
    ):
        assert words in told(adopted)


def test_a_compose_file() -> None:
    adopted = adopt(COMPOSE)
    assert adopted.variables["sglang_server_name"] == "llm"
    assert args(adopted) == {"model_path": "/models/k2", "trust_remote_code": True, "port": 8080}
    assert adopted.variables["sglang_server_env"] == {"NCCL_DEBUG": "INFO", "SGLANG_X": "true"}
    assert "deploy, volume /data:/models" in told(adopted)


def test_the_command_line_of_a_process() -> None:
    adopted = adopt("/opt/venv/bin/python\0-m\0sglang.launch_server\0--model-path\0/a b\0--tp\08\0", "0.5.23")
    assert args(adopted) == {"model_path": "/a b", "tp_size": 8}


@pytest.mark.parametrize("text", [SCRIPT, UNIT, DOCKER, COMPOSE])
def test_no_secret_is_repeated(text: str) -> None:
    adopted = adopt(text)
    assert "hidden" in text
    assert "hidden" not in adopted.report + repr(adopted)
    assert "a secret, not repeated here" in adopted.inventory


@pytest.mark.parametrize(
    "words",
    [
        "--api-key=sk-hidden",
        "--admin-api sk-hidden",
        "--api-key sk hidden",
        "--api-keyy sk-hidden",
        "--api_key sk-hidden",
        "--secret-of-mine sk-hidden",
        "--model-path s3://user:hidden@host/m",
        "--ssl-keyfile-password hidden",
        "--tp 8 hidden",
    ],
)
def test_no_secret_of_a_flag_is_repeated(words: str) -> None:
    adopted = adopt(f"{SERVER} {words} --port 30000", "0.5.23")
    assert "hidden" not in adopted.report + repr(adopted)
    assert args(adopted)["port"] == 30000


@pytest.mark.parametrize(
    ("name", "secret"),
    [("HF_TOKEN", True), ("OPENAI_APIKEY", True), ("DB_PASSWORD", True), ("TOKENIZERS_PARALLELISM", False)],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert names_secret(name) is secret


@pytest.mark.parametrize(
    ("words", "key", "value", "rule"),
    [
        ("--num-draft-token 4", "num_draft_token", 4, "flag-unknown"),
        ("--no-such-flag", "no_such_flag", True, "flag-unknown"),
        ("--no-such-flag=a b", "no_such_flag", "a", "flag-unknown"),
        ("--tp eight", "tp_size", "eight", "flag-value"),
        ("--tp", "tp_size", True, "flag-value"),
        ("--speculative-algori NONSENSE", "speculative_algorithm", "NONSENSE", "algorithm-unknown"),
    ],
)
def test_what_sglang_would_refuse_is_a_finding(words: str, key: str, value: Any, rule: str) -> None:
    adopted = adopt(f"{SERVER} --model-path /m {words}", "0.5.23")
    kept = args(adopted)[key]
    assert (kept[0] if isinstance(kept, list) else kept) == value
    assert rule in rules(adopted)
    assert adopted.fleet.stopping


def test_a_word_of_no_flag_is_left_out_and_told() -> None:
    adopted = adopt(f"{SERVER} --model-path /m --trust-remote-code true --tp 8 9", "0.5.23")
    assert args(adopted) == {"model_path": "/m", "trust_remote_code": True, "tp_size": 8}
    assert "1 word behind trust_remote_code" in told(adopted)
    assert "1 word behind tp_size" in told(adopted)


def test_the_release_that_is_asked_for_goes_before_the_texts() -> None:
    adopted = adopt(DOCKER, "0.5.23")
    assert adopted.variables["sglang_engine_version"] == "0.5.23"
    assert "starts SGLang 0.5.11" in told(adopted)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("ls -l", "starts no SGLang server"),
        (f"{SERVER} --tp '8", "No closing quotation"),
        (f"{SERVER} --tp 8", "does not say which SGLang release"),
        ("[Service]\nExecStart=/bin/true", "starts no SGLang server"),
        ("[Service]\nExecStart=\n", "has 0 commands"),
        ("[Service]\nExecStart=/bin/true 'a", "a quote is not closed"),
        ("docker run nginx", "container's command"),
        ("services:\n  a: {image: nginx}\n", "starts 0 SGLang servers"),
        ("services:\n  a: [\n", "no YAML"),
    ],
)
def test_what_cannot_be_adopted_is_answered_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(AdoptProblem, match=sentence):
        adopt(text)


def test_the_inventory_is_yaml_that_ansible_would_read_back() -> None:
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!unsafe", lambda _loader, node: str(node.value))
    adopted = adopt(SCRIPT, gpu={"compute_capability": "9.0", "count": 4})
    assert yaml.load(adopted.inventory, Loader) == adopted.variables
    assert '!unsafe "{{ x }}"' in adopted.inventory


VALUES = {"tp_size": st.integers(1, 64), "mem_fraction_static": st.floats(0.1, 0.9), "trust_remote_code": st.just(True)}
TEXT = st.text(st.sampled_from(string.ascii_letters + string.digits + " /%'\"$\\;#&|-="), min_size=1, max_size=12)


@given(
    st.fixed_dictionaries({}, optional={**VALUES, "served_model_name": TEXT, "model_path": TEXT, "chat_template": TEXT})
)
def test_a_unit_of_ours_comes_back(given_args: dict[str, Any]) -> None:
    argv = server_argv(given_args, TABLE)
    adopted = adopt(f"[Service]\nExecStart={exec_start(['/venv/bin/sglang', 'serve', *argv])}\n", "0.5.23")
    assert parse_argv(server_argv(args(adopted), TABLE), TABLE) == parse_argv(argv, TABLE)


PIECES = st.sampled_from(
    [
        *(f"{SERVER} ", "sglang serve ", "docker run ", "podman run -it ", "lmsysorg/sglang:v0.5.11 ", "bash -c ", "'"),
        *("ExecStart=", "Environment=", "services:\n", "  a:\n    command: ", "\n", "\\", "\0", "$A ", "A=", "export "),
        *(
            "--tp ",
            "--api-key=",
            "--gpus ",
            "-e ",
            "-p 1:2 ",
            "[Service]\n",
            "&&",
            "| ",
            "> ",
            "--",
            "% ",
            '"',
            "{",
            "-",
        ),
    ]
)


@given(st.lists(PIECES | st.text(max_size=8), max_size=12).map("".join))
def test_no_text_is_answered_with_another_error(text: str) -> None:
    with contextlib.suppress(AdoptProblem):
        assert adopt(text, "0.5.23").report
