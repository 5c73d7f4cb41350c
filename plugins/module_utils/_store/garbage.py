# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What a model's directory no longer needs, and its removal."""

from __future__ import annotations

import contextlib
import os
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import (
    ModelDir,
    file_status,
    is_regular,
    remove,
    sync_directory,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.openfiles import openers
from ansible_collections.inferops.serving.plugins.module_utils._store.snapshot import current_revision, references
from ansible_collections.inferops.serving.plugins.module_utils._store.stamps import drop_stamp
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

# Ours are sha256; the Hub's own client also names blobs by git's sha1.
_BLOB = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
# What the Hub's own client leaves when it is killed, and never takes up again.
_ORPHAN = ".incomplete"
_HALF_WRITTEN = ".new"


@dataclass(frozen=True)
class Garbage:
    """Something to remove: its name relative to the model's directory, and its size in bytes."""

    name: str
    size: int


def superseded(model: ModelDir, lock: ModelLock, keep: int) -> list[Garbage]:
    """What may go once a lock's revision is published; judged the same before that and after.

    :param keep: snapshots to keep besides the lock's own, those published last.

    Whatever a process has open stays, and so does a snapshot with such a file that no kept one has.
    """
    others = [revision for revision in _revisions(model) if revision != lock.revision]
    locked = {file.sha256 for file in lock.files}
    used = set(locked)
    for revision in others[:keep]:
        used |= references(model.snapshot(revision))
    blobs = _entries(model.blobs)
    unused = [name for name in blobs if _BLOB.match(name) and name not in used]
    orphans = [name for name in blobs if name.endswith(_ORPHAN)]
    open_now = {os.path.basename(path) for path in openers(model.blob(name) for name in unused + orphans)}
    snapshots = []
    for revision in others[keep:]:
        wanted = references(model.snapshot(revision))
        if wanted & open_now:
            used |= wanted
        else:
            snapshots.append(model.snapshot(revision))
    gone = [model.blob(name) for name in unused + orphans if name not in used | open_now]
    parts = [model.part(name) for name in _entries(model.parts) if name not in locked]
    stamps = [model.stamp(name) for name in _entries(model.stamps) if name not in locked | {*blobs}]
    return [_garbage(model, path) for path in snapshots + gone + parts + stamps + _half_written(model)]


def of_revision(model: ModelDir, lock: ModelLock) -> list[Garbage]:
    """What has to go for a lock's revision to be absent: its snapshot and what no other snapshot needs.

    :raises StoreError: class ``locked`` when a process has one of its files open.
    """
    snapshot = model.snapshot(lock.revision)
    # a link may have been put there by anybody and point anywhere
    own = {name for name in references(snapshot) if _BLOB.match(name)} | {file.sha256 for file in lock.files}
    others = [revision for revision in _revisions(model) if revision != lock.revision]
    if os.path.lexists(snapshot):
        _refuse_open(model, lock, map(model.blob, own))
    for revision in others:
        own -= references(model.snapshot(revision))
    leaving = [snapshot, model.swarm, *map(model.blob, sorted(own)), *map(model.part, sorted(own))]
    if not others:
        leaving += [os.path.join(model.quarantine, name) for name in _entries(model.quarantine)]
    return [_garbage(model, path) for path in leaving if os.path.lexists(path)]


def withdraw(model: ModelDir, revision: str) -> None:
    """Make readers find a revision no more: first its names, then its snapshot can go."""
    if current_revision(model) == revision:
        remove(model.current)
    for name in _entries(model.refs):
        ref = os.path.join(model.refs, name)
        with contextlib.suppress(OSError, ValueError), open(ref, encoding="utf-8") as stream:
            if stream.read().strip() == revision:
                os.unlink(ref)
    sync_directory(model.root)


def collect(model: ModelDir, garbage: t.Iterable[Garbage], tally: Tally) -> None:
    """Remove garbage, snapshots before the blobs that they point to, and stamps with their blobs."""
    for piece in garbage:
        path = os.path.join(model.root, piece.name)
        if os.path.dirname(path) == model.blobs:
            drop_stamp(model, os.path.basename(path))
        remove(path)
        tally.freed(piece.name, piece.size)


def remove_empty(model: ModelDir) -> None:
    """Remove a model's directory once it holds no snapshot, no blob and no part."""
    blobs = [name for name in _entries(model.blobs) if not name.startswith(".")]
    if not _entries(model.snapshots) and not blobs and not _entries(model.parts):
        remove(model.root)


def _refuse_open(model: ModelDir, lock: ModelLock, blobs: t.Iterable[str]) -> None:
    pids = sorted({pid for users in openers(blobs).values() for pid in users})
    if pids:
        named = ", ".join(map(str, pids))
        raise StoreError(
            "locked",
            f"Files of revision {lock.revision} in {model.root} are open in process {named}.",
            "Stop what uses the model, then run this again; nothing has been removed.",
            pids=pids,
        )


def _revisions(model: ModelDir) -> list[str]:
    """The revisions that have a snapshot, the one published last first."""
    times = {}
    for name in _entries(model.snapshots):
        with contextlib.suppress(OSError):
            times[name] = os.stat(model.snapshot(name)).st_mtime_ns
    return sorted(times, key=lambda name: (-times[name], name))


def _half_written(model: ModelDir) -> list[str]:
    """Files that a killed run was about to rename."""
    return [
        os.path.join(folder, name)
        for folder in (model.root, model.refs)
        for name in _entries(folder)
        if name.endswith(_HALF_WRITTEN)
    ]


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _garbage(model: ModelDir, path: str) -> Garbage:
    status = file_status(path)
    size = status.st_size if status is not None and is_regular(status) else 0
    return Garbage(os.path.relpath(path, model.root), size)
