# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Whether a store has room for what is to come, asked before the first byte."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.survey import Survey

# The directories that every model has, and the small files of a publication.
_OTHER_INODES = 12


@dataclass(frozen=True)
class Space:
    """Room on the store's file system, in bytes and in inodes (files), for what is to come and the reserve.

    ``inodes_free`` is None on a file system that makes inodes as it needs them.
    """

    needed: int
    free: int
    inodes_needed: int
    inodes_free: int | None

    @property
    def enough(self) -> bool:
        return self.needed <= self.free and (self.inodes_free is None or self.inodes_needed <= self.inodes_free)


def measure(model: ModelDir, lock: ModelLock, found: Survey, reserve: int) -> Space:
    """Compare what is to come with what there is.

    :param reserve: bytes to leave free.
    """
    system = os.statvfs(_existing(model.blobs))
    blocks = sum(-(-found.remaining(blob) // system.f_frsize) for blob in found.wanted)
    links = 0 if found.published else len(lock.files) + sum(file.path.count("/") for file in lock.files)
    # a blob has a stamp
    inodes = 2 * len(found.wanted) + links
    return Space(
        needed=max(0, blocks * system.f_frsize - _staged(model)) + reserve if found.wanted else 0,
        free=system.f_bavail * system.f_frsize,
        inodes_needed=inodes + _OTHER_INODES if inodes else 0,
        inodes_free=system.f_favail if system.f_files else None,
    )


def check(model: ModelDir, lock: ModelLock, space: Space) -> None:
    """Refuse to begin what cannot end well.

    :raises StoreError: class ``no_space``.
    :raises OSError: the store cannot be written to.
    """
    place = _existing(model.blobs)
    if not os.access(place, os.W_OK | os.X_OK):
        read_only = os.statvfs(place).f_flag & os.ST_RDONLY
        number = errno.EROFS if read_only else errno.EACCES
        raise OSError(number, f"{os.strerror(number)}; nothing has been fetched", place)
    if space.enough:
        return
    if space.needed > space.free:
        said = f"needs {space.needed} bytes for {lock.repo} and has {space.free} free"
    else:
        said = f"needs {space.inodes_needed} inodes for {lock.repo} and has {space.inodes_free} free"
    raise StoreError(
        "no_space",
        f"The file system of {model.root} {said}.",
        "Free some space or choose another store; nothing has been fetched.",
        bytes_needed=space.needed,
        bytes_free=space.free,
    )


def _staged(model: ModelDir) -> int:
    """Bytes on disk of what a torrent has brought: it becomes blobs, or makes room for the same files."""
    files = (os.path.join(folder, name) for folder, _folders, names in os.walk(model.swarm) for name in names)
    return sum(os.lstat(file).st_blocks * 512 for file in files)


def _existing(path: str) -> str:
    """A path, or the nearest directory above it that is there."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
