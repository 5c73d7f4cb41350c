# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What runs as a service, since when, from which release, and what went wrong last. Reads and changes nothing."""

from __future__ import annotations

import typing as t
from pathlib import Path

from .evidence import last as last_evidence
from .release import Releases
from .service import Command
from .systemd import read_properties

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "ActiveEnterTimestamp",
    "MainPID",
    "NRestarts",
    "Result",
    "ExecMainCode",
    "ExecMainStatus",
)
_PROGRAM = "sglang.launch_server"


def diagnose(
    run: Command, releases: Releases, unit: str, planned: t.Sequence[str] | None, proc: Path
) -> dict[str, t.Any]:
    """Everything that is known of a service, as facts and as lines for people.

    :param planned: the command line that the inventory plans, None where it plans none.
    """
    _status, out, _err = run(["systemctl", "show", f"--property={','.join(_PROPERTIES)}", unit])
    state = read_properties(out)
    found: dict[str, t.Any] = {
        "unit": unit,
        "unit_state": state,
        "current": releases.current,
        "previous": releases.previous,
        "releases": [_release(releases, number) for number in releases.numbers()],
        "evidence": last_evidence(releases.home),
        "argv": running_argv(proc, state.get("MainPID", "0")),
    }
    current = next((one for one in found["releases"] if one["release"] == releases.current), None)
    found["plan"] = current["plan"] if current else None
    return {**found, "report": _report(found, current, planned)}


def _release(releases: Releases, number: int) -> dict[str, t.Any]:
    try:
        plan = releases.content(number).plan
    except (OSError, ValueError):
        plan = {}
    return {
        "release": number,
        "plan": plan,
        **{name: releases.note(number, name) for name in ("started", "accepted")},
    }


def running_argv(proc: Path, pid: str) -> list[str] | None:
    """The server arguments of the unit's main process; None where none runs."""
    try:
        words = (proc / pid / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return None
    return words[words.index(_PROGRAM) + 1 :] if _PROGRAM in words else words


def differing_flags(before: t.Sequence[str], after: t.Sequence[str]) -> list[str]:
    """The flags of one command line that another lacks, each with its values: ``- --port 1``, ``+ --port 2``."""
    old, new = _flags(before), _flags(after)
    return [*(f"- {flag}" for flag in old if flag not in new), *(f"+ {flag}" for flag in new if flag not in old)]


def _flags(argv: t.Sequence[str]) -> list[str]:
    flags: list[str] = []
    for word in argv:
        if word.startswith("--") or not flags:
            flags.append(word)
        else:
            flags[-1] += f" {word}"
    return flags


def _report(
    found: t.Mapping[str, t.Any], current: t.Mapping[str, t.Any] | None, planned: t.Sequence[str] | None
) -> list[str]:
    lines = [_unit_line(found["unit"], found["unit_state"])]
    if current is None:
        lines.append("no release is deployed")
    else:
        others = ", ".join(str(one["release"]) for one in found["releases"])
        previous = found["previous"] if found["previous"] is not None else "none"
        lines.append(f"release {current['release']}, {_passed(current)}; previous: {previous}; kept: {others}")
        lines += _served(current["plan"])
        if found["argv"] is not None:
            lines += _compared("the process and its release", found["argv"], current["plan"].get("argv", []))
        if planned is not None:
            lines += _compared("the release and the inventory's plan", current["plan"].get("argv", []), planned)
    evidence = found["evidence"]
    if evidence:
        lines += [f"last failure: release {evidence.get('release')} at {evidence.get('time')}: {evidence.get('cause')}"]
        lines += [f"its evidence: {evidence['path']}"]
    return lines


def _unit_line(unit: str, state: t.Mapping[str, str]) -> str:
    if state.get("LoadState") == "not-found":
        return f"{unit} is not installed"
    since = state.get("ActiveEnterTimestamp") or "it was never active"
    line = f"{unit}: {state.get('ActiveState')} ({state.get('SubState')}), {state.get('UnitFileState')}"
    line += f"; active since: {since}"
    if state.get("NRestarts", "0") != "0":
        line += f"; started again by systemd {state['NRestarts']} times"
    if state.get("Result", "success") != "success":
        line += f"; last result: {state['Result']} (exit status or signal {state.get('ExecMainStatus')})"
    return line


def _passed(release: t.Mapping[str, t.Any]) -> str:
    accepted = release["accepted"]
    if not accepted:
        return "which has not passed the gate"
    length = accepted.get("accept_length")
    return f"accepted {accepted.get('time')}" + (f" with accept length {length:.2f}" if length else "")


def _served(plan: t.Mapping[str, t.Any]) -> list[str]:
    lines = [f"engine {plan['engine'].get('path')}"] if plan.get("engine") else []
    return lines + [f"{one.get('role')} {one.get('repo')} at {one.get('revision')}" for one in plan.get("models", [])]


def _compared(what: str, before: t.Sequence[str], after: t.Sequence[str]) -> list[str]:
    flags = differing_flags(before, after)
    return [f"{what} differ:", *(f"  {flag}" for flag in flags)] if flags else [f"{what} have the same flags"]
