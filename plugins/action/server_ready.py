# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server_ready action: the module in slices, with a line on the screen whenever something has changed."""

from __future__ import annotations

import time
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.inferops.serving.plugins.module_utils._server import causes, expect

#: Seconds of one call of the module. Longer ones would show less, shorter ones would cost more connections.
_SLICE = 10.0
#: Seconds after which an unchanged phase is shown again.
_REMIND = 60.0


class ActionModule(ActionBase):
    """Adapter between the screen and the module."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Call the module until the server is ready or cannot be; the result is the last call's, with every phase."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        args = dict(self._task.args)
        timeline: list[dict[str, t.Any]] = []
        proved = 0
        begin = time.monotonic()
        shown_at = begin
        while True:
            passed = time.monotonic() - begin
            answer = self._execute_module(
                module_name="inferops.serving.server_ready",
                module_args={**args, "slice": _SLICE, "waited": passed},
                task_vars=variables,
            )
            for step in answer.get("timeline", []):
                moment = round(passed + step["seconds"], 1)
                if not timeline or timeline[-1]["phase"] != step["phase"]:
                    timeline.append({"phase": step["phase"], "seconds": moment})
                    self._show(variables, step["phase"], moment)
                    shown_at = time.monotonic()
            steps = answer.get("steps") or (answer.get("proof") or {}).get("steps") or []
            if len(steps) > proved and not answer.get("failed"):
                names = ", ".join(step["step"] for step in steps[proved:])
                proved, shown_at = len(steps), time.monotonic()
                self._show(variables, f"shown: {names}", shown_at - begin)
            if answer.get("failed") or answer.get("ready") or self._task.check_mode:
                break
            if time.monotonic() - shown_at > _REMIND:
                shown_at = time.monotonic()
                self._show(variables, f"still {answer.get('phase')}", shown_at - begin)
            args["invocation_id"] = answer.get("invocation_id")
            args["proof"] = answer.get("proof")
        answer["timeline"] = timeline
        answer["steps"] = [*_phases(timeline), *steps]
        self._expect(answer)
        if answer.get("cause"):
            _explain(answer)
        if answer.get("ready") and answer.get("accept_length"):
            self._show(variables, f"answers, accept length {answer['accept_length']:.2f}", time.monotonic() - begin)
        result.update(answer)
        return result

    def _expect(self, answer: dict[str, t.Any]) -> None:
        """Evaluate the operator's expectations of a server that has shown all else."""
        documents = answer.pop("documents", None)
        if documents is None:
            return
        begin = time.monotonic()
        failed = expect.failures(self._task.args["expect"], documents)
        answer["steps"].append({"step": "expectations", "seconds": round(time.monotonic() - begin, 1)})
        if failed:
            cause = f"not as expected: {expect.in_words(failed)}"
            msg = f"{self._task.args['unit']}: {cause}"
            answer.update(failed=True, ready=False, step="expectations", expectations=failed, cause=cause, msg=msg)

    def _show(self, variables: t.Mapping[str, t.Any], what: str, seconds: float) -> None:
        self._display.display(f"{variables.get('inventory_hostname')}: {what} ({seconds:.0f} s)")


def _phases(timeline: t.Sequence[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The phases as steps: what was waited for, and how long it took."""
    following = zip(timeline, timeline[1:], strict=False)
    return [{"step": one["phase"], "seconds": round(after["seconds"] - one["seconds"], 1)} for one, after in following]


def _explain(answer: dict[str, t.Any]) -> None:
    """Say in the planner's words what is known of a failure; the traceback first, the journal where it says nothing."""
    journal = "\n".join(answer.get("journal") or [])
    causes.add_known(answer, answer.get("traceback") or "", f"{answer['cause']}\n{journal}")
