# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module that makes torrents, as Ansible runs it."""

from __future__ import annotations

import hashlib
import typing as t
from pathlib import Path

import pytest

from tests.module import run_module
from tests.unit.plugins.module_utils._store import store_kit as kit

ROOT = Path(__file__).resolve().parents[4]
Result = dict[str, t.Any]


def run(arguments: Result, **changes: t.Any) -> Result:
    return run_module("model_torrent", {**arguments, **changes})


@pytest.fixture
def arguments(tmp_path: Path) -> Result:
    files = kit.model_files()
    blobs = tmp_path / "store/models--org--model/blobs"
    blobs.mkdir(parents=True)
    for content in files.values():
        (blobs / hashlib.sha256(content).hexdigest()).write_bytes(content)
    return {
        "lock": kit.lock_of(files),
        "store": str(tmp_path / "store"),
        "dest": str(tmp_path / "torrent"),
        "announce": "http://mirror:6969/announce",
        "web_seed": "http://mirror:8080/org/model/resolve/",
    }


def _written(path: Path) -> tuple[int, int, int]:
    """What another writing would change; reading changes the time of the last access."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def test_check_then_make_then_make_again(arguments: Result) -> None:
    place = Path(arguments["dest"])
    predicted = run(arguments, _ansible_check_mode=True)
    assert (predicted["changed"], predicted["info_hash"], place.exists()) == (True, None, False)
    made = run(arguments)
    assert (made["changed"], place.stat().st_mode & 0o777) == (True, 0o644)
    before = _written(place)
    again = run(arguments)
    assert (again["changed"], again["info_hash"]) == (False, made["info_hash"])
    assert run(arguments, _ansible_check_mode=True)["changed"] is False
    assert _written(place) == before


def test_another_address_reads_no_file(arguments: Result) -> None:
    made = run(arguments)
    moved = run(arguments, announce="http://other:6969/announce", store="/nowhere")
    assert (moved["changed"], moved["info_hash"]) == (True, made["info_hash"])
    assert b"http://other:6969/announce" in Path(arguments["dest"]).read_bytes()


def test_a_torrent_that_is_not_the_locks_is_made_again(arguments: Result) -> None:
    made = run(arguments)
    Path(arguments["dest"]).write_bytes(b"rot")
    assert run(arguments) == made


def test_failures_say_what_is_wrong(arguments: Result) -> None:
    assert run(arguments, store="/nowhere")["error_class"] == "not_found"
    assert run(arguments, lock={"format": 1})["error_class"] == "lock_invalid"
    assert "workers is 0" in run(arguments, workers=0)["msg"]
    assert "an absolute path" in run(arguments, dest="torrent")["msg"]
