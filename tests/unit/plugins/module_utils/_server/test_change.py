# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change step by step, with a host that answers what it is told to."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.change import Result, change

STAGED: Result = {
    "changed": True,
    "release": 8,
    "current": 7,
    "accepted": False,
    "was_accepted": False,
    "action": "restart",
    "why": "another release is to run",
    "interrupts": True,
    "fallback": 7,
    "gate": {"unit": "a.service", "timeout": 900},
}
GOOD: Result = {"ready": True, "phase": "ready", "accept_length": 2.0}
BAD: Result = {"failed": True, "cause": "the server ended", "traceback": "Traceback ..."}


class Host:
    """Answers by state, one after the other; what it was asked is kept in order."""

    def __init__(self, staged: Result | list[Result], gates: list[Result], **others: Result) -> None:
        self.staged = staged if isinstance(staged, list) else [staged]
        self.gates = gates
        self.others = others
        self.asked: list[tuple[str, t.Any]] = []
        self.said: list[str] = []
        self.dead = False

    def release(self, state: str, **arguments: t.Any) -> Result:
        self.asked.append((state, arguments.get("release")))
        if state == "staged":
            return self.staged.pop(0)
        answers: dict[str, Result] = {
            "switched": {"changed": True, "invocation_id": "i"},
            "accepted": {"changed": True},
            "failed": {"evidence": f"/e/{arguments.get('release')}", "fallback": 7, "gate": {"unit": "a.service"}},
        }
        return self.others.get(f"{state}_{arguments.get('release')}", answers.get(state, {}))

    def gate(self, gate: t.Mapping[str, t.Any], invocation: str | None) -> Result:
        self.asked.append(("gate", gate.get("timeout")))
        return self.gates.pop(0)

    def is_dead(self, owner: t.Mapping[str, t.Any]) -> bool:
        return self.dead

    def say(self, words: str) -> None:
        self.said.append(words)


def test_a_good_release_is_accepted() -> None:
    host = Host(STAGED, [GOOD])
    result = change(host, {}, check=False)
    assert (result["outcome"], result["release"], result["before"], result["accept_length"]) == ("changed", 8, 7, 2.0)
    assert (result["changed"], result["seconds"] >= 0) == (True, True)
    assert host.asked == [("staged", None), ("switched", 8), ("gate", 900), ("accepted", 8)]


def test_what_runs_is_asked_and_nothing_else_is_done() -> None:
    same = {**STAGED, "changed": False, "release": 7, "accepted": True, "was_accepted": True, "action": "", "why": ""}
    host = Host(same, [GOOD])
    result = change(host, {}, check=False)
    assert (result["outcome"], result["changed"]) == ("unchanged", False)
    assert host.asked == [("staged", None), ("gate", 900)]


def test_other_terms_of_the_gate_are_kept_once_they_are_met() -> None:
    same = {**STAGED, "release": 7, "accepted": True, "was_accepted": True, "action": "", "why": ""}
    host = Host(dict(same), [GOOD])
    assert change(host, {"gate": {"unit": "a"}}, check=False)["outcome"] == "changed"
    assert host.asked[-1] == ("accepted", 7)
    unmet = Host(dict(same), [BAD])
    assert change(unmet, {"gate": {"unit": "a"}}, check=False)["outcome"] == "failed"
    assert ("accepted", 7) not in unmet.asked


def test_check_mode_says_what_would_be_and_does_nothing() -> None:
    host = Host(STAGED, [])
    result = change(host, {}, check=True)
    assert (result["outcome"], result["changed"], result["interrupts"]) == ("would change", True, True)
    assert host.asked == [("staged", None)]
    assert host.said == ["would restart as release 8: another release is to run, and interrupts the service"]


SAME: Result = {**STAGED, "changed": False, "release": 7, "accepted": True, "action": "", "why": "", "due": False}


@pytest.mark.parametrize(
    ("staged", "gates", "outcome", "asked"),
    [
        (SAME, [GOOD], "unchanged", 2),
        (SAME, [BAD], "not ready", 2),
        # as check mode says it
        (SAME, [{"cause": "the server ended"}], "not ready", 2),
        (SAME, [{"phase": "loading weights"}], "not ready", 2),
        ({**STAGED, "due": True}, [], "due", 1),
        ({"failed": True, "msg": "somebody changes this service", "held_by": {"pid": 1}}, [], "due", 1),
    ],
)
def test_a_service_that_is_held_is_asked_or_left_alone(
    staged: Result, gates: list[Result], outcome: str, asked: int
) -> None:
    host = Host(staged, gates)
    result = change(host, {}, check=False, hold=True)
    assert (result["outcome"], result["changed"], result.get("failed")) == (outcome, False, None)
    # one that does not answer at once is not waited for
    assert host.asked == [("staged", None), ("gate", 0)][:asked]
    assert host.said == []


def test_what_is_refused_before_the_switch_touches_nothing() -> None:
    host = Host({"failed": True, "msg": "the engine refuses it", "current": 7}, [])
    result = change(host, {}, check=False)
    assert (result["outcome"], result["before"], result["msg"]) == ("refused", 7, "the engine refuses it")
    assert host.asked == [("staged", None)]


@pytest.mark.parametrize("switched", [{}, {"switched_8": {"failed": True, "msg": "systemd does not start it"}}])
def test_what_fails_is_replaced_by_what_ran(switched: dict[str, Result]) -> None:
    host = Host(STAGED, [BAD, GOOD], **switched)
    result = change(host, {}, check=False)
    assert (result["failed"], result["outcome"], result["restored"]) == (True, "restored", 7)
    assert result["evidence"] == ["/e/8"]
    assert result["msg"] == (
        "release 8 failed: the server ended. Release 7 is restored and answers, accept length 2.00. "
        "Evidence on the host: /e/8"
    )
    assert host.asked[-4:] == [("failed", 8), ("switched", 7), ("gate", None), ("accepted", 7)]


def test_a_restore_that_fails_is_loud_and_gives_the_lock_back() -> None:
    host = Host(STAGED, [BAD, {"failed": True, "msg": "no answer"}])
    result = change(host, {}, check=False)
    assert (result["outcome"], result["evidence"]) == ("failed", ["/e/8", "/e/7"])
    assert "THE SERVICE IS DOWN: release 7 could not be restored either: no answer." in result["msg"]
    assert host.asked[-1] == ("unlocked", None)


def test_evidence_that_could_not_be_kept_is_said_beside_the_other_warnings() -> None:
    lost: Result = {"evidence": None, "fallback": 7, "gate": {}, "warnings": ["no room"]}
    host = Host({**STAGED, "fingerprint": "0" * 64}, [BAD, BAD], failed_8=lost, failed_7={"warnings": ["still none"]})
    result = change(host, {"plan": {"engine": {"version": "0.5.19"}}}, check=False)
    assert (result["outcome"], result["evidence"]) == ("failed", [])
    assert "fork" in result["warnings"][0]
    assert result["warnings"][1:] == ["no room", "still none"]


def test_a_host_that_cannot_tell_the_way_back_says_why() -> None:
    host = Host(STAGED, [BAD], failed_8={"failed": True, "msg": "plan.json cannot be read"})
    result = change(host, {}, check=False)
    assert (result["outcome"], result["evidence"]) == ("failed", [])
    assert result["msg"].endswith("Nothing is restored: plan.json cannot be read.")
    assert host.asked[-1] == ("unlocked", None)


def test_a_first_release_has_nothing_to_go_back_to() -> None:
    first = {**STAGED, "release": 1, "current": None, "fallback": None}
    host = Host(first, [BAD], failed_1={"evidence": "/e/1", "fallback": None})
    result = change(host, {}, check=False)
    assert result["msg"].startswith("release 1 failed: the server ended. Nothing is restored: no other release")
    assert host.asked[-1] == ("unlocked", None)


def test_an_accepted_release_that_fails_without_a_change_is_left() -> None:
    same = {**STAGED, "changed": False, "release": 7, "accepted": True, "was_accepted": True, "action": ""}
    host = Host(same, [BAD])
    result = change(host, {}, check=False)
    assert result["msg"].startswith("release 7 failed: the server ended. Nothing is restored: it had been accepted")
    assert [step for step, _release in host.asked] == ["staged", "gate", "failed", "unlocked"]


def test_an_interrupted_change_that_fails_now_is_undone() -> None:
    cut_off = {**STAGED, "changed": False, "current": 8}
    host = Host(cut_off, [BAD, GOOD])
    assert change(host, {}, check=False)["outcome"] == "restored"


def test_the_lock_of_a_dead_run_is_taken_over_and_that_of_a_living_one_is_not() -> None:
    held = {"failed": True, "msg": "ops@c changes this service", "held_by": {"run": "r1"}}
    host = Host([held, STAGED], [GOOD])
    host.dead = True
    assert change(host, {}, check=False)["outcome"] == "changed"
    living = Host([held], [])
    assert change(living, {}, check=False)["outcome"] == "refused"


@pytest.mark.parametrize(
    ("digest", "version", "words"),
    [
        ("366090c957ae844b", "0.5.11", None),
        ("366090c957ae844b", "0.5.23", "is not that of SGLang 0.5.23 but that of 0.5.11."),
        ("0", "0.5.23", "but that of no known release: a fork, or patched."),
        (None, "0.5.23", None),
        ("0", "0.9", None),
    ],
)
def test_an_engine_that_is_no_known_release_is_told(digest: str | None, version: str, words: str | None) -> None:
    result = change(Host({**STAGED, "fingerprint": digest}, [GOOD]), {"plan": {"engine": {"version": version}}}, False)
    if words is None:
        assert "warnings" not in result
    else:
        assert words in result["warnings"][0]


TRACEBACK = """Traceback (most recent call last):
  File "/e/sglang/srt/server_args.py", line 4, in _handle_speculative_decoding
    assert self.speculative_eagle_topk is None
AssertionError
"""


def test_what_the_engine_refuses_without_words_is_explained_by_the_planners_rule() -> None:
    refused = {"failed": True, "msg": "the engine refuses it: AssertionError.", "traceback": TRACEBACK, "current": 7}
    result = change(Host(refused, []), {}, check=False)
    assert result["explained"][0]["id"] == "spec-steps-missing"
    assert "spec-steps-missing" in result["msg"]


def test_a_known_cause_of_a_failed_start_is_in_the_message() -> None:
    known = {
        "id": "port-in-use",
        "sentence": "The port is in use.",
        "remedy": "Choose another.",
        "page": "docs/gate.md",
    }
    host = Host(STAGED, [{**BAD, "explained": [known]}, GOOD])
    assert "The port is in use." in change(host, {}, check=False)["msg"]
