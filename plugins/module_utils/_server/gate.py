# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The health gate: a unit and its HTTP server watched together until the server answers, or cannot any more.

A server that loads weights has its port closed; one that warms up answers 503; its /health generates a token and takes
a second or more. All of that is waiting. A unit that ended, or that systemd started again, is not: the gate fails at
once and says what the journal holds.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .journal import Line, first_traceback, last_words

LOADING = "loading"
WARMING_UP = "warming up"
SLOW = "slow to answer"
READY = "ready"
#: Seconds between two looks.
POLL = 1.0
#: The most generations that are asked for before the server must show an accept length.
MOST_PROBES = 20
_JOURNAL_SHOWN = 50
_ENDED = ("failed", "inactive", "deactivating")


@dataclasses.dataclass(frozen=True)
class Answer:
    """An HTTP answer. ``status`` is 0 where the connection was refused, and None where no answer came in time."""

    status: int | None
    body: t.Any = None


class Host(t.Protocol):
    """What the gate asks of the machine."""

    def unit(self) -> dict[str, str]:
        """Properties of the unit: ActiveState, SubState, Result, InvocationID, ExecMainCode, ExecMainStatus ..."""

    def journal(self, invocation: str) -> list[Line]:
        """What the unit wrote since it was started, and what systemd said of it."""

    def get(self, path: str) -> Answer:
        """GET a path of the server."""

    def post(self, path: str, body: t.Any) -> Answer:
        """POST JSON to a path of the server."""

    def now(self) -> float:
        """Seconds since any fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Let that time pass."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What the server must show before it counts as ready."""

    served_model_name: str | None = None
    speculative: bool = False
    accept_length_min: float | None = None
    prompt: str = "Once upon a time"
    max_tokens: int = 64


class GateError(Exception):
    """The server will not be ready. ``facts`` holds what was found, for the module's result."""

    def __init__(self, cause: str, **facts: t.Any) -> None:
        super().__init__(cause)
        self.cause = cause
        self.facts = facts


class Gate:
    """One look after the other at one unit. ``invocation`` names the start of the unit that is watched."""

    def __init__(self, host: Host, wanted: Wanted, invocation: str | None = None) -> None:
        self._host = host
        self._wanted = wanted
        self.invocation = invocation
        self.unit: dict[str, str] = {}

    def watch(self, seconds: float) -> str:
        """Look until the server is ready, the phase changes, or the time is over; give the phase.

        :raises GateError: the unit has ended or was started again.
        """
        end = self._host.now() + seconds
        first = self.look()
        phase = first
        while phase == first and phase != READY and self._host.now() < end:
            self._host.sleep(POLL)
            phase = self.look()
        return phase

    def look(self) -> str:
        """One look at the unit and its server.

        :raises GateError: the unit has ended or was started again.
        """
        self._look_at_unit()
        answer = self._host.get("/health")
        # a unit that ended while it was asked shows nothing of that in the answer
        self._look_at_unit()
        if answer.status == 0:
            return LOADING
        if answer.status is None:
            return SLOW
        if answer.status == 200:
            return READY
        return WARMING_UP if answer.status == 503 else f"answering {answer.status}"

    def _look_at_unit(self) -> None:
        self.unit = self._host.unit()
        if self.unit.get("LoadState") != "loaded":
            raise GateError("the unit is not there", unit_state=self.unit)
        current = self.unit.get("InvocationID") or None
        if self.invocation is None:
            self.invocation = current
        started_again = current != self.invocation
        if self.unit["ActiveState"] in _ENDED or self.unit["SubState"] == "auto-restart" or started_again:
            raise self._ended(started_again)

    def _ended(self, started_again: bool) -> GateError:
        lines = self._host.journal(self.invocation or self.unit.get("InvocationID", ""))
        cause = "the unit was started again while it was watched" if started_again else how_it_ended(self.unit)
        words = last_words(lines)
        return self._with_journal(f"{cause}: {words}" if words else cause, lines)

    def timed_out(self, phase: str, seconds: float) -> GateError:
        """The failure of a server that is still in a phase when the time is over."""
        return self._with_journal(f"still {phase} after {seconds:.0f} s", self._host.journal(self.invocation or ""))

    def _with_journal(self, cause: str, lines: t.Sequence[Line]) -> GateError:
        return GateError(
            cause,
            unit_state=self.unit,
            traceback="\n".join(first_traceback(lines)),
            journal=[line.text for line in lines[-_JOURNAL_SHOWN:]],
        )

    def prove(self) -> dict[str, t.Any]:
        """Ask a ready server for what it must show: its model, a generation, and the accept length of speculation.

        :raises GateError: it does not show it.
        """
        model = self._model()
        answer, accepted = self._generate(self._wanted.max_tokens)
        if not answer.strip():
            raise GateError("the server generates nothing", model=model, unit_state=self.unit)
        info = self._server_info()
        accept_length = self._accept_length(info, accepted) if self._wanted.speculative else None
        least = self._wanted.accept_length_min
        if least is not None and (accept_length is None or accept_length < least):
            raise GateError(
                f"the accept length is {accept_length}, below {least}: the drafter does not help",
                accept_length=accept_length,
                server_info=info,
                unit_state=self.unit,
            )
        return {"model": model, "answer": answer, "server_info": info, "accept_length": accept_length}

    def _model(self) -> str:
        served = self._asked(self._host.get("/v1/models"), "/v1/models")
        names = [str(one.get("id")) for one in served.get("data", [])]
        wanted = self._wanted.served_model_name
        if wanted is not None and wanted not in names:
            raise GateError(f"the server serves {', '.join(names) or 'nothing'}, not {wanted}", unit_state=self.unit)
        return names[0] if names else ""

    def _generate(self, tokens: int) -> tuple[str, float | None]:
        body = {"text": self._wanted.prompt, "sampling_params": {"temperature": 0, "max_new_tokens": tokens}}
        answer = self._asked(self._host.post("/generate", body), "/generate")
        accepted = answer.get("meta_info", {}).get("spec_accept_length")
        return str(answer.get("text", "")), accepted

    def _server_info(self) -> dict[str, t.Any]:
        info = self._asked(self._host.get("/server_info"), "/server_info")
        states = info.get("internal_states") or [{}]
        wanted = {key: value for key, value in info.items() if key == "version" or key.startswith("speculative_")}
        return {**wanted, "avg_spec_accept_length": states[0].get("avg_spec_accept_length")}

    def _accept_length(self, info: dict[str, t.Any], accepted: float | None) -> float:
        """The server's own average. It shows only after a decode log interval (40 steps by default)."""
        if not info.get("speculative_algorithm"):
            raise GateError("the server runs without speculation", server_info=info, unit_state=self.unit)
        for _probe in range(MOST_PROBES):
            if info["avg_spec_accept_length"]:
                return float(info["avg_spec_accept_length"])
            _answer, accepted = self._generate(2 * self._wanted.max_tokens)
            info.update(self._server_info())
        if accepted:
            return float(accepted)
        raise GateError("the server shows no accept length", server_info=info, unit_state=self.unit)

    def _asked(self, answer: Answer, path: str) -> dict[str, t.Any]:
        if answer.status == 200 and isinstance(answer.body, dict):
            return answer.body
        # the server may have ended of the request
        self._look_at_unit()
        status = {0: "no connection", None: "no answer in time"}.get(answer.status, f"status {answer.status}")
        raise GateError(f"{path} gave {status}", unit_state=self.unit)


def how_it_ended(unit: t.Mapping[str, str]) -> str:
    """The end of a unit's main process in words."""
    status, result = unit.get("ExecMainStatus", "0"), unit.get("Result", "success")
    # such as oom-kill or timeout, which say who ended it
    more = "" if result in ("success", "exit-code", "signal", "core-dump") else f" ({result})"
    if unit.get("ExecMainCode") in ("2", "3"):
        return f"the server was ended by signal {status}{more}"
    if unit.get("ExecMainCode") == "1":
        return f"the server ended with exit status {status}{more}"
    return f"the unit is {unit.get('ActiveState')} ({result})"
