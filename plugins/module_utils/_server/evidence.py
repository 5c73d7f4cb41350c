# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What is kept of a release that failed, before anything is restored; values that may be secrets are not."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import tempfile
import typing as t
from pathlib import Path

from .release import Releases, utc_now, write

#: Shorter values (numbers, switches) are not searched for: they stand in any text.
_LEAST_LENGTH = 8
#: Seconds that one command may take.
_PATIENCE = 30.0
_KERNEL = "out of memory|oom-kill|oom_reaper|killed process|NVRM: Xid"


def collect(releases: Releases, number: int, unit: str, cause: str, more: t.Mapping[str, str]) -> Path:
    """Keep the evidence of a release that failed, in a directory of its own for root alone.

    :param more: further texts by the names of their files.
    :raises OSError: it cannot be written.
    :raises ValueError: the release cannot be read.
    """
    base = releases.home / "evidence"
    base.mkdir(mode=0o700, exist_ok=True)
    stamp = utc_now()
    folder = base / re.sub(r"[^0-9T]", "", stamp[:-6])
    folder.mkdir(mode=0o700)
    hidden = releases.content(number).hidden()
    facts = {"time": stamp, "release": number, "unit": unit, "cause": without_values(cause, hidden)}
    write(folder / "cause.json", json.dumps(facts, indent=2) + "\n", 0o600)
    write(folder / "plan.json", (releases.folder(number) / "plan.json").read_text(encoding="utf-8"), 0o600)
    write(folder / "unit", releases.unit(number), 0o600)
    for name, text in {**_told(unit, releases.note(number, "begun")), **more}.items():
        write(folder / name, without_values(text, hidden), 0o600)
    return folder


def _told(unit: str, begun: t.Mapping[str, t.Any] | None) -> dict[str, str]:
    """What the machine says of a unit since its start; nothing of one that was not started."""
    if begun is None:
        return {}
    since = f"--since=@{datetime.datetime.fromisoformat(begun['time']).timestamp():.0f}"
    journal = ["journalctl", "--no-pager", "--quiet", "--output=short-iso-precise", since]
    commands = {
        "journal.txt": [*journal, f"--unit={unit}"],
        "status.txt": ["systemctl", "status", "--no-pager", "--full", "--lines=50", unit],
        "show.txt": ["systemctl", "show", unit],
        "kernel.txt": [*journal, "--dmesg", f"--grep={_KERNEL}", "--case-sensitive=no"],
        "nvidia-smi.txt": ["nvidia-smi"],
    }
    told = {name: _output(command) for name, command in commands.items()}
    return {name: text for name, text in told.items() if text is not None}


def _output(command: list[str]) -> str | None:
    """What a command says, None where there is no such program.

    The service is down meanwhile, and with a GPU that is gone nvidia-smi may wait for ever and cannot even be killed:
    after a while nobody waits for it.
    """
    with tempfile.TemporaryFile() as output:
        try:
            # run_command waits for ever
            process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError:
            return None
        note = ""
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            note = f"\n{' '.join(command)}: had not ended after {_PATIENCE:g} s\n"
        output.seek(0)
        return output.read().decode(errors="replace") + note


def last(home: Path) -> dict[str, t.Any] | None:
    """The cause that was kept last, with ``path``; None where nothing failed yet."""
    try:
        folder = max((home / "evidence").iterdir())
        cause: dict[str, t.Any] = json.loads((folder / "cause.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return {**cause, "path": os.fspath(folder)}


def without_values(text: str, hidden: t.Mapping[str, str]) -> str:
    """A text in which values are replaced by their names, but for the shortest."""
    for name, value in hidden.items():
        if len(value) >= _LEAST_LENGTH:
            text = text.replace(value, f"[the value of {name}]")
    return text
