# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What a store lacks of a lock. Reading only, so check mode and the real run judge by the same eyes."""

from __future__ import annotations

import concurrent.futures
import errno
import random
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.blobs import part_size
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir, file_status, is_regular
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob, ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.snapshot import is_published
from ansible_collections.inferops.serving.plugins.module_utils._store.stamps import StatKey, hash_file, read_stamp
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

Verify = t.Literal["stamp", "sample", "full"]
# Of the files whose stamps hold, ``sample`` reads one in fifty, and one at least.
_SAMPLE_ONE_IN = 50


@dataclass(frozen=True)
class Proving:
    """When a file counts as good.

    :param verify: ``stamp`` believes stamps, ``sample`` reads some of the files that have one, those proved longest
        ago first, ``full`` reads every file, and from the disk.
    :param age_max: seconds after which a stamp is not believed; None for never.
    :param workers: files that are read at once.
    """

    verify: Verify = "stamp"
    age_max: float | None = None
    workers: int = 4


@dataclass(frozen=True)
class Survey:
    """What was found.

    :ivar missing: blobs that are not there.
    :ivar corrupt: blobs whose bytes are not what the lock says.
    :ivar suspect: blobs that no stamp vouches for and that were not read.
    :ivar have: bytes of interrupted transfers, by sha256.
    :ivar proofs: identities of the blobs that were proved by reading them just now, by sha256.
    :ivar proved_at: when each good blob was last proved, in seconds since the epoch, by sha256.
    :ivar published: the snapshot, ``current`` and the ref are exactly the lock's.
    """

    missing: tuple[Blob, ...]
    corrupt: tuple[Blob, ...]
    suspect: tuple[Blob, ...]
    have: dict[str, int]
    proofs: dict[str, StatKey]
    proved_at: dict[str, float]
    published: bool

    @property
    def wanted(self) -> tuple[Blob, ...]:
        """Blobs to fetch, largest first."""
        return tuple(sorted(self.missing + self.corrupt, key=lambda blob: (-blob.size, blob.path)))

    @property
    def complete(self) -> bool:
        return not self.wanted and not self.suspect and self.published

    def remaining(self, blob: Blob) -> int:
        """Bytes of a blob that are still to come."""
        return blob.size - self.have.get(blob.sha256, 0)

    @property
    def bytes_to_fetch(self) -> int:
        return sum(self.remaining(blob) for blob in self.wanted)

    @property
    def oldest_proof(self) -> float | None:
        """When the good blob that was proved longest ago was proved; None when there is none."""
        return min(self.proved_at.values(), default=None)


def survey(
    model: ModelDir,
    lock: ModelLock,
    proving: Proving,
    tally: Tally,
    known: Survey | None = None,
    stat_only: bool = False,
) -> Survey:
    """Compare the store with a lock.

    :param known: an earlier look of this run, whose proofs still hold; it has taken the sample too.
    :param stat_only: read no file but under ``full``; what would be read is suspect then.
    """
    now = time.time()
    missing: list[Blob] = []
    corrupt: list[Blob] = []
    unproved: list[Blob] = []
    stamped: list[Blob] = []
    proofs: dict[str, StatKey] = {}
    proved_at: dict[str, float] = {}
    full = proving.verify == "full"
    for blob in lock.blobs():
        status = file_status(model.blob(blob.sha256))
        if status is None:
            missing.append(blob)
            continue
        if not is_regular(status) or status.st_size != blob.size:
            corrupt.append(blob)
            continue
        key = StatKey.of(status)
        stamp = read_stamp(model, blob.sha256)
        if known is not None and known.proofs.get(blob.sha256) == key:
            proofs[blob.sha256], proved_at[blob.sha256] = key, known.proved_at[blob.sha256]
        elif full or stamp is None or not stamp.vouches_for(key, now, proving.age_max):
            unproved.append(blob)
        else:
            stamped.append(blob)
            proved_at[blob.sha256] = stamp.proved_at
    suspect: list[Blob] = []
    if stat_only and not full:
        unproved, suspect = [], unproved
    elif proving.verify == "sample" and known is None:
        unproved += _sample(stamped, proved_at)
    with concurrent.futures.ThreadPoolExecutor(proving.workers) as pool:
        digests = pool.map(lambda blob: _read(model.blob(blob.sha256), tally, full), unproved)
        for blob, (sha256, proof) in zip(unproved, digests):
            if sha256 != blob.sha256:
                corrupt.append(blob)
                proved_at.pop(blob.sha256, None)
                continue
            proved_at[blob.sha256] = now
            if proof is not None:
                proofs[blob.sha256] = proof
    return Survey(
        missing=tuple(missing),
        corrupt=tuple(corrupt),
        suspect=tuple(suspect),
        have={blob.sha256: part_size(model, blob) for blob in missing + corrupt},
        proofs=proofs,
        proved_at=proved_at,
        published=is_published(model, lock),
    )


def _read(path: str, tally: Tally, from_disk: bool) -> tuple[str, StatKey | None]:
    """As :func:`hash_file`, but a disk that cannot read the file back has not what the lock says either."""
    try:
        return hash_file(path, tally, from_disk)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return "unreadable", None


def _sample(stamped: t.Sequence[Blob], proved_at: t.Mapping[str, float]) -> list[Blob]:
    """Those to read of the blobs whose stamps hold: the ones proved longest ago, at random among equals."""
    order = sorted(stamped, key=lambda blob: (proved_at[blob.sha256], random.random()))
    return order[: -(-len(order) // _SAMPLE_ONE_IN)]
