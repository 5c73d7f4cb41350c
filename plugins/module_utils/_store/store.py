# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The states of a model in a store, put together: ``present``, ``verified`` and ``absent``."""

from __future__ import annotations

import contextlib
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.inferops.serving.plugins.module_utils._store import garbage, preflight, proofs
from ansible_collections.inferops.serving.plugins.module_utils._store.blobs import quarantine
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.holder import Holding, sole_writer
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import (
    ModelDir,
    make_directory,
    remove,
    space_needed,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.lease import Holder
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import ModelLock
from ansible_collections.inferops.serving.plugins.module_utils._store.snapshot import (
    current_revision,
    describe_current,
    describe_lock,
    finish,
    publish,
)
from ansible_collections.inferops.serving.plugins.module_utils._store.stamps import drop_stamp, read_stamp
from ansible_collections.inferops.serving.plugins.module_utils._store.survey import Proving, Survey, survey
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

if t.TYPE_CHECKING:
    from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience
    from ansible_collections.inferops.serving.plugins.module_utils._store.sources import AnySource


@dataclass(frozen=True)
class Policy:
    """How a store is kept.

    :param keep_revisions: snapshots that a publication leaves besides its own.
    :param reserve_bytes: bytes to leave free on the file system.
    :param wait_lock: seconds to wait for another run that writes to the store.
    """

    proving: Proving = field(default_factory=Proving)
    keep_revisions: int = 1
    reserve_bytes: int = 0
    wait_lock: float = 0.0


class ModelStore:
    """One lock in one store.

    :param store: directory of the store; it need not exist.
    :ivar found: what the store lacked when the run began; None before the first look.
    :ivar space: room for what was to come; None before it was measured.
    :ivar previous: the revision that readers got when the run began, None when there was none.
    :ivar before: what readers got when the run began, for ``--diff``.
    :ivar after: what they get once the run is over, for ``--diff``.
    :ivar taken_over: whose stale lease this run took over, None when there was none.
    """

    def __init__(self, store: str, lock: ModelLock, policy: Policy) -> None:
        self.tally = Tally()
        self.found: Survey | None = None
        self.space: preflight.Space | None = None
        self.taken_over: Holder | None = None
        self._store = store
        self._lock = lock
        self._policy = policy
        self._model = ModelDir(store, lock.repo)
        self.previous = current_revision(self._model)
        self.before = self.after = ""

    @property
    def path(self) -> str:
        """Where the locked revision is, or will be."""
        return self._model.snapshot(self._lock.revision)

    @property
    def oldest_proof(self) -> float:
        """When the file of the complete model that was proved longest ago was proved, in seconds since the epoch."""
        oldest = self.found.oldest_proof if self.found else None
        if oldest is None:
            # this run has fetched, and so proved, all of them, one after the other
            stamps = (read_stamp(self._model, blob.sha256) for blob in self._lock.blobs())
            oldest = min((stamp.proved_at for stamp in stamps if stamp), default=time.time())
        return oldest

    def look(self, stat_only: bool = False) -> Survey:
        """Compare the store with the lock; writes nothing and asks no source.

        :param stat_only: read no file but under ``full``.
        """
        self.found = survey(self._model, self._lock, self._policy.proving, self.tally, stat_only=stat_only)
        self.before = self.after = describe_current(self._model, self.found.corrupt)
        return self.found

    def check_present(self) -> bool:
        """Predict :meth:`make_present`: whether it would change something, as far as can be told without reading.

        :raises StoreError: class ``no_space``, as the real run would.
        """
        found = self.look(stat_only=True)
        self.after = describe_lock(self._lock)
        self._preflight(found)
        if not found.wanted and found.published:
            return not found.complete
        for piece in garbage.superseded(self._model, self._lock, self._policy.keep_revisions):
            self.tally.freed(piece.name, piece.size)
        return True

    def make_present(self, sources: t.Sequence[AnySource], patience: Patience) -> bool:
        """Fetch what the store lacks, publish the revision, and remove what it supersedes.

        A complete store is left without waiting for its lock, so another model's transfer does not hold this one up.

        :returns: whether something changed.
        :raises StoreError: any class; nothing unproved is published, what was good is kept.
        """
        found = self.look()
        self.after = describe_lock(self._lock)
        if found.complete:
            proofs.record(self._store, self._model, found)
            return False
        # not at the top: who only looks or verifies would spend a third of the start on http, ssl and email
        from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Fetcher
        from ansible_collections.inferops.serving.plugins.module_utils._store.swarm import SwarmSource

        make_directory(self._store)
        with self._writing() as holding, space_needed(self._store, "the model was stored"):
            # A sample's bad file has a stamp that vouches for it; the second look is to read it again.
            for blob in found.corrupt:
                drop_stamp(self._model, blob.sha256)
            # Another run may have ended between the look and the lock.
            found = survey(self._model, self._lock, self._policy.proving, self.tally, known=found)
            proofs.stamp(self._model, found)
            if found.complete:
                return False
            if not any(isinstance(source, SwarmSource) for source in sources):
                remove(self._model.swarm)
            self._preflight(found)
            for blob in found.corrupt:
                quarantine(self._model, self._model.blob(blob.sha256), blob.sha256, self.tally)
            make_directory(self._model.blobs)
            Fetcher(self._model, sources, patience, self._policy.proving.workers, self.tally).fetch(found.wanted)
            holding.check()
            publish(self._model, self._lock, self.tally)
            superseded = garbage.superseded(self._model, self._lock, self._policy.keep_revisions)
            garbage.collect(self._model, superseded, self.tally)
            finish(self._model)
            remove(self._model.swarm)
        for source in sources:
            if isinstance(source, SwarmSource):
                source.seed(self._model)
        return True

    def verify(self, record: bool) -> None:
        """Prove the published revision. No source is asked, and nothing but stamps is written.

        :param record: remember what was proved, and that a stamped file is bad after all, so that a run which
            believes stamps does not pass it.
        :raises StoreError: class ``not_found`` when something is missing or unpublished, ``corrupt_source`` when
            bytes are not what the lock says; the store itself is the source.
        """
        found = self.look()
        if record:
            proofs.record(self._store, self._model, found)
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

    def make_absent(self, check_mode: bool) -> bool:
        """Remove the locked revision, and what no other revision needs.

        :param check_mode: only predict it.
        :returns: whether something changed.
        :raises StoreError: class ``locked`` when a process has one of its files open, or another run writes.
        """
        self.before = self.after = describe_current(self._model, ())
        doomed = garbage.of_revision(self._model, self._lock)
        is_current = self.previous == self._lock.revision
        if not doomed and not is_current:
            return False
        if is_current:
            self.after = ""
        if check_mode:
            for piece in doomed:
                self.tally.freed(piece.name, piece.size)
            return True
        with self._writing():
            doomed = garbage.of_revision(self._model, self._lock)
            garbage.withdraw(self._model, self._lock.revision)
            garbage.collect(self._model, doomed, self.tally)
            garbage.remove_empty(self._model)
        return True

    @contextlib.contextmanager
    def _writing(self) -> t.Iterator[Holding]:
        with sole_writer(self._store, self._policy.wait_lock) as holding:
            self.taken_over = holding.taken_over
            yield holding

    def _preflight(self, found: Survey) -> None:
        self.space = preflight.measure(self._model, self._lock, found, self._policy.reserve_bytes)
        if found.wanted or not found.published:
            preflight.check(self._model, self._lock, self.space)
