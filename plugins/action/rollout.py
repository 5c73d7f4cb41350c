# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollout action: batches before a change of many hosts, and one table of all of them after it."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.inferops.serving.plugins.module_utils._server import rollout


class ActionModule(ActionBase):
    """Adapter between a play's variables and the private package _server."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"state", "batches", "hosts"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Plan the batches or show the table.

        :raises AnsibleActionFail: ``batches`` cannot be read.
        """
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        args = self._task.args
        if args["state"] == "planned":
            hosts = list(map(str, variables["ansible_play_hosts"]))
            seen = {host: variables["hostvars"].raw_get(host).get("sglang_server_result") or {} for host in hosts}
            replicas = _replicas(variables)
            sizes = args["batches"] if isinstance(args["batches"], (list, tuple)) else [args["batches"]]
            try:
                found = rollout.batches(rollout.due(seen, replicas), sizes, replicas)
            except ValueError as exc:
                raise AnsibleActionFail(f"sglang_rollout_batches: {exc}.") from exc
            result.update(
                changed=False,
                hosts=[host for batch in found for host in batch],
                sizes=list(map(len, found)),
                interrupted=rollout.interrupted(seen, replicas),
                prepared=hosts,
            )
            return result
        rows = self._rows(variables)
        self._display.display(f"\n{rollout.table(rows)}\n")
        result.update(changed=False, hosts={one.host: one.as_dict() for one in rows})
        return result

    def _rows(self, variables: t.Mapping[str, t.Any]) -> list[rollout.Row]:
        """All hosts of the play, also those that failed, in its order."""
        prepared = set(map(str, self._task.args["hosts"]))
        hosts = map(str, variables["ansible_play_hosts_all"])
        hostvars = variables["hostvars"]
        return [rollout.row(host, hostvars.raw_get(host), host in prepared) for host in hosts]


def _replicas(variables: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The replica of each host that is a part of one over several hosts."""
    found = {}
    plans: t.Mapping[str, t.Any] = variables.get("sglang_plan_result", {}).get("plans", {})
    for host, plan in plans.items():
        nodes = (plan["server"] or {}).get("nodes", {})
        if (nodes.get("nnodes") or 1) != 1 and nodes.get("dist_init_addr"):
            found[str(host)] = f"replica {nodes['dist_init_addr']}"
    return found
