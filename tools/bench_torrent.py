# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that fetch a model by torrent, against the same hosts one after another from the same mirror.

Both ask one mirror whose network is capped, and both end with every file proved and published: each host is a run of
the module model_snapshot with a store of its own, all on this machine. A section of tools/bench.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# the collection, and this checkout where it is not on the path
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from ansible_collections.inferops.serving.plugins.module_utils._store import torrent  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._store.sources import open_sources  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._store.store import ModelStore, Policy  # noqa: E402

from tests.engine.loopback import free_port, tracker  # noqa: E402

HOSTS = 4
FILES = 4
FILE_SIZE = 512_000_000
RATE = 40 << 20
WANTED = 0.6
REPO = "bench/model"
REVISION = "0123456789abcdef0123456789abcdef01234567"
BLOCK = 64 << 10
_RANGE = re.compile(r"bytes=(\d+)-(\d*)\Z")


class _Cap:
    """A rate that all connections share."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._guard = threading.Lock()
        self._free_at = time.monotonic()

    def wait(self, size: int) -> None:
        """Wait until ``size`` bytes may go."""
        with self._guard:
            self._free_at = max(self._free_at, time.monotonic()) + size / self._rate
            wait = self._free_at - time.monotonic()
        if wait > 0:
            time.sleep(wait)


@contextlib.contextmanager
def capped_mirror(pages: dict[str, Path], rate: float) -> Iterator[tuple[str, list[int]]]:
    """Serve files at these paths. Gives the address, and a list that the number of bytes of each answer goes to."""
    cap, sent = _Cap(rate), list[int]()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            page = pages.get(self.path)
            if page is None:
                self.send_error(404)
                return
            size = page.stat().st_size
            asked = _RANGE.match(self.headers.get("Range", ""))
            first = int(asked[1]) if asked else 0
            last = int(asked[2]) if asked and asked[2] else size - 1
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.send_header("Content-Length", str(last - first + 1))
            self.end_headers()
            done = 0
            with contextlib.suppress(ConnectionError), page.open("rb") as stream:
                stream.seek(first)
                while done <= last - first:
                    block = stream.read(min(BLOCK, last - first + 1 - done))
                    cap.wait(len(block))
                    self.wfile.write(block)
                    done += len(block)
            sent.append(done)

        def log_message(self, *_arguments: object) -> None:
            """Nobody reads it."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_arguments: object) -> None:
            """aria2 drops connections when it has what it wants."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
    finally:
        server.shutdown()
        server.server_close()


def _make_model(folder: Path) -> tuple[dict[str, Any], dict[str, Path]]:
    """Random files. Returns their lock, and where each is."""
    entries, places = [], {}
    for number in range(FILES):
        path = f"model-{number}.bin"
        places[path] = folder / path
        digest = hashlib.sha256()
        with places[path].open("wb") as stream:
            for _block in range(FILE_SIZE // BLOCK):
                block = os.urandom(BLOCK)
                digest.update(block)
                stream.write(block)
        entries.append({"path": path, "size": places[path].stat().st_size, "sha256": digest.hexdigest()})
    lock = {
        "format": 1,
        "repo": REPO,
        "repo_type": "model",
        "revision": REVISION,
        "files": entries,
        "total_size": sum(place.stat().st_size for place in places.values()),
        "facts": {},
    }
    return lock, places


def _start(lock: dict[str, Any], store: Path, source: dict[str, Any]) -> subprocess.Popen[str]:
    """A host that begins to fetch."""
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "plugins/modules/model_snapshot.py")],
        env={**env, "PYTHONPATH": str(ROOT / "collections")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": {"lock": lock, "store": str(store), "sources": [source]}}))
    process.stdin.close()
    process.stdin = None
    return process


def _finish(process: subprocess.Popen[str]) -> float:
    """Wait for a host. Returns the seconds that its run took.

    :raises RuntimeError: it did not publish the model.
    """
    result = json.loads(process.communicate()[0])
    if result.get("failed") or not result["changed"]:
        raise RuntimeError(result["msg"])
    return float(result["seconds"])


def swarm(_engine: str | None) -> Iterator[str]:
    """The table, line by line."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        folder = Path(name)
        document, places = _make_model(folder)
        lock = parse_lock(document)
        store = ModelStore(str(folder / "mirror"), lock, Policy())
        store.make_present(
            open_sources([{"type": "path", "path": str(folder)}], lock, None, 20, store.tally), Patience(0)
        )
        model = ModelDir(str(folder / "mirror"), lock.repo)
        pages = {f"/{REPO}/resolve/{REVISION}/{blob.path}": Path(model.blob(blob.sha256)) for blob in lock.blobs()}
        for place in places.values():
            place.unlink()
        pieces = torrent.hash_pieces(model, lock, 2)
        info_hash = torrent.info_hash(lock, pieces)
        with tracker(info_hash) as announce, capped_mirror(pages, RATE) as (url, sent):
            said = torrent.Metainfo(announce, f"{url}/{REPO}/resolve/", pieces)
            (folder / "torrent").write_bytes(torrent.metainfo(lock, said))
            pages[f"/torrents/{lock.digest}.torrent"] = folder / "torrent"
            yield f"{HOSTS} hosts, {FILES} files of {FILE_SIZE / 1e6:.0f} MB, a mirror of {RATE / (1 << 20):.0f} MiB/s."
            yield ""
            yield "| how | all hosts done, s | each host, s | sent by the mirror, of the model |"
            yield "| --- | --- | --- | --- |"
            times = {}
            for how, source in (("one after another", "hub"), ("torrent", "torrent")):
                begin = time.monotonic()
                sent.clear()
                stores = [folder / f"{source}{number}" for number in range(HOSTS)]
                entry = {"type": source, "url": url, "seed_seconds": 0}
                if source == "hub":
                    each = [_finish(_start(document, store, entry)) for store in stores]
                else:
                    hosts = [_start(document, store, {**entry, "ports": str(free_port())}) for store in stores]
                    each = [_finish(host) for host in hosts]
                times[source] = time.monotonic() - begin
                shown = ", ".join(f"{seconds:.1f}" for seconds in each)
                yield f"| {how} | {times[source]:.1f} | {shown} | {sum(sent) / lock.total_size:.2f} |"
                for path in stores:
                    subprocess.run(["rm", "-rf", str(path)], check=True)
            yield ""
            yield f"torrent / one after another: {times['torrent'] / times['hub']:.2f} (wanted: under {WANTED})"
