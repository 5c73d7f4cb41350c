# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the operator sees while a model is fetched: the module's slices put together."""

from __future__ import annotations

import types
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.action import model_snapshot

Answer = dict[str, Any]
GB = 10**9


class Watched(model_snapshot.ActionModule):
    """The action with a script in the place of the module, and a clock that goes on by a slice with each call."""

    def __init__(self, answers: list[Answer]) -> None:
        self.lines: list[str] = []
        self._task = types.SimpleNamespace(
            args={"lock": {"repo": "org/name"}}, check_mode=False, async_val=0, diff=False
        )
        self._display = types.SimpleNamespace(display=self.lines.append)
        self._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/nowhere"))
        self._supports_async = False
        self.answers = answers
        self.calls: list[Answer] = []
        self.clock = 0.0

    def _execute_module(self, *_words: Any, **given: Any) -> Answer:
        self.calls.append(dict(given["module_args"]))
        self.clock += given["module_args"]["slice"]
        return self.answers[len(self.calls) - 1]


def watch(monkeypatch: pytest.MonkeyPatch, action: Watched) -> Answer:
    monkeypatch.setattr(model_snapshot, "time", types.SimpleNamespace(monotonic=lambda: action.clock))
    return action.run(task_vars={"inventory_hostname": "gpu1"})


def under_way(done: int, total: int | None = 100 * GB, **more: Any) -> Answer:
    return {"changed": False, "progress": {"bytes_done": done, "bytes_total": total, "seconds": 5, **more}}


def test_one_call_is_enough_where_there_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    action = Watched([{"changed": False, "msg": "complete"}])
    assert watch(monkeypatch, action)["msg"] == "complete"
    assert action.lines == []
    assert action.calls == [{"lock": {"repo": "org/name"}, "slice": 5.0}]


def test_a_line_tells_bytes_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = (10, 20, 30, 40, 50)
    action = Watched([*(under_way(moment * GB) for moment in moments), {"changed": True, "msg": "published"}])
    assert watch(monkeypatch, action) == {"changed": True, "msg": "published"}
    assert action.lines == [
        "gpu1: org/name, 10.0 GB of 100.0 GB fetched, 2.0 GB/s, about 45 s left",
        # 20 GB in the 30 s since
        "gpu1: org/name, 30.0 GB of 100.0 GB fetched, 666.7 MB/s, about 2 min left",
        "gpu1: org/name, 50.0 GB of 100.0 GB fetched, 666.7 MB/s, about 1 min left",
    ]
    assert [call.get("follow") for call in action.calls] == [None, True, True, True, True, True]


def test_a_failure_of_the_unit_is_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    action = Watched([under_way(0), {"failed": True, "msg": "no space"}])
    assert watch(monkeypatch, action) == {"changed": False, "failed": True, "msg": "no space"}


def test_what_the_first_call_changed_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    action = Watched([{**under_way(0), "changed": True}, {"changed": False, "msg": "complete"}])
    assert watch(monkeypatch, action)["changed"] is True


@pytest.mark.parametrize(
    ("progress", "rate", "said"),
    [
        ({}, 0, "0.0 MB read and proved"),
        ({"bytes_done": 0, "bytes_total": None, "bytes_hashed": 3 * GB}, 0, "3.0 GB read and proved"),
        ({"bytes_done": 5, "bytes_total": 0, "bytes_hashed": 2 * GB}, 5, "2.0 GB read and proved"),
        ({"bytes_done": GB, "bytes_total": 2 * GB}, 0, "1.0 GB of 2.0 GB fetched, 0.0 MB/s"),
        # bytes that proved bad came again
        ({"bytes_done": 3 * GB, "bytes_total": 2 * GB}, GB, "3.0 GB of 2.0 GB fetched, 1.0 GB/s"),
    ],
)
def test_in_words(progress: dict[str, Any], rate: float, said: str) -> None:
    assert model_snapshot.in_words(progress, rate) == said
