# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may change a service now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.run_lock import SLACK, Held, RunLock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.lock"


def test_one_run_holds_it_and_the_other_is_told_who(path: Path) -> None:
    RunLock(path, "a").take(60, who="ops@here", since="noon")
    RunLock(path, "a").take(60)
    with pytest.raises(Held, match="ops@here changes this service since noon; if that run is dead, its lock ends in 1"):
        RunLock(path, "b").take(60)
    with pytest.raises(Held):
        RunLock(path, "b").look()
    RunLock(path, "b").give_back()
    with pytest.raises(Held):
        RunLock(path, "b").take(60)
    RunLock(path, "a").give_back()
    RunLock(path, "b").take(60)


def test_its_time_is_over_after_the_call_and_the_slack(path: Path) -> None:
    RunLock(path, "a").take(-SLACK - 1, who="ops@here")
    RunLock(path, "b").take(60)


def test_a_run_that_is_known_to_be_dead_is_no_obstacle(path: Path) -> None:
    RunLock(path, "a").take(60)
    with pytest.raises(Held):
        RunLock(path, "b").take(60, over="another")
    RunLock(path, "b").look(over="a")
    RunLock(path, "b").take(60, over="a")
    assert json.loads(path.read_text())["run"] == "b"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": "a"}'])
def test_a_writer_that_was_cut_off_holds_nothing(path: Path, text: str) -> None:
    path.write_text(text)
    RunLock(path, "b").look()
    RunLock(path, "b").take(60)


def test_looking_writes_nothing(path: Path) -> None:
    RunLock(path, "a").look()
    assert not path.exists()
