# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One way to run a module of the collection as Ansible does on a host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def run_module(
    name: str,
    arguments: Mapping[str, Any],
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> dict[str, Any]:
    """The result of a module, which writes nothing beside it and ends as it says.

    :param python: the host's.
    :param environment: variables besides those of the tests' own process, without proxies.
    :param timeout: seconds.
    """
    own = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        [python, str(ROOT / f"plugins/modules/{name}.py")],
        env={**own, "PYTHONPATH": str(ROOT / "collections"), **(environment or {})},
        input=json.dumps({"ANSIBLE_MODULE_ARGS": dict(arguments)}),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.stderr == ""
    result: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if result.get("failed") else 0)
    return result
