# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server_ready action: the module in slices, with a line on the screen whenever something has changed."""

from __future__ import annotations

import time
import typing as t

from ansible.plugins.action import ActionBase

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
            if answer.get("failed") or answer.get("ready") or self._task.check_mode:
                break
            if time.monotonic() - shown_at > _REMIND:
                shown_at = time.monotonic()
                self._show(variables, f"still {answer.get('phase')}", shown_at - begin)
            args["invocation"] = answer.get("invocation")
        answer["timeline"] = timeline
        if answer.get("accept_length"):
            self._show(variables, f"answers, accept length {answer['accept_length']:.2f}", time.monotonic() - begin)
        result.update(answer)
        return result

    def _show(self, variables: t.Mapping[str, t.Any], what: str, seconds: float) -> None:
        self._display.display(f"{variables.get('inventory_hostname')}: {what} ({seconds:.0f} s)")
