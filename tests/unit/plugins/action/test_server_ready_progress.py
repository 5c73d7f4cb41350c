# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the operator sees while the server loads: the module's slices put together."""

from __future__ import annotations

import types
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.action import server_ready

Answer = dict[str, Any]


class Watched(server_ready.ActionModule):
    """The action with a script in the place of the module, and a clock that goes on by a slice with each call."""

    def __init__(self, answers: list[Answer], check_mode: bool = False) -> None:
        self.lines: list[str] = []
        self._task = types.SimpleNamespace(
            args={"unit": "a.service", "timeout": 3600}, check_mode=check_mode, async_val=0, diff=False
        )
        self._display = types.SimpleNamespace(display=self.lines.append)
        self._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/nowhere"))
        self._supports_async = False
        self.answers = answers
        self.calls: list[Answer] = []
        self.clock = 0.0

    def _execute_module(self, *_words: Any, **given: Any) -> Answer:
        self.calls.append(given["module_args"])
        self.clock += 10
        return self.answers[len(self.calls) - 1]


def watch(monkeypatch: pytest.MonkeyPatch, action: Watched) -> Answer:
    monkeypatch.setattr(server_ready, "time", types.SimpleNamespace(monotonic=lambda: action.clock))
    return action.run(task_vars={"inventory_hostname": "gpu1"})


def slice_of(phase: str, **more: Any) -> Answer:
    return {
        "changed": False,
        "phase": phase,
        "timeline": [{"phase": phase, "seconds": 0.2}],
        "invocation_id": "one",
        **more,
    }


def test_every_phase_is_shown_once_and_stands_in_the_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = slice_of("ready", ready=True, accept_length=2.0)
    action = Watched([slice_of("loading"), slice_of("loading"), slice_of("warming up"), ready])
    result = watch(monkeypatch, action)
    assert action.lines == [
        "gpu1: loading (0 s)",
        "gpu1: warming up (20 s)",
        "gpu1: ready (30 s)",
        "gpu1: answers, accept length 2.00 (40 s)",
    ]
    assert result["timeline"] == [
        {"phase": "loading", "seconds": 0.2},
        {"phase": "warming up", "seconds": 20.2},
        {"phase": "ready", "seconds": 30.2},
    ]
    assert [call["waited"] for call in action.calls] == [0, 10, 20, 30]
    assert [call.get("invocation_id") for call in action.calls] == [None, "one", "one", "one"]
    assert {call["timeout"] for call in action.calls} == {3600}


def test_a_long_phase_is_shown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    action = Watched([slice_of("loading")] * 14 + [slice_of("ready", ready=True)])
    watch(monkeypatch, action)
    assert action.lines == [
        "gpu1: loading (0 s)",
        "gpu1: still loading (80 s)",
        "gpu1: ready (140 s)",
    ]


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_failure_and_check_mode_end_it(monkeypatch: pytest.MonkeyPatch, check_mode: bool) -> None:
    answer = slice_of("loading") if check_mode else slice_of("loading", failed=True, msg="no drafter")
    action = Watched([answer], check_mode)
    assert watch(monkeypatch, action).get("msg") == answer.get("msg")
    assert len(action.calls) == 1


DOCUMENTS = {"server_info": {"max_running_requests": 32}, "models": {}, "generation": {}}
STEPS = [{"step": "model", "seconds": 0.1}, {"step": "generation", "seconds": 9.9}]


def test_what_is_proved_is_shown_as_it_goes_and_every_step_is_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    partly = slice_of("ready", proof={"steps": STEPS[:1]})
    action = Watched([slice_of("loading"), partly, slice_of("ready", ready=True, steps=STEPS)])
    result = watch(monkeypatch, action)
    assert action.lines[2:] == ["gpu1: shown: model (20 s)", "gpu1: shown: generation (30 s)"]
    assert action.calls[2]["proof"] == {"steps": STEPS[:1]}
    assert result["steps"] == [{"step": "loading", "seconds": 10.0}, *STEPS]


@pytest.mark.parametrize(("least", "fails"), [(32, False), (64, True)])
def test_expectations_are_evaluated_on_the_controller(monkeypatch: pytest.MonkeyPatch, least: int, fails: bool) -> None:
    action = Watched([slice_of("ready", ready=True, steps=STEPS, documents=DOCUMENTS)])
    action._task.args["expect"] = [{"name": "room", "query": "server_info.max_running_requests", "min": least}]
    result = watch(monkeypatch, action)
    assert "documents" not in result
    assert result["steps"][-1]["step"] == "expectations"
    assert (bool(result.get("failed")), result["ready"]) == (fails, not fails)
    if fails:
        words = "not as expected: room: server_info.max_running_requests is 32, wanted min 64"
        assert result["msg"] == f"a.service: {words}"
        assert [one["name"] for one in result["expectations"]] == ["room"]


def test_a_known_cause_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "/e/server_args.py", line 3598, in _handle_speculative_decoding\n'
        "    assert (\n"
        "AssertionError"
    )
    failed = slice_of("loading", failed=True, msg="a.service: AssertionError.", cause="exit", traceback=traceback)
    result = watch(monkeypatch, Watched([failed]))
    assert [one["id"] for one in result["explained"]] == ["spec-steps-missing"]
    assert result["msg"].endswith("[spec-steps-missing, docs/rules.md#spec-steps-missing]")


def test_the_journal_explains_where_there_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = ["OSError: [Errno 28] No space left on device"]
    failed = slice_of("loading", failed=True, msg="a", cause="the server ended", traceback="", journal=journal)
    assert [one["id"] for one in watch(monkeypatch, Watched([failed]))["explained"]] == ["disk-full"]
    unknown = slice_of("loading", failed=True, msg="a", cause="the server ended")
    result = watch(monkeypatch, Watched([unknown]))
    assert (result["explained"], result["msg"]) == ([], "a")
