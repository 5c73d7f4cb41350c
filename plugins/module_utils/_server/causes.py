# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Known causes of an end, told from what the server wrote: the planner's rules, and ends that no plan can foresee."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import typing as t

from .._sglang.data_files import load_yaml
from .._sglang.findings import rules

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line \d+, in (?P<function>\S+)')
# the raised class, with its module before it: "torch.OutOfMemoryError: CUDA out of memory"
_EXCEPTION = re.compile(r"(?:\w+\.)*(?P<type>\w+)(?:: ?(?P<message>.*))?$")


@dataclasses.dataclass(frozen=True)
class Cause:
    """A known cause. ``page`` is the place of the documentation that says more."""

    id: str
    sentence: str
    remedy: str
    page: str

    def as_dict(self) -> dict[str, str]:
        return dataclasses.asdict(self)


def explain(text: str) -> list[Cause]:
    """The known causes of what a server wrote, its traceback or its journal; those of exceptions come first.

    A pattern is searched for in "file.py:function: Type: first line of the message" for each exception of a traceback,
    and in every line by itself.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    subjects = [*exceptions(text), *lines]
    found = [cause for subject in subjects for pattern, cause in _known() if pattern.search(subject)]
    return list(dict.fromkeys(found))


def exceptions(text: str) -> list[str]:
    """The exceptions of all tracebacks, each as "file.py:function: Type: message" with the frame that raised it."""
    found = []
    frame: str | None = None
    inside = False
    for line in text.splitlines():
        if _BEGIN in line:
            inside, frame = True, None
            continue
        if not inside or not line.strip():
            continue
        seen = _FRAME.match(line)
        if seen:
            frame = f"{os.path.basename(seen['file'])}:{seen['function']}"
        elif not line.startswith((" ", "\t")) and frame:
            raised = _EXCEPTION.match(line.strip())
            if raised:
                found.append(f"{frame}: {raised['type']}: {raised['message'] or ''}".rstrip())
            inside = False
    return found


@functools.cache
def _known() -> list[tuple[re.Pattern[str], Cause]]:
    """Each pattern with its cause, the rules first."""
    known = []
    for rule in rules().values():
        if rule.traceback:
            sentence = f"{rule.condition[0].upper()}{rule.condition[1:]}."
            # advice with values of a configuration says nothing without them
            remedy = "" if "{" in rule.advice else " ".join(rule.advice.split())
            known.append((re.compile(rule.traceback), Cause(rule.id, sentence, remedy, f"docs/rules.md#{rule.id}")))
    for end in load_yaml("ends.yml"):
        cause = Cause(end["id"], end["sentence"], end["remedy"], f"docs/gate.md#{end['id']}")
        known.append((re.compile(end["traceback"]), cause))
    return known


def add_known(failure: dict[str, t.Any], *texts: str) -> None:
    """Say in a failure what is known of its cause: ``explained``, and one line of it in ``msg`` where there is one.

    :param texts: what the server wrote; the first of which something is known counts.
    """
    known = next((found for found in map(explain, texts) if found), [])
    failure["explained"] = [cause.as_dict() for cause in known]
    if known and failure.get("msg"):
        failure["msg"] = f"{failure['msg']} {in_words(known)}"


def in_words(causes: t.Sequence[Cause]) -> str:
    """The first cause in one line, with where to read more."""
    first = causes[0]
    remedy = f" {first.remedy}" if first.remedy else ""
    return f"Known cause: {first.sentence}{remedy} [{first.id}, {first.page}]"
