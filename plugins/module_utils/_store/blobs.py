# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The store on disk: where things are, what proves a blob, and how bytes become one.

The layout is that of the Hub cache, so engines read it as it is::

    <store>/models--org--name/
        blobs/<sha256>                 read-only, complete and proved; changed by rename only
        blobs/.part/<sha256>           bytes on their way in; the name is stable, so the next run resumes
        blobs/.stamp/<sha256>          the identity of the blob when it was proved
        snapshots/<commit>/<path>      -> ../../blobs/<sha256>
        current                        -> snapshots/<commit>
        refs/main                      the commit, for readers that ask for a branch
        quarantine/<sha256>            the last bytes that were not what the lock says
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import time
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

DIRECTORY_MODE = 0o755
BLOB_MODE = 0o444
_TEXT_MODE = 0o644
_PART_MODE = 0o600
_READ_SIZE = 1 << 20
_EARLIER_RUN = "an earlier run"
# A write in the same clock tick as the change before it leaves the times as they were. Two seconds is the
# coarsest tick of a file system in use, so a younger file is proved again rather than stamped.
_SETTLED_NS = 2 * 10**9


class ModelDir:
    """The paths of one repository inside a store."""

    def __init__(self, store: str, repo: str) -> None:
        self.root = os.path.join(store, "models--" + repo.replace("/", "--"))
        self.blobs = os.path.join(self.root, "blobs")
        self.parts = os.path.join(self.blobs, ".part")
        self.stamps = os.path.join(self.blobs, ".stamp")
        self.snapshots = os.path.join(self.root, "snapshots")
        self.publishing = os.path.join(self.root, ".publishing")
        self.current = os.path.join(self.root, "current")
        self.refs = os.path.join(self.root, "refs")
        self.main = os.path.join(self.refs, "main")
        self.quarantine = os.path.join(self.root, "quarantine")

    def blob(self, sha256: str) -> str:
        return os.path.join(self.blobs, sha256)

    def part(self, sha256: str) -> str:
        return os.path.join(self.parts, sha256)

    def stamp(self, sha256: str) -> str:
        return os.path.join(self.stamps, sha256)

    def snapshot(self, revision: str) -> str:
        return os.path.join(self.snapshots, revision)


@contextlib.contextmanager
def space_needed(where: str, doing: str) -> t.Iterator[None]:
    """Turn a full file system into a StoreError of class ``no_space``; what was written stays."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StoreError(
            "no_space",
            f"The file system of {where} became full while {doing}.",
            "Free some space and run this again; it goes on from where it stopped.",
        ) from error


@dataclass(frozen=True)
class StatKey:
    """What changes when any program changes a file: ctime cannot be set back from user space, mtime can."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> StatKey:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def make_directory(path: str) -> None:
    """Make a directory and its parents, readable by everyone whatever the umask is."""
    if os.path.isdir(path):
        return
    make_directory(os.path.dirname(path))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    os.chmod(path, DIRECTORY_MODE)


def sync_directory(path: str) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: str, text: str) -> None:
    """Write a small file in one step: readers see the old one or the new one."""
    make_directory(os.path.dirname(path))
    fresh = path + ".new"
    with open(fresh, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(fresh, _TEXT_MODE)
    os.replace(fresh, path)


def replace_link(target: str, path: str) -> None:
    """Point a symbolic link somewhere in one step."""
    fresh = path + ".new"
    remove(fresh)
    os.symlink(target, fresh)
    os.replace(fresh, path)


def remove(path: str) -> None:
    """Remove whatever has this name, if anything has."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def quarantine(model: ModelDir, path: str, name: str, tally: Tally) -> None:
    """Move bytes that are not what the lock says out of use, and keep them: one file per name."""
    make_directory(model.quarantine)
    kept = os.path.join(model.quarantine, name)
    remove(kept)
    os.replace(path, kept)
    tally.set_aside(kept)


def file_status(path: str) -> os.stat_result | None:
    """The status of what has this name, links not followed; None when nothing has."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def part_size(model: ModelDir, blob: Blob) -> int:
    """Bytes of an interrupted transfer that the next one starts from. 0 when there are more than the blob has."""
    status = file_status(model.part(blob.sha256))
    return status.st_size if status is not None and status.st_size <= blob.size else 0


def is_stamped(model: ModelDir, blob: Blob, key: StatKey) -> bool:
    """True when the blob was proved before and nothing has touched it since."""
    try:
        with open(model.stamp(blob.sha256), encoding="utf-8") as stream:
            stamp = json.load(stream)
        return bool(stamp["key"] == asdict(key))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return False


def write_stamp(model: ModelDir, sha256: str, key: StatKey) -> None:
    """Record that the blob with this identity has been proved now."""
    proved_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    replace_text(model.stamp(sha256), json.dumps({"key": asdict(key), "proved_at": proved_at}))


def hash_file(path: str, tally: Tally) -> tuple[str, StatKey | None]:
    """Read a file and tell its sha256.

    :returns: the digest, and the identity to stamp it under; None when the file changed meanwhile or so shortly
        before that a change could hide.
    """
    digest = hashlib.sha256()
    started_ns = time.time_ns()
    with open(path, "rb", buffering=0) as stream:
        before = StatKey.of(os.fstat(stream.fileno()))
        _hash_stream(stream, digest, tally)
        after = StatKey.of(os.fstat(stream.fileno()))
    settled = before == after and started_ns - before.ctime_ns >= _SETTLED_NS
    return digest.hexdigest(), before if settled else None


def _hash_stream(stream: t.Any, digest: t.Any, tally: Tally) -> int:
    buffer = bytearray(_READ_SIZE)
    view = memoryview(buffer)
    total = 0
    while True:
        count = stream.readinto(buffer)
        if not count:
            break
        digest.update(view[:count])
        total += count
    tally.hashed(total)
    return total


class Part:
    """The bytes of one blob on their way in, with their running sha256.

    Opening hashes what an interrupted run left: the digest always speaks of every byte in the file. Bytes go
    straight to the kernel, so a killed process loses none that it had received. ``origins`` names where they came
    from: a wrong digest tells something about a source only when it is the only one.
    """

    def __init__(self, model: ModelDir, blob: Blob, tally: Tally) -> None:
        self._model = model
        self._blob = blob
        self._tally = tally
        self._digest = hashlib.sha256()
        make_directory(model.parts)
        self._path = model.part(blob.sha256)
        self._stream = self._open()
        if os.fstat(self._stream.fileno()).st_size > blob.size:
            self._stream.truncate(0)
        self.length = _hash_stream(self._stream, self._digest, tally)
        self.origins = {_EARLIER_RUN} if self.length else set()
        tally.resumed(self.length)

    def _open(self) -> t.Any:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _PART_MODE)
        return open(descriptor, "r+b", buffering=0)

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stream.close()

    @property
    def complete(self) -> bool:
        return self.length == self._blob.size

    @property
    def sha256(self) -> str:
        """Digest of the bytes so far."""
        return self._digest.hexdigest()

    def append(self, chunk: bytes, origin: str) -> None:
        """Add bytes that came from ``origin``."""
        self.origins.add(origin)
        rest = memoryview(chunk)
        while rest:
            count = self._stream.write(rest)
            self._digest.update(rest[:count])
            self.length += count
            rest = rest[count:]

    def restart(self) -> None:
        """Forget the bytes so far."""
        self._stream.seek(0)
        self._stream.truncate(0)
        self._digest = hashlib.sha256()
        self.length = 0
        self.origins.clear()

    def set_aside(self) -> None:
        """Quarantine the bytes so far and begin an empty file."""
        self._stream.close()
        quarantine(self._model, self._path, self._blob.sha256, self._tally)
        self._stream = self._open()
        self.restart()

    def publish(self) -> None:
        """Make the proved bytes the blob.

        The stamp holds from the start: until the rename nobody else could name the file, and after it nobody may
        write to it.
        """
        os.fsync(self._stream.fileno())
        os.fchmod(self._stream.fileno(), BLOB_MODE)
        os.replace(self._path, self._model.blob(self._blob.sha256))
        sync_directory(self._model.blobs)
        write_stamp(self._model, self._blob.sha256, StatKey.of(os.fstat(self._stream.fileno())))


def is_regular(status: os.stat_result) -> bool:
    """True for a plain file: what a blob has to be."""
    return stat.S_ISREG(status.st_mode)
