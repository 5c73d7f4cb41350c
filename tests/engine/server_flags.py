# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags and environment with which SGLang 0.5.19 serves the tiny models on a CPU.

Keys are SGLang's own flag names, as in ``sglang_server_args`` and ``sglang_server_env`` of an inventory.
"""

from __future__ import annotations

import typing as t

SERVER_ARGS: dict[str, t.Any] = {
    "device": "cpu",
    # The only CPU backend with EAGLE; the stand-in has its two operators.
    "attention_backend": "intel_amx",
    "disable_cuda_graph": True,
    # Without it SGLang takes most of the machine's memory for the key-value cache.
    "max_total_tokens": 4096,
    "max_running_requests": 8,
    "mem_fraction_static": 0.3,
    "enable_metrics": True,
    # Speculation's figures appear after this many decode steps; SGLang's own 40 is long for a test.
    "decode_log_interval": 5,
}

SERVER_ENV: dict[str, str] = {
    "SGLANG_USE_CPU_ENGINE": "1",
    # More threads than cores cost seconds per answer with models of this size.
    "OMP_NUM_THREADS": "1",
    # The compiler would take longer than everything it speeds up here.
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}

# The greatest acceptance length is steps + 1.
ONE_GUESS: dict[str, t.Any] = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 1,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 2,
}
THREE_GUESSES: dict[str, t.Any] = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
