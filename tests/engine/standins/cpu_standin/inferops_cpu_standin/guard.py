# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in kernels on a GPU host would serve a real model wrongly and slowly, so there they do not load."""

from __future__ import annotations

import glob

TRACES = ("/dev/nvidia*", "/proc/driver/nvidia")


def refuse_gpu() -> None:
    """Do nothing on a host without an NVIDIA GPU.

    :raises RuntimeError: the host has one.
    """
    found = sorted(path for trace in TRACES for path in glob.glob(trace))
    if found:
        raise RuntimeError(
            f"This environment holds stand-in kernels for machines without a GPU, and {found[0]} says that this one "
            "has a GPU. Install the engine from a lock without stand-ins."
        )
