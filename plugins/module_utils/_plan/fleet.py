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

from .._sglang.findings import Finding, Remedy, find
from .._sglang.judge import stops
from .._sglang.versions import Release
from .devices import BASE, VISIBLE, Devices
from .host import SECRETS, HostPlan
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
    between: dict[str, list[Finding]] = collections.defaultdict(list)
    for rule in (_port_clashes, _name_clashes, _gpu_clashes, _gpus_beyond, _replicas):
        for host, finding in rule(plans):
            between[host].append(finding)
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
    mapping = SECRETS if finding.remedy.variable == SECRETS else _ARGS
    found = [locate(key, None) if key.startswith("sglang_") else locate(mapping, key) for key in finding.keys]
    if not any(found):
        found = [locate(finding.remedy.variable, None)]
    return tuple(dict.fromkeys(place for place in found if place))


def _port_clashes(plans: t.Sequence[HostPlan]) -> t.Iterator[tuple[str, Finding]]:
    """Two services of one machine on one port. Machines are told apart by the address Ansible connects to."""
    for (address, port), sharing in _shared(plans, lambda server: str(server["port"])):
        for plan in sharing:
            yield (
                plan.host,
                _find("port-clash", plan, ["port"], port=port, address=address, others=_others(plan, sharing)),
            )


def _name_clashes(plans: t.Sequence[HostPlan]) -> t.Iterator[tuple[str, Finding]]:
    """Two services of one machine with one name: one unit, one state directory."""
    for (address, unit), sharing in _shared(plans, lambda server: str(server["unit"])):
        for plan in sharing:
            keys = ["sglang_server_name"]
            yield plan.host, _find("name-clash", plan, keys, unit=unit, address=address, others=_others(plan, sharing))


def _gpu_clashes(plans: t.Sequence[HostPlan]) -> t.Iterator[tuple[str, Finding]]:
    """Two services of one machine on one GPU. Who comes first in the inventory stays where it is."""
    machines: dict[str, list[tuple[HostPlan, Devices]]] = collections.defaultdict(list)
    for plan in plans:
        if plan.server and plan.devices and _count(plan) != 0:
            machines[plan.address].append((plan, plan.devices))
    for address, services in machines.items():
        for plan, own, free in _places_for(services):
            others = [other for other, its in services if other is not plan and own.names & its.names]
            if others:
                shared = {name for other, its in services if other in others for name in own.names & its.names}
                words = {"gpus": _numbers(shared), "address": address, "others": ", ".join(one.host for one in others)}
                remedy = _other_gpus(own, free) if free else _fewer_gpus(plan, own, [one for one, _its in services])
                yield plan.host, _find("gpu-clash", plan, _gpu_keys(own), remedy, **words)


def _places_for(
    services: t.Sequence[tuple[HostPlan, Devices]],
) -> t.Iterator[tuple[HostPlan, Devices, Devices | None]]:
    """Each service with its GPUs and those that it could have; None for all where there are not enough."""
    taken: set[str] = set()
    places: list[Devices | None] = []
    for plan, own in services:
        places.append(own.moved(taken, _count(plan)) if own.names & taken else own)
        taken |= (places[-1] or own).names
    for (plan, own), free in zip(services, places):
        yield plan, own, free if all(places) else None


def _gpus_beyond(plans: t.Sequence[HostPlan]) -> t.Iterator[tuple[str, Finding]]:
    """A service on GPUs that its machine does not have, or that CUDA_VISIBLE_DEVICES hides from it."""
    for plan in plans:
        own = plan.devices
        count = len(own.visible) if own and own.visible is not None else _count(plan)
        # more ranks than GPUs is gpus-too-few, wherever they begin
        if not plan.server or own is None or not count or own.ranks > count or own.numbers[-1] < count:
            continue
        words = {"last": own.numbers[-1], "count": count}
        fitting = Remedy({BASE: count - own.ranks}, remove=("gpu_id_step",) if own.step > 1 else ())
        yield plan.host, _find("gpu-beyond", plan, [BASE, "gpu_id_step", "tp_size"], fitting, **words)


def _count(plan: HostPlan) -> int | None:
    """How many GPUs the machine has, None where that is unknown."""
    return plan.gpu.count if plan.gpu else None


def _gpu_keys(own: Devices) -> list[str]:
    return ["sglang_server_env"] if own.visible is not None else [BASE, "tp_size"]


def _other_gpus(own: Devices, free: Devices) -> Remedy:
    """The change from one place to another; none for a service that stays."""
    if free == own:
        return Remedy()
    if free.visible is not None:
        return Remedy({VISIBLE: ",".join(free.visible)}, variable="sglang_server_env")
    return Remedy({BASE: free.base})


def _fewer_gpus(plan: HostPlan, own: Devices, services: t.Sequence[HostPlan]) -> Remedy:
    """An even share of the machine, where tensor parallelism is all that takes its GPUs."""
    share = (_count(plan) or 0) // len(services)
    # heads are divided among the ranks, so that a power of two it is
    share = 1 << (share.bit_length() - 1) if share else 0
    if not share or own.visible is not None or own.step != 1:
        return Remedy()
    return Remedy({"tp_size": share, BASE: services.index(plan) * share})


def _numbers(names: t.Iterable[str]) -> str:
    return ", ".join(sorted(names, key=lambda name: (len(name), name)))


def _replicas(plans: t.Sequence[HostPlan]) -> t.Iterator[tuple[str, Finding]]:
    """Hosts with one dist_init_addr are one replica: all of its ranks, each once, all of one mind."""
    replicas: dict[str, list[HostPlan]] = collections.defaultdict(list)
    for plan in plans:
        if plan.server and (plan.server["nodes"]["nnodes"] or 1) != 1 and plan.server["nodes"]["dist_init_addr"]:
            replicas[str(plan.server["nodes"]["dist_init_addr"])].append(plan)
    for address, members in replicas.items():
        nodes = [plan.server["nodes"] for plan in members if plan.server]
        wanted = nodes[0]["nnodes"]
        ranks = sorted(str(one["node_rank"] if one["node_rank"] is not None else 0) for one in nodes)
        if ranks != sorted(str(rank) for rank in range(int(wanted))):
            words = {"address": address, "wanted": wanted, "count": len(members), "ranks": ", ".join(ranks)}
            for plan in members:
                yield plan.host, _find("replica-members", plan, ["nnodes", "node_rank"], **words)
        different = [name for name, values in _minds(members).items() if len(values) > 1]
        for plan in members if different else ():
            words = {"address": address, "different": ", ".join(different), "others": _others(plan, members)}
            yield plan.host, _find("replica-mixed", plan, ["dist_init_addr"], **words)


def _minds(members: t.Sequence[HostPlan]) -> dict[str, set[str]]:
    """What all members of a replica must agree on, and the values they have."""
    return {
        "release": {str(plan.release) for plan in members},
        "engine lock": {str(plan.engine and plan.engine["digest"]) for plan in members},
        "models": {str([(model.role, model.facts.repo, model.path) for model in plan.models]) for plan in members},
        "server arguments": {str(_argv_of_all(plan)) for plan in members},
    }


def _argv_of_all(plan: HostPlan) -> list[str]:
    """The arguments without those that are each member's own."""
    argv = list(plan.server["argv"]) if plan.server else []
    for own in ("--node-rank", "--host", "--port"):
        while own in argv:
            place = argv.index(own)
            del argv[place : place + 2]
    return argv


def _shared(
    plans: t.Sequence[HostPlan], key: t.Callable[[t.Mapping[str, t.Any]], str]
) -> t.Iterator[tuple[tuple[str, str], list[HostPlan]]]:
    """Services of one machine that have a key in common."""
    users: dict[tuple[str, str], list[HostPlan]] = collections.defaultdict(list)
    for plan in plans:
        if plan.server:
            users[(plan.address, key(plan.server))].append(plan)
    return ((place, sharing) for place, sharing in users.items() if len(sharing) > 1)


def _others(plan: HostPlan, sharing: t.Sequence[HostPlan]) -> str:
    return ", ".join(other.host for other in sharing if other is not plan)


def _find(rule: str, plan: HostPlan, keys: t.Sequence[str], remedy: Remedy | None = None, **words: t.Any) -> Finding:
    return find(rule, Release.parse(plan.release or "0"), keys, remedy, **words)
