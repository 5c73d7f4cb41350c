# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.rollout import (
    Row,
    batches,
    due,
    interrupted,
    row,
    table,
)

HOSTS = [f"h{number}" for number in range(8)]
BEGUN = {"__sglang_rollout_begun": True}


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [
        ([1, "25%", "100%"], [1, 2, 5]),
        ([1], [1] * 8),
        (["3"], [3, 3, 2]),
        (["1%", 4], [1, 4, 3]),
        (["100%"], [8]),
    ],
)
def test_sizes_are_numbers_or_percentages_and_the_last_is_repeated(sizes: list[Any], lengths: list[int]) -> None:
    found = batches(HOSTS, sizes, {})
    assert list(map(len, found)) == lengths
    assert [host for batch in found for host in batch] == HOSTS


def test_the_members_of_a_replica_change_together() -> None:
    replicas = {"h0": "a", "h5": "a", "h2": "b", "h3": "b"}
    assert batches(HOSTS, [1, 3], replicas) == [["h0", "h5"], ["h1", "h2", "h3"], ["h4", "h6", "h7"]]
    assert batches(HOSTS, [1], replicas)[:3] == [["h0", "h5"], ["h1"], ["h2", "h3"]]


@pytest.mark.parametrize("sizes", [[], [0], ["0"], [-1], ["x%"], [True], [1.5], [None]])
def test_what_is_no_size_is_refused(sizes: list[Any]) -> None:
    with pytest.raises(ValueError, match="size of a batch"):
        batches(HOSTS, sizes, {})


def test_the_table_has_every_host_and_the_reason_of_every_failure() -> None:
    result = {"before": 3, "release": 4, "outcome": "changed", "accept_length": 2.345, "seconds": 71.8}
    rows = [
        row("h1", {**BEGUN, "sglang_server_result": result}, True),
        row("h2", {"__sglang_rollout_begun": True, "__sglang_rollout_problem": "no port\nmore"}, True),
        row("h3", {}, True),
        row("h4", {}, False),
        row("h5", {**BEGUN, "sglang_server_result": {"accept_length": None}}, True),
    ]
    assert table(rows).splitlines() == [
        "host  before  after  outcome       accept length  seconds",
        "h1    3       4      changed       2.35           72",
        "h2    -       -      failed        -              -",
        "h3    -       -      untouched     -              -",
        "h4    -       -      not prepared  -              -",
        "h5    -       -      -             -              -",
        "",
        "Not begun on 1 of 5 hosts, for too many failed before: nothing was changed there.",
        "h2: no port",
    ]


def test_a_restored_host_keeps_its_outcome() -> None:
    variables: dict[str, Any] = {
        **BEGUN,
        "__sglang_rollout_problem": "accept length 1.03",
        "sglang_server_result": {"outcome": "restored", "before": 3, "release": 3, "failed": True},
    }
    assert row("h1", variables, True).as_dict() == {
        "outcome": "restored",
        "problem": "accept length 1.03",
        "before": 3,
        "release": 3,
        "accept_length": None,
        "seconds": None,
    }
    assert Row("h1", "x").cells == ("h1", "-", "-", "x", "-", "-")


def test_a_host_that_fails_before_its_change_is_a_failed_one() -> None:
    variables = {**BEGUN, "__sglang_rollout_problem": "not drained", "sglang_server_result": {}}
    assert row("h1", variables, True).cells == ("h1", "-", "-", "failed", "-", "-")


def test_what_is_only_waited_for_is_not_interrupted_unless_its_replica_is() -> None:
    seen = {"h1": {"outcome": "due"}, "h2": {"outcome": "not ready"}, "h3": {"outcome": "unchanged"}, "h4": {}}
    # which come last
    assert due(seen, {}) == ["h1", "h4", "h2"]
    assert due(seen, {"h2": "a", "h3": "a"}) == ["h1", "h4", "h2", "h3"]
    # nobody knows what one is due for that could not be looked at
    assert interrupted(seen, {}) == ["h1", "h4"]
    assert interrupted(seen, {"h1": "a", "h2": "a", "h3": "a"}) == ["h1", "h2", "h3", "h4"]
    assert interrupted(seen, {"h2": "a", "h3": "a"}) == ["h1", "h4"]


def test_a_host_that_is_as_it_shall_be_is_in_no_batch_but_in_the_table() -> None:
    seen: dict[str, dict[str, Any]] = {
        "h1": {"outcome": "due"},
        "h2": {"outcome": "unchanged", "before": 3, "release": 3, "accept_length": 2.0, "seconds": 1.2},
        "h3": {},
        "h4": {"outcome": "unchanged"},
        "h5": {"outcome": "unchanged"},
    }
    assert due(seen, {}) == ["h1", "h3"]
    assert due(seen, {"h1": "a", "h5": "a", "h2": "b", "h4": "b"}) == ["h1", "h3", "h5"]
    assert row("h2", {"sglang_server_result": seen["h2"]}, True).cells == ("h2", "3", "3", "unchanged", "2.00", "1")
    assert row("h1", {"sglang_server_result": seen["h1"]}, True).outcome == "untouched"
