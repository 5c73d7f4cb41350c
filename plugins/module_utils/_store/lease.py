# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A lease on a network file system, where flock may hold on one host only, or not at all.

The lease is a file that only one can create. Its holder touches it again and again; one that has not been touched for
``stale`` seconds belongs to nobody. Its age is told by the file server's clock alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.layout import remove

LEASE_NAME = ".lease"
_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2"}
    | {"smb3", "smbfs", "virtiofs", "wekafs"}
)

Holder = t.Mapping[str, t.Any]


class Held(Exception):
    """Somebody else has the lease. ``holder`` is what the lease says, None when it says nothing yet."""

    def __init__(self, holder: Holder | None) -> None:
        super().__init__("the lease is held")
        self.holder = holder


def file_system_of(path: str) -> str:
    """The type of the file system that a path is on, as the kernel names it (``ext4``, ``nfs4``, ``fuse.sshfs``)."""
    real = os.path.realpath(path)
    best, kind = "", "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            before, _dash, after = line.partition(" - ")
            place = _unescaped(before.split()[4])
            # a later mount on the same place covers the one before
            if len(place) >= len(best) and f"{real}/".startswith(f"{place.rstrip('/')}/"):
                best, kind = place, after.split()[0]
    return kind


def is_network(kind: str) -> bool:
    """Whether other hosts may write to a file system of this type. Of FUSE it cannot be told, so it counts."""
    return kind in _NETWORK or kind.startswith("fuse")


class Lease:
    """One lease. :meth:`take` it, ask with :attr:`lost` before anything that must not happen twice, :meth:`release` it.

    :param path: the lease file.
    :param holder: who takes it: ``pid``, ``host``, ``started``.
    :param refresh: seconds between two touches.
    :param stale: seconds without a touch after which the lease is anybody's.
    :ivar taken_over: the holder whose stale lease was taken over, None when there was none.
    """

    def __init__(self, path: str, holder: Holder, refresh: float = 10.0, stale: float = 60.0) -> None:
        self.taken_over: Holder | None = None
        self._path = path
        self._text = json.dumps({**holder, "token": secrets.token_hex(8)})
        self._refresh = refresh
        self._stale = stale
        self._ended = threading.Event()
        self._touched = 0.0
        self._taken_away = False
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    @property
    def lost(self) -> bool:
        """Whether somebody else may have the lease by now."""
        return self._taken_away or time.monotonic() - self._touched >= self._stale

    def take(self) -> None:
        """Take the lease and keep touching it.

        :raises Held: somebody else has it.
        """
        if not self._create():
            self._take_over()
        self._touched = time.monotonic()
        self._keeper.start()

    def release(self) -> None:
        """Give the lease back, if it is still ours."""
        self._ended.set()
        self._keeper.join()
        # where the server is gone, the lease grows stale
        with contextlib.suppress(OSError):
            if self._is_ours():
                remove(self._path)

    def _create(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(self._text)
            stream.flush()
            os.fsync(stream.fileno())
        return True

    def _take_over(self) -> None:
        """Take a stale lease. Of several that try one gets to rename it, though by then it may be a fresh one."""
        seen, age = self._look()
        if age < self._stale:
            raise Held(_parsed(seen))
        aside = f"{self._path}.{secrets.token_hex(8)}"
        try:
            os.rename(self._path, aside)
        except FileNotFoundError:
            raise Held(None) from None
        try:
            if _read(aside) != seen:
                with contextlib.suppress(FileExistsError):
                    os.link(aside, self._path)
                raise Held(_parsed(seen))
        finally:
            remove(aside)
        if not self._create():
            raise Held(_parsed(_read(self._path)))
        self.taken_over = _parsed(seen) or {}

    def _look(self) -> tuple[str, float]:
        """What the lease says, and its age in seconds; a lease that has just gone is as old as can be."""
        probe = f"{self._path}.{secrets.token_hex(8)}"
        with open(probe, "x", encoding="utf-8") as stream:
            now = os.fstat(stream.fileno()).st_mtime
        remove(probe)
        try:
            # opening it asks the server, a bare stat may be answered from a cache
            with open(self._path, encoding="utf-8") as stream:
                return stream.read(), now - os.fstat(stream.fileno()).st_mtime
        except FileNotFoundError:
            raise Held(None) from None

    def _keep(self) -> None:
        while not self._ended.wait(self._refresh):
            with contextlib.suppress(OSError):
                if not self._is_ours():
                    self._taken_away = True
                    return
                os.utime(self._path)
                self._touched = time.monotonic()

    def _is_ours(self) -> bool:
        return _read(self._path) == self._text


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _parsed(text: str | None) -> Holder | None:
    try:
        holder = json.loads(text or "")
        return {name: holder[name] for name in ("pid", "host", "started")}
    except (ValueError, KeyError, TypeError):
        return None


def _unescaped(place: str) -> str:
    """A path as mountinfo writes it, with its octal escapes taken back."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        place = place.replace(escape, character)
    return place
