# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The host's own way back: a change that nobody confirms in time is undone, as routers do it.

A timer is armed before the switch and disarmed once the gate has been passed or the run itself has restored. It stays
on disk, so that a host that was switched off meanwhile goes back at its next boot. It needs nothing but a shell.
"""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path

from .release import Releases, write
from .service import Command, Service
from .systemd import exec_start


class Confirmation:
    """The timer of one service."""

    def __init__(self, run: Command, releases: Releases, service: Service) -> None:
        self._run = run
        self._releases = releases
        self._service = service
        name = service.unit[: -len(".service")]
        self.timer = f"{name}-unconfirmed.timer"
        self._unit = f"{name}-unconfirmed.service"

    def arm(self, number: int, fallback: int, seconds: float) -> None:
        """Go back to a release in so many seconds, unless disarmed.

        :param number: the release that is about to run.
        :raises OSError: a unit cannot be written.
        :raises ServiceError: systemd does not take the timer.
        """
        moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        self.disarm()
        write(self._path(self._unit), self._restore(number, fallback), 0o644)
        write(
            self._path(self.timer),
            "[Unit]\n"
            f"Description=Time limit for the confirmation of release {number} of {self._service.unit}\n"
            "[Timer]\n"
            f"OnCalendar={moment:%Y-%m-%d %H:%M:%S} UTC\n"
            # also after the host was switched off at that moment
            "Persistent=true\n"
            "AccuracySec=1s\n"
            "[Install]\n"
            "WantedBy=timers.target\n",
            0o644,
        )
        self._service.systemctl("daemon-reload")
        self._service.systemctl("enable", "--quiet", "--now", self.timer)

    def disarm(self) -> None:
        """Stay with what runs. Nothing happens where no timer is armed."""
        if self._path(self.timer).exists():
            self._run(["systemctl", "disable", "--quiet", "--now", self.timer])
            self._path(self.timer).unlink()
            self._path(self._unit).unlink(missing_ok=True)
            self._run(["systemctl", "clean", "--what=state", self.timer])
            self._run(["systemctl", "daemon-reload"])

    def _path(self, name: str) -> Path:
        return self._service.path.with_name(name)

    def _restore(self, number: int, fallback: int) -> str:
        home, installed = self._releases.home, self._service.path
        started = f"{home}/releases/{fallback}/started"
        steps = [
            # put away until it runs again: a run that finds it missing restarts the service
            ["mv", "-f", started, f"{started}.before"],
            ["touch", f"{home}/releases/{number}/unconfirmed"],
            ["ln", "-sfn", f"releases/{fallback}", f"{home}/.current.new"],
            ["mv", "-fT", f"{home}/.current.new", f"{home}/current"],
            ["cp", f"{home}/releases/{fallback}/unit", f"{installed}.new"],
            ["mv", "-f", f"{installed}.new", str(installed)],
            ["rm", "-f", str(self._path(self.timer)), str(self._path(self._unit))],
            ["rm", "-f", str(installed.with_name("timers.target.wants") / self.timer)],
            ["systemctl", "daemon-reload"],
            ["systemctl", "reset-failed", self._service.unit],
            ["systemctl", "restart", "--no-block", self._service.unit],
            ["mv", "-f", f"{started}.before", started],
        ]
        script = "; ".join(shlex.join(step) for step in steps)
        return (
            "[Unit]\n"
            f"Description=Restore release {fallback} of {self._service.unit}: nobody confirmed release {number}\n"
            "[Service]\n"
            "Type=oneshot\n"
            f"ExecStart={exec_start(['/bin/sh', '-c', script])}\n"
        )
