# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""One run at a time for each service: a file on the host that says which run is at work, and until when.

A run is many calls of modules, so no lock of the kernel can last as long. flock guards only the moment in which the
file is read and written. Each call holds the lock for as long as it may take and a while more, so that a run whose
controller is gone is in nobody's way for long.
"""

from __future__ import annotations

import fcntl
import json
import time
import typing as t
from pathlib import Path

Owner = t.Mapping[str, t.Any]
#: Seconds between two calls of one run, at most.
SLACK = 120


class Held(Exception):
    """Another run is at work. ``owner`` is what it wrote of itself."""

    def __init__(self, owner: Owner) -> None:
        left = max(owner.get("until", 0) - time.time(), 0)
        super().__init__(
            f"{owner.get('who', 'somebody')} changes this service since {owner.get('since', 'an unknown time')}; "
            f"if that run is dead, its lock ends in {left:.0f} s"
        )
        self.owner = owner


class RunLock:
    """The lock of one service, taken by the run with that id."""

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        self._run = run

    def take(self, seconds: float, over: str | None = None, **about: t.Any) -> None:
        """Hold the lock for so many seconds from now on, and SLACK; a run that holds it already holds it longer.

        :param over: the id of a run that is known to be dead.
        :param about: who the run is, for the others.
        :raises Held: another run holds it, and its time is not over.
        """
        with self._open() as stream:
            holder = _holder(stream)
            self._check(holder, over)
            mine = holder if holder.get("run") == self._run else {}
            _write(stream, {**mine, **about, "run": self._run, "until": time.time() + seconds + SLACK})

    def look(self, over: str | None = None) -> None:
        """Nothing, where :meth:`take` would succeed now.

        :raises Held: another run holds it, and its time is not over.
        """
        if self._path.exists():
            with self._open() as stream:
                self._check(_holder(stream), over)

    def _check(self, holder: Owner, over: str | None) -> None:
        if holder.get("run") not in (None, self._run, over) and holder["until"] > time.time():
            raise Held(holder)

    def give_back(self) -> None:
        """Hold the lock no longer, if this run holds it."""
        if self._path.exists():
            with self._open() as stream:
                if _holder(stream).get("run") == self._run:
                    _write(stream, {})

    def _open(self) -> t.IO[str]:
        stream = self._path.open("a+", encoding="utf-8")
        fcntl.flock(stream, fcntl.LOCK_EX)
        return stream


def _holder(stream: t.IO[str]) -> dict[str, t.Any]:
    """Who holds the lock. One that was cut off while it wrote has changed nothing yet."""
    stream.seek(0)
    try:
        holder = json.loads(stream.read())
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) and {"run", "until"} <= set(holder) else {}


def _write(stream: t.IO[str], owner: Owner) -> None:
    stream.truncate(0)
    json.dump(owner, stream)
