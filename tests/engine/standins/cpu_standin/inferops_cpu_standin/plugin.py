# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang plugin (entry point group ``sglang.srt.plugins``), run in every process before arguments are resolved."""

from __future__ import annotations

from inferops_cpu_standin.guard import refuse_gpu


def activate() -> None:
    """Let SGLang choose the attention backend whose two operators the stand-in has.

    :raises RuntimeError: the host has a GPU. SGLang logs that and goes on; ``import sgl_kernel`` then ends it.
    """
    refuse_gpu()
    import torch
    from sglang.srt.runtime_context import override_platform

    # EAGLE on a CPU exists for the intel_amx backend only, which SGLang replaces on a CPU without AMX.
    override_platform(has_amx=True).install()
    # The MLA drafter (kimi_k25_eagle3.py) calls both after loading its weights, whatever the device.
    torch.cuda.synchronize = _nothing
    torch.cuda.empty_cache = _nothing


def _nothing(*_arguments: object) -> None:
    """There is no CUDA device."""
