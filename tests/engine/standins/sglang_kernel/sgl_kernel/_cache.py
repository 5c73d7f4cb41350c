# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which key-value cache slots belong to which request.

``req_to_token`` int32 [requests, longest context] maps a request's position to its cache slot. ``rows`` int64 [batch]
are the batch's rows in it. ``start`` and ``end`` [batch] bound the positions meant, ``end`` exclusive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import torch


def assign_req_to_token_pool_cpu(
    rows: torch.Tensor,
    req_to_token: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
    slots: torch.Tensor,
    _pool_len: int,
) -> None:
    """Write ``slots`` [sum(end - start)] into the table, request after request."""
    for row, first, last, offset in _spans(rows, start, end):
        req_to_token[row, first:last] = slots[offset : offset + last - first].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    rows: torch.Tensor,
    req_to_token: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
    slots: torch.Tensor,
    _pool_len: int,
) -> None:
    """Read the table into ``slots`` [sum(end - start)], request after request."""
    for row, first, last, offset in _spans(rows, start, end):
        slots[offset : offset + last - first] = req_to_token[row, first:last].to(slots.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    rows: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    slots: torch.Tensor,
    _pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the ``topk * num_steps`` slots after each request's sequence into ``slots`` [batch * topk * num_steps]."""
    assign_extend_cache_locs_cpu(rows, req_to_token, seq_lens, seq_lens + topk * num_steps, slots, _pool_len)


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    rows: torch.Tensor,
    _seq_lens: torch.Tensor,
    topk: int,
    _num_steps: int,
    _pool_len: int,
) -> torch.Tensor:
    """The table of the drafter's branches, [batch * topk, longest context]. One branch: its request's own row.

    :raises NotImplementedError: ``topk`` is not 1.
    """
    if topk != 1:
        raise NotImplementedError("the CPU stand-in drafts one branch (speculative_eagle_topk 1)")
    return req_to_token[rows.long()].clone()


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor, accept_lens: torch.Tensor, bonus_tokens: torch.Tensor, accept_stride: int
) -> None:
    """Each request's last accepted token, from ``accept_tokens`` [batch * accept_stride] into ``bonus_tokens``."""
    ends = torch.arange(accept_lens.numel()) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.reshape(-1)[ends].to(bonus_tokens.dtype))


def copy_all_layer_kv_cache_cpu(
    addresses: torch.Tensor, strides: torch.Tensor, targets: torch.Tensor, sources: torch.Tensor
) -> None:
    """Copy cache slots within every layer's buffer.

    ``addresses`` int64 [buffers] are where the buffers begin, ``strides`` int64 [buffers] the bytes of a slot;
    ``targets`` and ``sources`` [slots] may overlap, hence all is read before anything is written.
    """
    moves = [(new, old) for new, old in zip(targets.tolist(), sources.tolist()) if new != old]
    for address, stride in zip(addresses.tolist(), strides.tolist()):
        contents = [ctypes.string_at(address + old * stride, stride) for _new, old in moves]
        for (new, _old), content in zip(moves, contents):
            ctypes.memmove(address + new * stride, content, stride)


def _spans(rows: torch.Tensor, start: torch.Tensor, end: torch.Tensor) -> Iterator[tuple[int, int, int, int]]:
    """``(row, first, last, offset)`` per request, ``offset`` being where it begins in the packed slots."""
    offset = 0
    for row, first, last in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        yield row, first, last, offset
        offset += last - first
