# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to a published model afterwards, and which verification finds it."""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store import stamps
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError

from tests.unit.plugins.module_utils._store import store_kit as kit

if t.TYPE_CHECKING:
    from tests.unit.plugins.module_utils._store.conftest import Subject

SIZE = len(kit.model_files()[kit.SHARD])
DAY = 86400.0


def overwrite(blob: Path, offset: int, content: bytes) -> None:
    with blob.open("r+b") as stream:
        stream.seek(offset)
        stream.write(content)


def flip(blob: Path) -> None:
    overwrite(blob, 100_000, bytes([blob.read_bytes()[100_000] ^ 1]))


def flip_keeping_mtime(blob: Path) -> None:
    status = blob.stat()
    flip(blob)
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))


def flip_through_memory(blob: Path) -> None:
    status = blob.stat()
    with blob.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        memory[100_000] ^= 1
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))


def zero(blob: Path) -> None:
    overwrite(blob, 4096, bytes(4096))


def truncate(blob: Path) -> None:
    os.truncate(blob, 1000)


def empty_keeping_mtime(blob: Path) -> None:
    status = blob.stat()
    os.truncate(blob, 0)
    os.utime(blob, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(blob: Path) -> None:
    """Another file of the same size and time takes the name, as a restored backup would."""
    status = blob.stat()
    other = blob.with_name("other")
    other.write_bytes(kit.noise("other", SIZE))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(blob)


def rot(subject: Subject, path: str) -> None:
    """The disk gives other bytes while nothing has written to the file: its identity is that of the stamp."""
    flip_keeping_mtime(subject.blob(path))
    stamp = subject.model / "blobs/.stamp" / subject.sha256(path)
    content = json.loads(stamp.read_text())
    content["key"]["ctime_ns"] = subject.blob(path).stat().st_ctime_ns
    stamp.write_text(json.dumps(content))


def age(subject: Subject, path: str, days: float) -> None:
    """Make a proof older."""
    stamp = subject.model / "blobs/.stamp" / subject.sha256(path)
    content = json.loads(stamp.read_text())
    content["proved_at"] = stamps.rfc3339(time.time() - days * DAY)
    stamp.write_text(json.dumps(content))


def test_a_long_fetch_tells_when_its_first_file_was_proved(subject: Subject) -> None:
    _changed, store = subject.present()
    age(subject, kit.SHARD, 0.5)
    assert store.oldest_proof == pytest.approx(time.time() - 0.5 * DAY, abs=60)


@pytest.mark.parametrize(
    "damage",
    [flip, flip_keeping_mtime, flip_through_memory, zero, truncate, empty_keeping_mtime, replace, os.unlink],
)
def test_damage_is_found_and_mended_by_the_next_run(subject: Subject, damage: t.Callable[[Path], None]) -> None:
    subject.present()
    damage(subject.blob(kit.SHARD))
    subject.hub.forget()
    assert [blob.path for blob in subject.found().wanted] == [kit.SHARD]
    assert subject.present()[0]
    subject.assert_whole()
    assert [asked.path for asked in subject.hub.asked] == [kit.SHARD]
    assert not subject.present()[0]


@pytest.mark.parametrize("change", [lambda blob: blob.chmod(0o400), lambda blob: os.link(blob, blob.with_name("link"))])
def test_a_harmless_change_costs_reading_that_file(subject: Subject, change: t.Callable[[Path], None]) -> None:
    subject.present()
    change(subject.blob(kit.SHARD))
    subject.hub.forget()
    changed, store = subject.present()
    assert (changed, store.tally.bytes_hashed, subject.hub.asked) == (False, SIZE, [])


def test_lost_stamps_cost_reading_and_no_fetch(subject: Subject) -> None:
    subject.present()
    shutil.rmtree(subject.model / "blobs/.stamp")
    subject.hub.forget()
    changed, store = subject.present()
    assert not changed
    assert store.tally.bytes_hashed == sum(map(len, set(subject.hub.files.values())))
    assert subject.hub.asked == []


def test_lost_stamps_hide_no_damage(subject: Subject) -> None:
    subject.present()
    shutil.rmtree(subject.model / "blobs/.stamp")
    flip_keeping_mtime(subject.blob(kit.SHARD))
    assert subject.present()[0]
    subject.assert_whole()


def test_rot_is_found_by_full_only(subject: Subject) -> None:
    subject.present()
    rot(subject, kit.SHARD)
    assert not subject.present()[0]
    subject.hub.forget()
    assert subject.present(store=subject.open("full"))[0]
    assert [asked.path for asked in subject.hub.asked] == [kit.SHARD]
    subject.assert_whole()


def test_rot_that_was_only_looked_at_is_mended_by_a_run_that_believes_stamps(subject: Subject) -> None:
    subject.present()
    rot(subject, kit.SHARD)
    with pytest.raises(StoreError, match="not what the lock says") as failure:
        subject.open("full").verify(record=True)
    assert failure.value.error_class == "corrupt_source"
    assert subject.present()[0]
    subject.assert_whole()


def test_a_file_that_the_disk_cannot_read_is_replaced(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    subject.present()
    subject.blob(kit.SHARD).chmod(0o400)
    bad = subject.blob(kit.SHARD).stat().st_ino
    real = stamps.hash_stream

    def reading(stream: t.Any, *rest: t.Any) -> int:
        if os.fstat(stream.fileno()).st_ino == bad:
            raise OSError(errno.EIO, "Input/output error")
        return real(stream, *rest)

    monkeypatch.setattr(stamps, "hash_stream", reading)
    changed, store = subject.present()
    assert changed
    assert store.tally.quarantined == [str(subject.model / "quarantine" / subject.sha256(kit.SHARD))]
    subject.assert_whole()


def test_a_sample_comes_to_the_rot_in_time(subject: Subject) -> None:
    """Each run reads the file whose proof is the oldest; as many runs as there are files read all of them."""
    subject.present()
    blobs = len(set(subject.hub.files.values()))
    for path in subject.hub.files:
        age(subject, path, 2)
    age(subject, kit.SHARD, 1)
    rot(subject, kit.SHARD)
    # a file that changed less than two seconds ago would be read but not stamped, and so be the oldest again
    time.sleep(2)
    runs = 0
    while not subject.present(store=subject.open("sample"))[0]:
        runs += 1
        assert runs < blobs
    assert runs == blobs - 1, "the others had older proofs"
    subject.assert_whole()


def test_a_sample_is_one_in_fifty(subject: Subject, tmp_path: Path) -> None:
    files = {f"part-{number:03d}.bin": kit.noise(str(number), 100) for number in range(101)}
    subject.add_revision(tmp_path / "files", kit.REVISION, files)
    store = subject.open("sample")
    assert store.look().complete
    assert store.tally.bytes_hashed == 300


def test_a_stamp_grows_old(subject: Subject) -> None:
    subject.present()
    age(subject, kit.SHARD, 31)
    assert subject.present(store=subject.open(age_max=32 * DAY))[1].tally.bytes_hashed == 0
    store = subject.open(age_max=30 * DAY)
    assert store.oldest_proof == pytest.approx(time.time() - 31 * DAY, abs=60), "the stamps tell, believed or not"
    assert store.check_present(), "only reading tells"
    assert store.found is not None
    assert [blob.path for blob in store.found.suspect] == [kit.SHARD]
    changed, store = subject.present(store=subject.open(age_max=30 * DAY))
    assert (changed, store.tally.bytes_hashed) == (False, SIZE)


def test_a_stamp_from_the_future_does_not_last(subject: Subject) -> None:
    subject.present()
    age(subject, kit.SHARD, -400)
    _changed, store = subject.present(store=subject.open(age_max=30 * DAY))
    assert store.tally.bytes_hashed == SIZE


def test_the_oldest_proof_is_told(subject: Subject) -> None:
    _changed, store = subject.present()
    assert store.oldest_proof == pytest.approx(time.time(), abs=5)
    age(subject, "config.json", 7)
    _changed, store = subject.present()
    assert store.oldest_proof == pytest.approx(time.time() - 7 * DAY, abs=5)


@pytest.mark.parametrize("verify", ["stamp", "full"])
def test_full_reads_the_disk(subject: Subject, monkeypatch: pytest.MonkeyPatch, verify: t.Any) -> None:
    """What is written is brought to the disk and dropped from memory, then the file is read."""
    subject.present()
    shutil.rmtree(subject.model / "blobs/.stamp")
    did: list[str] = []
    monkeypatch.setattr(stamps.os, "fsync", lambda _descriptor: did.append("fsync"))
    monkeypatch.setattr(stamps.os, "posix_fadvise", lambda *arguments: did.append(f"drop {arguments[1:]}"))
    real = stamps.hash_stream

    def reading(*arguments: t.Any) -> int:
        did.append("read")
        return real(*arguments)

    monkeypatch.setattr(stamps, "hash_stream", reading)
    subject.open(verify, workers=1).look()
    blobs = len(set(subject.hub.files.values()))
    once = ["fsync", f"drop (0, 0, {os.POSIX_FADV_DONTNEED})", "read"] if verify == "full" else ["read"]
    assert did == once * blobs
