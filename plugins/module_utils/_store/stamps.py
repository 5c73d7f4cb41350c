# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Proofs: reading a file, and the stamp that remembers what was proved and when."""

from __future__ import annotations

import calendar
import hashlib
import json
import os
import time
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir, remove, replace_text
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

_READ_SIZE = 1 << 20
_TIME_FORM = "%Y-%m-%dT%H:%M:%SZ"
# A write in the same clock tick as the change before it leaves the times as they were. Two seconds is the
# coarsest tick of a file system in use, so a younger file is proved again rather than stamped.
_SETTLED_NS = 2 * 10**9


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


@dataclass(frozen=True)
class Stamp:
    """The identity of a blob when it was proved, and when that was, in seconds since the epoch."""

    key: StatKey
    proved_at: float

    def vouches_for(self, key: StatKey, now: float, age_max: float | None) -> bool:
        """Whether the proof still counts: nothing has touched the file since, and it is not too old.

        :param age_max: seconds, None for any age. With a limit, a proof from the future does not count either: a
            clock that was set back would make it last.
        """
        return self.key == key and (age_max is None or 0 <= now - self.proved_at <= age_max)


def rfc3339(seconds: float) -> str:
    """A time since the epoch as RFC 3339 writes it, in UTC."""
    return time.strftime(_TIME_FORM, time.gmtime(seconds))


def read_stamp(model: ModelDir, sha256: str) -> Stamp | None:
    """The stamp of a blob, None when there is none that can be read."""
    try:
        with open(model.stamp(sha256), encoding="utf-8") as stream:
            stamp = json.load(stream)
        return Stamp(StatKey(**stamp["key"]), calendar.timegm(time.strptime(stamp["proved_at"], _TIME_FORM)))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def write_stamp(model: ModelDir, sha256: str, key: StatKey, proved_at: float) -> None:
    """Record that the blob with this identity was proved at that time, in seconds since the epoch."""
    replace_text(model.stamp(sha256), json.dumps({"key": asdict(key), "proved_at": rfc3339(proved_at)}))


def drop_stamp(model: ModelDir, sha256: str) -> None:
    """Forget that a blob was ever proved."""
    remove(model.stamp(sha256))


def hash_file(path: str, tally: Tally, from_disk: bool = False) -> tuple[str, StatKey | None]:
    """Read a file and tell its sha256.

    :param from_disk: read what the disk holds, not what memory still holds of it. Pages that a process has mapped
        stay in memory nevertheless.
    :returns: the digest, and the identity to stamp it under; None when the file changed meanwhile or so shortly
        before that a change could hide.
    """
    digest = hashlib.sha256()
    started_ns = time.time_ns()
    with open(path, "rb", buffering=0) as stream:
        if from_disk:
            # only pages that are written back can be dropped
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = StatKey.of(os.fstat(stream.fileno()))
        hash_stream(stream, digest, tally)
        after = StatKey.of(os.fstat(stream.fileno()))
    settled = before == after and started_ns - before.ctime_ns >= _SETTLED_NS
    return digest.hexdigest(), before if settled else None


def hash_stream(stream: t.Any, digest: t.Any, tally: Tally) -> int:
    """Feed the rest of a stream to a digest. Returns its bytes."""
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
