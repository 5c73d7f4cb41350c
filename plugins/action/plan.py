# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan action: every host's configuration judged on the controller, in one task, without a connection."""

from __future__ import annotations

import os
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.inferops.serving.plugins.module_utils._plan import report
from ansible_collections.inferops.serving.plugins.module_utils._plan.fleet import FleetPlan, plan_fleet
from ansible_collections.inferops.serving.plugins.module_utils._plan.host import DEFAULTS, SECRETS, plan_host
from ansible_collections.inferops.serving.plugins.module_utils._plan.places import Locate
from ansible_collections.inferops.serving.plugins.module_utils._plan.plan_file import plan_text, saved_text, write_plan
from ansible_collections.inferops.serving.plugins.plugin_utils._origin import origin

#: What the plan reads of a host beside its own variables.
_ABOUT_THE_HOST = ("ansible_host", "ansible_port", "inventory_dir")


class ActionModule(ActionBase):
    """Adapter between a play's variables and the private package _plan."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"hosts", "refuse", "save_to"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Judge all hosts and fail once, with everything.

        :raises AnsibleActionFail: a finding stops the run, unless ``refuse`` is false.
        """
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        hosts = [str(host) for host in self._task.args.get("hosts") or variables["ansible_play_hosts_all"]]
        hostvars = variables["hostvars"]
        # read once for all that follows: Ansible puts a host's variables together anew each time it is asked
        written = {host: hostvars.raw_get(host) for host in hosts}
        reader = _Reader(self._templar.copy_with_new_env(), hostvars)
        plans = [plan_host(host, *reader.read(raw)) for host, raw in written.items()]
        fleet = plan_fleet(plans, lambda host: _locate(written[host]))
        result.update(
            changed=False,
            refused=bool(fleet.stopping),
            report=report.refusal(fleet) if fleet.stopping else report.summary(fleet),
            problems=[problem.as_dict() for problem in fleet.problems],
            plans={host: plan.as_dict() for host, plan in fleet.plans.items()},
        )
        if not fleet.stopping:
            self._display.display(result["report"])
            self._save(result, variables)
        elif boolean(self._task.args.get("refuse", True)):
            raise AnsibleActionFail(message=result["report"], obj=_first_value(fleet, written), result=result)
        return result

    def _save(self, result: dict[str, t.Any], variables: t.Mapping[str, t.Any]) -> None:
        """Keep the plans where ``save_to`` says. A plan that cannot be kept is as good as one that is."""
        name, folder = self._task.args.get("save_to"), variables.get("inventory_dir")
        if not name or not (folder or os.path.isabs(name)):
            return
        path = os.path.join(folder or "", name)
        try:
            before = saved_text(path)
            after = plan_text(result["plans"], before, set(variables["hostvars"]))
            if after != before and not self._task.check_mode:
                write_plan(path, after)
        except (OSError, ValueError) as exc:
            result["warnings"] = [f"The plan is not saved: {exc}"]
            return
        result["changed"] = after != before
        # a first plan differs from nothing; all of it is in the report
        if result["changed"] and before and self._task.diff:
            result["diff"] = {"before": before, "after": after, "before_header": path, "after_header": path}


class _Reader:
    """The variables of one host after the other, templated.

    One templar serves all hosts: ``hostvars[host]`` would make a Jinja environment for each. A value without a template
    is the same object for all hosts of its group, and is read once.
    """

    def __init__(self, templar: t.Any, hostvars: t.Any) -> None:
        self._templar = templar
        self._hostvars = hostvars
        self._same: dict[int, tuple[bool, t.Any]] = {}

    def read(self, written: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, str]]:
        """What can be read, and why the others cannot. The caller keeps what is written until the last host."""
        # a host's variables as Ansible hands them out lack hostvars, which they may well refer to
        self._templar.available_variables = {**written, "hostvars": self._hostvars}
        values: dict[str, t.Any] = {}
        unreadable: dict[str, str] = {}
        for name in (*DEFAULTS, *_ABOUT_THE_HOST):
            if name in written:
                try:
                    values[name] = self._value(written[name])
                except AnsibleError as exc:
                    unreadable[name] = str(exc)
        return values, unreadable

    def _value(self, written: t.Any) -> t.Any:
        known = self._same.get(id(written))
        if known is None:
            differs = self._templar.is_template(written)
            known = self._same[id(written)] = (differs, None if differs else _plain(self._templar.template(written)))
        differs, value = known
        return _plain(self._templar.template(written)) if differs else value


def _plain(value: t.Any) -> t.Any:
    """Containers as plain ones; reading each item templates it, so an undefined one shows here."""
    if isinstance(value, t.Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _locate(raw: t.Mapping[str, t.Any]) -> Locate:
    # the raw variables: a templated value may have lost the place it was written at
    def place(variable: str, key: str | None) -> str | None:
        return origin(_written(raw, variable, key))

    return place


def _written(raw: t.Mapping[str, t.Any], variable: str, key: str | None) -> t.Any:
    value = raw.get(variable)
    if key is None:
        return value
    if not isinstance(value, t.Mapping):
        return None
    return next((one for name, one in value.items() if str(name) == key), None)


def _first_value(fleet: FleetPlan, written: t.Mapping[str, t.Mapping[str, t.Any]]) -> t.Any:
    """The operator's value that Ansible shows with its source line: that of the first stopping problem.

    None where that line may hold a secret; the report names the place.
    """
    problem = fleet.stopping[0]
    if problem.finding.rule == "flag-holds-secret" or SECRETS in (
        problem.finding.remedy.variable,
        *problem.finding.keys,
    ):
        return None
    raw = written[problem.hosts[0]]
    for key in problem.finding.keys:
        variable, inner = (key, None) if key.startswith("sglang_") else ("sglang_server_args", key)
        value = _written(raw, variable, inner)
        if value is not None:
            return value
    return raw.get(problem.finding.remedy.variable)
