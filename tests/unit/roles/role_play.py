# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One role played on the controller itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]


def play_role(
    folder: Path, role: str, variables: dict[str, Any], *options: str, tasks_from: str = "main"
) -> subprocess.CompletedProcess[str]:
    """Run a playbook with one role on localhost; everything temporary goes into the folder."""
    task = {"ansible.builtin.import_role": {"name": f"inferops.serving.{role}", "tasks_from": tasks_from}}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [task]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "vars.json").write_text(json.dumps(variables))
    return subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "--inventory=localhost,",
            "--connection=local",
            f"--extra-vars=@{folder}/vars.json",
            f"--extra-vars=ansible_python_interpreter={sys.executable}",
            *options,
            str(folder / "play.yml"),
        ],
        cwd=ROOT,
        env={
            # servers of a test are on this machine
            **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "ANSIBLE_REMOTE_TEMP": str(folder / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
