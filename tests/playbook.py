# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One way to run ansible-playbook, as an operator does in a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: The program beside the interpreter that runs the tests.
PROGRAM = str(Path(sys.executable).parent / "ansible-playbook")


def run_playbook(
    *words: str | Path,
    environment: Mapping[str, str] | None = None,
    proxies: bool = True,
    timeout: float = 120,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a playbook to its end, whatever that is.

    :param words: options and playbooks; relative paths start in the checkout.
    :param environment: variables besides those of the tests' own process.
    :param proxies: whether it hears of proxies; false where servers of the test itself are asked.
    :param timeout: seconds.
    :param options: of subprocess.run; both outputs are kept apart unless said otherwise.
    """
    own = {name: value for name, value in os.environ.items() if proxies or "proxy" not in name.lower()}
    return subprocess.run(
        [PROGRAM, *map(str, words)],
        env={**own, "ANSIBLE_NOCOLOR": "1", **(environment or {})},
        text=True,
        timeout=timeout,
        check=False,
        **{"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )
