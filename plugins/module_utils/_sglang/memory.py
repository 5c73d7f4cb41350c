# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The memory of one GPU: weights, drafter, and what is left for the KV cache. All sizes in bytes.

An estimate from file sizes: weights are spread evenly over tensor- and pipeline-parallel ranks, the drafter is counted
whole on every rank, and latent attention's cache is held by every rank.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .case import Case
from .findings import Remedy
from .hardware import Gpu
from .models import Model

_GIB = 2**30
#: What no GPU holds yet. Asked where a GPU's own memory is not known.
_LARGEST_GPU = 288 * _GIB
_ELEMENT = {"fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp4_e2m1": 0.5}


@dataclasses.dataclass(frozen=True)
class Memory:
    """One GPU's memory. ``tokens`` is what the KV cache holds, None where its size per token is not known."""

    total: int
    static: int
    weights: int
    drafter: int
    cache: int
    per_token: int | None

    @property
    def tokens(self) -> int | None:
        return self.cache // self.per_token if self.per_token else None

    def __str__(self) -> str:
        parts = [
            f"{self.static / _GIB:.1f} GiB of {self.total / _GIB:.1f} GiB for the server",
            f"{self.weights / _GIB:.1f} GiB weights",
        ]
        if self.drafter:
            parts.append(f"{self.drafter / _GIB:.1f} GiB drafter")
        parts.append(f"{self.cache / _GIB:.1f} GiB left for the KV cache")
        if self.tokens is not None and self.cache > 0:
            parts.append(f"about {self.tokens // 1000 * 1000:,} tokens at {self.per_token:,} bytes")
        return ", ".join(parts)


def memory_of(case: Case) -> Memory | None:
    """The sum for one GPU, None where a size is not known. Finds fault with one that does not fit."""
    gpu, target = case.gpu, case.target
    unknown = case.unusable.intersection(("tp_size", "pp_size", "mem_fraction_static"))
    if gpu is None or gpu.memory_mib is None or target.total_size is None or unknown:
        return None
    values = case.values
    total = gpu.memory_mib * 2**20
    # where no fraction is given the server computes one; then only the whole memory is a bound
    fraction = values["mem_fraction_static"] if values["mem_fraction_static"] is not None else 1.0
    weights = target.total_size // max(values["tp_size"] * values["pp_size"], 1)
    drafter = case.drafter.total_size or 0 if case.algorithm else 0
    static = int(total * min(max(fraction, 0.0), 1.0))
    memory = Memory(total, static, weights, drafter, static - weights - drafter, _per_token(case))
    if memory.cache <= 0:
        keys = case.given_of(("tp_size", "pp_size", "mem_fraction_static")) or ["tp_size"]
        case.find("memory-too-small", keys, _more_ranks(case, weights + drafter, static), sum=str(memory))
    return memory


def ranks_of_one_host(target: Model, gpu: Gpu | None) -> int | None:
    """The tp_size for a target that no single GPU of the host holds: all of them, as far as its heads divide.

    None where one GPU may do, or where a size is not known: then SGLang's own default stands.
    """
    if gpu is None or not gpu.count or target.total_size is None:
        return None
    memory = _LARGEST_GPU if gpu.memory_mib is None else gpu.memory_mib * 2**20
    if target.total_size < memory:
        return None
    heads = target.text_config.get("num_attention_heads")
    # latent attention on AMD wants 16 heads on every rank (rule amd-heads)
    each = 16 if gpu.vendor == "amd" and target.text_config.get("kv_lora_rank") else 1
    fitting = [count for count in (8, 4, 2) if not isinstance(heads, int) or heads % (count * each) == 0]
    return next((count for count in fitting if count <= gpu.count), None)


def _more_ranks(case: Case, needed: int, static: int) -> Remedy:
    count = case.gpu.count if case.gpu is not None else None
    if count and case.values["tp_size"] < count:
        return Remedy({"tp_size": count})
    return (
        Remedy({"mem_fraction_static": 0.9})
        if needed < static / max(case.values["mem_fraction_static"] or 1, 0.01)
        else Remedy()
    )


def _per_token(case: Case) -> int | None:
    """KV cache of one token on one GPU: latent attention's vector of every layer, else keys and values of its heads."""
    config = case.target.text_config
    layers = config.get("num_hidden_layers")
    element = _ELEMENT.get(str(case.values["kv_cache_dtype"]), 2.0)
    width: t.Any = None
    if case.is_mla and config.get("kv_lora_rank"):
        width = config["kv_lora_rank"] + config.get("qk_rope_head_dim", 0)
    elif config.get("num_key_value_heads") and config.get("head_dim"):
        width = 2 * config["head_dim"] * max(config["num_key_value_heads"] // max(case.values["tp_size"], 1), 1)
    if not isinstance(layers, int) or not isinstance(width, int):
        return None
    extra = 1 if case.algorithm in ("EAGLE", "EAGLE3") else 0
    return int((layers + extra) * width * element)
