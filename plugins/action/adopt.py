# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The adopt action: the text that starts a server read on the controller, and shown as an inventory."""

from __future__ import annotations

import os
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.inferops.serving.plugins.module_utils._plan.adopt import adopt
from ansible_collections.inferops.serving.plugins.module_utils._plan.running import AdoptProblem

#: Beyond this it is no command line, unit file or compose file.
_MOST_BYTES = 1 << 20
_HOW = "Give it as `< FILE`, through a pipe, or with -e sglang_adopt_file=FILE."


class ActionModule(ActionBase):
    """Adapter between a play and the private package _plan."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"file", "version", "name", "gpu"})

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Show the inventory and its findings.

        :raises AnsibleActionFail: there is no text, or no server in it.
        """
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        options = self._task.args
        file = options.get("file")
        text = _decoded(_content(str(file)) if file else _standard_input())
        version, name = (str(options[key]) if options.get(key) else None for key in ("version", "name"))
        try:
            adoption = adopt(text, version, name, options.get("gpu"))
        except AdoptProblem as exc:
            raise AnsibleActionFail(f"{exc}.") from None  # its text is in ours
        self._display.display(adoption.report)
        result.update(
            changed=False,
            refused=bool(adoption.fleet.stopping),
            inventory=adoption.inventory,
            notes=list(adoption.notes),
            problems=[problem.as_dict() for problem in adoption.fleet.problems],
        )
        return result


def _content(path: str) -> bytes:
    try:
        with open(os.path.expanduser(path), "rb") as stream:
            return stream.read(_MOST_BYTES + 1)
    except OSError as exc:
        raise AnsibleActionFail(f"{path} cannot be read: {exc.strerror}.") from None  # its text is in ours


def _standard_input() -> bytes:
    """What stands on the standard input of ansible-playbook.

    A task runs in a worker whose own standard input is /dev/null; ansible-playbook is its parent.
    """
    path = f"/proc/{os.getppid()}/fd/0"
    try:
        # without waiting for a writer of a named pipe, and without taking a terminal for the worker's own
        descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:
            if stream.isatty():
                raise AnsibleActionFail(f"No text of a running server is given. {_HOW}")
            os.set_blocking(descriptor, True)
            return stream.read(_MOST_BYTES + 1)
    except OSError as exc:
        raise AnsibleActionFail(f"Standard input cannot be read here ({exc.strerror}). {_HOW}") from None


def _decoded(content: bytes) -> str:
    if not content.strip():
        raise AnsibleActionFail(f"The text of the running server is empty. {_HOW}")
    if len(content) > _MOST_BYTES:
        raise AnsibleActionFail(f"The text is longer than {_MOST_BYTES} bytes; it is no command of a server.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise AnsibleActionFail("The text is not in UTF-8.") from None
