# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What the server accepts and should not: it starts, loads the weights, and then fails, or serves worse than without.

Most of these cost users a full load of the weights; each rule's source names the public report or the release it was
read in.
"""

from __future__ import annotations

from .backends import MAIN, prefill_and_decode
from .case import ALGORITHM, DRAFT_PATH, Case, facts
from .checks import oldest_in
from .findings import INVENTORY, Remedy

_DRAFT_BACKEND = "speculative_draft_attention_backend"
_DRAFT_QUANTIZATION = "speculative_draft_model_quantization"
_NO_DRAFTER = Remedy(remove=(DRAFT_PATH,))
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


def judge_accepted(case: Case) -> None:
    """Everything that the real argument handling lets through."""
    _gpus(case)
    _target_backend(case)
    _fp8_cache_of_int4_weights(case)
    _remote_code(case)
    if case.algorithm is None:
        return
    _thresholds(case)
    _token_map(case)
    if case.values[DRAFT_PATH] is None or case.algorithm == "NGRAM":
        return
    _draft_backend_name(case)
    _inherited_backend(case)
    _draft_quantization(case)
    _drafter_class(case)
    _drafter_shape(case)
    _draft_vocabulary(case)
    _draft_context(case)


# ---- the target and the machine -------------------------------------------------------------------


def _gpus(case: Case) -> None:
    values, gpu = case.values, case.gpu
    unknown = case.unusable.intersection(("tp_size", "pp_size", "nnodes"))
    if gpu is None or not gpu.count or values.get("device") == "cpu" or unknown:
        return
    ranks = values["tp_size"] * values["pp_size"]
    here = -(-ranks // max(values["nnodes"], 1))
    if here > gpu.count:
        keys = case.given_of(("tp_size", "pp_size", "nnodes")) or ["tp_size"]
        case.find("gpus-too-few", keys, Remedy({"tp_size": gpu.count, "pp_size": 1}), ranks=here, count=gpu.count)
    heads = case.target.text_config.get("num_attention_heads")
    if gpu.vendor == "amd" and case.is_mla and isinstance(heads, int) and heads // values["tp_size"] % 16 != 0:
        fitting = max((tp for tp in (1, 2, 4, 8) if heads // tp % 16 == 0), default=1)
        case.find("amd-heads", ["tp_size"], Remedy({"tp_size": fitting}), heads=heads, tp=values["tp_size"])


def _target_backend(case: Case) -> None:
    if case.gpu is not None and case.gpu.is_sm120 and "trtllm_mla" in prefill_and_decode(case):
        named = [key for key in case.values if key.endswith("attention_backend") and case.values[key] == "trtllm_mla"]
        case.find("trtllm-mla-sm120", case.given_of(named) or [MAIN], Remedy(remove=tuple(case.given_of(named))))


def _fp8_cache_of_int4_weights(case: Case) -> None:
    dtype = str(case.values["kv_cache_dtype"] or "")
    sm120 = case.gpu is not None and case.gpu.is_sm120
    if dtype.startswith("fp8") and sm120 and case.is_mla and case.target.weight_bits == 4:
        case.find("kv-fp8-int4", ["kv_cache_dtype"], Remedy(remove=("kv_cache_dtype",)), dtype=dtype)


def _remote_code(case: Case) -> None:
    if case.target.config.get("auto_map") and not case.values["trust_remote_code"]:
        case.find(
            "remote-code", case.given_of(["trust_remote_code"]) or ["model_path"], Remedy({"trust_remote_code": True})
        )


# ---- speculation ------------------------------------------------------------------------------------


def _thresholds(case: Case) -> None:
    for key in case.given_of(_THRESHOLDS):
        if not 0 <= case.values[key] <= 1:
            case.find("accept-threshold-range", [key], Remedy(remove=(key,)), value=case.values[key])


def _token_map(case: Case) -> None:
    if case.algorithm == "EAGLE3" and case.get("speculative_token_map"):
        case.find("token-map-eagle3", ["speculative_token_map"], Remedy(remove=("speculative_token_map",)))


def _draft_backend_name(case: Case) -> None:
    backend = case.get(_DRAFT_BACKEND)
    flag = case.table.find(MAIN)
    if backend is not None and flag is not None and flag.choices and backend not in flag.choices:
        case.find(
            "draft-backend-unknown", [_DRAFT_BACKEND], Remedy(remove=(_DRAFT_BACKEND,)), known=", ".join(flag.choices)
        )


def _inherited_backend(case: Case) -> None:
    """A drafter without latent attention inherits the target's backend, which can be one for latent attention only."""
    drafter = case.drafter.architecture
    if (
        drafter is None
        or drafter in facts()["mla_drafters"]
        or case.get(_DRAFT_BACKEND)
        or _DRAFT_BACKEND not in case.values
    ):
        return
    backend = prefill_and_decode(case)[1]
    if backend in facts()["mla_only_backends"] and case.is_mla and case.gpu is not None:
        own = "trtllm_mha" if case.gpu.is_sm100 else "fa3" if case.gpu.is_hopper else "triton"
        case.find(
            "draft-backend-inherited",
            case.given_of((MAIN, "decode_attention_backend")) or [ALGORITHM],
            Remedy({_DRAFT_BACKEND: own}),
            architecture=drafter,
            backend=backend,
        )


def _draft_quantization(case: Case) -> None:
    given = case.given("quantization") and case.values["quantization"] is not None
    plain = bool(case.drafter.config) and case.drafter.is_whole and not case.drafter.config.get("quantization_config")
    if given and plain and not case.given(_DRAFT_QUANTIZATION) and _DRAFT_QUANTIZATION in case.values:
        case.find(
            "draft-quantization-inherited",
            ["quantization"],
            Remedy({_DRAFT_QUANTIZATION: "unquant"}),
            quantization=case.values["quantization"],
        )


# ---- the drafter against the target and the release ---------------------------------------------------


def _drafter_class(case: Case) -> None:
    drafter, target = case.drafter.architecture, case.target.architecture
    if drafter is None or case.algorithm != "EAGLE3":
        return
    if drafter not in facts()["eagle3_architectures"]:
        case.find("drafter-no-eagle3", [DRAFT_PATH], _NO_DRAFTER, architecture=drafter)
        return
    needs = [facts()["drafter_releases"].get(drafter), facts()["eagle3_target_releases"].get(target)]
    if "fc_norm.weight" in case.drafter.tensors:
        needs.append(facts()["fc_norm_releases"].get(drafter))
    for since in needs:
        if since is not None and not case.holds(since) and not case.drafter.minimum_release:
            newer = Remedy({"sglang_engine_version": oldest_in(since)}, variable=INVENTORY)
            case.find("drafter-class-release", [DRAFT_PATH], newer, architecture=drafter, target=target, since=since)


def _drafter_shape(case: Case) -> None:
    if case.algorithm not in ("EAGLE", "EAGLE3") or case.values[DRAFT_PATH] == case.values["model_path"]:
        return
    drafter, target = case.drafter.text_config, case.target.text_config
    hidden = drafter.get("target_hidden_size") or drafter.get("hidden_size")
    if hidden and target.get("hidden_size") and hidden != target["hidden_size"]:
        case.find("drafter-hidden-size", [DRAFT_PATH], _NO_DRAFTER, drafter=hidden, target=target["hidden_size"])
    words, target_words = drafter.get("vocab_size"), target.get("vocab_size")
    if words and target_words and words != target_words:
        case.find("drafter-vocabulary", [DRAFT_PATH], _NO_DRAFTER, drafter=words, target=target_words)


def _draft_vocabulary(case: Case) -> None:
    """A reduced draft vocabulary needs its map back to the target's words in the checkpoint."""
    config, tensors = case.drafter.text_config, case.drafter.tensors
    reduced, whole = config.get("draft_vocab_size"), config.get("vocab_size")
    if not tensors or not reduced or not whole or reduced >= whole:
        return
    if "d2t" not in tensors:
        case.find("drafter-without-d2t", [DRAFT_PATH], _NO_DRAFTER, reduced=reduced, whole=whole)
        return
    for name, dtype, length in (("d2t", "I64", reduced), ("t2d", "BOOL", whole)):
        tensor = tensors.get(name)
        if tensor is not None and (tensor.get("dtype") != dtype or list(tensor.get("shape", ())) != [length]):
            shown = f"{tensor.get('dtype')} {tensor.get('shape')}"
            case.find(
                "drafter-map-shape", [DRAFT_PATH], _NO_DRAFTER, name=name, shown=shown, dtype=dtype, length=length
            )


def _draft_context(case: Case) -> None:
    length = case.values.get("context_length") or case.target.context_length
    derived = case.drafter.context_length
    allowed = case.env_flag("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", False)
    own = case.values[DRAFT_PATH] == case.values["model_path"]
    if length and derived and length > derived and not allowed and not own:
        keys = case.given_of(["context_length"]) or [DRAFT_PATH]
        case.find("drafter-context", keys, Remedy({"context_length": derived}), length=length, derived=derived)
