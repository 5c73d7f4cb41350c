# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A service as systemd has it: what state it is in, what a run would have to do with it, and doing that."""

from __future__ import annotations

import tempfile
import typing as t
from pathlib import Path

from .release import Releases, write
from .systemd import read_properties

if t.TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

#: Runs a command; gives exit status, standard output and standard error.
Command = t.Callable[[list[str]], tuple[int, str, str]]
RESTART = "restart"
START = "start"
ENABLE = "enable"
_PROPERTIES = "LoadState,ActiveState,SubState,NeedDaemonReload,UnitFileState,InvocationID"


class ServiceError(Exception):
    """systemd does not do what it is told. The text is systemd's."""


def commands_of(module: AnsibleModule) -> Command:
    """What runs commands for a module. It raises OSError where there is no such program."""

    def run(command: list[str]) -> tuple[int, str, str]:
        status, out, err = module.run_command(command, check_rc=False, handle_exceptions=False)
        return status, str(out), str(err)

    return run


class Service:
    """One unit. ``path`` is where it is installed."""

    def __init__(self, run: Command, unit: str, path: Path) -> None:
        self._run = run
        self.unit = unit
        self.path = path

    def state(self) -> dict[str, str]:
        """The unit's properties."""
        _status, out, _err = self._run(["systemctl", "show", f"--property={_PROPERTIES}", self.unit])
        return read_properties(out)

    def verify(self, text: str, others: t.Mapping[str, str] | None = None) -> None:
        """Have systemd read a unit's text under the unit's own name: before version 250 it takes no other.

        :param others: the texts of units that it needs, by their names.
        :raises ServiceError: systemd finds fault with one.
        """
        texts = {**(others or {}), self.unit: text}
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in texts]
            for path in paths:
                path.write_text(texts[path.name], encoding="utf-8")
            status, out, err = self._run(["systemd-analyze", "verify", *map(str, paths)])
        if status:
            raise ServiceError(f"systemd refuses the unit: {(err or out).strip()}")

    def due(self, releases: Releases, target: int | None, state: t.Mapping[str, str]) -> tuple[str, str]:
        """What has to be done for a release to run, and why; two empty texts where it runs.

        :param target: the number of a release that is there; None for a new one.
        """
        if target is None or target != releases.current:
            return RESTART, "another release is to run"
        if not self.path.exists() or self.path.read_text(encoding="utf-8") != releases.unit(target):
            return RESTART, "the installed unit is not that of the release"
        if state.get("NeedDaemonReload") == "yes":
            return RESTART, "systemd has not read the unit yet"
        if releases.note(target, "started") is None:
            return RESTART, "an interrupted run may have left another release running"
        # one that systemd will start again in a while still has the past in its journal
        if state.get("SubState") == "auto-restart":
            return RESTART, "the service fails and is started again and again"
        if state.get("SubState") != "running":
            return START, f"the service is {state.get('ActiveState', 'not there')}"
        if state.get("UnitFileState") != "enabled":
            return ENABLE, "the service would not start at boot"
        return "", ""

    def switch(self, releases: Releases, number: int, action: str) -> None:
        """Point at a release, install its unit and start it. The unit changes in one step, so a boot finds a whole one.

        ``begun`` is noted before and ``started`` after it: a run that was cut off in between is known by that.

        :raises ServiceError: systemd does not start it.
        :raises OSError: a file cannot be written.
        """
        if action != ENABLE:
            releases.write_note(number, "begun")
        if action == RESTART:
            releases.forget_note(number, "started")
            releases.point_at(number)
            write(self.path, releases.unit(number), 0o644)
            self.systemctl("daemon-reload")
        self.systemctl("enable", "--quiet", self.unit)
        if action == ENABLE:
            return
        # its limit is there for a service that fails by itself; it counts the starts of an operator as well
        self._run(["systemctl", "reset-failed", self.unit])
        self.systemctl(action, self.unit)
        releases.write_note(number, "started")

    def systemctl(self, *words: str) -> None:
        """Have systemd do something.

        :raises ServiceError: it does not.
        """
        status, out, err = self._run(["systemctl", *words])
        if status:
            raise ServiceError((err or out).strip() or f"systemctl {' '.join(words)} gave {status}")
