# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in for SGLang's compiled kernels: what EAGLE-3 with one branch (topk 1) calls on a CPU, in plain torch.

Signatures are those by which SGLang 0.5.19 calls its CPU kernels. All tensors are on the CPU. Every other name can be
imported and raises NotImplementedError when called.
"""

from inferops_cpu_standin.absent import absent_names
from inferops_cpu_standin.guard import refuse_gpu

refuse_gpu()

from sgl_kernel import _attention  # noqa: E402
from sgl_kernel._cache import (  # noqa: E402
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_bonus_tokens_cpu,
)
from sgl_kernel._tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu  # noqa: E402

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
]

_attention.register()
__getattr__ = absent_names(__name__)
