# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._sglang.findings import rules
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import known_releases
from ansible_collections.inferops.serving.plugins.module_utils._sglang.hardware import read_gpu
from ansible_collections.inferops.serving.plugins.module_utils._sglang.judge import Report, judge
from ansible_collections.inferops.serving.plugins.module_utils._sglang.models import Model, from_catalogue
from ansible_collections.inferops.serving.plugins.module_utils._sglang.versions import Release
from hypothesis import given
from hypothesis import strategies as st

from tools.verdicts import differs, verdict

ROOT = Path(__file__).resolve().parents[5]

RECORDED = ROOT / "tests/fixtures/verdicts"
TARGET = from_catalogue("targets", "moonshotai/Kimi-K2.6")
DRAFTER = from_catalogue("drafters", "lightseekorg/kimi-k2.6-eagle3")
KIMI = {
    "model_path": "/m",
    "tp_size": 8,
    "trust_remote_code": True,
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/d",
}


def report(
    release: str = "0.5.11",
    gpu: Any = "rtx_pro_6000_blackwell",
    target: Model | None = TARGET,
    drafter: Model | None = DRAFTER,
    **args: Any,
) -> Report:
    return judge({**KIMI, **args}, Release.parse(release), read_gpu(gpu), target, drafter)


def rule_ids(judged: Report) -> list[str]:
    return [finding.rule for finding in judged.findings]


@pytest.mark.parametrize("release", known_releases())
@pytest.mark.parametrize(
    ("given_numbers", "exception", "named", "lines"),
    [
        (
            {"speculative_num_draft_tokens": 3, "speculative_eagle_topk": 4},
            "AssertionError",
            ["speculative_num_steps"],
            {"speculative_num_steps": 2, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 3},
        ),
        (
            {"speculative_num_draft_tokens": 3},
            "AssertionError",
            ["speculative_num_steps", "speculative_eagle_topk"],
            {"speculative_num_steps": 2, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 3},
        ),
        (
            {"speculative_num_draft_tokens": 3, "speculative_num_steps": 1},
            "TypeError",
            ["speculative_eagle_topk"],
            {"speculative_num_steps": 1, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 2},
        ),
    ],
)
def test_the_incident_is_refused_in_every_release(
    release: str, given_numbers: dict[str, Any], exception: str, named: list[str], lines: dict[str, int]
) -> None:
    judged = report(release, **given_numbers)
    (refused,) = (finding for finding in judged.findings if finding.rule in ("spec-steps-missing", "spec-topk-missing"))
    assert refused.exception == exception
    assert all(flag in refused.message for flag in named)
    assert refused.remedy.set == lines
    mended_numbers: dict[str, Any] = {**given_numbers, **refused.remedy.set}
    mended = report(release, **mended_numbers)
    assert not {"spec-steps-missing", "spec-topk-missing"} & set(rule_ids(mended))


def test_the_mended_incident_starts_and_is_rewritten() -> None:
    judged = report(speculative_num_draft_tokens=3, speculative_num_steps=1, speculative_eagle_topk=1)
    assert judged.ok
    assert rule_ids(judged) == ["spec-max-running-requests", "spec-draft-tokens-rewritten"]
    assert judged.resolved["speculative_num_draft_tokens"] == 2


def test_rejection_sampling_is_compared_before_a_topk_that_is_missing() -> None:
    judged = report(
        "0.5.19", speculative_num_steps=5, speculative_num_draft_tokens=4, speculative_use_rejection_sampling=True
    )
    refused = [finding for finding in judged.findings if finding.outcome == "refused"]
    assert [finding.rule for finding in refused] == ["rejection-sampling-topk", "spec-topk-missing"]
    assert refused[0].exception == "ValueError"


@pytest.mark.parametrize(
    ("release", "args", "refused"),
    [
        ("0.5.7", {"disable_radix_cache": True}, True),
        ("0.5.23", {"disable_radix_cache": True}, True),
        ("0.5.23", {}, False),
        ("0.5.19", {"disaggregation_mode": "decode"}, True),
        ("0.5.19", {"disaggregation_mode": "decode", "disaggregation_decode_enable_radix_cache": True}, False),
        ("0.5.19", {"disaggregation_mode": "prefill"}, False),
        ("0.5.19", {"enable_deterministic_inference": True, "attention_backend": "flashinfer"}, True),
        ("0.5.11", {"enable_deterministic_inference": True, "attention_backend": "flashinfer"}, False),
        ("0.5.19", {"enable_deterministic_inference": True, "attention_backend": "triton"}, False),
    ],
)
def test_the_hierarchical_cache_needs_the_radix_cache(release: str, args: dict[str, Any], refused: bool) -> None:
    judged = report(release, enable_hierarchical_cache=True, **args)
    assert ("hierarchical-cache-radix" in rule_ids(judged)) is refused


@pytest.mark.parametrize(
    ("release", "backend", "architecture", "refused"),
    [
        ("0.5.11", "flashinfer", "DeepseekV3ForCausalLM", True),
        ("0.5.11", "triton", "DeepseekV3ForCausalLM", False),
        ("0.5.11", "flashinfer", "Qwen3ForCausalLM", False),
        ("0.5.16", "fa4", "DeepseekV3ForCausalLM", False),
    ],
)
def test_deterministic_latent_attention_takes_fewer_backends(
    release: str, backend: str, architecture: str, refused: bool
) -> None:
    target = Model(config={"architectures": [architecture]})
    args: dict[str, Any] = {"enable_deterministic_inference": True, "attention_backend": backend}
    assert ("deterministic-latent-backend" in rule_ids(report(release, target=target, **args))) is refused


def test_an_abbreviated_key_is_judged_as_the_real_parser_reads_it() -> None:
    args = {"model_path": "/m", "tp": 8, "speculative_num": 3}
    judged = judge(args, Release.parse("0.5.19"), read_gpu("h200"), TARGET)
    assert judged.argv == ("--model-path", "/m", "--tp-size", "8")
    assert "flag-ambiguous" in rule_ids(judged)
    assert "flag-unknown" not in rule_ids(judged)


def test_a_page_of_nothing_is_refused_where_the_memory_is_not_known() -> None:
    assert "page-size-zero" in rule_ids(report("0.5.19", gpu="b200", attention_backend="triton", page_size=0))


@pytest.mark.parametrize(
    ("rule", "outcome", "args"),
    [
        ("flag-unknown", "refused", {"speculative_eagle_top_k": 4}),
        ("flag-value", "refused", {"tp_size": "eight"}),
        ("flag-given-twice", "refused", {"tensor_parallel_size": 4}),
        ("flag-holds-secret", "refused", {"api_key": "s3cret"}),
        ("algorithm-no-choice", "refused", {"speculative_algorithm": "eagle3"}),
        ("spec-numbers-automatic", "rewritten", {}),
        ("spec-draft-tokens-missing", "broken_later", {"speculative_num_steps": 3, "speculative_eagle_topk": 4}),
        (
            "spec-tree-too-small",
            "broken_later",
            {"speculative_num_steps": 1, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 100},
        ),
        (
            "spec-tree-unused",
            "harmful",
            {"speculative_num_steps": 5, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 2},
        ),
        (
            "spec-number-range",
            "broken_later",
            {"speculative_num_steps": 0, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 1},
        ),
        (
            "spec-topk-page-backend",
            "refused",
            {
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 4,
                "speculative_num_draft_tokens": 8,
                "page_size": 16,
            },
        ),
        (
            "spec-topk-trtllm-mha",
            "refused",
            {
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 4,
                "speculative_num_draft_tokens": 8,
                "attention_backend": "trtllm_mha",
            },
        ),
        (
            "spec-topk-draft-backend",
            "broken_later",
            {
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 4,
                "speculative_num_draft_tokens": 8,
                "attention_backend": "flashinfer",
            },
        ),
        ("drafter-missing", "broken_later", {"speculative_draft_model_path": None}),
        ("lora-size", "refused", {"enable_lora": True, "max_lora_rank": 16}),
        ("page-size-zero", "refused", {"page_size": 0}),
        ("eagle-named-for-eagle3", "harmful", {"speculative_algorithm": "EAGLE"}),
        ("spec-without-algorithm", "ignored", {"speculative_algorithm": None, "speculative_num_steps": 3}),
    ],
)
def test_each_rule_holds_on_its_case(rule: str, outcome: str, args: dict[str, Any]) -> None:
    found = {finding.rule: finding for finding in report(**args).findings}
    assert rule in found
    assert found[rule].outcome == outcome
    assert "{" not in found[rule].message


def test_an_algorithm_is_free_text_from_0_5_12() -> None:
    assert "algorithm-unknown" not in rule_ids(report("0.5.12", speculative_algorithm="eagle3"))
    (finding,) = (f for f in report("0.5.23", speculative_algorithm="EAGLE-3").findings if f.outcome == "refused")
    assert (finding.rule, finding.exception, finding.remedy.set) == (
        "algorithm-unknown",
        "ValueError",
        {"speculative_algorithm": "EAGLE3"},
    )


def test_eagle3_without_a_drafter_drafts_from_the_target() -> None:
    deepseek = Model(config={"architectures": ["DeepseekV3ForCausalLM"]})
    judged = report(target=deepseek, speculative_draft_model_path=None)
    assert "drafter-is-target" in rule_ids(judged)
    assert judged.resolved["speculative_draft_model_path"] == "/m"


def test_triton_takes_trees_and_pages_from_0_5_13() -> None:
    tree: dict[str, Any] = {
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 4,
        "speculative_num_draft_tokens": 8,
        "page_size": 16,
        "attention_backend": "triton",
    }
    assert "spec-topk-page-backend" in rule_ids(report("0.5.12.post1", **tree))
    assert "spec-topk-page-backend" not in rule_ids(report("0.5.13", **tree))


def test_the_verdict_hangs_on_the_gpu() -> None:
    tree: dict[str, Any] = {"speculative_num_steps": 3, "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}
    assert "spec-topk-page-backend" not in rule_ids(report("0.5.23", gpu="h200", **tree))
    assert "spec-topk-page-backend" in rule_ids(report("0.5.23", gpu="b200", **tree))


def test_every_problem_at_once() -> None:
    judged = report(tp_size="eight", no_such_flag=1, speculative_num_draft_tokens=3, page_size=1.5)
    assert {"flag-value", "flag-unknown", "spec-steps-missing"} <= set(rule_ids(judged))
    assert rule_ids(judged).count("flag-value") == 2


def test_a_release_beyond_the_tables_is_unchecked_but_its_core_is_judged() -> None:
    judged = report("0.9.0", brand_new_flag=1, speculative_num_draft_tokens=3)
    outcomes = {finding.rule: finding.outcome for finding in judged.findings}
    assert judged.confidence == "unchecked"
    assert outcomes["release-unknown"] == "unchecked"
    assert outcomes["flag-unknown"] == "unchecked"
    assert outcomes["spec-steps-missing"] == "refused"


def test_findings_speak_of_keys_as_they_were_written() -> None:
    written: dict[str, Any] = {"speculative-num-draft-tokens": 3}
    (finding,) = (one for one in report("0.5.11", **written).findings if one.rule == "spec-steps-missing")
    assert finding.keys == ("speculative-num-draft-tokens",)
    assert finding.remedy.set["speculative-num-draft-tokens"] == 3


def test_every_rule_of_the_data_is_asked_somewhere() -> None:
    asked = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "plugins/module_utils").glob("_[ps]*/*.py"))
    assert [rule for rule in rules() if f'"{rule}"' not in asked] == []


def test_the_planner_agrees_with_every_recorded_verdict_of_the_real_server() -> None:
    with gzip.open(RECORDED / "recorded.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    assert len(rows) == 9027
    assert [(row["id"], wrong) for row in rows if (wrong := differs(row, verdict(row, RECORDED / "models")))] == []


YAML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FLAG_KEYS = st.sampled_from(
    [
        "tp_size",
        "speculative_algorithm",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_draft_model_path",
        "page_size",
        "attention_backend",
        "decode_attention_backend",
        "model_path",
        "trust_remote_code",
    ]
)


@given(
    args=st.dictionaries(FLAG_KEYS | st.text(max_size=12), YAML_VALUES, max_size=6),
    release=st.sampled_from([*known_releases(), "0.1", "9.9.9"]),
    gpu=st.sampled_from([None, "h200", "b200", "rtx_pro_6000_blackwell", "mi300x", "none"]),
)
def test_arbitrary_arguments_are_judged_and_the_judgement_is_stable(
    args: dict[str, Any], release: str, gpu: str | None
) -> None:
    first = judge(args, Release.parse(release), read_gpu(gpu), TARGET, DRAFTER)
    again = judge(args, Release.parse(release), read_gpu(gpu), TARGET, DRAFTER)
    assert first == again
    assert first.ok == (not any(finding.outcome in ("refused", "broken_later") for finding in first.findings))
