# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.inferops.serving.plugins.module_utils._server.diagnosis import diagnose, differing_flags
from ansible_collections.inferops.serving.plugins.module_utils._server.release import Content, Releases

SHOWN = """LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
ActiveEnterTimestamp=Wed 2026-12-02 16:00:00 UTC
MainPID=7
NRestarts=2
Result=success
"""


def show(_command: list[str]) -> tuple[int, str, str]:
    return 0, SHOWN, ""


def test_a_service_that_runs(tmp_path: Path) -> None:
    releases = Releases(tmp_path / "main")
    models = [{"role": "target", "repo": "tiny/k2", "revision": "abc"}]
    plan = {"argv": ["--port", "1", "--tp-size", "8"], "engine": {"path": "/opt/e"}, "models": models}
    number = releases.stage(Content("[Unit]\n", 'KEY="canary"\n', plan))
    releases.point_at(number)
    releases.write_note(number, "accepted", accept_length=2.5)
    folder = tmp_path / "main/evidence/20261202T1500"
    folder.mkdir(parents=True)
    (folder / "cause.json").write_text(json.dumps({"release": 9, "time": "then", "cause": "no port"}))
    (tmp_path / "proc/7").mkdir(parents=True)
    words = ["/opt/e/bin/python", "-m", "sglang.launch_server", "--port", "2", "--tp-size", "8"]
    (tmp_path / "proc/7/cmdline").write_bytes("".join(f"{word}\0" for word in words).encode())
    found = diagnose(show, releases, "a.service", ["--port", "1", "--tp-size", "8"], tmp_path / "proc")
    assert found["argv"] == ["--port", "2", "--tp-size", "8"]
    accepted = releases.note(1, "accepted")
    assert accepted
    assert found["report"] == [
        "a.service: active (running), enabled; active since: Wed 2026-12-02 16:00:00 UTC;"
        " started again by systemd 2 times",
        f"release 1, accepted {accepted['time']} with accept length 2.50; previous: none; kept: 1",
        "engine /opt/e",
        "target tiny/k2 at abc",
        "the process and its release differ:",
        "  - --port 2",
        "  + --port 1",
        "the release and the inventory's plan have the same flags",
        "last failure: release 9 at then: no port",
        f"its evidence: {folder}",
    ]
    assert "canary" not in json.dumps(found)


def test_a_host_without_a_service(tmp_path: Path) -> None:
    found = diagnose(lambda _command: (0, "LoadState=not-found\n", ""), Releases(tmp_path), "a.service", None, tmp_path)
    assert found["report"] == ["a.service is not installed", "no release is deployed"]
    assert (found["plan"], found["evidence"], found["releases"]) == (None, None, [])


def test_flags_are_compared_with_their_values() -> None:
    assert differing_flags(["--a", "1", "--b"], ["--b", "--a", "2", "3"]) == ["- --a 1", "+ --a 2 3"]
