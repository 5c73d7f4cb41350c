# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A store that is brought to hold a model: what is written, and what a second look costs."""

from __future__ import annotations

import json
import os
import shutil
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store.blobs import Part
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.holder import sole_writer

from tests.unit.plugins.module_utils._store import store_kit as kit

if t.TYPE_CHECKING:
    from tests.unit.plugins.module_utils._store.conftest import Subject


def test_an_empty_store_becomes_the_model(subject: Subject) -> None:
    changed, store = subject.present()
    assert changed
    subject.assert_whole()
    assert store.tally.bytes_fetched == sum(map(len, set(subject.hub.files.values())))
    assert store.tally.requests == len(set(subject.hub.files.values())) - 1, "the empty file needs no request"
    assert store.tally.served_by == [subject.hub.url]
    assert not (subject.model / "blobs/.part").exists() or not list((subject.model / "blobs/.part").iterdir())


def test_links_are_relative_and_modes_are_set_whatever_the_umask(subject: Subject) -> None:
    old = os.umask(0o077)
    try:
        subject.present()
    finally:
        os.umask(old)
    nested = subject.model / "snapshots" / kit.REVISION / "tokenizer/nested/vocab.txt"
    assert os.readlink(nested) == f"../../../../blobs/{subject.sha256('tokenizer/nested/vocab.txt')}"
    assert os.readlink(subject.model / "current") == f"snapshots/{kit.REVISION}"
    for entry in subject.root.rglob("*"):
        mode = stat.S_IMODE(entry.lstat().st_mode)
        if entry.is_dir() and not entry.is_symlink():
            assert mode == 0o755, entry
        elif entry.parent.name == "blobs":
            assert mode == 0o444, entry
    moved = subject.root.rename(subject.root.parent / "moved")
    assert (moved / "models--org--model/current/config.json").read_bytes() == subject.hub.files["config.json"]


def test_a_second_run_asks_nothing_reads_nothing_and_writes_nothing(subject: Subject) -> None:
    subject.present()
    subject.hub.forget()
    before = kit.listing(subject.root)
    changed, store = subject.present()
    assert not changed
    assert subject.hub.asked == []
    assert (store.tally.requests, store.tally.bytes_hashed) == (0, 0)
    assert kit.listing(subject.root) == before


def test_looking_writes_nothing(subject: Subject) -> None:
    assert subject.open().check_present()
    assert not subject.root.exists()
    subject.interrupted(kit.SHARD, 1000)
    before = kit.listing(subject.root)
    store = subject.open("full")
    assert store.check_present()
    assert kit.listing(subject.root) == before
    assert subject.hub.asked == []
    assert store.found is not None
    unique = sum(map(len, set(subject.hub.files.values())))
    assert store.found.bytes_to_fetch == unique - 1000


def edit_keeping_mtime(blob: Path) -> None:
    status = blob.stat()
    content = bytearray(blob.read_bytes())
    content[100] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(content)
    blob.chmod(0o444)
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))


def truncate_keeping_mtime(blob: Path) -> None:
    status = blob.stat()
    os.truncate(blob, 1000)
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))


def put_a_folder_there(blob: Path) -> None:
    blob.unlink()
    blob.mkdir()
    (blob / "file").write_text("x")


def put_a_link_there(blob: Path) -> None:
    blob.unlink()
    blob.symlink_to("/etc/hostname")


@pytest.mark.parametrize("damage", [edit_keeping_mtime, truncate_keeping_mtime, put_a_folder_there, put_a_link_there])
def test_a_damaged_blob_is_found_set_aside_and_fetched_again(
    subject: Subject, damage: t.Callable[[Path], None]
) -> None:
    subject.present()
    damage(subject.blob(kit.SHARD))
    subject.hub.forget()
    assert [blob.path for blob in subject.found().corrupt] == [kit.SHARD]
    changed, store = subject.present()
    assert changed
    subject.assert_whole()
    assert [asked.path for asked in subject.hub.asked] == [kit.SHARD], "only the damaged file is fetched"
    assert store.tally.quarantined == [str(subject.model / "quarantine" / subject.sha256(kit.SHARD))]
    assert os.path.lexists(store.tally.quarantined[0])
    assert not subject.present()[0]


def test_a_blob_is_a_plain_file_not_a_link_to_one(subject: Subject) -> None:
    subject.present()
    content = subject.hub.files["config.json"]
    elsewhere = subject.model / ("x" * (len(content) - len("../")))
    elsewhere.write_bytes(content)
    subject.blob("config.json").unlink()
    subject.blob("config.json").symlink_to(f"../{elsewhere.name}")
    assert subject.blob("config.json").lstat().st_size == len(content), "only its kind tells it apart"
    assert [blob.path for blob in subject.found().corrupt] == ["config.json"]


def test_rot_under_a_valid_stamp_needs_a_full_look_and_is_mended_by_it(subject: Subject) -> None:
    subject.present()
    stamp = subject.model / "blobs/.stamp" / subject.sha256(kit.SHARD)
    edit_keeping_mtime(subject.blob(kit.SHARD))
    status = subject.blob(kit.SHARD).stat()
    forged = json.loads(stamp.read_text())
    forged["key"].update(ctime_ns=status.st_ctime_ns, mtime_ns=status.st_mtime_ns, inode=status.st_ino)
    stamp.write_text(json.dumps(forged))
    assert not subject.present()[0]
    assert subject.present(store=subject.open("full"))[0]
    subject.assert_whole()


def test_a_deleted_blob_is_fetched_again(subject: Subject) -> None:
    subject.present()
    subject.blob("config.json").unlink()
    found = subject.found()
    assert [blob.paths for blob in found.missing] == [("config.json", "copy/of config.json")]
    assert subject.present()[0]
    subject.assert_whole()


def test_a_touched_blob_is_read_not_fetched_and_stamped_again(subject: Subject) -> None:
    subject.present()
    subject.hub.forget()
    subject.blob(kit.SHARD).chmod(0o400)
    changed, store = subject.present()
    assert not changed
    assert store.tally.bytes_hashed == len(subject.hub.files[kit.SHARD])
    assert subject.hub.asked == []


def test_a_file_that_changed_just_now_is_not_stamped(subject: Subject) -> None:
    """A change in the same tick of a coarse clock would not show, so such a proof does not last."""
    subject.present()
    stamps = subject.model / "blobs/.stamp"
    shutil.rmtree(stamps)
    subject.blob(kit.SHARD).chmod(0o444)
    assert subject.sha256(kit.SHARD) not in subject.found().proofs


def test_what_does_not_belong_into_a_snapshot_is_taken_out(subject: Subject) -> None:
    subject.present()
    snapshot = subject.model / "snapshots" / kit.REVISION
    (snapshot / "generation_config.json").write_text("{}")
    (snapshot / "deep/er").mkdir(parents=True)
    (snapshot / "deep/er/stray").symlink_to("/etc/hostname")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").write_text("mine")
    (snapshot / kit.SHARD).unlink()
    (snapshot / kit.SHARD).symlink_to("../../blobs/other")
    subject.hub.forget()
    changed, store = subject.present()
    assert changed
    subject.assert_whole()
    assert not (snapshot / "deep").exists()
    assert subject.hub.asked == []
    kept = {Path(path).name: Path(path).read_text() for path in store.tally.quarantined}
    assert kept == {"extra--generation_config.json": "{}", "extra--config.json": "mine"}


def test_a_new_revision_shares_blobs_and_moves_current(subject: Subject) -> None:
    subject.present()
    newer = "f" * 40
    files = {**subject.hub.files, "config.json": b'{"model_type": "toy", "version": 2}'}
    subject.document = kit.lock_of(files, revision=newer)
    with kit.running(files, revision=newer) as second:
        changed, store = subject.present({"type": "hub", "url": second.url})
        assert changed
        assert [asked.path for asked in second.asked] == ["config.json"]
    assert store.before.startswith(f"revision {kit.REVISION}\n")
    assert store.after.startswith(f"revision {newer}\n")
    assert (subject.model / "current/config.json").read_bytes() == files["config.json"]
    old = subject.model / "snapshots" / kit.REVISION / "config.json"
    assert old.read_bytes() == subject.hub.files["config.json"], "the revision before stays readable"


def test_a_publication_that_was_cut_off_is_done_again(subject: Subject) -> None:
    subject.present()
    shutil.rmtree(subject.model / "snapshots")
    (subject.model / ".publishing/half").mkdir(parents=True)
    (subject.model / "current.new").symlink_to("nowhere")
    subject.hub.forget()
    assert subject.present()[0]
    subject.assert_whole()
    assert subject.hub.asked == []


@pytest.mark.parametrize("folder", [".", "org/model"], ids=["one repository", "by name"])
def test_a_folder_of_files_is_a_source(subject: Subject, tmp_path: Path, folder: str) -> None:
    for path, content in subject.hub.files.items():
        (tmp_path / "usb" / folder / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "usb" / folder / path).write_bytes(content)
    _changed, store = subject.present({"type": "path", "path": str(tmp_path / "usb")})
    subject.assert_whole()
    assert store.tally.requests == 0
    assert store.tally.served_by == [str(tmp_path / "usb")]


def test_another_store_is_a_source_that_is_not_believed(subject: Subject, tmp_path: Path) -> None:
    subject.present()
    other = shutil.move(subject.root, tmp_path / "other")
    edit_keeping_mtime(Path(other) / "models--org--model/blobs" / subject.sha256(kit.SHARD))
    with pytest.raises(StoreError, match="sent wrong bytes") as failure:
        subject.present({"type": "path", "path": str(other)})
    assert failure.value.error_class == "corrupt_source"
    assert failure.value.facts["source"] == str(other)
    subject.assert_nothing_wrong()
    assert not (subject.model / "current").exists()
    assert subject.present()[0]
    subject.assert_whole()


def test_verify_reads_only_and_tells_what_is_wrong(subject: Subject) -> None:
    with pytest.raises(StoreError, match=r"lacks config\.json, copy/of config\.json") as failure:
        subject.open().verify(record=False)
    assert failure.value.error_class == "not_found"
    subject.present()
    subject.open("full").verify(record=False)
    edit_keeping_mtime(subject.blob(kit.SHARD))
    before = kit.listing(subject.root)
    with pytest.raises(StoreError, match=f"not what the lock says: {kit.SHARD}") as failure:
        subject.open().verify(record=False)
    assert failure.value.error_class == "corrupt_source"
    assert kit.listing(subject.root) == before


def test_a_store_has_one_writer(subject: Subject) -> None:
    """The second run fails with the first one's name while that one is in the middle of a file."""
    seen: list[StoreError] = []

    def second_run() -> None:
        with pytest.raises(StoreError) as refusal:
            subject.present()
        seen.append(refusal.value)

    subject.hub.misbehave(kit.SHARD, kit.first(second_run))
    subject.present()
    assert [error.error_class for error in seen] == ["locked"]
    assert f"process {os.getpid()} on " in str(seen[0])
    assert seen[0].facts["holder"]["pid"] == os.getpid()
    subject.assert_whole()
    assert (subject.root / ".lock").read_text() == ""


def test_a_complete_model_does_not_wait_for_the_writer(subject: Subject) -> None:
    subject.present()
    with sole_writer(str(subject.root)):
        assert not subject.present()[0]


def test_a_part_that_is_too_long_or_wrong_costs_one_fetch(subject: Subject) -> None:
    size = len(subject.hub.files[kit.SHARD])
    for left in (b"x" * (size + 1), b"x" * size, b"x" * (size // 2)):
        shutil.rmtree(subject.root, ignore_errors=True)
        subject.part(kit.SHARD).parent.mkdir(parents=True)
        subject.part(kit.SHARD).write_bytes(left)
        subject.hub.forget()
        subject.present()
        subject.assert_whole()
        assert subject.hub.sent(kit.SHARD) <= size + size // 2


def test_a_whole_part_is_proved_and_published_without_a_request(subject: Subject) -> None:
    subject.interrupted(kit.SHARD, len(subject.hub.files[kit.SHARD]))
    subject.present()
    subject.assert_whole()
    assert kit.SHARD not in [asked.path for asked in subject.hub.asked]


def test_every_byte_that_was_received_outlives_the_process(subject: Subject) -> None:
    """Part keeps nothing in user space: what was appended can be read by others at once."""
    store = subject.open()
    blob = next(blob for blob in store._lock.blobs() if blob.path == kit.SHARD)
    with Part(store._model, blob, store.tally) as part:
        part.append(b"a" * 1234, "test")
        assert subject.part(kit.SHARD).stat().st_size == 1234
