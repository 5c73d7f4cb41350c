# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""All hosts together: every host's plan, the rules between hosts, and the one list of problems."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from .._sglang.findings import Finding, find
from .._sglang.judge import stops
from .._sglang.versions import Release
from .host import HostPlan
from .places import Locate

#: Variables whose keys findings name one by one.
_ARGS = "sglang_server_args"


@dataclasses.dataclass(frozen=True)
class Problem:
    """One finding, the hosts that have it, and where they were told so."""

    finding: Finding
    hosts: tuple[str, ...]
    places: tuple[str, ...]
    stops: bool

    def as_dict(self) -> dict[str, t.Any]:
        return {
            **self.finding.as_dict(),
            "hosts": list(self.hosts),
            "places": list(self.places),
            "stops": self.stops,
        }


@dataclasses.dataclass(frozen=True)
class FleetPlan:
    """The plans by host, in inventory order, and every problem once."""

    plans: t.Mapping[str, HostPlan]
    problems: tuple[Problem, ...]

    @property
    def stopping(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.stops]


def plan_fleet(plans: t.Sequence[HostPlan], locate: t.Callable[[str], Locate]) -> FleetPlan:
    """Put the hosts' plans together.

    :param locate: host name -> the function that knows where that host's variables were written.
    """
    between = _port_clashes(plans)
    plans = [dataclasses.replace(plan, findings=(*plan.findings, *between.get(plan.host, ()))) for plan in plans]
    merged: dict[tuple[t.Any, ...], list[str]] = {}
    findings: dict[tuple[t.Any, ...], tuple[Finding, tuple[str, ...], bool]] = {}
    for plan in plans:
        for finding in plan.findings:
            places = _places(finding, locate(plan.host))
            stopping = stops(finding, plan.accepted)
            key = (finding.rule, finding.message, places, stopping)
            merged.setdefault(key, []).append(plan.host)
            findings.setdefault(key, (finding, places, stopping))
    problems = [
        Problem(finding, tuple(merged[key]), places, stopping) for key, (finding, places, stopping) in findings.items()
    ]
    return FleetPlan({plan.host: plan for plan in plans}, tuple(problems))


def _places(finding: Finding, locate: Locate) -> tuple[str, ...]:
    """Where the finding's keys were written; where its variable was, if none of them were."""
    found = [locate(key, None) if key.startswith("sglang_") else locate(_ARGS, key) for key in finding.keys]
    if not any(found):
        found = [locate(finding.remedy.variable, None)]
    return tuple(dict.fromkeys(place for place in found if place))


def _port_clashes(plans: t.Sequence[HostPlan]) -> dict[str, list[Finding]]:
    """Two services of one machine on one port. Machines are told apart by the address Ansible connects to."""
    users: dict[tuple[str, str], list[HostPlan]] = collections.defaultdict(list)
    for plan in plans:
        if plan.server:
            users[(plan.address, str(plan.server["port"]))].append(plan)
    found: dict[str, list[Finding]] = collections.defaultdict(list)
    for (address, port), sharing in users.items():
        if len(sharing) < 2:
            continue
        for plan in sharing:
            others = ", ".join(other.host for other in sharing if other is not plan)
            found[plan.host].append(
                find(
                    "port-clash",
                    Release.parse(plan.release or "0"),
                    ["port"],
                    port=port,
                    address=address,
                    others=others,
                )
            )
    return found
