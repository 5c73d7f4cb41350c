# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What a run did, counted from several threads."""

from __future__ import annotations

import threading


class Tally:
    """Counters of one run; bytes unless said otherwise.

    ``bytes_fetched``: received from sources, also those that proved bad. ``bytes_resumed``: kept from an earlier,
    interrupted run, ``resumed_paths`` of these files. ``bytes_hashed``: read back from disk to prove them.
    ``bytes_freed``: of what ``removed`` names, relative to the model's directory. ``requests``, ``retries``: numbers.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.bytes_fetched = 0
        self.bytes_resumed = 0
        self.bytes_hashed = 0
        self.requests = 0
        self.retries = 0
        self.bytes_freed = 0
        self.resumed_paths: list[str] = []
        self.removed: list[str] = []
        self.quarantined: list[str] = []
        self.served_by: list[str] = []

    def fetched(self, size: int) -> None:
        with self._guard:
            self.bytes_fetched += size

    def resumed(self, path: str, size: int) -> None:
        """``size`` bytes of the file ``path`` were there already."""
        if size:
            with self._guard:
                self.bytes_resumed += size
                self.resumed_paths.append(path)

    def hashed(self, size: int) -> None:
        with self._guard:
            self.bytes_hashed += size

    def requested(self) -> None:
        with self._guard:
            self.requests += 1

    def retried(self) -> None:
        with self._guard:
            self.retries += 1

    def set_aside(self, path: str) -> None:
        """Bad bytes were moved to ``path``."""
        with self._guard:
            if path not in self.quarantined:
                self.quarantined.append(path)

    def served(self, source: str) -> None:
        """A file from ``source`` was proved good."""
        with self._guard:
            if source not in self.served_by:
                self.served_by.append(source)

    def freed(self, name: str, size: int) -> None:
        """``name`` is not there any more."""
        with self._guard:
            self.removed.append(name)
            self.bytes_freed += size
