# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""One writer per store: a lock on a file that says who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError

LOCK_NAME = ".lock"


@contextlib.contextmanager
def sole_writer(store: str) -> t.Iterator[None]:
    """Hold the store for writing.

    The kernel releases the lock with the process, so a killed run never leaves a stale one.

    :param store: an existing directory.
    :raises StoreError: class ``locked``, with the holder's process, host and start.
    """
    path = os.path.join(store, LOCK_NAME)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _held(store, os.pread(descriptor, 4096, 0)) from None
        _write_holder(descriptor)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _write_holder(descriptor: int) -> None:
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _held(store: str, written: bytes) -> StoreError:
    try:
        holder = json.loads(written)
        who = f"process {holder['pid']} on {holder['host']} since {holder['started']}"
    except (ValueError, KeyError, TypeError):
        # The holder is between taking the lock and writing its name, or between ending and closing.
        holder, who = None, "another process"
    return StoreError(
        "locked",
        f"The store {store} is being written by {who}.",
        "Wait for it to end, or end it; then run this again. What it has fetched is kept.",
        holder=holder,
    )
