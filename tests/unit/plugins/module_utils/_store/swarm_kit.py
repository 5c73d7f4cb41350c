# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mirror that offers a torrent, and a real tracker, both on loopback ports."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.inferops.serving.plugins.module_utils._store import torrent
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.sources import open_sources
from ansible_collections.inferops.serving.plugins.module_utils._store.store import ModelStore, Policy

from tests.engine.loopback import free_port, tracker
from tests.unit.plugins.module_utils._store import store_kit as kit

MIRROR_STORE = "mirror"


@dataclass
class Site:
    """A mirror with its verified store, its torrent and its tracker."""

    root: Path
    hub: kit.Hub
    document: dict[str, t.Any]
    said: torrent.Metainfo

    @property
    def address(self) -> str:
        """The path of the torrent on the mirror."""
        return f"/torrents/{parse_lock(self.document).digest}.torrent"

    @property
    def name(self) -> str:
        """What the torrent is called as a source."""
        return f"{self.hub.url} (torrent)"

    def offer(self, data: bytes) -> None:
        """Serve this as the torrent."""
        self.hub.files[self.address] = data

    def source(self, **changes: t.Any) -> dict[str, t.Any]:
        return {"type": "torrent", "url": self.hub.url, "ports": str(free_port()), "seed_seconds": 0, **changes}

    def present(self, store: Path, *sources: dict[str, t.Any], stall_timeout: float = 20) -> ModelStore:
        """Bring the model into a store, as the module does."""
        lock = parse_lock(self.document)
        model = ModelStore(str(store), lock, Policy())
        opened = open_sources(sources, lock, None, stall_timeout, model.tally)
        model.make_present(opened, Patience(1, first_wait=0.05))
        return model


@contextlib.contextmanager
def site(root: Path, files: dict[str, bytes]) -> t.Iterator[Site]:
    """A mirror of some files."""
    document = kit.lock_of(files)
    lock = parse_lock(document)
    with kit.running(dict(files)) as hub:
        source = {"type": "hub", "url": hub.url}
        store = ModelStore(str(root / MIRROR_STORE), lock, Policy())
        store.make_present(open_sources([source], lock, None, 20, store.tally), Patience(0))
        pieces = torrent.hash_pieces(ModelDir(str(root / MIRROR_STORE), lock.repo), lock, 2)
        with tracker(torrent.info_hash(lock, pieces)) as announce:
            said = torrent.Metainfo(announce, f"{hub.url}/{kit.REPO}/resolve/", pieces)
            made = Site(root, hub, document, said)
            made.offer(torrent.metainfo(lock, said))
            hub.forget()
            yield made
