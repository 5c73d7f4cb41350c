# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test hub is shaped like the Hub: the Hub's own client downloads from it, verifies, and knows its refusals."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import hub, hub_client

REPO = "tiny/k2"
WEIGHTS = "model.safetensors"
SIZE = 3_000_000
# prints the path, or the names of the error's class and its parents
CODE = """
import json, sys
import huggingface_hub
try:
    print(json.dumps([huggingface_hub.snapshot_download(**json.loads(sys.argv[1]))]))
except Exception as error:
    print(json.dumps([kind.__name__ for kind in type(error).__mro__]))
"""


class Client:
    """The client, and the hub that it asks. Entries of a tree come on several pages, large files by a redirect."""

    def __init__(self, folder: Path, server: hub.Hub) -> None:
        self.folder = folder
        self.server = server
        server.page, server.redirects = 2, True
        self.revision = hub.revision_of(hub.read_files(folder / "hub" / REPO))
        self._programs = hub_client.make()
        self._environment = hub_client.environment(server.url, folder / "home")

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._programs / program), *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def download(self, **options: str) -> list[str]:
        """The path of what ``snapshot_download`` has brought, or the names of the classes of its error."""
        arguments = json.dumps({"repo_id": REPO, "revision": self.revision, **options})
        told: list[str] = json.loads(self.run("python", "-c", CODE, arguments).stdout)
        return told

    def verify(self, *place: str) -> subprocess.CompletedProcess[str]:
        words = ("cache", "verify", REPO, "--revision", self.revision, "--fail-on-missing-files")
        return self.run("hf", *words, *place)

    @property
    def sent(self) -> int:
        """Bytes of the weights that the hub has sent."""
        return int(self.server.stats()["files"][f"{REPO}/{WEIGHTS}"]["bytes"])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    repository = tmp_path / "hub" / REPO
    (repository / "sub folder").mkdir(parents=True)
    (repository / "config.json").write_text("{}")
    (repository / "sub folder/é.txt").write_text("small")
    (repository / "empty.txt").touch()
    (repository / WEIGHTS).write_bytes(os.urandom(SIZE))
    with hub.Hub(tmp_path / "hub") as server:
        yield Client(tmp_path, server)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a model by its path, without what the client notes beside them."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {path: data for path, data in found.items() if not path.startswith(".cache/")}


def test_it_downloads_every_byte_once_and_verifies_them(client: Client) -> None:
    wanted = content(client.folder / "hub" / REPO)
    cache, local = str(client.folder / "cache"), str(client.folder / "local")
    snapshot = f"{cache}/models--tiny--k2/snapshots/{client.revision}"
    assert client.download(cache_dir=cache) == [snapshot]
    assert content(Path(snapshot)) == wanted
    assert client.download(revision="main", cache_dir=cache) == [snapshot]
    assert client.sent == SIZE
    assert client.download(local_dir=local) == [local]
    assert content(Path(local)) == wanted
    for place in (("--cache-dir", cache), ("--local-dir", local)):
        done = client.verify(*place)
        assert done.returncode == 0, done.stderr
    (Path(local) / WEIGHTS).write_bytes(bytes(SIZE))
    done = client.verify("--local-dir", local)
    assert done.returncode != 0
    assert WEIGHTS in done.stdout + done.stderr


def test_it_knows_what_is_refused(client: Client) -> None:
    cache = str(client.folder / "cache")
    assert "RepositoryNotFoundError" in client.download(repo_id="tiny/none", cache_dir=cache)
    assert "RevisionNotFoundError" in client.download(revision="f" * 40, cache_dir=cache)
    client.server.token = "hf_secret"
    assert "GatedRepoError" in client.download(cache_dir=cache)
    assert client.download(cache_dir=cache, token=client.server.token)[0].endswith(client.revision)
