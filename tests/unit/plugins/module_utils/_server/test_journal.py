# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.journal import first_traceback, last_words

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


@pytest.mark.parametrize("traceback", [SIMPLE, CHAINED], ids=["simple", "chained"])
def test_the_first_of_two_tracebacks_is_taken_whole(traceback: list[str]) -> None:
    lines = ["loading weights", *traceback, "noise", *SECOND, "Killed"]
    assert first_traceback(lines) == traceback
    assert last_words(lines) == traceback[-1]


def test_what_a_logger_put_before_it_is_dropped() -> None:
    lines = [f"[2026-12-01 TP0] Scheduler hit an exception: {SIMPLE[0]}", *SIMPLE[1:]]
    assert first_traceback(lines) == SIMPLE


def test_a_parser_ends_with_a_word() -> None:
    lines = ["usage: sglang ...", "sglang: error: unrecognized arguments: --no-such", "Main process exited"]
    assert first_traceback(lines) == []
    assert last_words(lines) == "sglang: error: unrecognized arguments: --no-such"


def test_an_empty_journal_and_one_without_a_reason() -> None:
    assert last_words([]) is None
    assert last_words(["loading", "done"]) is None


def test_a_traceback_that_was_cut_off() -> None:
    assert first_traceback(SIMPLE[:2]) == SIMPLE[:2]
