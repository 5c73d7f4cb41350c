# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One role played on the controller itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.playbook import run_playbook

ROOT = Path(__file__).resolve().parents[3]


def play_role(
    folder: Path, role: str, variables: dict[str, Any], *options: str, tasks_from: str = "main"
) -> subprocess.CompletedProcess[str]:
    """Run a playbook with one role on localhost; everything temporary goes into the folder."""
    task = {"ansible.builtin.import_role": {"name": f"inferops.serving.{role}", "tasks_from": tasks_from}}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [task]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "vars.json").write_text(json.dumps(variables))
    return run_playbook(
        "--inventory=localhost,",
        "--connection=local",
        f"--extra-vars=@{folder}/vars.json",
        f"--extra-vars=ansible_python_interpreter={sys.executable}",
        *options,
        folder / "play.yml",
        environment={
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "ANSIBLE_REMOTE_TEMP": str(folder / "tmp"),
        },
        proxies=False,
    )
