# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stored flag table, and how a release gets into it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tools import flag_table
from tools.flag_table import FIELDS, TABLE, dump, pack, unpack

EMPTY = dict.fromkeys(FIELDS)
SWITCH = {**EMPTY, "names": ["--a"], "dest": "a", "action": "StoreTrueAction", "default": False, "nargs": 0}
NUMBER = {**EMPTY, "names": ["--b"], "dest": "b", "action": "StoreAction", "type": "int"}
RELEASES: dict[str, dict[str, dict[str, Any]]] = {
    "0.5.9": {"--a": SWITCH, "--b": NUMBER},
    "0.5.10": {"--a": SWITCH},
    "0.5.10.post1": {"--a": SWITCH, "--b": {**NUMBER, "default": 3}},
    "0.5.11": {"--a": SWITCH, "--b": {**NUMBER, "default": 3}},
}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    path.write_text(dump(pack(RELEASES)))
    return path


def source(folder: Path, **releases: dict[str, dict[str, Any]]) -> str:
    path = folder / "source.jsonl"
    path.write_text("".join(json.dumps({"version": version, "flags": flags}) for version, flags in releases.items()))
    return str(path)


def test_a_flag_is_kept_once_for_a_run_of_releases() -> None:
    runs = {name: [(run["first"], run["last"]) for run in runs] for name, runs in pack(RELEASES)["flags"].items()}
    assert runs == {"--a": [("0.5.9", "0.5.11")], "--b": [("0.5.9", "0.5.9"), ("0.5.10.post1", "0.5.11")]}


def test_unpacked_it_is_what_was_packed() -> None:
    assert unpack(pack(RELEASES)) == RELEASES


def test_the_stored_table_is_as_the_tool_writes_it() -> None:
    text = TABLE.read_text(encoding="utf-8")
    assert dump(pack(unpack(json.loads(text)))) == text


@pytest.mark.parametrize("version", RELEASES)
def test_adding_a_release_again_changes_nothing(version: str, stored: Path, tmp_path: Path) -> None:
    before = stored.read_bytes()
    flag_table.main("add", source(tmp_path, **{version: RELEASES[version]}), stored)
    assert stored.read_bytes() == before


@pytest.mark.parametrize("version", RELEASES)
def test_the_order_of_adding_does_not_matter(version: str, stored: Path, tmp_path: Path) -> None:
    before = stored.read_bytes()
    stored.write_text(dump(pack({other: flags for other, flags in RELEASES.items() if other != version})))
    flag_table.main("add", source(tmp_path, **{version: RELEASES[version]}), stored)
    assert stored.read_bytes() == before


def test_a_release_read_again_is_replaced(stored: Path, tmp_path: Path) -> None:
    flag_table.main("add", source(tmp_path, **{"0.5.11": {"--b": NUMBER}}), stored)
    assert unpack(json.loads(stored.read_text())) == {**RELEASES, "0.5.11": {"--b": NUMBER}}


def test_packing_a_file_leaves_these_releases_alone(stored: Path, tmp_path: Path) -> None:
    packed = tmp_path / "flags.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps({"version": "0.5.9", "flags": RELEASES["0.5.9"]}).encode()))
    flag_table.main("pack", str(packed), stored)
    assert unpack(json.loads(stored.read_text())) == {"0.5.9": RELEASES["0.5.9"]}
