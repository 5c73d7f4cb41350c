# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.inferops.serving.plugins.filter.server import (
    parse_server_command,
    server_argv,
    server_config,
    server_report,
    validated_server_args,
)
from ansible_collections.inferops.serving.plugins.filter.systemd import systemd_environment, systemd_exec
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import flag_table, inventory_key
from hypothesis import given
from hypothesis import strategies as st

KIMI = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25"}
EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"]}
MENDED = {
    "model_path": "/m",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/d",
    "speculative_num_steps": 1,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
}


def test_a_report_of_the_mended_incident() -> None:
    report = server_report(MENDED, "0.5.11", gpu="rtx_pro_6000_blackwell", target=KIMI, drafter=EAGLE3)
    assert report["ok"] is True
    assert report["resolved"]["speculative_num_draft_tokens"] == 2
    assert report["confidence"] == "verified"
    assert "--speculative-num-steps" in report["argv"]
    assert report["findings"][0]["rule"] == "spec-max-running-requests"


def test_validated_arguments_hold_what_sglang_goes_on_with() -> None:
    validated = validated_server_args(MENDED, "0.5.11", gpu="rtx_pro_6000_blackwell", target=KIMI, drafter=EAGLE3)
    assert validated == {**MENDED, "speculative_num_draft_tokens": 2}


def test_every_stopping_finding_is_in_the_error() -> None:
    with pytest.raises(AnsibleFilterError) as failure:
        validated_server_args({**MENDED, "no_such": 1, "speculative_num_steps": None}, "0.5.11")
    assert "[flag-unknown]" in str(failure.value)
    assert "[spec-steps-missing]" in str(failure.value)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: server_report([], "0.5.11"), "are a mapping"),
        (lambda: server_report({}, "latest"), "not an SGLang release number"),
        (lambda: server_report({}, "0.5.11", gpu="h300"), "not a GPU profile"),
        (lambda: server_report({}, "0.5.11", target="llama"), "mapping of its config.json"),
        (lambda: server_argv({"no_such": 1}, "0.5.11"), "has no flag no_such"),
        (lambda: parse_server_command(1, "0.5.11"), "it is one text"),
        (lambda: parse_server_command("ls", "0.5.11"), "no sglang"),
        (lambda: systemd_exec("ls -l"), "list of words"),
        (lambda: systemd_exec([]), "at least one word"),
        (lambda: systemd_environment([]), "mapping of names"),
    ],
)
def test_wrong_input_is_answered_with_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(AnsibleFilterError, match=sentence):
        call()


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
YAML = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([inventory_key(name) for name in flag_table("0.5.23").flags]) | st.text(max_size=12)
VERSIONS = st.sampled_from(["0.5.6", "0.5.11", "0.5.14", "0.5.23", "0.1", "9.9"]) | st.text(max_size=10)
GPUS = (
    st.sampled_from([None, "h200", "b200", "rtx_pro_6000_blackwell", "mi300x", "none"])
    | YAML
    | st.fixed_dictionaries(
        {},
        optional={
            "compute_capability": st.sampled_from(["9.0", "10.0", "12.0", 9.0]) | YAML,
            "memory_gib": YAML,
            "count": YAML,
            "vendor": YAML,
        },
    )
)


@given(args=st.dictionaries(KEYS, YAML, max_size=8) | YAML, version=VERSIONS, gpu=GPUS, target=st.none() | YAML)
def test_whatever_comes_in_a_report_or_a_sentence_comes_out(args: Any, version: str, gpu: Any, target: Any) -> None:
    sentence = "a report"
    try:
        report = server_report(args, version, gpu=gpu, target=target, drafter=target)
    except AnsibleFilterError as exc:
        sentence = str(exc)
    else:
        assert set(report) == {"ok", "findings", "resolved", "argv", "confidence"}
    assert sentence[-1] not in "\n:"


NUMBERS = st.integers(-3, 70)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "tp_size": NUMBERS,
            "pp_size": NUMBERS,
            "dp_size": NUMBERS,
            "nnodes": NUMBERS,
            "page_size": NUMBERS,
            "chunked_prefill_size": NUMBERS,
            "enable_dp_attention": st.booleans(),
            "mem_fraction_static": st.floats(-1, 2),
            "context_length": NUMBERS,
            "speculative_algorithm": st.sampled_from(["EAGLE3", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "UNO"]),
            "speculative_num_steps": NUMBERS,
            "speculative_eagle_topk": NUMBERS,
            "speculative_num_draft_tokens": NUMBERS,
            "speculative_ngram_max_bfs_breadth": NUMBERS,
            "speculative_adaptive": st.booleans(),
            "speculative_dspark_block_size": NUMBERS,
            "kv_cache_dtype": st.sampled_from(["auto", "fp8_e4m3"]),
        },
    ),
    st.sampled_from(["0.5.6", "0.5.9", "0.5.11", "0.5.13", "0.5.14", "0.5.19", "0.5.23"]),
    st.sampled_from(["h200", "b200", "rtx_pro_6000_blackwell", "mi300x"]),
)
def test_no_number_is_too_odd_to_be_judged(args: dict[str, Any], version: str, gpu: str) -> None:
    assert server_report(args, version, gpu=gpu, target=KIMI, drafter=EAGLE3)["confidence"] == "verified"


@given(st.dictionaries(st.sampled_from(("api_key", "admin-api-key")), st.text(st.characters(max_codepoint=126))))
def test_a_configuration_file_holds_the_texts_as_they_are(args: dict[str, str]) -> None:
    read = yaml.safe_load(server_config(args)) or {}
    assert read == {key.replace("_", "-"): value for key, value in args.items()}


@pytest.mark.parametrize("args", ["canary", {"api_key": ["canary"]}])
def test_a_configuration_file_that_cannot_be_written_shows_no_secret(args: Any) -> None:
    with pytest.raises(AnsibleFilterError) as failure:
        server_config(args)
    assert "canary" not in str(failure.value)
