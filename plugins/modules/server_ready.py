#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_ready
short_description: Wait until an SGLang server answers, or until it cannot any more
version_added: 0.1.0
author: inferops contributors (@inferops)
description:
  - Watches a systemd unit and its HTTP server together. A closed port (weights are loading), status 503 (warming up)
    and a slow C(/health) are waited for.
  - Fails at once when the unit ends or systemd starts it again, with the state of the unit and the first traceback of
    its journal.
  - A server that answers must then serve the planned model, generate a text that is no gibberish, answer a request with
    a tool and one for JSON where that is wanted, and speculate as planned with an accept length.
  - A failure whose traceback or words are known is explained.
  - Shows on the controller's screen what the server is doing while it waits.
attributes:
  action:
    description: Has a corresponding action plugin, which shows the progress.
    support: full
  check_mode:
    description: Looks once, waits for nothing and does not fail.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Changes nothing.
    support: full
options:
  unit:
    description: The systemd unit.
    type: str
    required: true
  url:
    description: The server's address as the host itself reaches it.
    type: str
    required: true
  timeout:
    description:
      - Seconds that the server has from now on until it answers. What it must show then is not counted.
      - The default suits 600 GB from a disk that reads 0.25 GB/s, which take 40 minutes, and 20 minutes for kernels
        that are compiled at a first start, graph capture and warm-up. A server that ends is noticed at once.
    type: int
    default: 3600
  health_timeout:
    description:
      - Seconds that one C(/health) may take, at least 5. SGLang generates a token for it, which takes a second or more.
    type: int
    default: 20
  served_model_name:
    description: The model that C(/v1/models) must name.
    type: str
  speculative:
    description: Whether the server must speculate and show an accept length.
    type: bool
    default: false
  speculation:
    description: What C(/server_info) must say of the speculation. A value that is not given may be any.
    type: dict
    suboptions:
      algorithm:
        description: The algorithm, by the name that SGLang has for it after its start.
        type: str
      steps:
        description: Steps of the drafter.
        type: int
      topk:
        description: Branches of each step.
        type: int
      draft_tokens:
        description: Tokens of one verification.
        type: int
  accept_length_min:
    description: The least accept length, in tokens per verification.
    type: float
  decode_log_interval:
    description: Decode steps after which the server shows an accept length. The probe is longer.
    type: int
    default: 40
  throughput_min:
    description: The least speed of one request alone, in tokens per second.
    type: float
  tool_calls:
    description: Whether a chat request that offers a tool must be answered in the form of the API.
    type: bool
    default: false
  json_schema:
    description: Whether a chat request for JSON of a schema must be answered, with JSON unless it was cut off.
    type: bool
    default: false
  expect:
    description:
      - The operator's own expectations, evaluated on the controller after all else. See C(docs/gate.md).
      - Each has a C(name), a C(query) in JMESPath over the mapping of C(server_info), C(models) and C(generation), and
        one of C(equals), C(min) and C(max).
      - Needs the Python package jmespath on the controller.
    type: list
    elements: dict
    default: []
  prompt:
    description: What the generation begins with.
    type: str
    default: Once upon a time
  max_tokens:
    description: Tokens to generate.
    type: int
    default: 64
  secret_args_file:
    description:
      - A file on the host as SGLang takes it with C(--config), in JSON. Its C(api-key) goes with every request.
      - No result holds any of its values.
    type: path
    version_added: 0.2.0
  slice:
    description:
      - Seconds after which to come back although the server is not ready. Used by the action plugin, which calls again
        with RV(invocation_id).
    type: float
  waited:
    description: Seconds of O(timeout) that earlier calls have used up.
    type: float
    default: 0.0
  invocation_id:
    description: The start of the unit that is watched, as an earlier call returned it.
    type: str
  run_lock:
    description: The lock file of a change that this is a step of. Used by M(inferops.serving.server_change).
    type: path
  run:
    description: The id of the run that holds O(run_lock).
    type: str
  proof:
    description: What earlier calls have found, as RV(proof) of the last one.
    type: dict
"""

EXAMPLES = r"""
- name: Wait for the server
  inferops.serving.server_ready:
    unit: sglang-kimi.service
    url: http://127.0.0.1:30000
    served_model_name: moonshotai/Kimi-K2.6
    speculative: true
"""

RETURN = r"""
ready:
  description: Whether the server answers and has shown what it must.
  returned: always
  type: bool
phase:
  description: What the server is doing, such as V(loading), V(warming up) or V(ready).
  returned: always
  type: str
timeline:
  description: The phases seen, with the second at which each began.
  returned: always
  type: list
  elements: dict
invocation_id:
  description: The start of the unit that was watched.
  returned: always
  type: str
unit_state:
  description: Properties of the unit.
  returned: always
  type: dict
model:
  description: The model that the server serves.
  returned: when ready
  type: str
answer:
  description: The generated text.
  returned: when ready
  type: str
server_info:
  description: The server's version and what it says of its speculation.
  returned: when ready
  type: dict
accept_length:
  description: Tokens per verification, the server's own average.
  returned: when ready, with speculation
  type: float
throughput:
  description: Tokens per second of one request alone, in the longest generation.
  returned: when ready, with speculation or O(throughput_min)
  type: float
steps:
  description: What was waited for and asked, with the seconds that each took. On failure the last one is what failed.
  returned: always
  type: list
  elements: dict
step:
  description: The step that failed.
  returned: when a server that answers does not show what it must
  type: str
expectations:
  description: The failed expectations, each with name, query, C(found) and C(wanted).
  returned: when an expectation failed
  type: list
  elements: dict
explained:
  description: Known causes of the failure, each with C(id), C(sentence), C(remedy) and the C(page) that says more.
  returned: on failure
  type: list
  elements: dict
proof:
  description: What was found so far, where O(slice) was over before the end.
  returned: when not ready
  type: dict
cause:
  description: One line that says why the server will not be ready.
  returned: on failure
  type: str
traceback:
  description: The first Python traceback that the unit wrote, with everything chained to it.
  returned: on failure
  type: str
journal:
  description: The last lines that the unit wrote.
  returned: on failure
  type: list
  elements: str
"""

import json
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._server.gate import READY, Gate, GateError, Wanted
from ansible_collections.inferops.serving.plugins.module_utils._server.machine import Machine
from ansible_collections.inferops.serving.plugins.module_utils._server.run_lock import Held, RunLock


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "timeout": {"type": "int", "default": 3600},
            "health_timeout": {"type": "int", "default": 20},
            "served_model_name": {"type": "str"},
            "speculative": {"type": "bool", "default": False},
            "speculation": {
                "type": "dict",
                "options": {
                    "algorithm": {"type": "str"},
                    "steps": {"type": "int"},
                    "topk": {"type": "int"},
                    "draft_tokens": {"type": "int", "no_log": False},
                },
            },
            "accept_length_min": {"type": "float"},
            "decode_log_interval": {"type": "int", "default": 40},
            "throughput_min": {"type": "float"},
            "tool_calls": {"type": "bool", "default": False},
            "json_schema": {"type": "bool", "default": False},
            "expect": {"type": "list", "elements": "dict", "default": []},
            "prompt": {"type": "str", "default": "Once upon a time"},
            "max_tokens": {"type": "int", "default": 64, "no_log": False},
            # the name of a file is no secret
            "secret_args_file": {"type": "path", "no_log": False},
            "slice": {"type": "float"},
            "waited": {"type": "float", "default": 0.0},
            # not "invocation": ansible-core 2.21 takes a result of that name away
            "invocation_id": {"type": "str"},
            "run_lock": {"type": "path"},
            "run": {"type": "str"},
            "proof": {"type": "dict"},
        },
        required_together=[("run_lock", "run")],
        supports_check_mode=True,
    )
    params = module.params
    if params["health_timeout"] < 5:
        module.fail_json(msg="health_timeout is at least 5 seconds: SGLang's /health generates a token.")

    if params["run_lock"] and not module.check_mode:
        try:
            RunLock(Path(params["run_lock"]), params["run"]).take(params["slice"] or params["timeout"])
        except (Held, OSError) as exc:
            module.fail_json(msg=f"{params['unit']}: {exc}")

    def run(command: list[str]) -> str:
        _status, out, _err = module.run_command(command, check_rc=False)
        return str(out)

    api_key = _api_key(module)
    machine = Machine(run, params["unit"], params["url"], params["health_timeout"], api_key=api_key)
    wanted = Wanted(
        served_model_name=params["served_model_name"],
        speculative=params["speculative"],
        speculation=params["speculation"] or {},
        accept_length_min=params["accept_length_min"],
        throughput_min=params["throughput_min"],
        decode_log_interval=params["decode_log_interval"],
        tool_calls=params["tool_calls"],
        json_schema=params["json_schema"],
        documents=bool(params["expect"]),
        prompt=params["prompt"],
        max_tokens=params["max_tokens"],
    )
    gate = Gate(machine, wanted, params["invocation_id"])
    result: dict[str, t.Any] = {"changed": False, "ready": False, "phase": "unknown", "timeline": []}
    begin = time.monotonic()
    try:
        if module.check_mode:
            _note(result, gate.look(), begin)
        else:
            _wait(gate, result, begin, params)
            if result["phase"] == READY:
                _prove(gate, result, params)
    except GateError as exc:
        result.update(exc.facts, cause=exc.cause, invocation_id=gate.invocation)
        if module.check_mode:
            module.exit_json(**result)
        module.fail_json(msg=_message(params["unit"], exc), **result)
    module.exit_json(unit_state=gate.unit, invocation_id=gate.invocation, **result)


def _api_key(module: AnsibleModule) -> str | None:
    """The key that the server asks for; what the module returns is cleared of it."""
    path = module.params["secret_args_file"]
    # in check mode nothing may be there yet
    if path is None or (module.check_mode and not Path(path).exists()):
        return None
    try:
        secrets: dict[str, str] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        module.fail_json(msg=f"The API key cannot be read: {path}: {type(exc).__name__}")
    # the server may show any of them in its answers, its log or a traceback
    module.no_log_values.update(secrets.values())
    return secrets.get("api-key")


def _wait(gate: Gate, result: dict[str, t.Any], begin: float, params: dict[str, t.Any]) -> None:
    """Watch until the server is ready or the slice is over, and fail when all the time is over."""
    end = begin + params["timeout"] - params["waited"]
    pause = end if params["slice"] is None else min(end, begin + params["slice"])
    _note(result, gate.look(), begin)
    while result["phase"] != READY:
        if time.monotonic() >= end:
            raise gate.timed_out(result["phase"], params["timeout"])
        if time.monotonic() >= pause:
            return
        _note(result, gate.watch(pause - time.monotonic()), begin)


def _prove(gate: Gate, result: dict[str, t.Any], params: dict[str, t.Any]) -> None:
    """Have the server show what it must, as far as the slice goes."""
    proof = params["proof"] or {}
    if gate.prove(proof, float("inf") if params["slice"] is None else params["slice"]):
        generation = proof.pop("generation")
        result.update(proof, answer=str(generation.get("text")), ready=True)
    else:
        result["proof"] = proof


def _note(result: dict[str, t.Any], phase: str, begin: float) -> None:
    if result["phase"] != phase:
        result["timeline"].append({"phase": phase, "seconds": round(time.monotonic() - begin, 1)})
    result["phase"] = phase


def _message(unit: str, failure: GateError) -> str:
    """One line; the traceback and the journal stand beside it in the result."""
    return f"{unit}: {failure.cause}. More: journalctl -u {unit}"


if __name__ == "__main__":
    main()
