# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server_change action: the steps of a change as modules on the host, one after the other."""

from __future__ import annotations

import datetime
import getpass
import os
import socket
import typing as t
import uuid
from pathlib import Path

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.inferops.serving.plugins.module_utils._server.change import FAILED, change

#: Arguments that only one step takes.
_OF_ALL = ("home", "unit", "unit_dir")
_OF_SWITCH = ("confirm_timeout",)
_OF_ACCEPTANCE = ("keep_releases",)
#: What makes the number of a process mean the same process. Containers of one machine may share name and boot, but not
#: the numbers. Where there is no /proc, as on a Mac, the name is all there is.
_OF_PLACE = ("controller", "boot", "namespace")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = "/proc/self/ns/pid"


class ActionModule(ActionBase):
    """Adapter between a task and the private package _server."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Change the service, or leave it or bring it back as it was.

        :raises AnsibleConnectionFailure: the host cannot be reached any more.
        :raises AnsibleActionFail: an error of the collection's own.
        """
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        steps = _Steps(self, task_vars or {})
        unit = self._task.args["unit"]
        own = (*_OF_ALL, *_OF_SWITCH, *_OF_ACCEPTANCE, "hold")
        wanted = {key: value for key, value in self._task.args.items() if key not in own}
        hold = boolean(self._task.args.get("hold", False))
        try:
            result.update(change(steps, wanted, bool(self._task.check_mode), hold))
        except AnsibleConnectionFailure as exc:
            if hold:
                raise
            more = f"The change of {unit} is not finished. Run the play again: it goes on from there."
            # not "from exc": Ansible would append its words a second time
            raise AnsibleConnectionFailure(f"{exc}\n{more}") from None
        except Exception as exc:
            # a result without an outcome is one of a change that never began
            raise AnsibleActionFail(f"{unit}: {exc}", result={"outcome": FAILED}) from exc
        if result.get("failed") and not str(result.get("msg")).startswith(unit):
            result["msg"] = f"{unit}: {result.get('msg')}"
        return result


class _Steps:
    def __init__(self, action: ActionModule, variables: dict[str, t.Any]) -> None:
        self._action = action
        self._variables = variables
        self._run = uuid.uuid4().hex
        self._locked = False

    def release(self, state: str, **arguments: t.Any) -> dict[str, t.Any]:
        """The module server_release."""
        of_state = {"switched": _OF_SWITCH, "accepted": _OF_ACCEPTANCE}.get(state, ())
        args = self._action._task.args
        given = {key: args[key] for key in (*_OF_ALL, *of_state) if key in args}
        if state == "staged":
            arguments["about"] = _who()
        answer: dict[str, t.Any] = self._action._execute_module(
            module_name="inferops.serving.server_release",
            module_args={**given, **arguments, "state": state, "run": self._run},
            task_vars=self._variables,
        )
        self._locked = bool(answer.get("locked", self._locked))
        return answer

    def gate(self, gate: t.Mapping[str, t.Any], invocation: str | None) -> dict[str, t.Any]:
        """The action server_ready."""
        task = self._action._task.copy()
        task.args = dict(gate)
        if self._locked:
            task.args.update(run_lock=f"{self._action._task.args['home']}/run.lock", run=self._run)
        if invocation:
            task.args["invocation_id"] = invocation
        ready = self._action._shared_loader_obj.action_loader.get(
            "inferops.serving.server_ready",
            task=task,
            connection=self._action._connection,
            play_context=self._action._play_context,
            loader=self._action._loader,
            templar=self._action._templar,
            shared_loader_obj=self._action._shared_loader_obj,
        )
        answer: dict[str, t.Any] = ready.run(task_vars=self._variables)
        return answer

    def is_dead(self, owner: t.Mapping[str, t.Any]) -> bool:
        """Whether the owner was a process of this machine, since its last boot, that is no more."""
        here, pid = _who(), owner.get("pid")
        if any(owner.get(key) != here[key] for key in _OF_PLACE) or not isinstance(pid, int):
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            # another user's
            pass
        return False

    def say(self, words: str) -> None:
        """Show a line with the host's name."""
        self._action._display.display(f"{self._variables.get('inventory_hostname')}: {words}")


def _who() -> dict[str, t.Any]:
    """This run, for others that find it at work. The process is the one that all its workers come from."""
    controller, user = socket.gethostname(), getpass.getuser()
    pid = os.getppid()
    return {
        "who": f"{user}@{controller} (ansible-playbook, process {pid})",
        "since": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "controller": controller,
        "boot": _BOOT.read_text(encoding="utf-8").strip() if _BOOT.exists() else "",
        "namespace": os.readlink(_NAMESPACE) if os.path.lexists(_NAMESPACE) else "",
        "pid": pid,
    }
