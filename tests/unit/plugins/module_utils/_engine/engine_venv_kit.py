# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A package called sglang of a few bytes, a wheelhouse, a lock of it, and the real uv under a version of our choice."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import sys
import zipfile
from pathlib import Path

VERSION = "9.1.2"
PYTHON = "{}.{}".format(*sys.version_info)
REAL_UV = Path(sys.executable).parent / "uv"


def wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: str | None = None) -> str:
    """Write a pure wheel and give its line for requirements.txt.

    :param files: content by path inside the wheel.
    """
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{_record_hash(text)},{len(text.encode())}\n" for path, text in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in content.items():
            entry = zipfile.ZipInfo(inside)
            entry.external_attr = (stat.S_IFREG | (0o755 if "/scripts/" in inside else 0o644)) << 16
            archive.writestr(entry, text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def _record_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def lock(folder: Path, requirements: str, *, sglang: str = VERSION, python: str = PYTHON) -> str:
    """Write an engine lock and give its digest, computed here once more from its definition."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = json.dumps({"format": 1, "sglang": sglang, "python": python, "platform": "any", "stand_ins": True})
    (folder / "requirements.txt").write_text(requirements)
    (folder / "lock.json").write_text(facts)
    return hashlib.sha256(requirements.encode() + b"\0" + facts.encode()).hexdigest()[:12]


def uv_script(version: str, before: str = "") -> str:
    """A uv that says ``version``, runs the shell lines ``before`` and then is the real one."""
    says = f'if [ "$1" = --version ]; then echo "uv {version} (test)"; exit; fi'
    return f'#!/bin/sh\n{says}\n{before}\nexec {REAL_UV} "$@"\n'


def place_uv(venv: Path, version: str, before: str = "") -> None:
    """Put such a uv where an earlier run would have installed it."""
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "bin/uv").write_text(uv_script(version, before))
    (venv / "bin/uv").chmod(0o755)
