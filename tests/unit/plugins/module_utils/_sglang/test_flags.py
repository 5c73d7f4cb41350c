# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import (
    ValueProblem,
    convert,
    flag_table,
    known_releases,
    nearest_known,
    releases_with,
    render,
)
from ansible_collections.inferops.serving.plugins.module_utils._sglang.versions import Release

TABLE = flag_table("0.5.23")


def test_the_table_holds_26_releases_and_their_flag_counts() -> None:
    counts = {release: len(flag_table(release).flags) for release in known_releases()}
    assert len(counts) == 26
    assert (counts["0.5.5.post3"], counts["0.5.11"], counts["0.5.19"], counts["0.5.23"]) == (279, 374, 503, 531)


@pytest.mark.parametrize("key", ["tp_size", "tp-size", "--tp-size", "tensor_parallel_size"])
def test_every_spelling_finds_the_flag(key: str) -> None:
    flag = TABLE.find(key)
    assert flag is not None
    assert (flag.name, flag.dest) == ("--tp-size", "tp_size")


def test_the_nearest_flag_of_a_misspelling() -> None:
    assert TABLE.nearest("speculative_eagle_top_k") == "speculative_eagle_topk"
    assert TABLE.nearest("zzz") is None


def test_releases_with_a_flag() -> None:
    assert releases_with("speculative_skip_dp_mlp_sync")[0] == "0.5.11"
    assert releases_with("speculative_skip_dp_mlp_sync")[-1] == "0.5.22"
    assert releases_with("no_such_flag") == []


def test_the_nearest_known_release() -> None:
    assert nearest_known(Release.parse("0.5.23")) == "0.5.23"
    assert nearest_known(Release.parse("0.9")) == "0.5.23"
    assert nearest_known(Release.parse("0.5.12.post9")) == "0.5.12.post1"
    assert nearest_known(Release.parse("0.1")) == "0.5.5.post3"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("tp_size", 8, ["--tp-size", "8"]),
        ("tp_size", "8", ["--tp-size", "8"]),
        ("tp_size", None, []),
        ("trust_remote_code", True, ["--trust-remote-code"]),
        ("trust_remote_code", False, []),
        ("mem_fraction_static", 0.9, ["--mem-fraction-static", "0.9"]),
        ("model_path", "-odd", ["--model-path=-odd"]),
        ("cuda_graph_bs_decode", [1, 2, 4], ["--cuda-graph-bs-decode", "1", "2", "4"]),
        ("extra_metric_labels", {"site": "a b"}, ["--extra-metric-labels", '{"site": "a b"}']),
        ("context_length", "128k", ["--context-length", "128k"]),
        ("speculative_enable_w4a4_mxfp4_megamoe", False, ["--no-speculative-enable-w4a4-mxfp4-megamoe"]),
    ],
)
def test_values_as_words(key: str, value: Any, words: list[str]) -> None:
    flag = TABLE.find(key)
    assert flag is not None
    assert render(flag, value) == words


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("tp_size", "eight", "a whole number"),
        ("tp_size", 1.5, "a whole number"),
        ("tp_size", True, "takes a value"),
        ("tp_size", [8], "takes one value"),
        ("trust_remote_code", "yes", "takes true or false"),
        ("kv_cache_dtype", "fp8", "takes one of auto, fp8_e5m2"),
        ("mem_fraction_static", "most", "a number"),
        ("extra_metric_labels", "not json", "JSON"),
        ("model_path", "a\0b", "NUL"),
        ("cuda_graph_bs_decode", [], "at least one value"),
    ],
)
def test_values_that_a_flag_does_not_take(key: str, value: Any, sentence: str) -> None:
    flag = TABLE.find(key)
    assert flag is not None
    with pytest.raises(ValueProblem, match=sentence):
        render(flag, value)


@pytest.mark.parametrize(
    ("key", "value", "held"),
    [("tp_size", "8", 8), ("context_length", "1K", 1024), ("trust_remote_code", False, False), ("tp_size", None, 1)],
)
def test_what_sglang_holds_after_parsing(key: str, value: Any, held: Any) -> None:
    flag = TABLE.find(key)
    assert flag is not None
    assert convert(flag, value) == held


def test_an_abbreviation_names_a_flag_where_it_can_mean_one_only() -> None:
    table = flag_table("0.5.19")
    for key in ("tp", "--tp", "tp-s", "tp_size"):
        flag = table.find(key)
        assert flag is not None, key
        assert flag.dest == "tp_size"
    assert table.find("speculative") is None
    assert table.find("") is None
    assert table.find("--") is None
