# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder as the source, as on a mounted share or a USB disk, that fails as such places do."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import signal
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store import transport
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience

from tests.unit.plugins.module_utils._store import store_kit as kit
from tests.unit.plugins.module_utils._store.test_store_faults import failing
from tests.unit.plugins.modules import test_model_snapshot as module_kit

if t.TYPE_CHECKING:
    from tests.unit.plugins.module_utils._store.conftest import Subject

SIZE = len(kit.model_files()[kit.SHARD])
MIDDLE = 512 << 10


class Share:
    """A folder with the files of a model. What is to happen to one of them happens once, when it is read."""

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        self.folder = folder
        self.shard = folder / kit.SHARD
        self.source = {"type": "path", "path": str(folder)}
        self.opened: list[str] = []
        self.in_the_middle: t.Callable[[], object] | None = None
        self.always: t.Callable[[], object] | None = None
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    def open(self, path: str, _mode: str, buffering: int, opener: t.Any) -> io.FileIO:
        """In place of the built-in function where the source reads."""
        assert buffering == 0
        self.opened.append(os.path.relpath(path, self.folder))
        share = self

        class Stream(io.FileIO):
            def read(self, size: int | None = -1, /) -> t.Any:
                if path == str(share.shard) and self.tell() >= MIDDLE and share.in_the_middle:
                    action, share.in_the_middle = share.in_the_middle, None
                    action()
                if path == str(share.shard) and share.always:
                    share.always()
                return super().read(-1 if size is None else size)

        return Stream(path, "rb", opener=opener)


@pytest.fixture
def share(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Share:
    share = Share(tmp_path / "share", subject.hub.files)
    monkeypatch.setattr(transport, "open", share.open, raising=False)
    return share


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def zero(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:MIDDLE] + bytes(8192) + content[MIDDLE + 8192 :])


def shorten(file: Path) -> None:
    os.truncate(file, SIZE - 100)


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"more")


def put_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def put_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def put_a_device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def link_elsewhere(file: Path) -> None:
    """To a file of the right size outside of the share."""
    (file.parent.parent / "secret").write_bytes(b"x" * SIZE)
    file.unlink()
    file.symlink_to("../secret")


def link_to_itself(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def break_read(number: int) -> t.Callable[[], object]:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


BAD_FILES: list[t.Callable[[Path], None]] = [
    flip,
    zero,
    shorten,
    lengthen,
    put_a_folder,
    put_a_pipe,
    put_a_device,
    link_elsewhere,
]


@pytest.mark.parametrize("damage", BAD_FILES)
def test_a_bad_file_is_named_and_the_next_source_serves(
    subject: Subject, share: Share, damage: t.Callable[[Path], None]
) -> None:
    damage(share.shard)
    error = failing(subject, share.source, workers=1)
    assert error.error_class == "corrupt_source"
    assert str(share.shard) in str(error)
    assert error.facts["source"] == str(share.folder)
    same_size = damage in (flip, zero, link_elsewhere)
    assert (subject.model / "quarantine").exists() is same_size, "what came is kept"
    share.opened.clear()
    _changed, store = subject.present(
        share.source, {"type": "hub", "url": subject.hub.url}, store=subject.open(workers=1)
    )
    subject.assert_whole()
    assert share.opened == [kit.SHARD], "the largest is first, and nothing more is taken from there"
    assert store.tally.served_by == [subject.hub.url]


@pytest.mark.parametrize("damage", [Path.unlink, link_to_itself])
def test_a_file_that_is_missing_comes_from_the_next_source(
    subject: Subject, share: Share, damage: t.Callable[[Path], None]
) -> None:
    damage(share.shard)
    error = failing(subject, share.source)
    assert error.error_class == "not_found" if damage is Path.unlink else "corrupt_source"
    assert str(share.shard) in str(error)
    subject.present(share.source, {"type": "hub", "url": subject.hub.url})
    subject.assert_whole()
    assert kit.SHARD in [asked.path for asked in subject.hub.asked]


def test_a_share_that_is_not_mounted(subject: Subject, share: Share) -> None:
    """What a part of the files is there from does not matter: only the lock says what is complete."""
    subject.interrupted(kit.SHARD, 1000)
    shutil.rmtree(share.folder)
    share.folder.mkdir()
    assert failing(subject, share.source).error_class == "not_found"
    assert subject.part(kit.SHARD).stat().st_size == 1000


def test_a_file_that_may_not_be_read(subject: Subject, share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_rest: t.Any, **_more: t.Any) -> io.FileIO:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(transport, "open", refuse)
    error = failing(subject, share.source)
    assert error.error_class == "auth"
    assert "Permission denied" in str(error)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT])
def test_a_disk_that_fails_in_the_middle_is_left_at_the_byte(subject: Subject, share: Share, number: int) -> None:
    """A broken sector, an exported folder that is gone, a server that is gone."""
    share.in_the_middle = break_read(number)
    error = failing(subject, share.source, workers=1)
    assert error.error_class == "corrupt_source"
    assert os.strerror(number) in str(error)
    assert subject.part(kit.SHARD).stat().st_size == MIDDLE
    subject.present({"type": "hub", "url": subject.hub.url})
    subject.assert_whole()
    assert subject.hub.sent(kit.SHARD) == SIZE - MIDDLE


@pytest.mark.parametrize("change", [shorten, flip])
def test_a_file_that_is_changed_while_it_is_read(
    subject: Subject, share: Share, change: t.Callable[[Path], None]
) -> None:
    share.in_the_middle = lambda: change(share.shard)
    error = failing(subject, share.source, workers=1)
    assert error.error_class == "corrupt_source"
    assert str(share.shard) in str(error)
    subject.present(share.source, {"type": "hub", "url": subject.hub.url})
    subject.assert_whole()


def test_a_share_that_vanishes_in_the_middle(subject: Subject, share: Share) -> None:
    """What is open can be read to its end; the next file is missing."""
    share.in_the_middle = lambda: shutil.rmtree(share.folder)
    error = failing(subject, share.source, workers=1)
    assert error.error_class == "not_found"
    assert subject.blob(kit.SHARD).exists()
    subject.present({"type": "hub", "url": subject.hub.url})
    subject.assert_whole()
    assert subject.hub.sent(kit.SHARD) == 0


def test_a_share_that_is_too_slow_is_left_for_the_next_source(subject: Subject, share: Share) -> None:
    subject.patience = Patience(retries=1, first_wait=0.01, min_rate=20_000_000, rate_window=0.05)
    share.always = lambda: time.sleep(0.06)
    subject.present(share.source, {"type": "hub", "url": subject.hub.url})
    subject.assert_whole()
    (asked,) = [asked for asked in subject.hub.asked if asked.path == kit.SHARD]
    assert asked.headers["Range"], "it goes on at the byte"


def test_a_disk_that_fills_up_while_a_share_is_copied(subject: Subject, share: Share, small_disk: Path) -> None:
    share.in_the_middle = lambda: kit.fill(small_disk, 100_000)
    with pytest.raises(StoreError) as failure:
        subject.present(share.source, store=subject.open(workers=1))
    assert failure.value.error_class == "no_space"
    assert not (subject.model / "current").exists()
    kept = subject.part(kit.SHARD).stat().st_size
    assert kept >= MIDDLE
    (small_disk / "ballast").unlink()
    _changed, store = subject.present(share.source)
    assert store.tally.bytes_resumed == kept
    subject.assert_whole()


def test_a_disk_that_is_too_small_for_a_share_reads_nothing(subject: Subject, share: Share, small_disk: Path) -> None:
    kit.fill(small_disk, 800_000)
    assert failing(subject, share.source).error_class == "no_space"
    assert share.opened == []


def test_a_failing_share_leaves_what_was_published_before(
    subject: Subject, share: Share, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject.present()
    newer = {**subject.hub.files, kit.SHARD: kit.safetensors("newer", SIZE)}
    subject.document = kit.lock_of(newer, "f" * 40)
    for number, damage in enumerate([*BAD_FILES, Path.unlink]):
        bad = Share(tmp_path / f"share{number}", newer)
        damage(bad.shard)
        with pytest.raises(StoreError):
            subject.present(bad.source)
        subject.assert_whole()
    broken = Share(tmp_path / "broken", newer)
    broken.in_the_middle = break_read(errno.EIO)
    monkeypatch.setattr(transport, "open", broken.open)
    with pytest.raises(StoreError):
        subject.present(broken.source)
    subject.assert_whole()


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_copy_is_resumed(tmp_path: Path, stop: signal.Signals) -> None:
    content = kit.safetensors("large", 96 << 20)
    folder = tmp_path / "share"
    folder.mkdir()
    (folder / kit.SHARD).write_bytes(content)
    arguments = {
        "lock": kit.lock_of({kit.SHARD: content}),
        "store": str(tmp_path / "store"),
        "sources": [{"type": "path", "path": str(folder)}],
    }
    model = tmp_path / "store/models--org--model"
    part = model / "blobs/.part" / hashlib.sha256(content).hexdigest()
    process = module_kit.start(arguments)
    kit.wait_until(lambda: part.exists() and part.stat().st_size > 0)
    process.send_signal(stop)
    process.communicate()
    assert process.returncode == -stop
    kept = part.stat().st_size
    assert 0 < kept < len(content)
    assert not (model / "current").exists()
    done = module_kit.run(arguments)
    assert (done["bytes_resumed"], done["bytes_fetched"]) == (kept, len(content) - kept)
    assert (Path(done["path"]) / kit.SHARD).read_bytes() == content
