# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The plan in words for people."""

from __future__ import annotations

import json
import textwrap
import typing as t

from .._sglang.hardware import Gpu
from .._sglang.judge import Report
from .fleet import FleetPlan, Problem
from .host import HostPlan
from .places import shown

_WIDTH = 110
_HOSTS_NAMED = 6
_OUTCOMES = {
    "refused": "REFUSED",
    "broken_later": "BROKEN LATER",
    "harmful": "HARMFUL",
    "rewritten": "rewritten",
    "ignored": "ignored",
    "unchecked": "unchecked",
}


def refusal(fleet: FleetPlan) -> str:
    """Everything that stops the run, worst first, each with its place and the change that mends it."""
    hosts = {host for problem in fleet.stopping for host in problem.hosts}
    head = (
        f"The plan refuses {len(hosts)} of {_counted(len(fleet.plans), 'host')} for "
        f"{_counted(len(fleet.stopping), 'problem')}. No host was contacted and nothing was changed."
    )
    return "\n\n".join([head, *(_problem(problem) for problem in _worst_first(fleet.stopping))])


def summary(fleet: FleetPlan) -> str:
    """What will run on each host, then everything worth knowing that does not stop the run.

    Hosts with the same table share it.
    """
    tables: dict[str, list[str]] = {}
    for plan in fleet.plans.values():
        tables.setdefault(_table(plan), []).append(plan.host)
    parts = [f"{_hosts(hosts)}: {table}" for table, hosts in tables.items()]
    parts += [_problem(problem) for problem in _worst_first(p for p in fleet.problems if not p.stops)]
    return "\n\n".join(parts)


def everything(fleet: FleetPlan) -> str:
    """Every finding, worst first, whether it stops a run or not."""
    return "\n\n".join(_problem(problem) for problem in _worst_first(fleet.problems))


def _worst_first(problems: t.Iterable[Problem]) -> list[Problem]:
    order = list(_OUTCOMES)
    return sorted(problems, key=lambda problem: order.index(problem.finding.outcome))


def _problem(problem: Problem) -> str:
    finding = problem.finding
    accepted = " (accepted by sglang_plan_accept)" if finding.outcome == "harmful" and not problem.stops else ""
    lines = [f"{_OUTCOMES[finding.outcome]} {finding.rule} on {_hosts(problem.hosts)}{accepted}"]
    lines += [f"  at {shown(place)}" for place in problem.places]
    lines += _wrapped(finding.message)
    lines += _remedy(problem)
    if finding.advice:
        lines += _wrapped(finding.advice)
    if finding.outcome == "harmful" and problem.stops:
        lines += _wrapped(f"To run it all the same, list {finding.rule} in sglang_plan_accept.")
    return "\n".join(lines)


def _remedy(problem: Problem) -> list[str]:
    remedy = problem.finding.remedy
    lines = []
    if remedy.set:
        lines.append(f"  Set in {remedy.variable}:")
        lines += [f"    {key}: {_yaml(value)}" for key, value in remedy.set.items()]
    removed = [key for key in remedy.remove if key not in remedy.set]
    if removed:
        lines.append(f"  Take out of {remedy.variable}: {', '.join(removed)}")
    return lines


def _table(plan: HostPlan) -> str:
    server, engine, report = plan.server, plan.engine, plan.report
    lines = [f"SGLang {plan.release} on {_accelerator(plan.gpu)}"]
    if server and engine and report:
        lines.append(f"  service  {server['unit']} at {server['url']}, from {engine['path']}")
        for model in plan.models:
            size = f", {_bytes(model.lock.total_size)}" if model.lock else ""
            lines.append(f"  {model.role:<8} {model.facts.repo}{size} in {model.path}")
        lines += _labelled("flags", " ".join(server["argv"]))
        if server["secret_args"]:
            lines += _labelled("secrets", ", ".join(server["secret_args"]))
        if plan.filled:
            lines += _labelled("filled", ", ".join(plan.filled))
        changes = _changes(report)
        if changes:
            lines += _labelled("SGLang", f"sets {', '.join(changes)}")
        if report.memory:
            lines += _labelled("memory", f"per GPU {report.memory}")
    return "\n".join(lines)


def _changes(report: Report) -> list[str]:
    """What SGLang goes on with that does not stand so among the flags."""
    given = {word: following for word, following in zip(report.argv, (*report.argv[1:], "")) if word.startswith("--")}
    found = []
    for key, value in report.resolved.items():
        was = given.get(f"--{key.replace('_', '-')}")
        if value not in (None, False) and was not in (str(value), "") and not (value is True and was is not None):
            found.append(f"{key} {_yaml(value)}" + (f" (given {was})" if was is not None else ""))
    return found


def _labelled(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        f"{label:<8} {text}",
        _WIDTH,
        initial_indent="  ",
        subsequent_indent=" " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _accelerator(gpu: Gpu | None) -> str:
    if gpu is None:
        return "an unnamed GPU"
    if gpu.vendor == "none":
        return "no GPU"
    return f"{gpu.count} x {gpu.name}" if gpu.count else gpu.name


def _hosts(hosts: t.Sequence[str]) -> str:
    if len(hosts) <= _HOSTS_NAMED:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:_HOSTS_NAMED])} and {len(hosts) - _HOSTS_NAMED} more"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _yaml(value: t.Any) -> str:
    if isinstance(value, str) and value.replace("_", "").replace("-", "").isalnum() and not value.isdigit():
        return value
    return json.dumps(value)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _bytes(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"
