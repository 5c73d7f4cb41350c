# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running Hub and an empty store."""

from __future__ import annotations

import hashlib
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.sources import open_sources
from ansible_collections.inferops.serving.plugins.module_utils._store.store import ModelStore, Policy
from ansible_collections.inferops.serving.plugins.module_utils._store.survey import Proving, Survey, Verify

from tests.unit.plugins.module_utils._store import store_kit as kit


@pytest.fixture
def hub() -> t.Iterator[kit.Hub]:
    with kit.running(kit.model_files()) as running:
        yield running


class Subject:
    """A store under test, with the calls that a module makes."""

    def __init__(self, root: Path, hub: kit.Hub) -> None:
        self.root = root
        self.hub = hub
        self.model = root / "models--org--model"
        self.document = kit.lock_of(hub.files)
        self.token: str | None = None
        self.stall_timeout = 20.0
        self.patience = Patience(retries=3, first_wait=0.01)

    def open(
        self, verify: Verify = "stamp", workers: int = 2, age_max: float | None = None, **policy: t.Any
    ) -> ModelStore:
        proving = Proving(verify, age_max, workers)
        return ModelStore(str(self.root), parse_lock(self.document), Policy(proving, **policy))

    def present(self, *sources: dict[str, str], store: ModelStore | None = None) -> tuple[bool, ModelStore]:
        store = store or self.open()
        lock = parse_lock(self.document)
        entries = sources or ({"type": "hub", "url": self.hub.url},)
        opened = open_sources(entries, lock, self.token, self.stall_timeout, store.tally)
        return store.make_present(opened, self.patience), store

    def found(self) -> Survey:
        return self.open().look()

    def blob(self, path: str) -> Path:
        return self.model / "blobs" / self.sha256(path)

    def part(self, path: str) -> Path:
        return self.model / "blobs" / ".part" / self.sha256(path)

    def sha256(self, path: str) -> str:
        return next(entry["sha256"] for entry in self.document["files"] if entry["path"] == path)

    def interrupted(self, path: str, have: int) -> None:
        """Leave what an interrupted run leaves."""
        self.part(path).parent.mkdir(parents=True, exist_ok=True)
        self.part(path).write_bytes(self.hub.files[path][:have])

    def interrupted_part(self, content: bytes) -> None:
        """Leave what a run with another lock leaves when it is interrupted."""
        part = self.model / "blobs/.part" / hashlib.sha256(content).hexdigest()
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)

    def add_revision(self, folder: Path, revision: str, files: dict[str, bytes], **policy: t.Any) -> ModelStore:
        """Publish another revision, from a folder that it writes first."""
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        self.document = kit.lock_of(files, revision)
        store = self.open(**policy)
        self.present({"type": "path", "path": str(folder)}, store=store)
        return store

    def assert_whole(self) -> None:
        """Every file is readable under its name with its content, and readers find the revision."""
        for name in ("current", f"snapshots/{kit.REVISION}"):
            got = {
                str(file.relative_to(self.model / name)): file.read_bytes()
                for file in (self.model / name).rglob("*")
                if file.is_file()
            }
            assert got == self.hub.files
        assert (self.model / "refs/main").read_text() == kit.REVISION

    def assert_nothing_wrong(self) -> None:
        """Whatever carries a sha256 as its name has it: bad bytes were never published."""
        for entry in self.document["files"]:
            blob = self.model / "blobs" / entry["sha256"]
            if blob.exists():
                assert kit.sha256_of(blob) == entry["sha256"]


@pytest.fixture
def subject(tmp_path: Path, hub: kit.Hub) -> Subject:
    return Subject(tmp_path / "store", hub)


@pytest.fixture
def small_disk(subject: Subject) -> t.Iterator[Path]:
    """The store is a file system of 4 MiB."""
    subject.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(subject.root)], check=True)
    try:
        yield subject.root
    finally:
        subprocess.run(["umount", str(subject.root)], check=True)
