# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The health gate: a unit and its HTTP server watched together until the server answers, or cannot any more.

A server that loads weights has its port closed; one that warms up answers 503; its /health generates a token and takes
a second or more. All of that is waiting. A unit that ended, or that systemd started again, is not: the gate fails at
once and says what the journal holds.

A server that answers has then to show, step by step, that it is the planned one: :meth:`Gate.prove`.
"""

from __future__ import annotations

import dataclasses
import json
import re
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
#: Tokens of one of them at most; a slow server has two minutes for an answer.
LONGEST_PROBE = 1024
#: Tokens from which on a text of one token alone is no text.
LEAST_REPEATED = 16
_JOURNAL_SHOWN = 50
_ENDED = ("failed", "inactive", "deactivating")
#: The planned numbers by the names that /server_info has for them.
SPECULATION = {
    "algorithm": "speculative_algorithm",
    "steps": "speculative_num_steps",
    "topk": "speculative_eagle_topk",
    "draft_tokens": "speculative_num_draft_tokens",
}
_PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_TOOL = {"type": "function", "function": {"name": "weather", "description": "Weather of a place", "parameters": _PLACE}}
_SECRET = re.compile(r"(^|_)(keys?|tokens?|secrets?|password|passwd|passphrase|credentials?|keyfile_password)$")


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
    """What the server must show before it counts as ready.

    ``speculation`` holds what /server_info must say: algorithm, steps, topk and draft_tokens, None for any.
    ``accept_length_min`` is in tokens per verification, ``throughput_min`` in tokens per second of one request.
    ``documents`` says that the whole answers are wanted, for the operator's own expectations.
    """

    served_model_name: str | None = None
    speculative: bool = False
    speculation: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    accept_length_min: float | None = None
    throughput_min: float | None = None
    decode_log_interval: int = 40
    tool_calls: bool = False
    json_schema: bool = False
    documents: bool = False
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

    def prove(self, proof: dict[str, t.Any], seconds: float = float("inf")) -> bool:
        """Ask a ready server for what it must show, and say whether it has shown everything.

        :param proof: what earlier calls have found; what this one finds is added: ``steps``, each with its seconds,
            ``model``, ``generation``, ``server_info``, ``accept_length``, ``throughput`` and ``documents``.
        :param seconds: the time after which no further step is begun. One step is always done.
        :raises GateError: it does not show it; ``facts`` names the step.
        """
        end = self._host.now() + seconds
        done = proof.setdefault("steps", [])
        for name, show in self._steps()[len(done) :]:
            begin = self._host.now()
            try:
                show(proof)
                # one that fell ill of the question does not count
                self._look_at_unit()
            except GateError as exc:
                step = {"step": name, "seconds": round(self._host.now() - begin, 1)}
                exc.facts.update(step=name, steps=[*done, step])
                exc.facts.setdefault("unit_state", self.unit)
                raise
            done.append({"step": name, "seconds": round(self._host.now() - begin, 1)})
            if self._host.now() >= end:
                break
        return len(done) == len(self._steps())

    def _steps(self) -> list[tuple[str, t.Callable[[dict[str, t.Any]], None]]]:
        wanted = self._wanted
        steps = [
            ("model", self._show_model, True),
            ("generation", self._show_generation, True),
            ("tool call", self._show_tool_call, wanted.tool_calls),
            ("json", self._show_json, wanted.json_schema),
            ("server info", self._show_server_info, True),
            ("accept length", self._show_accept_length, wanted.speculative),
            ("throughput", self._show_throughput, wanted.throughput_min is not None),
            ("documents", self._show_documents, wanted.documents),
        ]
        return [(name, show) for name, show, asked in steps if asked]

    def _show_model(self, proof: dict[str, t.Any]) -> None:
        served = self._asked(self._host.get("/v1/models"), "/v1/models")
        names = [str(one.get("id")) for one in served.get("data", [])]
        wanted = self._wanted.served_model_name
        if wanted is not None and wanted not in names:
            raise GateError(f"the server serves {', '.join(names) or 'nothing'}, not {wanted}")
        proof["model"] = names[0] if names else ""

    def _show_generation(self, proof: dict[str, t.Any]) -> None:
        proof["generation"], _speed = self._generate(self._wanted.max_tokens)
        wrong = gibberish(proof["generation"])
        if wrong:
            raise GateError(f"the server generates {wrong}", answer=proof["generation"].get("text"))

    def _show_tool_call(self, proof: dict[str, t.Any]) -> None:
        """The request goes through the tool-call parser. Whether the model calls the tool is the model's business."""
        message = self._chat(proof, {"tools": [_TOOL], "tool_choice": "auto"})["message"]
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(_is_call(call) for call in calls):
            raise GateError("the server answers a request with a tool in no form of a tool call", answer=message)

    def _show_json(self, proof: dict[str, t.Any]) -> None:
        """An answer that ended by itself is JSON of the schema; one that was cut off cannot be read."""
        schema = {"type": "json_schema", "json_schema": {"name": "place", "schema": _PLACE}}
        choice = self._chat(proof, {"response_format": schema})
        content = choice["message"].get("content")
        if choice.get("finish_reason") == "stop" and content and not _is_place(content):
            raise GateError("the server answers a request for JSON with something else", answer=content)

    def _chat(self, proof: t.Mapping[str, t.Any], more: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """The first choice of a chat completion, with a message."""
        path = "/v1/chat/completions"
        body = {
            "model": proof["model"],
            "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
            "temperature": 0,
            "max_tokens": self._wanted.max_tokens,
            **more,
        }
        choices = self._asked(self._host.post(path, body), path).get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(first, dict) or not isinstance(first.get("message"), dict):
            raise GateError(f"{path} gave no choice with a message")
        # what the scheduler itself does not take, such as a grammar without a grammar backend
        if first.get("finish_reason") == "abort":
            raise GateError(f"{path} was aborted by the server", answer=first)
        return first

    def _show_server_info(self, proof: dict[str, t.Any]) -> None:
        info = proof["server_info"] = self._server_info()
        if self._wanted.speculative and not info.get("speculative_algorithm"):
            raise GateError("the server runs without speculation", server_info=info)
        plan = [(name, self._wanted.speculation.get(key)) for key, name in SPECULATION.items()]
        wrong = [
            f"{name} is {info.get(name)}, planned is {planned}"
            for name, planned in plan
            if planned is not None and str(info.get(name)) != str(planned)
        ]
        if wrong:
            raise GateError(f"the server does not speculate as planned: {'; '.join(wrong)}", server_info=info)

    def _server_info(self) -> dict[str, t.Any]:
        info = self._asked(self._host.get("/server_info"), "/server_info")
        states = info.get("internal_states") or [{}]
        wanted = {key: value for key, value in info.items() if key == "version" or key.startswith("speculative_")}
        return {**wanted, "avg_spec_accept_length": states[0].get("avg_spec_accept_length")}

    def _show_accept_length(self, proof: dict[str, t.Any]) -> None:
        """The server's own average. It shows only after a decode log interval, counted in verifications."""
        # a verification yields up to all of its draft tokens; a text that ends early is asked for again
        most = self._wanted.speculation.get("draft_tokens") or 1
        longer = (self._wanted.decode_log_interval + 1) * most
        tokens = max(2 * self._wanted.max_tokens, min(longer, LONGEST_PROBE))
        for _probe in range(MOST_PROBES):
            generation, proof["throughput"] = self._generate(tokens)
            proof["server_info"] = self._server_info()
            if proof["server_info"]["avg_spec_accept_length"]:
                break
        length = proof["server_info"]["avg_spec_accept_length"]
        length = length or generation.get("meta_info", {}).get("spec_accept_length")
        least = self._wanted.accept_length_min
        facts = {"accept_length": length, "server_info": proof["server_info"]}
        if not length:
            raise GateError("the server shows no accept length", **facts)
        if least is not None and length < least:
            raise GateError(f"the accept length is {length}, below {least}: the drafter does not help", **facts)
        proof["accept_length"] = float(length)

    def _show_throughput(self, proof: dict[str, t.Any]) -> None:
        """The speed of the last generation: the first one may have compiled kernels."""
        speed = proof.get("throughput") or self._generate(2 * self._wanted.max_tokens)[1]
        proof["throughput"] = speed
        least = self._wanted.throughput_min or 0.0
        if speed < least:
            raise GateError(f"the server generates {speed} tokens per second, below {least}", throughput=speed)

    def _show_documents(self, proof: dict[str, t.Any]) -> None:
        proof["documents"] = {
            "server_info": without_secrets(self._asked(self._host.get("/server_info"), "/server_info")),
            "models": self._asked(self._host.get("/v1/models"), "/v1/models"),
            "generation": proof["generation"],
        }

    def _generate(self, tokens: int) -> tuple[dict[str, t.Any], float]:
        """The answer and its tokens per second."""
        body = {"text": self._wanted.prompt, "sampling_params": {"temperature": 0, "max_new_tokens": tokens}}
        begin = self._host.now()
        answer = self._asked(self._host.post("/generate", body), "/generate")
        seconds = self._host.now() - begin
        generated = answer.get("meta_info", {}).get("completion_tokens") or 0
        return answer, round(generated / seconds, 1) if seconds > 0 else 0.0

    def _asked(self, answer: Answer, path: str) -> dict[str, t.Any]:
        if answer.status == 200 and isinstance(answer.body, dict):
            return answer.body
        # the server may have ended of the request
        self._look_at_unit()
        status = {0: "no connection", None: "no answer in time"}.get(answer.status, f"status {answer.status}")
        facts = {} if answer.body is None else {"answer": answer.body}
        raise GateError(f"{path} gave {status}", **facts)


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


def gibberish(generation: t.Mapping[str, t.Any]) -> str | None:
    """What is wrong with a generated text, in words, or None.

    These alone are said to be wrong, so that the text of any model that works passes, however small or odd it is:

    - no text, or white space alone;
    - more than a tenth of it replacement characters: bytes that are no UTF-8. One may stand at the end, where the text
      was cut off within a character;
    - one token again and again, :data:`LEAST_REPEATED` times or more: what a server samples from logits that are NaN.
      Without token ids in the answer, one character.
    """
    text = str(generation.get("text") or "")
    if not text.strip():
        return "nothing"
    if text.count("\ufffd") - text.endswith("\ufffd") > len(text) / 10:
        return "bytes that are no text"
    tokens = generation.get("output_ids") or list(text.strip())
    if len(tokens) >= LEAST_REPEATED and len(set(tokens)) == 1:
        return f"one token {len(tokens)} times"
    return None


def without_secrets(document: t.Any) -> t.Any:
    """A document without the values whose names say that they are secrets. Counts of tokens are numbers, and stay."""
    if isinstance(document, dict):
        return {
            key: without_secrets(value)
            for key, value in document.items()
            if not (_SECRET.search(str(key).lower()) and isinstance(value, (str, list, dict)))
        }
    if isinstance(document, list):
        return [without_secrets(one) for one in document]
    return document


def _is_call(call: t.Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and all(isinstance(function.get(key), str) for key in ("name", "arguments"))


def _is_place(content: str) -> bool:
    try:
        place = json.loads(content)
    except ValueError:
        return False
    return isinstance(place, dict) and isinstance(place.get("city"), str)
