# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""One writer per store: a lock on a file that says who holds it, and on network file systems a lease besides."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.lease import (
    LEASE_NAME,
    Held,
    Holder,
    Lease,
    file_system_of,
    is_network,
)

LOCK_NAME = ".lock"
_LOOK_AGAIN = 0.2
# What a network file system without locks answers; the lease has to do there.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class Holding:
    """The right to write to a store.

    :ivar taken_over: whose stale lease was taken over: ``pid``, ``host``, ``started``; None when nobody's was.
    """

    def __init__(self, store: str, lease: Lease | None) -> None:
        self.taken_over = lease.taken_over if lease else None
        self._store = store
        self._lease = lease

    def check(self) -> None:
        """Make sure of the right before a step that readers see.

        :raises StoreError: class ``locked`` when this run was silent for so long that another may have begun.
        """
        if self._lease and self._lease.lost:
            raise StoreError(
                "locked",
                f"The lease on {self._store} was lost: it could not be refreshed in time, so another run may write.",
                "Run this again once the other run has ended. What has been fetched is kept.",
            )


@contextlib.contextmanager
def sole_writer(
    store: str, wait: float = 0.0, file_system: t.Callable[[str], str] = file_system_of
) -> t.Iterator[Holding]:
    """Hold the store for writing.

    The kernel releases the lock with the process, so a killed run never leaves a stale one. A lease it does leave; that
    is taken over once it is stale.

    :param store: an existing directory.
    :param wait: seconds to wait for another holder to end.
    :param file_system: tells the type of the file system that a path is on.
    :raises StoreError: class ``locked``, with the holder's process, host and start.
    """
    deadline = time.monotonic() + wait
    networked = is_network(file_system(store))
    descriptor = os.open(os.path.join(store, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        _retried(deadline, lambda: _lock(store, descriptor, networked))
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        stack.callback(os.ftruncate, descriptor, 0)
        lease = _retried(deadline, lambda: _lease(store, holder)) if networked else None
        if lease:
            stack.callback(lease.release)
        yield Holding(store, lease)


_Taken = t.TypeVar("_Taken")


def _retried(deadline: float, take: t.Callable[[], _Taken]) -> _Taken:
    """Try until it works or until the deadline has passed."""
    while True:
        try:
            return take()
        except StoreError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_LOOK_AGAIN)


def _lock(store: str, descriptor: int, networked: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _held(store, _parsed(os.pread(descriptor, 4096, 0))) from None
    except OSError as error:
        if not networked or error.errno not in _NO_LOCKS:
            raise


def _lease(store: str, holder: Holder) -> Lease:
    lease = Lease(os.path.join(store, LEASE_NAME), holder)
    try:
        lease.take()
    except Held as held:
        raise _held(store, held.holder) from None
    return lease


def _parsed(written: bytes) -> Holder | None:
    """The holder as the lock file names it; None while it takes the lock or is about to end."""
    try:
        holder = json.loads(written)
        return {name: holder[name] for name in ("pid", "host", "started")}
    except (ValueError, KeyError, TypeError):
        return None


def _held(store: str, holder: Holder | None) -> StoreError:
    who = "another process"
    if holder is not None:
        who = f"process {holder['pid']} on {holder['host']} since {holder['started']}"
    return StoreError(
        "locked",
        f"The store {store} is being written by {who}.",
        "Wait for it to end (wait_lock), or end it; then run this again. What it has fetched is kept.",
        holder=holder,
    )
