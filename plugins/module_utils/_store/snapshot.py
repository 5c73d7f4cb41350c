# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""How a complete model becomes visible in one step, and what readers see."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.blobs import quarantine
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import (
    ModelDir,
    make_directory,
    remove,
    replace_link,
    replace_text,
    sync_directory,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob, ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally


def publish(model: ModelDir, lock: ModelLock, tally: Tally) -> None:
    """Make the lock's revision the one that readers see. All its blobs have to be proved.

    A new snapshot appears by one rename. One that is there already is mended link by link, each in one step.
    The publication is not over before :func:`finish`: what follows it is done again if this run does not get there.
    """
    snapshot = model.snapshot(lock.revision)
    make_directory(model.publishing)
    if not os.path.isdir(snapshot) or os.path.islink(snapshot):
        fresh = os.path.join(model.publishing, lock.revision)
        remove(fresh)
        make_directory(fresh)
        _link_files(model, fresh, lock, tally)
        make_directory(model.snapshots)
        remove(snapshot)
        os.replace(fresh, snapshot)
        sync_directory(model.snapshots)
    else:
        _link_files(model, snapshot, lock, tally)
    if _read_link(model.current) != _current_target(lock.revision):
        # the time of its latest publication tells which snapshot is older
        os.utime(snapshot)
        replace_link(_current_target(lock.revision), model.current)
    if _read_text(model.main) != lock.revision:
        replace_text(model.main, lock.revision)
    sync_directory(model.root)


def finish(model: ModelDir) -> None:
    """End a publication."""
    remove(model.publishing)
    sync_directory(model.root)


def current_revision(model: ModelDir) -> str | None:
    """The commit that readers get now, None when nothing is published."""
    target = _read_link(model.current)
    return None if target is None else os.path.basename(target)


def references(snapshot: str) -> set[str]:
    """The names of the blobs that a snapshot points to."""
    return {os.path.basename(link) for link in _links(snapshot).values() if link is not None}


def describe_current(model: ModelDir, corrupt: t.Iterable[Blob]) -> str:
    """What readers get now, for ``--diff``: the revision, then a line per file that is whole."""
    revision = current_revision(model)
    if revision is None:
        return ""
    bad = {blob.sha256 for blob in corrupt}
    links = _links(model.snapshot(revision))
    whole = {path: os.path.basename(link) for path, link in links.items() if link is not None}
    return _describe(
        revision,
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


def is_published(model: ModelDir, lock: ModelLock) -> bool:
    return (
        not os.path.lexists(model.publishing)
        and _read_link(model.current) == _current_target(lock.revision)
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
