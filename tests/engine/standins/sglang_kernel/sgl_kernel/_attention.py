# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two attention operators of SGLang's ``intel_amx`` backend, one request at a time.

``keys`` and ``values`` are the whole cache, [slots, heads, size]; ``req_to_token`` [requests, longest context] and
``rows`` [batch] lead to a request's slots. Queries and outputs are [tokens, heads, size]. Both write ``output`` and
return nothing.
"""

from __future__ import annotations

import torch


def register() -> None:
    """Put the operators where SGLang looks for them."""
    # Not through torch.library: a schema would have to repeat upstream's, and nothing here is compiled or traced.
    torch.ops.sgl_kernel.extend_attention_cpu = extend_attention
    torch.ops.sgl_kernel.decode_attention_cpu = decode_attention


def extend_attention(
    query: torch.Tensor,
    new_keys: torch.Tensor | None,
    new_values: torch.Tensor | None,
    output: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    req_to_token: torch.Tensor,
    rows: torch.Tensor,
    seq_lens: torch.Tensor,
    new_lens: torch.Tensor,
    new_starts: torch.Tensor,
    _max_new_len: int,
    scale: float,
    logit_cap: float,
    _cross_attention: bool,
    _window: int,
    _encoder_lens: torch.Tensor | None,
    _sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    causal: bool,
) -> None:
    """Attention of each request's new tokens to its whole sequence; their keys are in the cache already.

    :raises NotImplementedError: a tree mask is given, which one branch never needs.
    """
    if tree_mask is not None:
        raise NotImplementedError("the CPU stand-in verifies one branch (speculative_eagle_topk 1)")
    spans = zip(rows.tolist(), seq_lens.tolist(), new_lens.tolist(), new_starts.tolist(), strict=True)
    for row, length, count, start in spans:
        if count == 0:
            continue
        mine = slice(start, start + count)
        before = length - count
        mask = torch.ones(count, length, dtype=torch.bool)
        if causal:
            mask = mask.tril(before)
        if before == 0 and new_keys is not None and new_values is not None:
            # At prefill MLA attends to expanded keys; its cache holds the compressed ones.
            own_keys = new_keys[mine].view(count, -1, query.shape[-1])
            own_values = new_values[mine].view(count, -1, output.shape[-1])
        else:
            slots = req_to_token[row, :length].long()
            own_keys, own_values = keys[slots], values[slots]
        output[mine] = _attend(query[mine], own_keys, own_values, mask, scale, logit_cap).to(output.dtype)


def decode_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    output: torch.Tensor,
    new_keys: torch.Tensor | None,
    new_values: torch.Tensor | None,
    new_slots: torch.Tensor,
    _logits: torch.Tensor,
    req_to_token: torch.Tensor,
    rows: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    logit_cap: float,
    _cross_attention: bool,
    _window: int,
    _encoder_lens: torch.Tensor | None,
    _sinks: torch.Tensor | None,
) -> None:
    """Attention of each request's one new token to its whole sequence, after its key went into the cache."""
    if new_keys is not None and new_values is not None:
        keys[new_slots.long()] = new_keys.reshape(-1, *keys.shape[1:]).to(keys.dtype)
        values[new_slots.long()] = new_values.reshape(-1, *values.shape[1:]).to(values.dtype)
    for request, (row, length) in enumerate(zip(rows.tolist(), seq_lens.tolist(), strict=True)):
        slots = req_to_token[row, :length].long()
        mask = torch.ones(1, length, dtype=torch.bool)
        mine = slice(request, request + 1)
        output[mine] = _attend(query[mine], keys[slots], values[slots], mask, scale, logit_cap).to(output.dtype)


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    logit_cap: float,
) -> torch.Tensor:
    """Softmax attention in float32: query [n, heads, d], keys and values [m, key heads, d], mask [n, m]."""
    share = query.shape[1] // keys.shape[1]
    keys = keys.float().repeat_interleave(share, dim=1)
    values = values.float().repeat_interleave(share, dim=1)
    scores = torch.einsum("nhd,mhd->hnm", query.float(), keys) * scale
    if logit_cap > 0:
        scores = torch.tanh(scores / logit_cap) * logit_cap
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
    return torch.einsum("hnm,mhd->nhd", weights, values)
