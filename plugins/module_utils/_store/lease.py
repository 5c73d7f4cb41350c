# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""A lease on a network file system, where flock may hold on one host only, or not at all.

The lease is a file in a directory of its own, which is there from the first run on and is only renamed: its name says
whose the lease is. A server renames a name once, so of several that saw the same holder one takes the lease from it,
and nobody can take it from a holder that it has not seen. Its holder touches the file again and again; one that has not
been touched for ``stale`` seconds belongs to nobody. Its age is told by the file server's clock alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
import typing as t
import urllib.parse

from ansible_collections.inferops.serving.plugins.module_utils._store.layout import remove

LEASE_NAME = ".lease.d"
_FREE = "free"
_CLOCK = "clock"
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

    :param path: the directory of the lease.
    :param holder: who takes it: ``pid``, ``host``, ``started``.
    :param refresh: seconds between two touches.
    :param stale: seconds without a touch after which the lease is anybody's.
    :ivar taken_over: the holder whose stale lease was taken over, None when there was none.
    """

    def __init__(self, path: str, holder: Holder, refresh: float = 10.0, stale: float = 60.0) -> None:
        self.taken_over: Holder | None = None
        self._path = path
        self._ours = os.path.join(path, urllib.parse.urlencode({**holder, "token": secrets.token_hex(8)}))
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
        self._make()
        name, age = self._look()
        if name != _FREE and age < self._stale:
            raise Held(_parsed(name))
        self._take_from(name)
        if name != _FREE:
            self.taken_over = _parsed(name)
        self._keeper.start()

    def release(self) -> None:
        """Give the lease back, if it is still ours."""
        self._ended.set()
        self._keeper.join()
        # where the server is gone, the lease grows stale; where it is somebody else's, our name is gone
        with contextlib.suppress(OSError):
            os.rename(self._ours, os.path.join(self._path, _FREE))

    def _make(self) -> None:
        """Put a free lease where none is. A directory is never renamed over one that has a file in it."""
        with contextlib.suppress(FileNotFoundError):
            if os.listdir(self._path):
                return
        fresh = f"{self._path}.{secrets.token_hex(8)}"
        os.mkdir(fresh, 0o755)
        try:
            os.close(os.open(os.path.join(fresh, _FREE), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
            os.rename(fresh, self._path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        finally:
            remove(fresh)

    def _look(self) -> tuple[str, float]:
        """The name in the lease, and its age in seconds.

        :raises Held: it is changing hands.
        """
        clock = os.path.join(self._path, _CLOCK)
        with open(clock, "ab"):
            os.utime(clock)
        now = _status(clock).st_mtime
        for name in os.listdir(self._path):
            if name == _FREE or _parsed(name):
                with contextlib.suppress(FileNotFoundError):
                    return name, now - _status(os.path.join(self._path, name)).st_mtime
        raise Held(None)

    def _take_from(self, name: str) -> None:
        theirs = os.path.join(self._path, name)
        self._touched = time.monotonic()
        try:
            # touched first: under our name it must never look as old as it was under theirs
            os.utime(theirs)
            os.rename(theirs, self._ours)
        except FileNotFoundError:
            # a server that got the request twice answers the second with this, though the first did it
            if not os.path.exists(self._ours):
                raise Held(None) from None

    def _keep(self) -> None:
        while not self._ended.wait(self._refresh):
            now = time.monotonic()
            try:
                _status(self._ours)
                os.utime(self._ours)
            except FileNotFoundError:
                self._taken_away = True
                return
            except OSError:
                continue
            self._touched = now


def _status(path: str) -> os.stat_result:
    """The status of a file. Opening it asks the server, a bare stat may be answered from a cache."""
    with open(path, "rb") as stream:
        return os.fstat(stream.fileno())


def _parsed(name: str) -> Holder | None:
    """Who has the lease of this name, None where it is no holder's."""
    said = dict(urllib.parse.parse_qsl(name))
    try:
        return {"pid": int(said["pid"]), "host": said["host"], "started": said["started"]}
    except (ValueError, KeyError):
        return None


def _unescaped(place: str) -> str:
    """A path as mountinfo writes it, with its octal escapes taken back."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        place = place.replace(escape, character)
    return place
