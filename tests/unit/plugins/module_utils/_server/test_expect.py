# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.expect import (
    NoJmespath,
    failures,
    in_words,
    problems,
)

DOCUMENTS = {
    "server_info": {"max_running_requests": 48, "disable_radix_cache": False, "internal_states": [{"load": 1.5}]},
    "models": {"data": [{"id": "tiny", "max_model_len": 2048}]},
    "generation": {"text": " a rack"},
}


def one(query: str, **comparison: Any) -> dict[str, Any]:
    return {"name": "a", "query": query, **comparison}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("server_info.a", "item 1 is 'server_info.a'; it is a mapping"),
        ({"name": "a", "query": "b"}, "item 1 (a) has no comparison"),
        (one("b", min=1, max=2), "has min and max; it has one of"),
        (one("b", equal=1), "has no key equal"),
        (one("b", min="64"), "has '64' as its min, which is no number"),
        (one("b", max=True), "has True as its max"),
        (one("server_info.[", equals=1), "has a query that is no JMESPath: "),
        (one("", equals=1), "has no text as its query"),
        ({"query": "b", "equals": 1}, "item 1 has no text as its name"),
    ],
)
def test_an_expectation_that_cannot_be_evaluated(written: Any, words: str) -> None:
    (problem,) = problems([written])
    assert words in problem


def test_names_tell_expectations_apart() -> None:
    assert problems([one("b", min=1), one("c", min=1)]) == ["item 2 (a) has the name of an earlier one"]


@pytest.mark.parametrize(
    "met",
    [
        one("server_info.max_running_requests", min=48),
        one("server_info.internal_states[0].load", max=2),
        one("server_info.disable_radix_cache", equals=False),
        one("models.data[].id", equals=["tiny"]),
        one("length(generation.text)", min=1),
        one("server_info.absent", equals=None),
    ],
)
def test_an_expectation_that_is_met(met: dict[str, Any]) -> None:
    assert problems([met]) == []
    assert failures([met], DOCUMENTS) == []


def test_all_that_are_not_met_are_told_with_what_was_found() -> None:
    asked = [
        {"name": "room", "query": "server_info.max_running_requests", "min": 64},
        {"name": "good", "query": "server_info.max_running_requests", "max": 64},
        {"name": "number", "query": "server_info.disable_radix_cache", "equals": 0},
        {"name": "absent", "query": "server_info.no_such", "max": 1},
        {"name": "kind", "query": "length(server_info.max_running_requests)", "min": 1},
    ]
    failed = failures(asked, DOCUMENTS)
    assert [one["name"] for one in failed] == ["room", "number", "absent", "kind"]
    assert failed[0] == {
        "name": "room",
        "query": "server_info.max_running_requests",
        "found": 48,
        "wanted": {"min": 64},
    }
    assert in_words(failed[:1]) == "room: server_info.max_running_requests is 48, wanted min 64"
    assert "no value" in failed[-1]["found"]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jmespath", None)
    assert problems([]) == []
    with pytest.raises(NoJmespath, match="needs the Python package jmespath"):
        problems([one("b", min=1)])
