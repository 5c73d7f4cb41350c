# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._plan.plan_file import plan_text, saved_text, write_plan


def plan(port: int = 30000) -> dict[str, Any]:
    return {
        "host": "a",
        "engine": {"digest": "0123", "lock": "/home/me/locks/engine"},
        "model": {"store": "/srv", "models": [{"repo": "org/name", "revision": "4" * 40, "lock": "/home/me/l.json"}]},
        "server": {"port": port},
    }


def hosts(text: str) -> dict[str, Any]:
    return dict(json.loads(text)["hosts"])


def test_a_plan_is_saved_without_paths_of_the_controller() -> None:
    text = plan_text({"a": plan()}, "", {"a"})
    assert "/home/me" not in text
    assert hosts(text)["a"]["engine"] == {"digest": "0123"}
    assert hosts(text)["a"]["model"]["models"] == [{"repo": "org/name", "revision": "4" * 40}]


def test_the_same_plans_give_the_same_text_in_any_order() -> None:
    assert plan_text({"a": plan(), "b": plan()}, "", {"a", "b"}) == plan_text(
        {"b": plan(), "a": plan()}, "", {"a", "b"}
    )


def test_a_limited_run_keeps_the_others_and_drops_who_has_left() -> None:
    saved = plan_text({"a": plan(1), "b": plan(2), "gone": plan(3)}, "", {"a", "b", "gone"})
    text = plan_text({"a": plan(9)}, saved, {"a", "b"})
    assert {host: one["server"]["port"] for host, one in hosts(text).items()} == {"a": 9, "b": 2}


@pytest.mark.parametrize(
    "saved", ["", "no json", "[]", '{"format": 2, "hosts": {"b": {}}}', '{"format": 1, "hosts": 7}']
)
def test_a_file_that_is_no_plan_counts_as_empty(saved: str) -> None:
    assert set(hosts(plan_text({"a": plan()}, saved, {"a", "b"}))) == {"a"}


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert saved_text(str(path)) == ""
    write_plan(str(path), "one\n")
    write_plan(str(path), "two\n")
    assert saved_text(str(path)) == "two\n"
    assert [one.name for one in tmp_path.iterdir()] == ["plan.json"]


def test_nothing_is_left_of_a_file_that_cannot_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "plan.json").mkdir()
    with pytest.raises(OSError, match=r"plan\.json"):
        write_plan(str(tmp_path / "plan.json"), "text")
    assert [one.name for one in tmp_path.iterdir()] == ["plan.json"]
