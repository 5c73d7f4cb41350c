# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real argument handling of SGLang 0.5.19 against the flag table and the planner, on command lines made here."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._sglang.command_line import config_text

from tests.engine import wheelhouse
from tests.integration.conftest import CACHE, ROOT
from tools.flag_table import TABLE, unpack
from tools.verdicts import differs, verdict

VERSION = "0.5.19"
MODELS = ROOT / "tests/fixtures/verdicts/models"
GPUS = ("h200", "rtx_pro_6000_blackwell", "b200")
LINES = 300
SEED = 20260519

TARGETS = ("kimi_k25", "kimi_k25", "kimi_k2", "deepseek_v3", "llama", "qwen3")
DRAFTERS = ("eagle3", "eagle3", "eagle", "llama_draft", "dflash", None)
ALGORITHMS = ("EAGLE3", "EAGLE3", "EAGLE", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "eagle3", "EAGLE-3", None)
BACKENDS = ("fa3", "fa4", "flashinfer", "flashmla", "triton", "cutlass_mla", "trtllm_mla", "trtllm_mha", "torch_native")
#: What a line has besides its model and its speculation: some of these, each with one of its values.
FEATURES: tuple[tuple[str, Sequence[Any]], ...] = (
    ("--attention-backend", BACKENDS),
    ("--attention-backend", BACKENDS),
    ("--decode-attention-backend", BACKENDS),
    ("--prefill-attention-backend", BACKENDS),
    ("--page-size", (1, 16, 32, 64, 128, 0)),
    ("--page-size", (1, 16, 32, 64, 128, 0)),
    ("--tp-size", (1, 2, 4, 6, 8, 16)),
    ("--tp", (2, 8)),
    ("--dp-size", (2, 4, 8)),
    ("--pp-size", (2, 4)),
    ("--ep-size", (1, 2, 8)),
    ("--nnodes", (2, 3)),
    ("--enable-dp-attention", ()),
    ("--max-running-requests", (1, 16, 64, 256)),
    ("--disable-overlap-schedule", ()),
    ("--enable-mixed-chunk", ()),
    ("--chunked-prefill-size", (-1, 1000, 4096, 8192)),
    ("--kv-cache-dtype", ("auto", "bfloat16", "fp8_e4m3", "fp8_e5m2", "fp8")),
    ("--quantization", ("fp8", "modelopt_fp4", "int2")),
    ("--moe-runner-backend", ("auto", "triton", "deep_gemm", "flashinfer_trtllm", "flashinfer_cutlass", "nope")),
    ("--moe-a2a-backend", ("none", "deepep")),
    ("--enable-two-batch-overlap", ()),
    ("--enable-lora", ()),
    ("--enable-deterministic-inference", ()),
    ("--enable-hierarchical-cache", ()),
    ("--disable-radix-cache", ()),
    ("--disable-cuda-graph", ()),
    ("--disaggregation-mode", ("null", "prefill", "decode")),
    ("--mem-fraction-static", (0.85, 0.94, "abc")),
    ("--context-length", (2048, 131072, "128k")),
    ("--speculative-draft-attention-backend", ("fa3", "triton", "flashinfer", "trtllm_mha", "bogus")),
    ("--speculative-attention-mode", ("prefill", "decode", "both")),
    ("--speculative-draft-model-quantization", ("unquant", "fp8", "modelopt_fp4", "int3")),
    ("--speculative-adaptive", ()),
    ("--speculative-use-rejection-sampling", ()),
    ("--speculative-ngram-max-bfs-breadth", (1, 4, 10)),
    ("--speculative-dflash-block-size", (4, 8)),
    ("--speculative-draft-window-size", (64, 512)),
    ("--speculative-token-map", ("/x/map.pt",)),
    ("--enable-multi-layer-eagle", ()),
    ("--speculative-algo", ("EAGLE3",)),
    ("--no-such-flag", ()),
)


def command_line(chance: random.Random) -> list[str]:
    """A command line as an operator may write it; most are right up to their features."""
    words: list[Any] = ["--model-path", f"MODELS/{chance.choice(TARGETS)}"]
    if chance.random() < 0.8:
        words.append("--trust-remote-code")
    algorithm = chance.choice(ALGORITHMS)
    if algorithm:
        words += ["--speculative-algorithm", algorithm]
    drafter = chance.choice(DRAFTERS)
    if drafter:
        words += ["--speculative-draft-model-path", f"MODELS/{drafter}"]
    numbers = (
        ("--speculative-num-steps", (0, 1, 2, 3, 5)),
        ("--speculative-eagle-topk", (1, 1, 1, 4, 8)),
        ("--speculative-num-draft-tokens", (2, 4, 6, 8, 64)),
    )
    # all three or none of them, mostly; else SGLang seldom gets far
    usual = chance.random()
    for name, some in numbers:
        if usual < 0.6 or (usual > 0.85 and chance.random() < 0.5):
            words += [name, chance.choice(some)]
    for name, values in chance.sample(FEATURES, chance.choice((0, 1, 1, 2, 2, 3, 4))):
        words += [name, chance.choice(values)] if values else [name]
    return [str(word) for word in words]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the real SGLang."""
    wheels = CACHE / f"wheelhouse-cpu-{VERSION}"
    wheelhouse.fill(wheels)
    python = tmp_path_factory.mktemp("engine") / "venv/bin/python"
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run([uv, "venv", "--quiet", "--python", "3.11", str(python.parents[1])], check=True)
    offline = ["--no-index", "--find-links", str(wheels), "--require-hashes", "--no-deps"]
    lock = str(wheelhouse.LOCK / "requirements.txt")
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *offline, "-r", lock], check=True)
    return python


def ask(engine: Path, *words: str, lines: str = "") -> list[dict[str, Any]]:
    """What the real SGLang answers, by line."""
    command = [str(engine), str(ROOT / "tools/real_server_args.py"), *words]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_flag_table_is_what_the_real_parser_declares(engine: Path) -> None:
    (real,) = ask(engine, "flags")
    assert real["version"] == VERSION
    stored = unpack(json.loads(TABLE.read_text(encoding="utf-8")))[VERSION]
    assert stored.keys() == real["flags"].keys()
    assert [name for name in stored if stored[name] != real["flags"][name]] == []


def test_the_planner_answers_as_the_real_server_does(engine: Path) -> None:
    chance = random.Random(SEED)
    rows = [{"gpu": GPUS[number % len(GPUS)], "argv": command_line(chance)} for number in range(LINES)]
    answers = ask(engine, "verdicts", "--models", str(MODELS), lines="".join(f"{json.dumps(row)}\n" for row in rows))
    assert len(answers) == LINES
    # lines that all fall at the first hurdle would prove little
    assert sum(answer["ok"] for answer in answers) > LINES // 4
    found = [(answer["gpu"], differs(answer, verdict(answer, MODELS)), " ".join(answer["argv"])) for answer in answers]
    assert [row for row in found if row[1]] == []


def test_a_secret_in_a_configuration_file_arrives_and_is_on_no_command_line(engine: Path, tmp_path: Path) -> None:
    secrets = {"api_key": "canary-$HOME-%n-'\"\\ 1e3", "admin_api_key": "123", "ssl_keyfile_password": "true"}
    config = tmp_path / "server.yaml"
    config.write_text(config_text(secrets))
    config.chmod(0o600)
    words = ["--tp-size", "1", "--model-path", str(MODELS / "llama"), "--config", str(config)]
    # what launch_server does first, in a process whose command line can be looked at
    script = (
        "import json, sys; from sglang.srt.server_args import prepare_server_args as read; args = read(sys.argv[1:]); "
        "print(json.dumps([[getattr(args, name) for name in sorted(json.load(sys.stdin))], "
        "open('/proc/self/cmdline').read()]))"
    )
    done = subprocess.run(
        [str(engine), "-c", script, *words],
        input=json.dumps(list(secrets)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values, command = json.loads(done.stdout.splitlines()[-1])
    assert values == [secrets[name] for name in sorted(secrets)]
    assert str(config) in command
    assert "canary" not in command
