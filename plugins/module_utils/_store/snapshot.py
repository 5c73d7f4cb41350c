# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What a store lacks of a lock, and how a complete model becomes visible in one step."""

from __future__ import annotations

import concurrent.futures
import os
import typing as t
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.blobs import (
    ModelDir,
    StatKey,
    file_status,
    hash_file,
    is_regular,
    is_stamped,
    make_directory,
    part_size,
    quarantine,
    remove,
    replace_link,
    replace_text,
    sync_directory,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob, ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally


@dataclass(frozen=True)
class Survey:
    """What was found. Reading only, so check mode and the real run judge by the same eyes.

    :ivar missing: blobs that are not there.
    :ivar corrupt: blobs whose bytes are not what the lock says.
    :ivar have: bytes of interrupted transfers, by sha256.
    :ivar proofs: identities of the blobs that were proved by reading them just now, by sha256.
    :ivar published: the snapshot, ``current`` and the ref are exactly the lock's.
    """

    missing: tuple[Blob, ...]
    corrupt: tuple[Blob, ...]
    have: dict[str, int]
    proofs: dict[str, StatKey]
    published: bool

    @property
    def wanted(self) -> tuple[Blob, ...]:
        """Blobs to fetch, largest first."""
        return tuple(sorted(self.missing + self.corrupt, key=lambda blob: (-blob.size, blob.path)))

    @property
    def complete(self) -> bool:
        return not self.wanted and self.published

    def remaining(self, blob: Blob) -> int:
        """Bytes of a blob that are still to come."""
        return blob.size - self.have.get(blob.sha256, 0)

    @property
    def bytes_to_fetch(self) -> int:
        return sum(self.remaining(blob) for blob in self.wanted)


def survey(
    model: ModelDir,
    lock: ModelLock,
    full: bool,
    workers: int,
    tally: Tally,
    known: t.Mapping[str, StatKey] | None = None,
) -> Survey:
    """Compare the store with a lock.

    :param full: read every blob; otherwise a blob that nothing has touched since it was proved counts as good.
    :param workers: files that are read at once.
    :param known: identities that this run has already proved.
    """
    already = known or {}
    missing: list[Blob] = []
    corrupt: list[Blob] = []
    unproved: list[Blob] = []
    proofs: dict[str, StatKey] = {}
    for blob in lock.blobs():
        status = file_status(model.blob(blob.sha256))
        if status is None:
            missing.append(blob)
        elif not is_regular(status) or status.st_size != blob.size:
            corrupt.append(blob)
        else:
            key = StatKey.of(status)
            if already.get(blob.sha256) == key:
                proofs[blob.sha256] = key
            elif full or not is_stamped(model, blob, key):
                unproved.append(blob)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        digests = pool.map(lambda blob: hash_file(model.blob(blob.sha256), tally), unproved)
        for blob, (sha256, proof) in zip(unproved, digests):
            if sha256 != blob.sha256:
                corrupt.append(blob)
            elif proof is not None:
                proofs[blob.sha256] = proof
    return Survey(
        missing=tuple(missing),
        corrupt=tuple(corrupt),
        have={blob.sha256: part_size(model, blob) for blob in missing + corrupt},
        proofs=proofs,
        published=_is_published(model, lock),
    )


def publish(model: ModelDir, lock: ModelLock, tally: Tally) -> None:
    """Make the lock's revision the one that readers see. All its blobs have to be proved.

    A new snapshot appears by one rename. One that is there already is mended link by link, each in one step.
    """
    snapshot = model.snapshot(lock.revision)
    if not os.path.isdir(snapshot) or os.path.islink(snapshot):
        remove(model.publishing)
        make_directory(model.publishing)
        _link_files(model, model.publishing, lock, tally)
        make_directory(model.snapshots)
        remove(snapshot)
        os.replace(model.publishing, snapshot)
        sync_directory(model.snapshots)
    else:
        _link_files(model, snapshot, lock, tally)
    if _read_link(model.current) != _current_target(lock.revision):
        replace_link(_current_target(lock.revision), model.current)
    if _read_text(model.main) != lock.revision:
        replace_text(model.main, lock.revision)
    sync_directory(model.root)


def describe_current(model: ModelDir, corrupt: t.Iterable[Blob]) -> str:
    """What readers get now, for ``--diff``: the revision, then a line per file that is whole."""
    target = _read_link(model.current)
    if target is None:
        return ""
    bad = {blob.sha256 for blob in corrupt}
    links = _links(os.path.join(model.root, target))
    whole = {path: os.path.basename(link) for path, link in links.items() if link is not None}
    return _describe(
        os.path.basename(target),
        {path: sha256 for path, sha256 in whole.items() if sha256 not in bad and os.path.exists(model.blob(sha256))},
    )


def describe_lock(lock: ModelLock) -> str:
    """What readers get once the lock is published, in the same form."""
    return _describe(lock.revision, {file.path: file.sha256 for file in lock.files})


def _describe(revision: str, files: t.Mapping[str, str]) -> str:
    lines = [f"revision {revision}"] + [f"{files[path]}  {path}" for path in sorted(files)]
    return "\n".join(lines) + "\n"


def _current_target(revision: str) -> str:
    return os.path.join("snapshots", revision)


def wanted_links(lock: ModelLock) -> dict[str, str]:
    """Link target by path, relative so that the store may be moved or mounted elsewhere."""
    return {file.path: "../" * (file.path.count("/") + 2) + f"blobs/{file.sha256}" for file in lock.files}


def _is_published(model: ModelDir, lock: ModelLock) -> bool:
    return (
        _read_link(model.current) == _current_target(lock.revision)
        and _read_text(model.main) == lock.revision
        and _links(model.snapshot(lock.revision)) == wanted_links(lock)
    )


def _links(folder: str) -> dict[str, str | None]:
    """Every entry under a folder but folders: its link target, None for what is no link."""
    found: dict[str, str | None] = {}
    for parent, folders, files in os.walk(folder):
        for name in files + [name for name in folders if os.path.islink(os.path.join(parent, name))]:
            path = os.path.join(parent, name)
            found[os.path.relpath(path, folder)] = _read_link(path)
    return found


def _link_files(model: ModelDir, folder: str, lock: ModelLock, tally: Tally) -> None:
    """Make a folder hold the lock's links and nothing else."""
    wanted = wanted_links(lock)
    found = _links(folder)
    for path, link in found.items():
        if path not in wanted:
            _clear(model, folder, path, link, tally)
    _remove_empty_folders(folder)
    for path, target in wanted.items():
        if path in found and found[path] == target:
            continue
        place = os.path.join(folder, path)
        make_directory(os.path.dirname(place))
        if path in found and found[path] is None:
            _clear(model, folder, path, None, tally)
        replace_link(target, place)
    for parent, _folders, _files in os.walk(folder):
        sync_directory(parent)


def _clear(model: ModelDir, folder: str, path: str, link: str | None, tally: Tally) -> None:
    """Take an entry out of a snapshot; what somebody else put there is kept in quarantine."""
    place = os.path.join(folder, path)
    if link is not None:
        os.unlink(place)
    else:
        quarantine(model, place, "extra--" + path.replace("/", "--"), tally)


def _remove_empty_folders(folder: str) -> None:
    for parent, _folders, _files in os.walk(folder, topdown=False):
        if parent != folder and not os.listdir(parent):
            os.rmdir(parent)


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _read_text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, ValueError):
        return None
