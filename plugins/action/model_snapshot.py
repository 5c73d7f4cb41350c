# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model_snapshot action: the module in slices, with a line on the screen for what has come and what is to come."""

from __future__ import annotations

import time
import typing as t

from ansible.plugins.action import ActionBase

#: Seconds that one call of the module waits. The first is short: what is nearly done is done then.
_FIRST_SLICE = 5.0
_SLICE = 15.0
#: Seconds between two lines of a host.
_SHOW_EVERY = 30.0


class ActionModule(ActionBase):
    """Adapter between the screen and the module."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Call the module until its unit has ended; the result is the last call's, with what earlier ones changed."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        args = {**self._task.args, "slice": _FIRST_SLICE}
        shown_at: float | None = None
        before: tuple[float, int] | None = None
        changed = False
        while True:
            answer = self._execute_module(
                module_name="inferops.serving.model_snapshot", module_args=args, task_vars=variables
            )
            changed |= bool(answer.get("changed"))
            if "progress" not in answer:
                break
            progress, now = answer["progress"], time.monotonic()
            done = progress.get("bytes_done") or 0
            if shown_at is None or now - shown_at >= _SHOW_EVERY:
                rate = (done - before[1]) / (now - before[0]) if before else done / max(progress.get("seconds") or 0, 1)
                self._show(variables, progress, rate)
                shown_at, before = now, (now, done)
            args.update(slice=_SLICE, follow=True)
        result.update(answer, changed=changed)
        return result

    def _show(self, variables: t.Mapping[str, t.Any], progress: t.Mapping[str, t.Any], rate: float) -> None:
        lock = self._task.args.get("lock")
        repo = lock.get("repo") if isinstance(lock, t.Mapping) else "model"
        self._display.display(f"{variables.get('inventory_hostname')}: {repo}, {in_words(progress, rate)}")


def in_words(progress: t.Mapping[str, t.Any], rate: float) -> str:
    """How far a transfer is.

    :param progress: bytes_done, bytes_total (None or 0 where nothing is to come), bytes_hashed.
    :param rate: bytes per second.
    """
    done, total = progress.get("bytes_done") or 0, progress.get("bytes_total")
    if not total or not done:
        return f"{_bytes(progress.get('bytes_hashed') or 0)} read and proved"
    said = f"{_bytes(done)} of {_bytes(total)} fetched, {_bytes(rate)}/s"
    # bytes that proved bad come again, so there may be more than was to come
    left = max(total - done, 0)
    return f"{said}, about {_minutes(left / rate)} left" if rate > 0 and left else said


def _bytes(number: float) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
