# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The draft tree, which with one branch is a chain of D tokens: the last verified one and D - 1 guesses."""

from __future__ import annotations

import torch

# sglang.srt.speculative.eagle_utils.TreeMaskMode.QLEN_ONLY, which SGLang uses on a CPU
_MASK_OF_DRAFT_ONLY = 1


def build_tree_kernel_efficient_cpu(
    _parent_list: torch.Tensor,
    _selected_index: torch.Tensor,
    seq_lens: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    topk: int,
    _depth: int,
    draft_tokens: int,
    mask_mode: int,
) -> None:
    """Fill the chain's mask [batch, D, D], positions [batch * D] and links [batch, D]; -1 ends a link.

    :raises NotImplementedError: ``topk`` is not 1, or the mask is to cover more than the draft.
    """
    if topk != 1 or int(mask_mode) != _MASK_OF_DRAFT_ONLY:
        raise NotImplementedError("the CPU stand-in drafts one branch (speculative_eagle_topk 1)")
    batch = seq_lens.numel()
    steps = torch.arange(draft_tokens)
    positions.copy_((seq_lens.view(-1, 1) + steps).reshape(-1))
    retrieve_index.copy_(steps + torch.arange(batch).view(-1, 1) * draft_tokens)
    retrieve_next_token.copy_(torch.cat([steps[1:], torch.tensor([-1])]).expand(batch, -1))
    retrieve_next_sibling.fill_(-1)
    causal = torch.ones(draft_tokens, draft_tokens, dtype=torch.bool).tril()
    tree_mask.view(batch, draft_tokens, draft_tokens).copy_(causal.expand(batch, -1, -1))


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Accept each request's guesses while they are what the target says; the target's own token follows them.

    ``candidates`` [batch, D] are the chain's tokens and ``target_predict`` [batch * D] the target's token after each.
    Writes ``predicts`` [batch * D], ``accept_index`` [batch, most accepted + 1] and ``accept_token_num`` [batch].
    """
    wanted = target_predict.reshape(-1)
    for request in range(accept_index.shape[0]):
        at = 0
        last = int(retrive_index[request, 0])
        accept_index[request, 0] = last
        accepted = 0
        while accepted + 1 < accept_index.shape[1]:
            at = int(retrive_next_token[request, at])
            while at != -1 and int(candidates[request, at]) != int(wanted[last]):
                at = int(retrive_next_sibling[request, at])
            if at == -1:
                break
            predicts[last] = wanted[last]
            last = int(retrive_index[request, at])
            accepted += 1
            accept_index[request, accepted] = last
        accept_token_num[request] = accepted
        predicts[last] = wanted[last]
