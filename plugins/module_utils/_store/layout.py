# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The layout of the store on disk, and the small steps that files are handled in.

It is that of the Hub cache, so engines read it as it is::

    <store>/models--org--name/
        blobs/<sha256>                 read-only, complete and proved; changed by rename only
        blobs/.part/<sha256>           bytes on their way in; the name is stable, so the next run resumes
        blobs/.stamp/<sha256>          the identity of the blob when it was proved
        snapshots/<commit>/<path>      -> ../../blobs/<sha256>
        current                        -> snapshots/<commit>
        refs/main                      the commit, for readers that ask for a branch
        quarantine/<sha256>            the last bytes that were not what the lock says
        .torrent/<info hash>/          what a torrent has brought so far
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError

DIRECTORY_MODE = 0o755
_TEXT_MODE = 0o644


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
        self.swarm = os.path.join(self.root, ".torrent")

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
    replace_bytes(path, text.encode())


def replace_bytes(path: str, data: bytes) -> None:
    """As :func:`replace_text`, for a file that is no text."""
    fresh = path + ".new"
    with open(fresh, "wb") as stream:
        stream.write(data)
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


def file_status(path: str) -> os.stat_result | None:
    """The status of what has this name, links not followed; None when nothing has."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_regular(status: os.stat_result) -> bool:
    """True for a plain file: what a blob has to be."""
    return stat.S_ISREG(status.st_mode)
