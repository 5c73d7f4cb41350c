# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang accepts and should not. Cases from public reports carry the report's id and its configuration."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._sglang.hardware import read_gpu
from ansible_collections.inferops.serving.plugins.module_utils._sglang.judge import Report, judge
from ansible_collections.inferops.serving.plugins.module_utils._sglang.models import Model, from_catalogue
from ansible_collections.inferops.serving.plugins.module_utils._sglang.versions import Release

TARGET = from_catalogue("targets", "moonshotai/Kimi-K2.6") or Model()
ARGS = {
    "model_path": "/m",
    "tp_size": 8,
    "trust_remote_code": True,
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/d",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
LLAMA = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 7168,
    "vocab_size": 163840,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}
MLA = {**LLAMA, "architectures": ["Eagle3DeepseekV2ForCausalLM"]}
MAPS = {"d2t": {"dtype": "I64", "shape": [32000]}, "t2d": {"dtype": "BOOL", "shape": [163840]}}


def report(
    release: str = "0.5.23",
    gpu: Any = "h200",
    config: dict[str, Any] | None = None,
    tensors: dict[str, Any] | None = None,
    target: Model = TARGET,
    env: dict[str, str] | None = None,
    **args: Any,
) -> Report:
    drafter = Model(config=LLAMA if config is None else config, tensors=tensors or {})
    return judge({**ARGS, **args}, Release.parse(release), read_gpu(gpu), target, drafter, env)


def found(judged: Report) -> dict[str, str]:
    return {finding.rule: finding.outcome for finding in judged.findings}


def test_the_usual_configuration_is_clean() -> None:
    judged = report(tensors=MAPS)
    assert set(found(judged)) == {"spec-max-running-requests"}


@pytest.mark.parametrize(
    ("rule", "outcome", "case"),
    [
        # B17: Kimi K2.6 on Blackwell picks trtllm_mla, and a drafter of the Llama kind inherits it
        ("draft-backend-inherited", "broken_later", {"gpu": "b200"}),
        ("draft-backend-inherited", "broken_later", {"attention_backend": "flashmla"}),
        # B18: RTX PRO 6000 with trtllm_mla
        ("trtllm-mla-sm120", "broken_later", {"gpu": "rtx_pro_6000_blackwell", "attention_backend": "trtllm_mla"}),
        # B22: 0.5.11 with an MLA drafter; and Kimi as a target before its EAGLE-3 hook
        ("drafter-class-release", "broken_later", {"release": "0.5.11", "config": MLA}),
        ("drafter-class-release", "broken_later", {"release": "0.5.9"}),
        # EAGLE-3.1: 0.5.12 leaves the fc_norm weights out
        (
            "drafter-class-release",
            "broken_later",
            {"release": "0.5.12.post1", "config": MLA, "tensors": {"fc_norm.weight": {}}},
        ),
        # B30: config.json names the target's class
        ("drafter-no-eagle3", "broken_later", {"config": {**LLAMA, "architectures": ["Qwen3ForCausalLM"]}}),
        # B31, B36: another vocabulary, another hidden size
        ("drafter-vocabulary", "broken_later", {"config": {**LLAMA, "vocab_size": 128256}}),
        ("drafter-hidden-size", "broken_later", {"config": {**LLAMA, "hidden_size": 4096}}),
        # B33, B34: no map back from the reduced vocabulary, or a malformed one
        ("drafter-without-d2t", "harmful", {"tensors": {"fc.weight": {"dtype": "BF16", "shape": [1]}}}),
        ("drafter-map-shape", "broken_later", {"tensors": {**MAPS, "d2t": {"dtype": "I32", "shape": [32000]}}}),
        ("drafter-map-shape", "broken_later", {"tensors": {**MAPS, "t2d": {"dtype": "BOOL", "shape": [32000]}}}),
        # B35: a token map with EAGLE3
        ("token-map-eagle3", "ignored", {"speculative_token_map": "/map.pt"}),
        # B38, B16: the drafter would be read as if it were quantized like the target
        ("draft-quantization-inherited", "broken_later", {"quantization": "modelopt_fp4"}),
        # B43: a drafter with a shorter context
        ("drafter-context", "broken_later", {"config": {**LLAMA, "max_position_embeddings": 4096}}),
        ("draft-backend-unknown", "broken_later", {"speculative_draft_attention_backend": "bogus"}),
        ("accept-threshold-range", "harmful", {"speculative_accept_threshold_single": 2.0}),
        ("kv-fp8-int4", "harmful", {"gpu": "rtx_pro_6000_blackwell", "kv_cache_dtype": "fp8_e4m3"}),
        ("remote-code", "broken_later", {"trust_remote_code": False}),
        ("gpus-too-few", "broken_later", {"tp_size": 16}),
        ("amd-heads", "broken_later", {"gpu": "mi300x"}),
        # B08: topk above 1 on an MLA backend of flashinfer
        (
            "spec-topk-draft-backend",
            "broken_later",
            {"attention_backend": "flashinfer", "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8},
        ),
        # B13: EAGLE3 without a drafter
        ("drafter-missing", "broken_later", {"speculative_draft_model_path": None}),
        # B04: fewer draft tokens than steps + 1
        ("spec-tree-unused", "harmful", {"speculative_eagle_topk": 2, "speculative_num_draft_tokens": 3}),
        # B24, B01, B02: partial numbers
        ("spec-steps-missing", "refused", {"speculative_num_steps": None}),
    ],
)
def test_each_rule_on_its_case(rule: str, outcome: str, case: dict[str, Any]) -> None:
    judged = report(**case)
    assert found(judged).get(rule) == outcome
    (finding,) = [one for one in judged.findings if one.rule == rule][:1]
    assert "{" not in finding.message


@pytest.mark.parametrize(
    ("rule", "mended"),
    [
        ("draft-backend-inherited", {"gpu": "b200", "speculative_draft_attention_backend": "trtllm_mha"}),
        ("draft-backend-inherited", {"gpu": "b200", "config": MLA}),
        ("drafter-class-release", {"release": "0.5.12", "config": MLA}),
        ("drafter-class-release", {"release": "0.5.13", "config": MLA, "tensors": {"fc_norm.weight": {}}}),
        ("draft-quantization-inherited", {"quantization": "fp8", "speculative_draft_model_quantization": "unquant"}),
        ("draft-quantization-inherited", {"quantization": "fp8", "config": {**LLAMA, "quantization_config": {"a": 1}}}),
        (
            "drafter-context",
            {
                "config": {**LLAMA, "max_position_embeddings": 4096},
                "env": {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"},
            },
        ),
        ("drafter-context", {"config": {**LLAMA, "max_position_embeddings": 4096}, "context_length": 4096}),
        ("kv-fp8-int4", {"gpu": "h200", "kv_cache_dtype": "fp8_e4m3"}),
        ("gpus-too-few", {"tp_size": 16, "nnodes": 2}),
        ("amd-heads", {"gpu": "mi300x", "tp_size": 4}),
    ],
)
def test_what_mends_it_is_not_found_fault_with(rule: str, mended: dict[str, Any]) -> None:
    assert rule not in found(report(**mended))


def test_the_memory_of_one_gpu_is_counted_with_its_numbers() -> None:
    judged = report(gpu="rtx_pro_6000_blackwell", mem_fraction_static=0.94)
    assert judged.memory is not None
    # 595.2 GB over 8 ranks; latent attention keeps 576 values of 2 bytes in 61 layers, and in the drafter's one
    assert judged.memory.weights == 595204999341 // 8
    assert judged.memory.per_token == 62 * 576 * 2
    assert 200_000 < (judged.memory.tokens or 0) < 320_000
    assert "memory-too-small" not in found(judged)


def test_weights_that_do_not_fit_are_refused_with_the_sum() -> None:
    judged = report(gpu="rtx_pro_6000_blackwell", tp_size=4, mem_fraction_static=0.94)
    (finding,) = (one for one in judged.findings if one.rule == "memory-too-small")
    assert "138.6 GiB weights" in finding.message
    assert finding.remedy.set == {"tp_size": 8}


def test_without_sizes_there_is_no_sum() -> None:
    assert report(target=Model(config={"architectures": ["LlamaForCausalLM"]})).memory is None
    assert report(gpu="b200").memory is None, "the profile has no memory size"
