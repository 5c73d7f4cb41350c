# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""An engine lock: exact versions and hashes of one SGLang environment, in a folder of two files.

``requirements.txt`` holds the pins, ``lock.json`` what they are for. The digest over both names the environment on
the hosts, so that another lock is another environment and never an edit of a running one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os

from .._sglang.data_files import data_path

FORMAT = 1
_REQUIREMENTS = "requirements.txt"
_FACTS = "lock.json"


class EngineLockProblem(ValueError):
    """The lock is not there or cannot be used. The text says which file and why."""


@dataclasses.dataclass(frozen=True)
class EngineLock:
    """One lock. ``digest`` is the first 12 hex digits of sha256 over both files."""

    folder: str
    sglang: str
    python: str
    platform: str
    stand_ins: bool
    digest: str


def shipped_locks() -> list[str]:
    """Names of the locks that come with the collection."""
    folder = data_path("engines")
    return sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))


def engine_lock_folder(name: str, base: str | None) -> str:
    """A lock's folder: a shipped lock by its name, any other by its path, relative paths from ``base``."""
    if os.sep not in name:
        return data_path("engines", name)
    return os.path.normpath(os.path.join(base or "", os.path.expanduser(name)))


def read_engine_lock(folder: str) -> EngineLock:
    """Read a lock.

    :raises EngineLockProblem: a file is missing or unreadable, or lock.json lacks a field.
    """
    if not os.path.isdir(folder):
        raise EngineLockProblem(f"there is no folder {folder}; shipped are {', '.join(shipped_locks())}")
    try:
        with open(os.path.join(folder, _REQUIREMENTS), "rb") as stream:
            requirements = stream.read()
        with open(os.path.join(folder, _FACTS), "rb") as stream:
            written = stream.read()
    except OSError as exc:
        raise EngineLockProblem(f"{exc.filename}: {exc.strerror}") from exc
    try:
        facts = json.loads(written)
        fields = {key: facts[key] for key in ("sglang", "python", "platform", "stand_ins")}
        supported = facts["format"] == FORMAT
    except (ValueError, KeyError, TypeError) as exc:
        raise EngineLockProblem(f"{os.path.join(folder, _FACTS)} is no engine lock ({exc!r})") from exc
    if not supported:
        raise EngineLockProblem(
            f"{os.path.join(folder, _FACTS)} has format {facts['format']}, this release reads {FORMAT}"
        )
    digest = hashlib.sha256(requirements + b"\0" + written).hexdigest()[:12]
    return EngineLock(folder=folder, digest=digest, **fields)
