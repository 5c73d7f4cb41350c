# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Finding the reason of an end in what a service wrote to its journal."""

from __future__ import annotations

import re
import typing as t

_BEGIN = "Traceback (most recent call last):"
#: The lines that Python puts between the tracebacks of one chain.
_CHAIN = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
# argparse, programs that end with a word instead of a traceback, and systemd itself
_ERROR = re.compile(r"\berror:|\bError\b|cannot|not found|No such file|OOM killer", re.IGNORECASE)


class Line(t.NamedTuple):
    """One line of the journal and the process that wrote it."""

    pid: str
    text: str


def first_traceback(lines: t.Sequence[Line]) -> list[str]:
    """The first Python traceback with everything chained to it, or nothing.

    A logger may have put words of its own before the first line; they are dropped. The ranks of a server fail together
    and write between each other's lines, so only those of one process count.
    """
    for start, (pid, text) in enumerate(lines):
        if _BEGIN in text:
            return _chain([line.text for line in lines[start:] if line.pid == pid])
    return []


def _chain(lines: t.Sequence[str]) -> list[str]:
    found = [lines[0][lines[0].index(_BEGIN) :]]
    place = 1
    while place < len(lines):
        line = lines[place]
        place += 1
        found.append(line)
        if line.startswith((" ", "\t")) or not line.strip():
            continue
        # the exception itself; another traceback follows only after one of Python's own sentences
        following = [one for one in lines[place : place + 4] if one.strip()]
        if len(following) >= 2 and following[0].strip() in _CHAIN and _BEGIN in following[1]:
            while _BEGIN not in lines[place]:
                found.append(lines[place])
                place += 1
            found.append(_BEGIN)
            place += 1
            continue
        break
    return found


def last_words(lines: t.Sequence[Line]) -> str | None:
    """One line that says why: the exception of the first traceback, else the last line that speaks of an error."""
    traceback = first_traceback(lines)
    if traceback:
        return next((line.strip() for line in reversed(traceback) if line.strip()), None)
    return next((text.strip() for _pid, text in reversed(lines) if _ERROR.search(text)), None)
