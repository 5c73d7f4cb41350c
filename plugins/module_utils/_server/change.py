# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A change of one service from front to back: stage, rehearse, switch, gate; accept, or restore what ran before.

The steps are modules on the host, so each leaves a state that the next run understands. Which release may be gone back
to is decided there, where the releases are.
"""

from __future__ import annotations

import time
import typing as t

from .._sglang.fingerprint import releases_of
from .._sglang.flags import known_releases
from . import causes
from .gate import READY

#: What became of a change. Until the switch the service was not touched. Where one is only held, nothing was.
UNCHANGED = "unchanged"
CHANGED = "changed"
WOULD_CHANGE = "would change"
DUE = "due"
NOT_READY = "not ready"
REFUSED = "refused"
RESTORED = "restored"
FAILED = "failed"

Result = dict[str, t.Any]


class Steps(t.Protocol):
    """What the change asks of the host."""

    def release(self, state: str, **arguments: t.Any) -> Result:
        """The module server_release."""

    def gate(self, gate: t.Mapping[str, t.Any], invocation: str | None) -> Result:
        """The action server_ready with a release's arguments."""

    def is_dead(self, owner: t.Mapping[str, t.Any]) -> bool:
        """Whether a run that holds the lock was one of this controller and has ended."""

    def say(self, words: str) -> None:
        """Show a line on the screen."""


def change(steps: Steps, wanted: t.Mapping[str, t.Any], check: bool, hold: bool = False) -> Result:
    """Have a release run, or what ran before.

    :param wanted: the arguments of server_release with state staged.
    :param hold: leave a service alone that is not as it shall be, and only say that a change of it is due, or that it
        is as it shall be and does not pass its gate.
    :returns: a module's result, with ``outcome``, ``release``, ``before``, ``accept_length`` and ``seconds``.
    """
    begin = time.monotonic()
    result = _hold(steps, wanted) if hold else _change(steps, wanted, check)
    return {"accept_length": None, **result, "seconds": round(time.monotonic() - begin, 1)}


def _hold(steps: Steps, wanted: t.Mapping[str, t.Any]) -> Result:
    """Have a service pass its gate that is as it shall be. Whatever is wrong, the change finds it again and says it."""
    staged = steps.release("staged", **wanted, hold=True)
    result: Result = {"changed": False, "release": staged.get("release"), "before": staged.get("current")}
    if staged.get("failed") or staged["due"]:
        return {**result, "outcome": DUE}
    # one that does not answer yet is waited for by the change, where the screen shows it
    ready = steps.gate({**staged["gate"], "timeout": 0}, None)
    # check mode does not fail, and only says the phase
    if ready.get("failed") or ready.get("phase") != READY:
        return {**result, "outcome": NOT_READY}
    return {**result, "outcome": UNCHANGED, "gate": ready, "accept_length": ready.get("accept_length")}


def _change(steps: Steps, wanted: t.Mapping[str, t.Any], check: bool) -> Result:
    staged = steps.release("staged", **wanted)
    if "held_by" in staged and steps.is_dead(staged["held_by"]):
        steps.say("a run of this controller ended in the middle of a change; this run goes on from there")
        staged = steps.release("staged", **wanted, over=staged["held_by"]["run"])
    if staged.get("failed"):
        causes.add_known(staged, staged.get("traceback") or staged.get("cause", ""))
        return {**staged, "outcome": REFUSED, "release": None, "before": staged.get("current")}
    number, action = staged["release"], staged["action"]
    fork = _fork(staged.get("fingerprint"), wanted.get("plan") or {})
    kept = ("release", "action", "why", "interrupts", "diff")
    result: Result = {
        **{key: staged[key] for key in kept if key in staged},
        "before": staged["current"],
        "changed": bool(staged["changed"] or action),
        **({"warnings": [fork]} if fork else {}),
    }
    if result["changed"] and check:
        words = _in_future(staged)
        steps.say(words)
        return {**result, "outcome": WOULD_CHANGE, "msg": words}
    if action:
        steps.say(f"release {number}: {action}, {staged['why']}")
    switched = steps.release("switched", release=number, action=action) if action else {}
    if switched.get("failed"):
        # systemd's own words are few; the unit's journal has more where it came as far as that
        ready = steps.gate({**staged["gate"], "timeout": 1}, None)
        cause = ready.get("cause") or switched["msg"]
    else:
        ready = steps.gate(staged["gate"], switched.get("invocation_id"))
        cause = ready.get("cause") or ready.get("msg", "") if ready.get("failed") else ""
    result["gate"] = ready
    if cause and not check:
        undone = _undo(steps, staged, cause, ready)
        return {**result, **undone, "warnings": [*result.get("warnings", []), *undone["warnings"]]}
    if not check and (result["changed"] or not staged["accepted"]):
        met = {"accept_length": ready.get("accept_length"), "gate": wanted.get("gate", {})}
        accepted = steps.release("accepted", release=number, **met)
        if accepted.get("failed"):
            return {**result, **accepted, "outcome": FAILED}
        result["changed"] = bool(result["changed"] or accepted["changed"])
    outcome = CHANGED if result["changed"] else UNCHANGED
    return {**result, "outcome": outcome, "accept_length": ready.get("accept_length")}


def _undo(steps: Steps, staged: t.Mapping[str, t.Any], cause: str, ready: t.Mapping[str, t.Any]) -> Result:
    """Keep the evidence and restore, if this run or one before it has brought in what fails."""
    number, before = staged["release"], staged["current"]
    evidence = steps.release("failed", release=number, cause=cause, more=_texts(ready))
    places = [evidence["evidence"]] if evidence.get("evidence") else []
    failure = f"release {number} failed: {cause}"
    known = [causes.Cause(**one) for one in ready.get("explained", [])]
    if known:
        failure = f"{failure.rstrip('.')}. {causes.in_words(known).rstrip('.')}"
    told = {key: ready[key] for key in ("traceback", "journal", "explained") if ready.get(key)}
    warnings = [*evidence.get("warnings", [])]
    result: Result = {
        **told,
        "failed": True,
        "cause": cause,
        "evidence": places,
        "outcome": FAILED,
        "warnings": warnings,
    }
    fallback = evidence.get("fallback")
    brought_in = number != before or not staged["was_accepted"]
    if not brought_in or fallback is None:
        steps.release("unlocked")
        why = "no other release was accepted before" if brought_in else "it had been accepted before"
        if evidence.get("failed"):
            why = str(evidence["msg"])
        return {**result, "msg": _sentence(failure, f"Nothing is restored: {why}.", places)}
    steps.say(f"{failure}; restoring release {fallback}")
    switched = steps.release("switched", release=fallback, action="restart")
    restored = switched if switched.get("failed") else steps.gate(evidence["gate"], switched.get("invocation_id"))
    if restored.get("failed"):
        second = str(restored.get("cause") or restored.get("msg"))
        more = steps.release("failed", release=fallback, cause=second, more=_texts(restored))
        places += [more["evidence"]] if more.get("evidence") else []
        warnings += more.get("warnings", [])
        steps.release("unlocked")
        loud = f"THE SERVICE IS DOWN: release {fallback} could not be restored either: {second}."
        return {**result, "changed": True, "evidence": places, "msg": _sentence(failure, loud, places)}
    steps.release("accepted", release=fallback, accept_length=restored.get("accept_length"))
    length = restored.get("accept_length")
    answers = f"Release {fallback} is restored and answers" + (f", accept length {length:.2f}." if length else ".")
    return {
        **result,
        "changed": True,
        "outcome": RESTORED,
        "restored": fallback,
        "accept_length": length,
        "msg": _sentence(failure, answers, places),
    }


def _fork(digest: str | None, plan: t.Mapping[str, t.Any]) -> str:
    """What there is to say of an engine whose speculative code is not that of its release."""
    planned = str((plan.get("engine") or {}).get("version", ""))
    known = releases_of(digest) if digest else [planned]
    if planned in known or planned not in known_releases():
        return ""
    rather = f"that of {', '.join(known)}" if known else "that of no known release: a fork, or patched"
    return (
        f"The speculative code of the installed engine is not that of SGLang {planned} but {rather}. "
        "The plan has judged it as that release."
    )


def _texts(ready: t.Mapping[str, t.Any]) -> dict[str, str]:
    """What the gate saw, as files of the evidence."""
    return {"traceback.txt": str(ready["traceback"])} if ready.get("traceback") else {}


def _sentence(failure: str, then: str, places: t.Sequence[str]) -> str:
    evidence = f" Evidence on the host: {', '.join(places)}" if places else ""
    return f"{failure}. {then}{evidence}"


def _in_future(staged: t.Mapping[str, t.Any]) -> str:
    """What a real run would do."""
    if not staged["action"]:
        return f"would keep release {staged['release']} running, with other terms of the gate"
    interrupts = ", and interrupts the service" if staged["interrupts"] else ""
    refusal = f"; but a real run stops: {staged['refusal']}" if staged.get("refusal") else ""
    return f"would {staged['action']} as release {staged['release']}: {staged['why']}{interrupts}{refusal}"
