# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Bring blobs into the store from sources in order, and let nothing in that is not what the lock says."""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import threading
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.inferops.serving.plugins.module_utils._store.blobs import EARLIER_RUN, Part
from ansible_collections.inferops.serving.plugins.module_utils._store.content import content_problem
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir, space_needed
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob
from ansible_collections.inferops.serving.plugins.module_utils._store.sources import AnySource
from ansible_collections.inferops.serving.plugins.module_utils._store.swarm import SwarmSource
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally
from ansible_collections.inferops.serving.plugins.module_utils._store.transport import (
    RangeRefused,
    Retryable,
)

_READ_SIZE = 256 << 10
# Progress that earns new patience: a link that drops every few hundred megabytes still brings a 10 GB file.
_PROGRESS = 8 << 20


@dataclass(frozen=True)
class Patience:
    """How long to bear with a source.

    :param retries: further tries per file while it makes no progress.
    :param first_wait: seconds before the first further try; doubles each time up to ``longest_wait``, each spread
        by half to one and a half so that hosts do not come back together.
    :param longest_asked_wait: seconds that a Retry-After may ask for; the Hub's windows last 300.
    :param min_rate: bytes per second, on average over ``rate_window`` seconds of waiting for bytes, below which a
        connection counts as dead; 0 for no such limit.
    """

    retries: int
    first_wait: float = 1.0
    longest_wait: float = 60.0
    longest_asked_wait: float = 330.0
    min_rate: int = 0
    rate_window: float = 60.0

    def wait(self, failures: int, asked: float | None) -> float | None:
        """Seconds before try number ``failures`` + 1, None when there shall be none."""
        if failures > self.retries or (asked is not None and asked > self.longest_asked_wait):
            return None
        spread = random.uniform(0.5, 1.5)
        backoff = min(self.longest_wait, self.first_wait * 2 ** (failures - 1)) * spread
        return backoff if asked is None else asked + self.first_wait * spread


class Pace:
    """Watches one connection. Only the time spent in waiting for it counts, not that of a slow disk."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._seconds = 0.0
        self._bytes = 0

    def too_slow(self, size: int, seconds: float) -> float | None:
        """Count ``size`` bytes that took ``seconds`` to come.

        :returns: the average rate in bytes per second once a window is over and it was too low, else None.
        """
        self._bytes += size
        self._seconds += seconds
        if self._seconds < self._patience.rate_window:
            return None
        rate = self._bytes / self._seconds
        self._bytes, self._seconds = 0, 0.0
        return rate if rate < self._patience.min_rate else None


class _Stopped(Exception):
    """Another worker failed, so this one ends early; its bytes stay for the next run."""


class Fetcher:
    """Fetches blobs from sources, in parallel.

    A source that fails for good (but for a single file that it does not have) is not asked again in the run.
    """

    def __init__(
        self, model: ModelDir, sources: t.Sequence[AnySource], patience: Patience, workers: int, tally: Tally
    ) -> None:
        self._model = model
        self._sources = sources
        self._patience = patience
        self._workers = workers
        self._tally = tally
        self._stop = threading.Event()
        # Not by name: a mirror is one source for its torrent and another for its files.
        self._given_up: dict[AnySource, StoreError] = {}

    def fetch(self, blobs: t.Sequence[Blob]) -> None:
        """Fetch, prove and publish every blob.

        :raises StoreError: the first failure; blobs that were proved are published, partial ones kept.
        """
        with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
            pending = [pool.submit(self._fetch_one, blob) for blob in blobs]
            try:
                for done in concurrent.futures.as_completed(pending):
                    done.result()
            except BaseException:
                self._stop.set()
                for future in pending:
                    future.cancel()
                raise

    def _fetch_one(self, blob: Blob) -> None:
        doing = f"{blob.path} was fetched"
        with space_needed(self._model.root, doing), Part(self._model, blob, self._tally) as part:
            if not part.complete or part.sha256 != blob.sha256:
                self._bring(blob, part)
            self._check_content(blob)
            part.publish()

    def _bring(self, blob: Blob, part: Part) -> None:
        """Make a part hold what the lock says, from the first source that can."""
        failures: list[StoreError] = []
        for source in self._sources:
            try:
                self._fetch_from(source, blob, part)
                return
            except StoreError as error:
                if error.error_class != "not_found":
                    self._given_up[source] = error
                failures.append(error)
        raise _none_served(blob, failures)

    def _check_content(self, blob: Blob) -> None:
        """Refuse proved bytes that are no weights: the lock was made from a broken upload, no source is to blame."""
        for path in blob.paths:
            problem = content_problem(path, self._model.part(blob.sha256))
            if problem is not None:
                raise StoreError(
                    "lock_invalid",
                    f"{path} is byte for byte what the lock says (sha256 {blob.sha256}), but it {problem}."
                    " It was not published.",
                    "The upload that the lock was made from is broken: lock a revision in which the file is whole.",
                    file=path,
                )

    def _fetch_from(self, source: AnySource, blob: Blob, part: Part) -> None:
        failures = 0
        by_range = True
        while True:
            self._check_wanted(source)
            before = part.length
            try:
                if not by_range:
                    part.restart()
                self._receive(source, blob, part)
            except RangeRefused:
                by_range = False
                continue
            except Retryable as failure:
                failures = 1 if part.length - before >= _PROGRESS else failures + 1
                wait = self._patience.wait(failures, failure.wait)
                if wait is None:
                    raise failure.error from failure
                self._tally.retried()
                self._stop.wait(wait)
                continue
            if part.sha256 == blob.sha256:
                for origin in sorted(part.origins - {EARLIER_RUN}):
                    self._tally.served(origin)
                return
            got, only_source = part.sha256, part.origins == {source.name}
            part.set_aside()
            if only_source:
                raise self._wrong_bytes(source, blob, got)

    def _check_wanted(self, source: AnySource) -> None:
        if self._stop.is_set():
            raise _Stopped
        if source in self._given_up:
            raise self._given_up[source]

    def _receive(self, source: AnySource, blob: Blob, part: Part) -> None:
        """Bring a part to its full length."""
        if isinstance(source, SwarmSource):
            if not part.complete:
                part.adopt(source.take(blob, self._model, self._stop), source.name)
            return
        self._take_over(blob, part)
        if part.complete:
            return
        pace = Pace(self._patience)
        with contextlib.closing(source.open(blob, part.length)) as body:
            if body.start != part.length:
                part.restart()
            while not part.complete:
                asked = time.monotonic()
                chunk = body.read(min(_READ_SIZE, blob.size - part.length))
                rate = pace.too_slow(len(chunk), time.monotonic() - asked)
                if not chunk:
                    raise Retryable(_cut_off(source, blob, f"ended after {part.length} of {blob.size} bytes"))
                self._tally.fetched(len(chunk))
                part.append(chunk, source.name)
                if rate is not None and not part.complete:
                    raise Retryable(_cut_off(source, blob, f"sends only {rate:.0f} bytes per second (min_rate)"))
                if self._stop.is_set():
                    raise _Stopped

    def _take_over(self, blob: Blob, part: Part) -> None:
        """Go on where a torrent that failed has stopped, so that no file needs room twice."""
        swarms = [source for source in self._sources if isinstance(source, SwarmSource)]
        # two torrents of one lock share what they have brought
        if not all(swarm.failed or swarm in self._given_up for swarm in swarms):
            return
        for swarm in swarms:
            beginning = swarm.leave(blob, self._model)
            if beginning is not None:
                part.adopt_longer(beginning, swarm.name)

    def _wrong_bytes(self, source: AnySource, blob: Blob, got: str) -> StoreError:
        kept = self._model.quarantine
        return StoreError(
            "corrupt_source",
            f"{source.locate(blob)} sent wrong bytes for {blob.path}: expected sha256 {blob.sha256}, got {got}."
            f" They are kept in {kept} and were not published.",
            "Use another source and repair this one; if the repository was meant to change, make the lock again.",
            file=blob.path,
            source=source.name,
            expected_sha256=blob.sha256,
            got_sha256=got,
        )


def _cut_off(source: AnySource, blob: Blob, how: str) -> StoreError:
    return StoreError(
        "network",
        f"{source.locate(blob)} {how}.",
        "Check the way to the source; what has been fetched is kept and the next run goes on from there.",
        file=blob.path,
        source=source.name,
    )


def _none_served(blob: Blob, failures: list[StoreError]) -> StoreError:
    """One error out of one per source: bad bytes are the worst news, else the last source's word counts."""
    worst = next((error for error in failures if error.error_class == "corrupt_source"), failures[-1])
    if len(failures) == 1:
        return worst
    others = " ".join(error.problem for error in failures if error is not worst)
    return StoreError(
        worst.error_class,
        f"No source could serve {blob.path}. {worst.problem} {others}",
        worst.remedy,
        **worst.facts,
    )
