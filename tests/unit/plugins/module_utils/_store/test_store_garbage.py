# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is removed after a publication and on demand, and what has to stay."""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError

from tests.unit.plugins.module_utils._store import store_kit as kit

if t.TYPE_CHECKING:
    from tests.unit.plugins.module_utils._store.conftest import Subject

OLD, MIDDLE, NEW = "a" * 40, "b" * 40, "c" * 40
COMMON = "model-00001-of-00002.safetensors"


def files_of(revision: str) -> dict[str, bytes]:
    """Two shards, one of which all revisions have in common."""
    return {
        "config.json": b'{"revision": "%s"}' % revision.encode(),
        COMMON: kit.safetensors("common", 3000),
        "model-00002-of-00002.safetensors": kit.safetensors(revision, 5000),
    }


def own_blob(subject: Subject, revision: str) -> Path:
    return (subject.model / "snapshots" / revision / "model-00002-of-00002.safetensors").resolve()


def add(subject: Subject, folder: Path, revision: str, **policy: t.Any) -> t.Any:
    return subject.add_revision(folder / revision, revision, files_of(revision), **policy)


def revisions(subject: Subject) -> set[str]:
    return {entry.name for entry in (subject.model / "snapshots").iterdir()}


def left_over(subject: Subject) -> list[str]:
    """Whatever no snapshot needs."""
    needed = {link.resolve().name for link in (subject.model / "snapshots").rglob("*") if link.is_symlink()}
    found = [
        path
        for path in subject.root.rglob("*")
        if path.name.endswith((".new", ".incomplete"))
        or path.name == ".publishing"
        or (path.parent.name in ("blobs", ".stamp", ".part") and path.name[0] != "." and path.name not in needed)
        or path.parent.name == ".part"
    ]
    return sorted(str(path.relative_to(subject.root)) for path in found)


@pytest.mark.parametrize(("keep", "left"), [(0, {NEW}), (1, {MIDDLE, NEW}), (2, {OLD, MIDDLE, NEW})])
def test_the_latest_revisions_stay(subject: Subject, tmp_path: Path, keep: int, left: set[str]) -> None:
    add(subject, tmp_path, OLD)
    old = own_blob(subject, OLD)
    add(subject, tmp_path, MIDDLE)
    store = add(subject, tmp_path, NEW, keep_revisions=keep)
    assert revisions(subject) == left
    assert old.exists() == (OLD in left)
    assert left_over(subject) == []
    gone = [files_of(revision) for revision in (OLD, MIDDLE) if revision not in left]
    own = [content for files in gone for path, content in files.items() if path != COMMON]
    assert store.tally.bytes_freed == sum(map(len, own))
    assert (f"snapshots/{OLD}" in store.tally.removed) == (OLD not in left)
    for path, content in files_of(NEW).items():
        assert (subject.model / "current" / path).read_bytes() == content


def test_check_mode_tells_what_a_publication_removes(subject: Subject, tmp_path: Path) -> None:
    add(subject, tmp_path, OLD)
    add(subject, tmp_path, MIDDLE)
    subject.document = kit.lock_of(files_of(NEW), NEW)
    before = kit.listing(subject.root)
    predicted = subject.open()
    assert predicted.check_present()
    assert kit.listing(subject.root) == before
    done = add(subject, tmp_path, NEW)
    assert predicted.tally.removed == done.tally.removed != []
    assert predicted.tally.bytes_freed == done.tally.bytes_freed > 0


def test_a_revision_that_is_published_again_counts_as_new(subject: Subject, tmp_path: Path) -> None:
    for revision in (OLD, MIDDLE, OLD, NEW):
        add(subject, tmp_path, revision)
    assert revisions(subject) == {OLD, NEW}


def test_nothing_is_removed_without_a_publication(subject: Subject, tmp_path: Path) -> None:
    add(subject, tmp_path, OLD)
    add(subject, tmp_path, MIDDLE)
    subject.interrupted_part(b"of another lock")
    store = add(subject, tmp_path, MIDDLE, keep_revisions=0)
    assert (store.tally.removed, revisions(subject)) == ([], {OLD, MIDDLE})
    assert (subject.model / "blobs/.part" / hashlib.sha256(b"of another lock").hexdigest()).exists()


def test_what_interrupted_runs_left_goes(subject: Subject, tmp_path: Path) -> None:
    add(subject, tmp_path, OLD)
    subject.interrupted_part(b"of another lock")
    orphan = subject.model / "blobs" / f"{'d' * 64}.incomplete"
    orphan.write_bytes(b"x" * 100)
    (subject.model / "refs/other.new").write_text("half")
    (subject.model / "blobs/.stamp" / ("e" * 64)).write_text("{}")
    unknown = subject.model / "blobs/notes.txt"
    unknown.write_text("mine")
    store = add(subject, tmp_path, NEW)
    assert {f"blobs/{orphan.name}", "refs/other.new"} <= set(store.tally.removed)
    assert store.tally.bytes_freed >= 100 + len(b"of another lock")
    assert unknown.exists(), "of what is not known, it is not known whether it is needed"
    unknown.unlink()
    assert left_over(subject) == []


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_what_a_process_uses_stays_until_it_has_ended(subject: Subject, tmp_path: Path, how: str) -> None:
    add(subject, tmp_path, OLD)
    used = own_blob(subject, OLD)
    with used.open("rb") as stream:
        memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        if how == "mapped":
            stream.close()
        add(subject, tmp_path, MIDDLE, keep_revisions=0)
        assert revisions(subject) == {OLD, MIDDLE}
        assert (subject.model / "snapshots" / OLD / "config.json").exists()
        if how == "open":
            memory.close()
    memory.close()
    add(subject, tmp_path, NEW, keep_revisions=0)
    assert revisions(subject) == {NEW}
    assert not used.exists()
    assert left_over(subject) == []


def test_a_file_in_common_holds_no_old_revision(subject: Subject, tmp_path: Path) -> None:
    add(subject, tmp_path, OLD)
    with (subject.model / "current" / COMMON).open("rb"):
        add(subject, tmp_path, NEW, keep_revisions=0)
    assert revisions(subject) == {NEW}
    assert (subject.model / "current" / COMMON).read_bytes() == files_of(NEW)[COMMON]


def test_absent_removes_the_last_revision_with_everything(subject: Subject, tmp_path: Path) -> None:
    add(subject, tmp_path, OLD)
    (subject.model / "quarantine").mkdir()
    (subject.model / "quarantine/bad").write_bytes(b"bad")
    before = kit.listing(subject.root)
    predicted = subject.open()
    assert predicted.make_absent(check_mode=True)
    assert kit.listing(subject.root) == before
    store = subject.open()
    assert store.make_absent(check_mode=False)
    assert store.tally.removed == predicted.tally.removed
    assert store.tally.bytes_freed == sum(map(len, files_of(OLD).values())) + 3
    assert (store.before[:49], store.after) == (f"revision {OLD}", "")
    assert not subject.model.exists()
    assert not subject.open().make_absent(check_mode=False)


def test_absent_leaves_what_other_revisions_have(subject: Subject, tmp_path: Path) -> None:
    add(subject, tmp_path, OLD)
    add(subject, tmp_path, NEW)
    store = subject.open()
    assert store.make_absent(check_mode=False)
    assert revisions(subject) == {OLD}
    assert not (subject.model / "current").is_symlink(), "which revision readers are to get is not ours to choose"
    assert not (subject.model / "refs/main").exists()
    assert left_over(subject) == []
    for path, content in files_of(OLD).items():
        assert (subject.model / "snapshots" / OLD / path).read_bytes() == content


def test_absent_of_an_older_revision_leaves_the_current_one(subject: Subject, tmp_path: Path) -> None:
    add(subject, tmp_path, OLD)
    old = subject.open()
    add(subject, tmp_path, NEW)
    old.previous = NEW
    assert old.make_absent(check_mode=False)
    assert revisions(subject) == {NEW}
    assert (subject.model / "refs/main").read_text() == NEW
    assert (subject.model / "current/config.json").read_bytes() == files_of(NEW)["config.json"]


@pytest.mark.parametrize("check_mode", [True, False])
def test_absent_refuses_while_a_process_uses_the_model(subject: Subject, tmp_path: Path, check_mode: bool) -> None:
    add(subject, tmp_path, OLD)
    with own_blob(subject, OLD).open("rb"), pytest.raises(StoreError, match=f"process {os.getpid()}") as refusal:
        subject.open().make_absent(check_mode)
    assert refusal.value.error_class == "locked"
    assert refusal.value.facts["pids"] == [os.getpid()]
    assert (subject.model / "current/config.json").exists()


def test_absent_takes_parts_of_a_revision_that_never_came(subject: Subject) -> None:
    subject.interrupted(kit.SHARD, 1000)
    store = subject.open()
    assert store.make_absent(check_mode=False)
    assert store.tally.bytes_freed == 1000
    assert not subject.model.exists()


def test_absent_follows_no_link_out_of_the_store(subject: Subject, tmp_path: Path) -> None:
    add(subject, tmp_path, OLD)
    add(subject, tmp_path, NEW)
    snapshot = subject.model / "snapshots" / NEW
    (snapshot / "up").symlink_to("../..")
    (snapshot / "stamps").symlink_to("../../blobs/.stamp")
    subject.open().make_absent(check_mode=False)
    assert revisions(subject) == {OLD}
    assert (subject.model / "blobs/.stamp").exists()


class Cut(BaseException):
    """The process ends here."""


STEPS = ("replace", "symlink", "unlink", "mkdir", "chmod", "fsync", "utime", "rmdir")


def test_a_publication_cut_at_any_step_is_finished_by_the_next_run(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each call that changes the store: readers have the old revision or the new one, whole; nothing leaks."""
    for cut_at in itertools.count():
        subject.root = tmp_path / f"store-{cut_at}"
        subject.model = subject.root / "models--org--model"
        add(subject, tmp_path, OLD)
        steps = itertools.count()

        def cutting(real: t.Callable[..., t.Any], steps: t.Iterator[int], last: int) -> t.Callable[..., t.Any]:
            def step(*arguments: t.Any, **options: t.Any) -> t.Any:
                if next(steps) >= last:
                    raise Cut
                return real(*arguments, **options)

            return step

        with monkeypatch.context() as patched:
            for name in STEPS:
                patched.setattr(os, name, cutting(getattr(os, name), steps, cut_at))
            try:
                add(subject, tmp_path, NEW, keep_revisions=0)
                was_cut = False
            except Cut:
                was_cut = True
        seen = os.readlink(subject.model / "current").rpartition("/")[2]
        for path, content in files_of(seen).items():
            assert (subject.model / "current" / path).read_bytes() == content, f"cut at step {cut_at}"
        add(subject, tmp_path, NEW, keep_revisions=0)
        assert revisions(subject) == {NEW}, f"cut at step {cut_at}"
        assert left_over(subject) == [], f"cut at step {cut_at}"
        if not was_cut:
            break
    assert cut_at > 20
