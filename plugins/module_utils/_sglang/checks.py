# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What the server checks of the whole once everything is resolved, and what is known of the models beforehand."""

from __future__ import annotations

from .case import ALGORITHM, Case, facts
from .findings import INVENTORY, Remedy
from .flags import known_releases
from .versions import Release, ReleaseRange

_LORA_ALGORITHMS = ("EAGLE", "EAGLE3", "DFLASH", "DSPARK")


def check_models(case: Case) -> None:
    """What hangs on the checkpoints: met first, when their config.json is read."""
    model_type = case.target.config.get("model_type")
    since = facts()["model_types"].get(model_type) if isinstance(model_type, str) else None
    if since is not None and not case.holds(since):
        newer = Remedy({"sglang_engine_version": oldest_in(since)}, variable=INVENTORY)
        case.find("target-type-unknown", ["sglang_model_target"], newer, model_type=model_type, since=since)
    length, derived = case.values.get("context_length"), case.target.context_length
    allowed = case.env_flag("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", False)
    if length is not None and derived is not None and length > derived and not allowed:
        remedy = Remedy({"context_length": derived})
        case.find("context-length", ["context_length"], remedy, length=length, derived=derived)
    for model, rule, variable in (
        (case.target, "target-release", "sglang_model_target"),
        (case.drafter, "drafter-release", "sglang_model_drafter"),
    ):
        if model.minimum_release and case.release < Release.parse(model.minimum_release):
            newer = Remedy({"sglang_engine_version": model.minimum_release}, variable=INVENTORY)
            case.find(rule, [variable], newer, repo=model.repo, minimum=model.minimum_release)


def oldest_in(releases: str) -> str:
    """The oldest known release of a range."""
    bounds = ReleaseRange.parse(releases)
    return next(known for known in known_releases() if Release.parse(known) in bounds)


def resolve_parallel(case: Case) -> None:
    """Pipeline parallelism turns the overlap scheduler off; attention's data-parallel ranks divide tp_size."""
    values = case.values
    if values["pp_size"] > 1:
        values["disable_overlap_schedule"] = True
    if not case.attention_dp:
        return
    ranks = max(case.get("attn_dp_size") or 1, values["dp_size"])
    if values["tp_size"] % ranks != 0:
        keys = case.given_of(("tp_size", "dp_size", "attn_dp_size"))
        remedy = Remedy({"tp_size": ranks})
        case.find("dp-attention-tp", keys, remedy, tp=values["tp_size"], dp=ranks)


def check_resolved(case: Case) -> None:
    """The last look before processes are started (check_server_args)."""
    values = case.values
    if values["nnodes"] and (values["tp_size"] * values["pp_size"]) % values["nnodes"] != 0:
        case.find(
            "parallel-nodes",
            case.given_of(("tp_size", "pp_size", "nnodes")),
            Remedy({"nnodes": 1}),
            product=values["tp_size"] * values["pp_size"],
            nodes=values["nnodes"],
        )
    if values["pp_size"] > 1 and case.algorithm is not None:
        _pipeline(case)
    if values["dp_size"] > 1 and values["nnodes"] != 1 and (case.holds(">=0.5.22") or not case.attention_dp):
        case.find("parallel-dp-nodes", ["dp_size", "nnodes"], Remedy({"dp_size": 1}))
    _hierarchical_cache(case)
    _lora(case)
    _chunks_and_pages(case)
    _two_batch_overlap(case)


def _pipeline(case: Case) -> None:
    away = Remedy({"pp_size": 1})
    words = {"algorithm": case.algorithm}
    if case.applies("pipeline-speculation"):
        case.find("pipeline-speculation", ["pp_size", ALGORITHM], away, **words)
    elif case.algorithm == "DSPARK":
        return  # judged where DSPARK is resolved
    elif case.algorithm != "EAGLE" or case.get("enable_multi_layer_eagle"):
        case.find("pipeline-algorithm", ["pp_size", ALGORITHM], away, **words)
    elif case.env_flag("SGLANG_ENABLE_PP_SPEC", False):
        if case.get("disaggregation_mode") != "null" or case.get("speculative_adaptive") or case.attention_dp:
            case.find("pipeline-aggregated", ["pp_size", ALGORITHM], away, **words)
    elif case.get("disaggregation_mode") != "prefill":
        case.find("pipeline-prefill-only", ["pp_size", ALGORITHM], away, **words)


def _hierarchical_cache(case: Case) -> None:
    """It extends the radix cache, which a decode node and some deterministic backends go without."""
    if case.values["disaggregation_mode"] == "decode":
        case.values["disable_radix_cache"] = not case.get("disaggregation_decode_enable_radix_cache")
    if case.get("enable_hierarchical_cache") and case.values["disable_radix_cache"] and not case.get("dllm_algorithm"):
        reasons = ("disable_radix_cache", "disaggregation_mode", "enable_deterministic_inference")
        case.find(
            "hierarchical-cache-radix",
            ["enable_hierarchical_cache", *case.given_of(reasons)],
            Remedy(remove=("enable_hierarchical_cache",)),
        )


def _lora(case: Case) -> None:
    _lora_algorithm(case)
    size = ("max_lora_rank", "lora_target_modules")
    if case.get("enable_lora") and not case.get("lora_paths") and not all(case.get(key) for key in size):
        case.find("lora-size", ["enable_lora", *case.given_of(size)], Remedy(remove=("enable_lora",)))


def _lora_algorithm(case: Case) -> None:
    if not (case.get("enable_lora") or case.get("lora_paths")) or case.algorithm in (None, "NGRAM"):
        return
    if case.applies("lora-ngram-only"):
        case.find("lora-ngram-only", [ALGORITHM], Remedy(remove=(ALGORITHM,)), algorithm=case.algorithm)
    elif case.algorithm not in _LORA_ALGORITHMS:
        case.find("lora-algorithm", [ALGORITHM], Remedy(remove=(ALGORITHM,)), algorithm=case.algorithm)
    elif case.get("speculative_adaptive"):
        case.find("lora-adaptive", ["speculative_adaptive"], Remedy(remove=("speculative_adaptive",)))
    elif case.env_flag("SGLANG_ENABLE_OVERLAP_PLAN_STREAM", False):
        case.find(
            "lora-plan-stream",
            [ALGORITHM],
            Remedy(remove=("SGLANG_ENABLE_OVERLAP_PLAN_STREAM",), variable="sglang_server_env"),
        )


def _chunks_and_pages(case: Case) -> None:
    values = case.values
    page, chunk = values["page_size"], values["chunked_prefill_size"]
    if chunk is None and case.gpu is not None and case.gpu.memory_mib is not None:
        gib, rows = case.gpu.memory_mib / 1024, facts()["chunked_prefill"]
        chunk = next(row["size"] for row in rows if "below_gib" not in row or gib < row["below_gib"])
    if page is None or values["disaggregation_mode"] == "decode" or (chunk is not None and chunk <= 0):
        return
    # SGLang gives every amount of memory a chunk, so one that is not known here divides by zero as well
    if page == 0:
        case.find("page-size-zero", ["page_size"], Remedy({"page_size": 1}))
    elif chunk is not None and chunk % page != 0:
        case.find(
            "page-size-chunk",
            case.given_of(("page_size", "chunked_prefill_size")),
            Remedy({"page_size": 1}),
            page=page,
            chunk=chunk,
        )


def _two_batch_overlap(case: Case) -> None:
    if not case.get("enable_two_batch_overlap") or case.values["moe_a2a_backend"] != "none":
        return
    remedy = Remedy(remove=("enable_two_batch_overlap",))
    if case.applies("two-batch-overlap"):
        case.find("two-batch-overlap", ["enable_two_batch_overlap"], remedy)
    elif case.applies("two-batch-overlap-dp") and not case.attention_dp:
        case.find("two-batch-overlap-dp", ["enable_two_batch_overlap"], remedy)
