# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.journal import (
    Line,
    first_traceback,
    last_words,
)

SIMPLE = """Traceback (most recent call last):
  File "a.py", line 1, in f
    raise ValueError("first")
ValueError: first""".splitlines()
CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
    g()
KeyError: 'inner'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in f
    raise RuntimeError("outer") from exc
RuntimeError: outer""".splitlines()
SECOND = ["Traceback (most recent call last):", '  File "b.py", line 9, in g', "OSError: second"]


def written(lines: list[str], pid: str = "7") -> list[Line]:
    """Lines as one process writes them."""
    return [Line(pid, line) for line in lines]


@pytest.mark.parametrize("traceback", [SIMPLE, CHAINED], ids=["simple", "chained"])
def test_the_first_of_two_tracebacks_is_taken_whole(traceback: list[str]) -> None:
    lines = written(["loading weights", *traceback, "noise", *SECOND, "Killed"])
    assert first_traceback(lines) == traceback
    assert last_words(lines) == traceback[-1]


def test_what_a_logger_put_before_it_is_dropped() -> None:
    lines = written([f"[2026-12-01 TP0] Scheduler hit an exception: {SIMPLE[0]}", *SIMPLE[1:]])
    assert first_traceback(lines) == SIMPLE


def test_a_parser_ends_with_a_word() -> None:
    lines = written(["usage: sglang ...", "sglang: error: unrecognized arguments: --no-such", "Main process exited"])
    assert first_traceback(lines) == []
    assert last_words(lines) == "sglang: error: unrecognized arguments: --no-such"


def test_an_empty_journal_and_one_without_a_reason() -> None:
    assert last_words([]) is None
    assert last_words(written(["loading", "done"])) is None


def test_a_traceback_that_was_cut_off() -> None:
    assert first_traceback(written(SIMPLE[:2])) == SIMPLE[:2]


def test_ranks_that_fail_together_write_between_each_others_lines() -> None:
    lines = [
        line for pair in zip(written(SIMPLE, "7"), written([*SECOND, "Killed"], "8"), strict=True) for line in pair
    ]
    assert first_traceback(lines) == SIMPLE
    assert last_words(lines) == "ValueError: first"


def test_systemd_says_who_ended_a_server_without_a_traceback() -> None:
    lines = [
        *written(["loading"]),
        Line("1", "sglang-a.service: A process of this unit has been killed by the OOM killer."),
    ]
    assert last_words(lines) == "sglang-a.service: A process of this unit has been killed by the OOM killer."
