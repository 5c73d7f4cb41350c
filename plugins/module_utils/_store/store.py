# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The states of a model in a store, put together: ``present`` and ``verified``."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.blobs import (
    ModelDir,
    make_directory,
    quarantine,
    space_needed,
    write_stamp,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Fetcher, Patience
from ansible_collections.inferops.serving.plugins.module_utils._store.holder import sole_writer
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.snapshot import (
    Survey,
    describe_current,
    describe_lock,
    publish,
    survey,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally
from ansible_collections.inferops.serving.plugins.module_utils._store.transport import (
    HubSource,
    PathSource,
    Source,
    check_address,
)


class ModelStore:
    """One lock in one store.

    :param store: directory of the store; it need not exist.
    :param full: prove by reading every byte instead of trusting stamps.
    :param workers: files that are fetched or read at once.
    :ivar found: what the store lacked when the run began; None before the first look.
    :ivar before: what readers got when the run began, for ``--diff``.
    """

    def __init__(self, store: str, lock: ModelLock, full: bool, workers: int) -> None:
        self.tally = Tally()
        self.found: Survey | None = None
        self.before = ""
        self._store = store
        self._lock = lock
        self._full = full
        self._workers = workers
        self._model = ModelDir(store, lock.repo)

    @property
    def path(self) -> str:
        """Where the locked revision is, or will be."""
        return self._model.snapshot(self._lock.revision)

    @property
    def after(self) -> str:
        """What readers get once the lock is published, for ``--diff``."""
        return describe_lock(self._lock)

    def look(self) -> Survey:
        """Compare the store with the lock; writes nothing and asks no source."""
        self.found = survey(self._model, self._lock, self._full, self._workers, self.tally)
        self.before = describe_current(self._model, self.found.corrupt)
        return self.found

    def check_present(self) -> bool:
        """Predict :meth:`make_present`: whether it would change something.

        :raises StoreError: class ``no_space``, as the real run would.
        """
        found = self.look()
        self._check_space(found)
        return not found.complete

    def make_present(self, sources: t.Sequence[Source], patience: Patience) -> bool:
        """Fetch what the store lacks and publish the revision.

        A complete store is left without taking its lock, so it never waits for another model's transfer.

        :returns: whether something changed.
        :raises StoreError: any class; nothing unproved is published, what was good is kept.
        """
        found = self.look()
        if found.complete and not found.proofs:
            return False
        make_directory(self._store)
        with sole_writer(self._store), space_needed(self._store, "the model was stored"):
            # Another run may have ended between the look and the lock.
            found = survey(self._model, self._lock, self._full, self._workers, self.tally, found.proofs)
            for sha256, key in found.proofs.items():
                write_stamp(self._model, sha256, key)
            for blob in found.corrupt:
                quarantine(self._model, self._model.blob(blob.sha256), blob.sha256, self.tally)
            if found.complete:
                return False
            self._check_space(found)
            make_directory(self._model.blobs)
            Fetcher(self._model, sources, patience, self._workers, self.tally).fetch(found.wanted)
            publish(self._model, self._lock, self.tally)
        return True

    def verify(self) -> None:
        """Prove the published revision. Reads only: no source is asked, nothing is written.

        :raises StoreError: class ``not_found`` when something is missing or unpublished, ``corrupt_source`` when
            bytes are not what the lock says; the store itself is the source.
        """
        found = self.look()
        if found.corrupt:
            paths = [path for blob in found.corrupt for path in blob.paths]
            raise StoreError(
                "corrupt_source",
                f"In {self._model.root} these files are not what the lock says: {', '.join(sorted(paths))}.",
                "Run with state=present: it sets them aside and fetches them again.",
                source=self._store,
            )
        if not found.complete:
            paths = [path for blob in found.missing for path in blob.paths]
            lacking = f"lacks {', '.join(sorted(paths))}" if paths else "is not published as the lock says"
            raise StoreError(
                "not_found",
                f"Revision {self._lock.revision} in {self._model.root} {lacking}.",
                "Run with state=present: it fetches and publishes what is missing.",
                source=self._store,
            )

    def _check_space(self, found: Survey) -> None:
        """Compare what is to come with the free space, before the first byte."""
        place = self._store
        while not os.path.exists(place):
            place = os.path.dirname(place)
        system = os.statvfs(place)
        free = system.f_bavail * system.f_frsize
        blocks = sum(-(-found.remaining(blob) // system.f_frsize) for blob in found.wanted)
        needed = blocks * system.f_frsize
        if needed > free:
            raise StoreError(
                "no_space",
                f"{self._store} needs {needed} bytes for {self._lock.repo} and has {free} free.",
                "Free some space or choose another store; nothing has been fetched.",
                bytes_needed=needed,
                bytes_free=free,
            )


def open_sources(
    entries: t.Sequence[t.Mapping[str, t.Any]],
    lock: ModelLock,
    token: str | None,
    stall_timeout: float,
    tally: Tally,
) -> list[Source]:
    """The sources of a run, in the operator's order.

    :param entries: each ``{type: hub, url}`` or ``{type: path, path}``.
    :raises StoreError: class ``auth`` when an address holds credentials.
    :raises ValueError: an address is not http or https.
    """
    sources: list[Source] = []
    for entry in entries:
        if entry["type"] == "path":
            sources.append(PathSource(entry["path"], lock))
            continue
        check_address(entry["url"])
        sources.append(HubSource(entry["url"], lock, token, stall_timeout, tally))
    return sources


def read_token(path: str) -> str:
    """Read an access token.

    :raises StoreError: class ``auth``; the message never holds what the file holds.
    """
    try:
        with open(path, encoding="ascii") as stream:
            token = stream.read().strip()
    except (OSError, ValueError) as error:
        # A decoding error would quote the file, so only its kind is told.
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise StoreError(
            "auth",
            f"The token file {path} could not be read: {reason}.",
            "Write the token into it, readable by the user that fetches.",
        ) from None
    if not token or not token.isprintable() or " " in token:
        raise StoreError(
            "auth",
            f"The token file {path} does not hold one token on one line.",
            "Write the token, and nothing else, into it.",
        )
    return token
