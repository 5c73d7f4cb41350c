# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What a Hub says about a model, made from its lock alone: the answers of a mirror, as static text.

Every file is presented as a large file, which a Hub keeps by its sha256. The lock has a sha256 for each, so a stock
client learns the proved digest of the small ones as well, and its cache gets the blob names of our own store.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import (
    LockedFile,
    ModelLock,
    git_sha1,
    parse_lock,
)


@dataclass(frozen=True)
class Page:
    """One file that is served. ``blob`` is its path below the store."""

    path: str
    size: int
    sha256: str
    blob: str


@dataclass(frozen=True)
class MirroredModel:
    """One repository of a mirror; ``model`` and ``tree`` are the JSON texts of the Hub's API, ``digest`` the lock's."""

    repo: str
    revision: str
    digest: str
    pages: tuple[Page, ...]
    model: str
    tree: str


def mirrored_models(locks: t.Sequence[t.Any]) -> list[MirroredModel]:
    """The models of a mirror, in the order of their names. The same lock may be given more than once.

    :param locks: parsed locks.
    :raises StoreError: class ``lock_invalid``.
    :raises ValueError: two revisions of one repository. A store has one ``current`` and one ``main`` for each.
    """
    found: dict[str, ModelLock] = {}
    for document in locks:
        lock = parse_lock(document)
        other = found.setdefault(lock.repo, lock)
        if other.digest != lock.digest:
            raise ValueError(
                f"two locks for {lock.repo}: {other.revision} with digest {other.digest[:12]} and {lock.revision} with"
                f" {lock.digest[:12]}; a mirror has one revision of a repository"
            )
    return [_mirrored(found[repo]) for repo in sorted(found)]


def _mirrored(lock: ModelLock) -> MirroredModel:
    store = ModelDir("", lock.repo)
    entries = [_tree_entry(file) for file in lock.files]
    model = {
        "id": lock.repo,
        "modelId": lock.repo,
        "sha": lock.revision,
        "private": False,
        "gated": False,
        "disabled": False,
        "tags": [],
        "siblings": [{"rfilename": file.path, "size": file.size} for file in lock.files],
    }
    return MirroredModel(
        repo=lock.repo,
        revision=lock.revision,
        digest=lock.digest,
        pages=tuple(Page(file.path, file.size, file.sha256, store.blob(file.sha256)) for file in lock.files),
        model=json.dumps(model, indent=1) + "\n",
        tree=json.dumps(entries, indent=1) + "\n",
    )


def _tree_entry(file: LockedFile) -> dict[str, t.Any]:
    # The pointer is what git holds in place of a large file; its form is fixed, so its size and object id follow.
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.sha256}\nsize {file.size}\n".encode()
    return {
        "type": "file",
        "path": file.path,
        "size": file.size,
        "oid": git_sha1(pointer),
        "lfs": {"oid": file.sha256, "size": file.size, "pointerSize": len(pointer)},
    }
