# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A change of many hosts in batches: who is in which, and what became of each host."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .change import FAILED, NOT_READY, REFUSED, UNCHANGED

#: Outcomes that are said of a host on which the role never ended.
UNPREPARED = "not prepared"
UNTOUCHED = "untouched"

_HEAD = ("host", "before", "after", "outcome", "accept length", "seconds")
_NOTHING = "-"
_PERCENT = re.compile(r"(\d+)%\Z")


def due(results: t.Mapping[str, t.Mapping[str, t.Any]], replicas: t.Mapping[str, str]) -> list[str]:
    """The hosts whose service is not as it shall be, and with each the other members of its replica.

    Those come first that a change may interrupt: the canary has to be one that shows whether the change is a good one.

    :param results: those of the module server_change with ``hold``, by host.
    :param replicas: as for :func:`batches`.
    """
    first = interrupted(results, replicas)
    return [*first, *(host for host in _others_than((UNCHANGED,), results, replicas) if host not in first)]


def interrupted(results: t.Mapping[str, t.Mapping[str, t.Any]], replicas: t.Mapping[str, str]) -> list[str]:
    """Those of them whose service a change may interrupt: one that is as planned is only waited for."""
    return _others_than((UNCHANGED, NOT_READY), results, replicas)


def _others_than(
    outcomes: t.Collection[str], results: t.Mapping[str, t.Mapping[str, t.Any]], replicas: t.Mapping[str, str]
) -> list[str]:
    found = {host for host, result in results.items() if result.get("outcome") not in outcomes}
    together = {replicas[host] for host in found if host in replicas}
    return [host for host in results if host in found or replicas.get(host) in together]


def batches(hosts: t.Sequence[str], sizes: t.Sequence[t.Any], replicas: t.Mapping[str, str]) -> list[list[str]]:
    """Put hosts into batches, in their order, but for the members of one replica: they change together.

    :param sizes: hosts in each batch, as a number or in percent of all hosts; the last one holds for all that follow.
    :param replicas: host -> the replica that it is a member of. A replica larger than a batch is one batch by itself.
    :raises ValueError: a size that is none.
    """
    wanted = [_size(size, len(hosts)) for size in sizes]
    if not wanted:
        raise ValueError("there is no size of a batch")
    members: dict[str, list[str]] = {}
    for host in hosts:
        members.setdefault(replicas.get(host, f"host {host}"), []).append(host)
    found: list[list[str]] = []
    for together in members.values():
        room = wanted[min(len(found), len(wanted)) - 1] - len(found[-1]) if found else 0
        if len(together) > room:
            found.append([])
        found[-1].extend(together)
    return found


def _size(written: t.Any, hosts: int) -> int:
    percent = _PERCENT.match(str(written))
    size = max(hosts * int(percent[1]) // 100, 1) if percent else written
    if isinstance(size, str) and size.isdigit():
        size = int(size)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(
            f"{written!r} is no size of a batch: it is a number of hosts from 1 on, or a percentage such as 25%"
        )
    return size


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of one host. ``result`` is that of the role sglang_server, as far as there is one."""

    host: str
    outcome: str
    result: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    problem: str = ""

    def as_dict(self) -> dict[str, t.Any]:
        """The form that the action returns."""
        known = {name: self.result.get(name) for name in ("before", "release", "accept_length", "seconds")}
        return {"outcome": self.outcome, "problem": self.problem, **known}

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        before = self.result.get("before")
        after = before if self.outcome == REFUSED else self.result.get("restored", self.result.get("release"))
        measured = (self.result.get(name) for name in ("accept_length", "seconds"))
        return (
            self.host,
            *(_NOTHING if value is None else str(value) for value in (before, after)),
            self.outcome,
            *(_NOTHING if value is None else f"{value:.{digits}f}" for value, digits in zip(measured, (2, 0))),
        )


def row(host: str, variables: t.Mapping[str, t.Any], prepared: bool) -> Row:
    """What became of a host.

    :param variables: the host's own, with what roles/sglang_rollout noted and the result of the role sglang_server.
    :param prepared: whether engine and models are there.
    """
    if not prepared:
        return Row(host, UNPREPARED)
    result = variables.get("sglang_server_result") or {}
    if not variables.get("__sglang_rollout_begun"):
        return Row(host, UNCHANGED, result) if result.get("outcome") == UNCHANGED else Row(host, UNTOUCHED)
    problem = str(variables.get("__sglang_rollout_problem") or "")
    # none at all where the change never began, for the host or its gateway failed before it
    failed = problem or not result
    return Row(host, str(result.get("outcome") or (FAILED if failed else _NOTHING)), result, problem)


def table(rows: t.Sequence[Row]) -> str:
    """All hosts, then what was wrong with those whose change failed."""
    lines = [_HEAD, *(one.cells for one in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    untouched = sum(one.outcome == UNTOUCHED for one in rows)
    if untouched:
        text += [
            "",
            f"Not begun on {untouched} of {len(rows)} hosts, for too many failed before: nothing was changed there.",
        ]
    text += [f"{one.host}: {one.problem.splitlines()[0]}" for one in rows if one.problem]
    return "\n".join(text)
