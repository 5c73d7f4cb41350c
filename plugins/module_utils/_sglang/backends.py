# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The attention backends and the page size that the server resolves, and what it refuses of them."""

from __future__ import annotations

import typing as t

from .case import ALGORITHM, TOPK, Case, facts
from .findings import Remedy

BACKENDS = ("attention_backend", "decode_attention_backend", "prefill_attention_backend")
MAIN, DECODE, PREFILL = BACKENDS


def resolve_backends(case: Case) -> None:
    """Set attention_backend and page_size as the server does; both stay None where the tables do not know."""
    values = case.values
    if values[PREFILL] is not None and values[PREFILL] == values[DECODE]:
        values[MAIN] = values[PREFILL]
    if _is_latent_on_sm100(case) and not any(values[key] for key in BACKENDS):
        values[MAIN] = "trtllm_mla"
    # up to 0.5.11 the default was chosen first, and then judged as if it had been named
    early = case.holds(facts()["deterministic_before_default"])
    if early:
        _deterministic(case)
    if values[MAIN] is None:
        values[MAIN] = _default_backend(case)
    if not early:
        _deterministic(case)
    if values[MAIN] == "flex_attention" and case.algorithm:
        case.find("backend-flex-attention", [MAIN, ALGORITHM], Remedy(remove=(MAIN,)))
    if values[MAIN] == "fa4" and case.applies("backend-fa4-alone"):
        case.find("backend-fa4-alone", [MAIN], Remedy({PREFILL: "fa4"}, (MAIN,)))
    _accelerator(case)
    _page_size(case)
    if values[MAIN] == "fa3" and values["kv_cache_dtype"] == "fp8_e5m2":
        values[MAIN] = "triton"


def _deterministic(case: Case) -> None:
    """Deterministic inference chooses its own default, and takes few backends."""
    if not case.get("enable_deterministic_inference"):
        return
    deepseek = case.target.architecture in facts()["deterministic_deepseek"]
    able = _of_release(case, "deterministic_backends")
    radix = _of_release(case, "deterministic_radix_backends")
    if case.values[MAIN] is not None:
        if case.values[MAIN] not in able:
            case.find("deterministic-backend", [MAIN], Remedy({MAIN: "triton"}), able=", ".join(able))
        elif deepseek and case.values[MAIN] not in radix:
            case.find("deterministic-latent-backend", [MAIN], Remedy({MAIN: "triton"}), able=", ".join(radix))
    elif case.gpu is not None and case.gpu.compute_capability is not None and case.target.architecture is not None:
        newer = "triton" if deepseek else "flashinfer"
        case.values[MAIN] = newer if case.gpu.is_sm100 or case.gpu.is_sm120 else "fa3"
    # up to 0.5.11 it was switched off too late for any check to see it
    if case.values[MAIN] not in (None, *radix) and case.holds(facts()["deterministic_before_default"]):
        case.values["disable_radix_cache"] = True


def _of_release(case: Case, fact: str) -> list[str]:
    return next(row["backends"] for row in facts()[fact] if case.holds(row["releases"]))


def _is_latent_on_sm100(case: Case) -> bool:
    since = facts()["sm100_trtllm_mla"].get(case.target.architecture)
    return since is not None and case.holds(since) and case.gpu is not None and case.gpu.is_sm100


def _default_backend(case: Case) -> str | None:
    """The backend that the server picks when none is named (0.5.5-0.5.23, recorded; SM100 read)."""
    gpu = case.gpu
    if case.get("device") == "cpu":
        return "torch_native"
    if gpu is None or case.target.architecture is None or gpu.vendor != "nvidia" or gpu.compute_capability is None:
        return None
    if case.is_mla:
        if gpu.is_hopper:
            return "fa3"
        return "flashinfer" if gpu.is_sm100 else "triton"
    topk, page = case.values[TOPK], case.values["page_size"]
    one_chain = topk is None or (topk == 1 and page in (None, 1))
    if gpu.is_hopper and one_chain:
        return "fa3"
    chain_anyway = case.algorithm in facts()["topk_one_algorithms"] and case.holds(facts()["topk_one_known"])
    if gpu.is_sm100 and one_chain and (case.algorithm is None or topk is not None or chain_anyway):
        return "trtllm_mha"
    return "flashinfer"


def prefill_and_decode(case: Case) -> tuple[str | None, str | None]:
    """The backends of the two phases after resolution."""
    values = case.values
    return values[PREFILL] or values[MAIN], values[DECODE] or values[MAIN]


def _accelerator(case: Case) -> None:
    gpu = case.gpu
    if gpu is None or gpu.compute_capability is None:
        return
    named = _named(case, "trtllm_mla", (MAIN, DECODE))
    if named and not (gpu.is_sm100 or gpu.is_sm120):
        case.find("backend-trtllm-mla-gpu", named, Remedy(remove=tuple(named)), gpu=gpu.name)
    elif named:
        able = next(row["dtypes"] for row in facts()["trtllm_mla_kv_dtypes"] if case.holds(row["releases"]))
        if case.values["kv_cache_dtype"] not in able:
            away = Remedy(remove=("kv_cache_dtype",))
            case.find("backend-trtllm-mla-kv", [*case.given_of(named), "kv_cache_dtype"], away, able=", ".join(able))
    prefill, decode = prefill_and_decode(case)
    named = _named(case, "trtllm_mha", BACKENDS)
    if not named:
        return
    if case.applies("backend-trtllm-mha-gpu"):
        if not gpu.is_sm100:
            case.find("backend-trtllm-mha-gpu", named, Remedy(remove=tuple(named)), gpu=gpu.name)
    elif prefill == "trtllm_mha" and case.applies("backend-trtllm-mha-prefill-gpu"):
        if not gpu.is_sm100:
            case.find("backend-trtllm-mha-prefill-gpu", named, Remedy(remove=tuple(named)), gpu=gpu.name)
    elif prefill == "trtllm_mha" and gpu.is_sm120 and case.values["kv_cache_dtype"] == "fp8_e4m3":
        case.find("backend-trtllm-mha-prefill-fp8", [*named, "kv_cache_dtype"], Remedy(remove=tuple(named)))
    if "trtllm_mha" in (prefill, decode) and not (gpu.is_hopper or gpu.is_sm100 or gpu.is_sm120):
        case.find("backend-trtllm-mha-old-gpu", named, Remedy(remove=tuple(named)), gpu=gpu.name)


def _named(case: Case, backend: str, keys: t.Sequence[str]) -> list[str]:
    return [key for key in keys if case.get(key) == backend]


def _page_size(case: Case) -> None:
    values = case.values
    if values["page_size"] is None:
        values["page_size"] = 1
    for backend, forced in facts()["forced_page_sizes"].items():
        keys = [MAIN, DECODE, *forced.get("also", [])]
        if case.holds(forced.get("draft_too", "<0")):
            keys.append("speculative_draft_attention_backend")
        if _named(case, backend, keys) and values["page_size"] not in forced["keeps"]:
            values["page_size"] = forced["becomes"]
    if _named(case, "fa4", _fa4_keys(case)) and not case.is_mla and case.target.architecture is not None:
        values["page_size"] = 128


def _fa4_keys(case: Case) -> t.Sequence[str]:
    """The flags by which fa4 forces pages of 128 on a target without latent attention."""
    sm100 = case.gpu is not None and case.gpu.is_sm100
    if case.holds(facts()["fa4_pages_anywhere"]):
        return [PREFILL]
    if not sm100:
        return []
    if case.holds(facts()["fa4_pages_prefill"]):
        return [PREFILL]
    return BACKENDS if (case.values[TOPK] or 0) <= 1 else []
