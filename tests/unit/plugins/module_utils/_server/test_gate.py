# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.gate import (
    READY,
    SLOW,
    WARMING_UP,
    Answer,
    Gate,
    GateError,
    Wanted,
    gibberish,
    how_it_ended,
    without_secrets,
)
from ansible_collections.inferops.serving.plugins.module_utils._server.journal import Line

RUNNING = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "Result": "success",
    "InvocationID": "one",
    "ExecMainCode": "0",
    "ExecMainStatus": "0",
}
FAILED = {**RUNNING, "ActiveState": "failed", "SubState": "failed", "ExecMainCode": "1", "ExecMainStatus": "1"}
TRACEBACK = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "OSError: no drafter"]
GENERATION = {"text": " a rack", "meta_info": {"spec_accept_length": 2.0}}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
CHAT = {"choices": [{"finish_reason": "length", "message": {"content": "once", "tool_calls": None}}]}
ABORTED = {"choices": [{"finish_reason": "abort", "message": {"content": ""}}]}
INFO = {"version": "0.5.19", "speculative_algorithm": "EAGLE3", "internal_states": [{"avg_spec_accept_length": 2.0}]}


class FakeHost:
    """A host whose looks, answers and clock are a script. The last entry of a list stays."""

    def __init__(
        self, health: list[int | None], units: list[dict[str, str]] | None = None, answers: Any = None
    ) -> None:
        self.clock = 0.0
        self.health = self._script(health)
        self.units = self._script(units or [RUNNING])
        self.answers = {
            "/v1/models": {"data": [{"id": "tiny"}]},
            "/generate": GENERATION,
            "/v1/chat/completions": CHAT,
            "/server_info": INFO,
            **(answers or {}),
        }
        self.asked: list[str] = []
        self.lines = ["loading", *TRACEBACK]

    @staticmethod
    def _script(entries: list[Any]) -> Iterator[Any]:
        yield from entries
        while True:
            yield entries[-1]

    def unit(self) -> dict[str, str]:
        return dict(next(self.units))

    def journal(self, invocation: str) -> list[Line]:
        return [Line("7", line) for line in self.lines] if invocation == "one" else []

    def get(self, path: str) -> Answer:
        if path == "/health":
            return Answer(next(self.health))
        return self._answer(path)

    def post(self, path: str, body: Any) -> Answer:
        return self._answer(path)

    def _answer(self, path: str) -> Answer:
        self.asked.append(path)
        answer = self.answers[path]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer if isinstance(answer, Answer) else Answer(200, answer)

    def now(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += seconds


def gate(host: FakeHost, invocation: str | None = None, **wanted: Any) -> Gate:
    return Gate(host, Wanted(**wanted), invocation)


def chat(**message: Any) -> dict[str, Any]:
    """The answer of a chat request that ended by itself."""
    return {"choices": [{"finish_reason": "stop", "message": message}]}


def proof_of(watched: Gate) -> dict[str, Any]:
    """Everything that a server shows."""
    proof: dict[str, Any] = {}
    assert watched.prove(proof)
    return proof


def test_closed_then_503_then_slow_then_ready() -> None:
    host = FakeHost([0, 0, 0, 503, 503, None, 200])
    watched = gate(host)
    assert [watched.watch(100) for _phase in range(3)] == [WARMING_UP, SLOW, READY]
    assert host.clock < 10


def test_a_phase_that_does_not_change_ends_with_its_time() -> None:
    host = FakeHost([503])
    watched = gate(host)
    assert watched.watch(30) == WARMING_UP
    assert host.clock == pytest.approx(30, abs=1)
    failure = watched.timed_out(WARMING_UP, 30)
    assert str(failure) == "still warming up after 30 s"
    assert failure.facts["journal"][-1] == "OSError: no drafter"


def test_another_status_is_waited_out_as_well() -> None:
    assert gate(FakeHost([500])).look() == "answering 500"


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (FAILED, "the server ended with exit status 1: OSError: no drafter"),
        ({**FAILED, "ExecMainCode": "2", "ExecMainStatus": "9"}, "the server was ended by signal 9: OSError"),
        ({**FAILED, "ActiveState": "activating", "SubState": "auto-restart"}, "exit status 1"),
        ({**FAILED, "ActiveState": "inactive", "ExecMainStatus": "0"}, "exit status 0"),
        ({**RUNNING, "InvocationID": "two"}, "was started again while it was watched: OSError: no drafter"),
        ({"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}, "the unit is not there"),
    ],
)
def test_a_unit_that_ends_while_it_loads_fails_the_gate_at_once(unit: dict[str, str], words: str) -> None:
    host = FakeHost([0], [RUNNING, RUNNING, RUNNING, RUNNING, unit])
    with pytest.raises(GateError, match=words) as failure:
        gate(host).watch(3600)
    assert host.clock <= 3
    if unit["LoadState"] == "loaded":
        assert failure.value.facts["traceback"] == "\n".join(TRACEBACK)


def test_a_unit_that_ends_between_the_looks_of_one_round_is_not_ready() -> None:
    with pytest.raises(GateError, match="exit status 1"):
        gate(FakeHost([200], [RUNNING, FAILED])).look()


def test_a_later_call_knows_the_start_that_the_first_one_saw() -> None:
    watched = gate(FakeHost([0]))
    watched.look()
    assert watched.invocation == "one"
    with pytest.raises(GateError, match="started again"):
        gate(FakeHost([200], [{**RUNNING, "InvocationID": "two"}]), invocation="one").look()


def test_a_ready_server_shows_model_text_and_accept_length() -> None:
    proof = proof_of(gate(FakeHost([200]), served_model_name="tiny", speculative=True, accept_length_min=1.9))
    assert [step["step"] for step in proof.pop("steps")] == ["model", "generation", "server info", "accept length"]
    assert proof == {
        "model": "tiny",
        "generation": GENERATION,
        "server_info": {"version": "0.5.19", "speculative_algorithm": "EAGLE3", "avg_spec_accept_length": 2.0},
        "accept_length": 2.0,
        "throughput": 0.0,
    }


def test_without_speculation_no_accept_length_is_asked_for() -> None:
    host = FakeHost([200], answers={"/server_info": {"version": "0.5.19", "internal_states": [{}]}})
    assert "accept_length" not in proof_of(gate(host))


def test_the_accept_length_is_waited_for_a_bounded_number_of_generations() -> None:
    late = [{**INFO, "internal_states": [{}]}] * 3 + [INFO]
    assert proof_of(gate(FakeHost([200], answers={"/server_info": late}), speculative=True))["accept_length"] == 2.0
    never = FakeHost([200], answers={"/server_info": {**INFO, "internal_states": [{}]}, "/generate": {"text": "x"}})
    with pytest.raises(GateError, match="shows no accept length"):
        gate(never, speculative=True).prove({})
    assert never.asked.count("/generate") == 21


@pytest.mark.parametrize(
    ("answers", "wanted", "words"),
    [
        ({"/v1/models": {"data": [{"id": "other"}]}}, {"served_model_name": "tiny"}, "serves other, not tiny"),
        ({"/v1/models": {"data": []}}, {"served_model_name": "tiny"}, "serves nothing, not tiny"),
        ({"/v1/models": Answer(404, "no")}, {}, "/v1/models gave status 404"),
        ({"/generate": {"text": "  "}}, {}, "generates nothing"),
        ({"/generate": {"text": "\ufffd\ufffd a"}}, {}, "generates bytes that are no text"),
        ({"/generate": {"text": "!" * 16, "output_ids": [0] * 16}}, {}, "generates one token 16 times"),
        ({"/generate": {"text": "!" * 20}}, {}, "generates one token 20 times"),
        ({"/v1/chat/completions": Answer(400, {})}, {"tool_calls": True}, "/v1/chat/completions gave status 400"),
        ({"/v1/chat/completions": {"choices": []}}, {"tool_calls": True}, "gave no choice with a message"),
        ({"/v1/chat/completions": chat(tool_calls=["weather"])}, {"tool_calls": True}, "in no form of a tool call"),
        ({"/v1/chat/completions": ABORTED}, {"json_schema": True}, "/v1/chat/completions was aborted by the server"),
        ({"/v1/chat/completions": chat(content="Paris")}, {"json_schema": True}, "for JSON with something else"),
        ({"/v1/chat/completions": chat(content='{"a": 1}')}, {"json_schema": True}, "for JSON with something else"),
        (
            {"/server_info": {**INFO, "speculative_num_steps": 1}},
            {"speculative": True, "speculation": {"algorithm": "EAGLE3", "steps": 3, "topk": 4}},
            "speculative_num_steps is 1, planned is 3; speculative_eagle_topk is None, planned is 4",
        ),
        ({}, {"throughput_min": 10.0}, "generates 0.0 tokens per second, below 10.0"),
        ({"/generate": Answer(500, {})}, {}, "/generate gave status 500"),
        ({"/generate": Answer(None)}, {}, "/generate gave no answer in time"),
        ({"/server_info": {"internal_states": []}}, {"speculative": True}, "without speculation"),
        (
            {"/server_info": {**INFO, "internal_states": [{"avg_spec_accept_length": 1.03}]}},
            {"speculative": True, "accept_length_min": 1.5},
            "accept length is 1.03, below 1.5",
        ),
    ],
)
def test_a_server_that_does_not_show_what_it_must(answers: dict[str, Any], wanted: dict[str, Any], words: str) -> None:
    with pytest.raises(GateError, match=words):
        gate(FakeHost([200], answers=answers), **wanted).prove({})


def test_a_server_that_ends_of_a_request_is_said_to_have_ended() -> None:
    host = FakeHost([200], [FAILED], answers={"/generate": Answer(0)})
    with pytest.raises(GateError, match="exit status 1: OSError: no drafter"):
        gate(host, invocation="one").prove({})


def test_an_end_that_is_neither_exit_nor_signal() -> None:
    assert (
        how_it_ended({"ActiveState": "failed", "Result": "start-limit-hit"}) == "the unit is failed (start-limit-hit)"
    )
    killed = {"ActiveState": "failed", "Result": "oom-kill", "ExecMainCode": "2", "ExecMainStatus": "9"}
    assert how_it_ended(killed) == "the server was ended by signal 9 (oom-kill)"


def test_the_steps_are_asked_in_order_and_a_failed_one_is_named_with_its_seconds() -> None:
    host = FakeHost([200], answers={"/v1/chat/completions": [chat(tool_calls=[CALL]), Answer(500)]})
    with pytest.raises(GateError) as failure:
        gate(host, tool_calls=True, json_schema=True, speculative=True).prove({})
    assert failure.value.facts["step"] == "json"
    assert [step["step"] for step in failure.value.facts["steps"]] == ["model", "generation", "tool call", "json"]
    assert host.asked == ["/v1/models", "/generate", "/v1/chat/completions", "/v1/chat/completions"]


def test_a_proof_goes_on_where_the_call_before_left_it() -> None:
    host = FakeHost([200])
    proof: dict[str, Any] = {}
    watched = gate(host, documents=True)
    calls = 1
    while not watched.prove(proof, 0):
        calls += 1
    assert calls == 4
    assert host.asked == ["/v1/models", "/generate", "/server_info", "/server_info", "/v1/models"]
    assert set(proof["documents"]) == {"server_info", "models", "generation"}


def test_a_server_that_is_restarted_by_a_request_is_not_proved() -> None:
    host = FakeHost([200], [RUNNING, {**RUNNING, "InvocationID": "two"}])
    with pytest.raises(GateError, match="started again while it was watched"):
        gate(host, invocation="one").prove({})


def test_the_probe_is_longer_than_the_decode_log_interval() -> None:
    class Counting(FakeHost):
        def post(self, path: str, body: Any) -> Answer:
            lengths.append(body["sampling_params"]["max_new_tokens"])
            return super().post(path, body)

    lengths: list[int] = []
    host = Counting([200], answers={"/server_info": {**INFO, "speculative_num_draft_tokens": 4}})
    proof_of(gate(host, speculative=True, speculation={"draft_tokens": 4}, decode_log_interval=100))
    assert lengths == [64, 404]


@pytest.mark.parametrize(
    "answer",
    [
        {"text": " a", "output_ids": [1]},
        {"text": " no no no no", "output_ids": [7] * 15},
        {"text": "an emoji cut off \ufffd"},
        {"text": "x"},
        {"text": "1 2", "output_ids": [1, 2] * 40},
    ],
)
def test_the_text_of_a_small_model_is_no_gibberish(answer: dict[str, Any]) -> None:
    assert gibberish(answer) is None


def test_secrets_leave_the_server_info_and_counts_stay() -> None:
    told = {"api_key": "x", "admin_api_key": "x", "ssl_keyfile_password": "x", "tokenizer_path": "/m", "max_tokens": 4}
    assert without_secrets({**told, "states": [told]}) == {
        "tokenizer_path": "/m",
        "max_tokens": 4,
        "states": [{"tokenizer_path": "/m", "max_tokens": 4}],
    }
