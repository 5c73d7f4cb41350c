# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""How bytes become a blob: what is on its way in, and what was not what the lock says."""

from __future__ import annotations

import hashlib
import os
import time
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.layout import (
    ModelDir,
    file_status,
    make_directory,
    remove,
    sync_directory,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob
from ansible_collections.inferops.serving.plugins.module_utils._store.stamps import StatKey, hash_stream, write_stamp
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

BLOB_MODE = 0o444
_PART_MODE = 0o600
#: The origin of bytes that were there when a part was opened.
EARLIER_RUN = "an earlier run"


def quarantine(model: ModelDir, path: str, name: str, tally: Tally) -> None:
    """Move bytes that are not what the lock says out of use, and keep them: one file per name."""
    make_directory(model.quarantine)
    kept = os.path.join(model.quarantine, name)
    remove(kept)
    os.replace(path, kept)
    tally.set_aside(kept)


def part_size(model: ModelDir, blob: Blob) -> int:
    """Bytes of an interrupted transfer that the next one starts from. 0 when there are more than the blob has."""
    status = file_status(model.part(blob.sha256))
    return status.st_size if status is not None and status.st_size <= blob.size else 0


class Part:
    """The bytes of one blob on their way in, with their running sha256.

    Opening hashes what an interrupted run left: the digest always speaks of every byte in the file. Bytes go
    straight to the kernel, so a killed process loses none that it had received. ``origins`` names where they came
    from: a wrong digest tells something about a source only when it is the only one.
    """

    def __init__(self, model: ModelDir, blob: Blob, tally: Tally) -> None:
        self._model = model
        self._blob = blob
        self._tally = tally
        self._digest = hashlib.sha256()
        make_directory(model.parts)
        self._path = model.part(blob.sha256)
        self._stream = self._open()
        if os.fstat(self._stream.fileno()).st_size > blob.size:
            self._stream.truncate(0)
        self.length = hash_stream(self._stream, self._digest, tally)
        self.origins = {EARLIER_RUN} if self.length else set()
        tally.resumed(blob.path, self.length)

    def _open(self) -> t.Any:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _PART_MODE)
        return open(descriptor, "r+b", buffering=0)

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stream.close()

    @property
    def complete(self) -> bool:
        return self.length == self._blob.size

    @property
    def sha256(self) -> str:
        """Digest of the bytes so far."""
        return self._digest.hexdigest()

    def append(self, chunk: bytes, origin: str) -> None:
        """Add bytes that came from ``origin``."""
        self.origins.add(origin)
        rest = memoryview(chunk)
        while rest:
            count = self._stream.write(rest)
            self._digest.update(rest[:count])
            self.length += count
            rest = rest[count:]

    def adopt(self, path: str, origin: str) -> None:
        """Take a file, or its beginning, that came from ``origin`` in place of the bytes so far. It is moved here."""
        self._stream.close()
        os.replace(path, self._path)
        self._stream = self._open()
        self._digest = hashlib.sha256()
        self.length = hash_stream(self._stream, self._digest, self._tally)
        self.origins = {origin}

    def adopt_longer(self, path: str, origin: str) -> None:
        """As :meth:`adopt`, when there is more of it than of the bytes so far. What is not taken is removed."""
        if os.path.getsize(path) > self.length:
            self.adopt(path, origin)
        else:
            remove(path)

    def restart(self) -> None:
        """Forget the bytes so far."""
        self._stream.seek(0)
        self._stream.truncate(0)
        self._digest = hashlib.sha256()
        self.length = 0
        self.origins.clear()

    def set_aside(self) -> None:
        """Quarantine the bytes so far and begin an empty file."""
        self._stream.close()
        quarantine(self._model, self._path, self._blob.sha256, self._tally)
        self._stream = self._open()
        self.restart()

    def publish(self) -> None:
        """Make the proved bytes the blob.

        The stamp holds from the start: until the rename nobody else could name the file, and after it nobody may
        write to it.
        """
        os.fsync(self._stream.fileno())
        os.fchmod(self._stream.fileno(), BLOB_MODE)
        os.replace(self._path, self._model.blob(self._blob.sha256))
        sync_directory(self._model.blobs)
        write_stamp(self._model, self._blob.sha256, StatKey.of(os.fstat(self._stream.fileno())), time.time())
