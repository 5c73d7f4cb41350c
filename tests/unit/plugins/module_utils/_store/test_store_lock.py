# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock: what it takes, what it refuses, and that no accepted path leaves its folder."""

from __future__ import annotations

import copy
import os
import typing as t

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import (
    canonical,
    parse_lock,
    path_problem,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.module_utils._store import store_kit as kit

Change = t.Callable[[dict[str, t.Any]], object]


def changed(change: Change) -> dict[str, t.Any]:
    document = copy.deepcopy(kit.lock_of(kit.model_files()))
    change(document)
    return document


def with_paths(*paths: str) -> dict[str, t.Any]:
    return kit.lock_of({path: path.encode("utf-8", "surrogatepass") for path in paths})


def test_a_good_lock_is_read_whole() -> None:
    files = kit.model_files()
    lock = parse_lock(kit.lock_of(files))
    assert (lock.repo, lock.revision, lock.total_size) == (
        kit.REPO,
        kit.REVISION,
        sum(map(len, files.values())),
    )
    assert [file.path for file in lock.files] == sorted(files)


def test_equal_files_are_one_blob_and_the_largest_comes_first() -> None:
    blobs = parse_lock(kit.lock_of(kit.model_files())).blobs()
    assert blobs[0].paths == (kit.SHARD,)
    assert ("config.json", "copy/of config.json") in [blob.paths for blob in blobs]
    assert [blob.size for blob in blobs] == sorted((blob.size for blob in blobs), reverse=True)


def test_the_digest_does_not_depend_on_order_and_does_on_content() -> None:
    document = kit.lock_of(kit.model_files())
    turned = {key: document[key] for key in reversed(document)}
    turned["files"] = document["files"][::-1]
    assert parse_lock(turned).digest == parse_lock(document).digest
    assert canonical(turned) == canonical(document)
    other = changed(lambda lock: lock["facts"]["config"].update(model_type="other"))
    assert parse_lock(other).digest != parse_lock(document).digest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lock: lock.update(format=2), "format is 2"),
        (lambda lock: lock.update(format=True), "format is True"),
        (lambda lock: lock.update(repo="../etc"), "repo is"),
        (lambda lock: lock.update(repo="org/na--me"), "repo is"),
        (lambda lock: lock.update(repo="a/b/c"), "repo is"),
        (lambda lock: lock.update(repo_type="dataset"), "repo_type is"),
        (lambda lock: lock.update(revision="main"), "revision is 'main'"),
        (lambda lock: lock.update(revision=kit.REVISION.upper()), "revision is"),
        (lambda lock: lock.update(revision=kit.REVISION + "\n"), "revision is"),
        (lambda lock: lock.update(total_size=1), "the files add up to"),
        (lambda lock: lock.update(files=[]), "files is not a list"),
        (lambda lock: lock.update(files={}), "files is not a list"),
        (lambda lock: lock["files"].append("config.json"), "is not a mapping"),
        (lambda lock: lock["files"][0].update(size=-1), "not a number of bytes"),
        (lambda lock: lock["files"][0].update(size="21"), "not a number of bytes"),
        (lambda lock: lock["files"][0].update(size=True), "not a number of bytes"),
        (lambda lock: lock["files"][0].update(size=22), "two sizes"),
        (lambda lock: lock["files"][0].update(sha256="*" * 64), "sha256 is not"),
        (lambda lock: lock["files"][0].pop("sha256"), "sha256 is not"),
        (lambda lock: lock["files"][2].update(sha256="0" * 64), "not that of nothing"),
        (lambda lock: lock["files"][0].update(git_sha1="abc"), "git_sha1 is not"),
    ],
)
def test_a_bad_lock_is_refused(change: Change, said: str) -> None:
    with pytest.raises(StoreError, match=said) as refusal:
        parse_lock(changed(change))
    assert refusal.value.error_class == "lock_invalid"


@pytest.mark.parametrize("document", [None, "lock.json", [], 1])
def test_what_is_no_mapping_is_refused(document: t.Any) -> None:
    with pytest.raises(StoreError, match="not a mapping"):
        parse_lock(document)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(StoreError) as refusal:
        parse_lock(changed(lambda lock: lock.update(format=2, revision="main", repo_type="space")))
    assert len(refusal.value.facts["problems"]) == 3


@pytest.mark.parametrize(
    "paths",
    [
        ("config.json", "Config.JSON"),
        ("straße", "STRASSE"),
        ("caf\u00e9", "cafe\u0301"),
        ("a", "a/b"),
        ("A", "a/b/c"),
    ],
)
def test_paths_that_collide_are_refused(paths: tuple[str, str]) -> None:
    with pytest.raises(StoreError, match=r"case does not count|is a file, and a folder"):
        parse_lock(with_paths(*paths))


def test_a_path_given_twice_is_refused() -> None:
    document = kit.lock_of({"a": b"1"})
    document["files"].append(dict(document["files"][0]))
    document["total_size"] = 2
    with pytest.raises(StoreError, match="one name where case does not count"):
        parse_lock(document)


part = st.one_of(
    st.sampled_from(["", ".", "..", "...", "a", "~", "$HOME", "x" * 255, "x" * 256, "\udc80", "a\nb", "a\\b"]),
    st.text(max_size=8),
)


@given(st.lists(part, min_size=1, max_size=6).map("/".join))
def test_an_accepted_path_stays_a_plain_name_below_its_folder(path: str) -> None:
    if path_problem(path) is not None:
        with pytest.raises(StoreError):
            parse_lock(with_paths(path))
        return
    assert parse_lock(with_paths(path)).files[0].path == path
    # The path is its own normal form below a root: no absolute, empty, "." or ".." part survived.
    assert os.path.normpath(os.path.join("/store", path)) == "/store/" + path
    assert all(len(os.fsencode(name)) <= 255 for name in path.split("/"))
    assert not set(path) & {chr(code) for code in [*range(32), 127]}
