# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate's view of a host: what systemctl and journalctl print is read right, and HTTP is a real server's."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.gate import Answer
from ansible_collections.inferops.serving.plugins.module_utils._server.journal import Line
from ansible_collections.inferops.serving.plugins.module_utils._server.machine import Machine


class Handler(http.server.BaseHTTPRequestHandler):
    """/slow answers after a while, /text no JSON, /cut less than it says, everything else what it was asked."""

    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(1)
        body = b"no JSON" if self.path == "/text" else json.dumps({"asked": self.path}).encode()
        self._send(503 if self.path == "/health" else 200, body, len(body) + (self.path == "/cut"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(200, body, len(body))

    def _send(self, status: int, body: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def nothing(command: list[str]) -> str:
    raise AssertionError(command)


def printing(**texts: str) -> Callable[[list[str]], str]:
    """A host whose commands print these texts."""
    return lambda command: "" if "--sync" in command else texts[command[0]]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/health", Answer(503, {"asked": "/health"})),
        ("/v1/models", Answer(200, {"asked": "/v1/models"})),
        ("/text", Answer(200, "no JSON")),
        ("/cut", Answer(None)),
        ("/slow", Answer(None)),
    ],
)
def test_answers_of_a_real_server(url: str, path: str, answer: Answer) -> None:
    assert Machine(nothing, "a.service", url, health_timeout=5, answer_timeout=0.3).get(path) == answer


def test_what_is_posted_arrives_as_json(url: str) -> None:
    assert Machine(nothing, "a.service", url, 5).post("/generate", {"text": "Grüße"}) == Answer(200, {"text": "Grüße"})


def test_a_proxy_of_the_environment_is_not_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Machine(nothing, "a.service", url, 5).get("/v1/models").status == 200


def test_a_closed_port_is_not_the_same_as_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        assert Machine(nothing, "a.service", f"http://127.0.0.1:{port}", 0.1).get("/health") == Answer(None)
    assert Machine(nothing, "a.service", f"http://127.0.0.1:{port}", 0.1).get("/health") == Answer(0)


def test_the_properties_of_a_unit() -> None:
    run = printing(systemctl="LoadState=loaded\nActiveState=active\nStatusText=a=b\nInvocationID=\n")
    assert Machine(run, "a.service", "http://127.0.0.1", 5).unit() == {
        "LoadState": "loaded",
        "ActiveState": "active",
        "StatusText": "a=b",
        "InvocationID": "",
    }


def entry(pid: str, message: Any, **names: str) -> str:
    return json.dumps({"MESSAGE": message, "_PID": pid, **names})


def test_the_journal_of_one_start_has_also_the_lines_that_journald_could_not_place() -> None:
    entries = [
        entry("5", "of the start before", _SYSTEMD_INVOCATION_ID="one"),
        entry("6", "also of the start before"),
        entry("1", "Starting a.service", INVOCATION_ID="two"),
        entry("7", "loading\nweights", _SYSTEMD_INVOCATION_ID="two"),
        entry("7", list("Grüße\xff".encode("latin-1")), _SYSTEMD_INVOCATION_ID="two"),
        entry("8", None, _SYSTEMD_INVOCATION_ID="two"),
        entry("7", "last words"),
        entry("1", "Main process exited", INVOCATION_ID="two"),
        entry("1", "Starting a.service", INVOCATION_ID="three"),
        entry("1", "Stopped a.service", INVOCATION_ID="two"),
    ]
    machine = Machine(printing(journalctl="\n".join(entries) + "\n"), "a.service", "http://127.0.0.1", 5)
    assert machine.journal("two") == [
        Line("1", "Starting a.service"),
        Line("7", "loading"),
        Line("7", "weights"),
        Line("7", "Gr��e�"),
        Line("8", ""),
        Line("7", "last words"),
        Line("1", "Main process exited"),
    ]
    assert machine.journal("four") == []
