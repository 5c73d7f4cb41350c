# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real huggingface_hub, as tests/engine/hub_client.txt pins it, turned to a hub on the loopback."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent / "hub_client.txt"
CACHE = Path(os.environ.get("INFEROPS_CACHE", "/var/cache/inferops-serving"))


def make(cache: Path = CACHE) -> Path:
    """The environment, made when it is not there yet for these requirements and this Python.

    :returns: its directory of programs, with ``python`` and ``hf``.
    :raises subprocess.CalledProcessError: pip failed; its own words are on standard error.
    """
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    place = cache / f"hub-client-py{platform.python_version()}-{digest}"
    ready = place / ".ready"
    if not ready.exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        command = [str(place / "bin/python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        command += ["--require-hashes", "--only-binary=:all:", "-r", str(REQUIREMENTS)]
        subprocess.run(command, check=True)
        ready.touch()
    return place / "bin"


def environment(url: str, home: Path) -> dict[str, str]:
    """The client's environment: it asks this hub and nobody else, and keeps what it keeps in ``home``."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if "proxy" not in name.lower() and not name.startswith(("HF_", "HUGGING_FACE_", "PYTHON"))
    }
    return {
        **inherited,
        "HF_ENDPOINT": url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_XET": "1",
    }
