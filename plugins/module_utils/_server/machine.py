# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The gate's view of a real host: systemctl, journalctl and HTTP on the host itself."""

from __future__ import annotations

import http.client
import json
import time
import typing as t
import urllib.parse

from .gate import Answer
from .journal import Line
from .systemd import read_properties

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "NRestarts",
    "MainPID",
    "InvocationID",
    "ExecMainCode",
    "ExecMainStatus",
)
_MOST_LINES = 5000

#: A journal entry's fields.
Entry = t.Mapping[str, t.Any]
#: Runs a command and gives its standard output.
Run = t.Callable[[list[str]], str]


class Machine:
    """A :class:`gate.Host`. HTTP time-outs in seconds. ``api_key`` goes with every request."""

    def __init__(
        self,
        run: Run,
        unit: str,
        url: str,
        health_timeout: float,
        answer_timeout: float = 120,
        api_key: str | None = None,
    ) -> None:
        self._run = run
        self._unit = unit
        parts = urllib.parse.urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._health_timeout = health_timeout
        self._answer_timeout = answer_timeout
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def unit(self) -> dict[str, str]:
        """Properties of the unit."""
        return read_properties(self._run(["systemctl", "show", f"--property={','.join(_PROPERTIES)}", self._unit]))

    def journal(self, invocation: str) -> list[Line]:
        """The journal of one start of the unit, its own lines and systemd's, out of the unit's last 5,000 lines."""
        # the last words of a process may still be on their way
        self._run(["journalctl", "--sync"])
        fields = "MESSAGE,_PID,INVOCATION_ID,_SYSTEMD_INVOCATION_ID"
        command = ["journalctl", "--quiet", "--no-pager", "--all", "--output=json", f"--output-fields={fields}"]
        shown = self._run([*command, f"--lines={_MOST_LINES}", f"--unit={self._unit}"])
        entries = _of_one_start([json.loads(entry) for entry in shown.splitlines()], invocation)
        return [line for entry in entries for line in _lines(entry)]

    def get(self, path: str) -> Answer:
        """GET a path of the server."""
        return self._ask("GET", path, None, self._health_timeout if path == "/health" else self._answer_timeout)

    def post(self, path: str, body: t.Any) -> Answer:
        """POST JSON to a path of the server."""
        return self._ask("POST", path, json.dumps(body), self._answer_timeout)

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let that time pass."""
        time.sleep(seconds)

    def _ask(self, method: str, path: str, body: str | None, timeout: float) -> Answer:
        # a connection each: proxies from the environment must not come between a host and itself
        connection = http.client.HTTPConnection(*self._address, timeout=timeout)
        try:
            connection.request(method, path, body, self._headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except ConnectionRefusedError:
            return Answer(0)
        except (OSError, http.client.HTTPException):
            return Answer(None)
        finally:
            connection.close()
        try:
            return Answer(answer.status, json.loads(text))
        except ValueError:
            return Answer(answer.status, text)


def _of_one_start(entries: t.Sequence[Entry], invocation: str) -> list[Entry]:
    """The entries from the first to the last that names the start, with those between that name none.

    journald looks up the start of a process when it reads what that has written. Of one that ends at once after its
    last words it finds nothing any more, so these cannot be asked for by the start.
    """
    named = [entry.get("INVOCATION_ID") or entry.get("_SYSTEMD_INVOCATION_ID") for entry in entries]
    if invocation not in named:
        return []
    first = named.index(invocation)
    others = (place for place in range(first, len(named)) if named[place] not in (None, invocation))
    return list(entries[first : next(others, len(named))])


def _lines(entry: Entry) -> list[Line]:
    """One entry of the journal, as ``--output=json`` writes it: a text that is not UTF-8 comes as numbers."""
    message = entry.get("MESSAGE") or ""
    text = message if isinstance(message, str) else bytes(message).decode(errors="replace")
    return [Line(str(entry.get("_PID")), line) for line in text.split("\n")]
