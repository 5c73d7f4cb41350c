# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model to store, and a loopback Hub that misbehaves on request."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import os
import re
import socket
import struct
import threading
import time
import typing as t
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

REPO = "org/model"
REVISION = "0123456789abcdef0123456789abcdef01234567"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)\Z")


def noise(seed: str, size: int) -> bytes:
    """Deterministic bytes that do not repeat."""
    return hashlib.shake_256(seed.encode()).digest(size)


def safetensors(seed: str, size: int) -> bytes:
    """A weight file of ``size`` bytes with one tensor."""
    header = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}'
    data = size - 8 - len(header % (size, size))
    filled = (header % (data, data)).ljust(size - 8 - data)
    return len(filled).to_bytes(8, "little") + filled + noise(seed, data)


def model_files() -> dict[str, bytes]:
    """A small model: two shards, equal files, a nested path with a blank, an empty file."""
    return {
        "config.json": b'{"model_type": "toy"}',
        "copy/of config.json": b'{"model_type": "toy"}',
        "empty.txt": b"",
        "model-00001-of-00002.safetensors": safetensors("first", 700_000),
        "model-00002-of-00002.safetensors": safetensors("second", 900_000),
        "tokenizer/nested/vocab.txt": noise("vocab", 20_000),
    }


SHARD = "model-00002-of-00002.safetensors"


def lock_of(files: t.Mapping[str, bytes], revision: str = REVISION, repo: str = REPO) -> dict[str, t.Any]:
    """The lock of some files."""
    entries = [
        {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for path, content in sorted(files.items())
    ]
    return {
        "format": 1,
        "repo": repo,
        "repo_type": "model",
        "revision": revision,
        "files": entries,
        "total_size": sum(len(content) for content in files.values()),
        "facts": {"config": {"model_type": "toy", "rope_theta": 10000.0}},
    }


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def listing(root: Path) -> list[tuple[str, int, int, int, int]]:
    """Everything about every entry under a directory that a write would change."""
    entries = [root, *root.rglob("*")] if root.exists() else []
    stats = [(str(entry), entry.lstat()) for entry in sorted(entries)]
    return [(path, st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns) for path, st in stats]


def wait_until(condition: t.Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something another process or thread does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("what the test waits for did not happen")
        time.sleep(0.005)


def fill(disk: Path, leave: int) -> None:
    """Take space until so many bytes are free."""
    with (disk / "ballast").open("wb") as ballast:
        free = os.statvfs(disk)
        os.posix_fallocate(ballast.fileno(), 0, max(1, free.f_bavail * free.f_frsize - leave))


@dataclass
class Asked:
    """One request as the server saw it; ``sent`` counts body bytes."""

    path: str
    headers: dict[str, str]
    sent: int = 0


Fault = t.Callable[["Answer"], None]


@dataclass
class Hub:
    """``GET /<repo>/resolve/<revision>/<path>`` over loopback, with faults per path, used up in order."""

    files: dict[str, bytes]
    asked: list[Asked] = field(default_factory=list)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    url: str = ""

    def misbehave(self, path: str, *faults: Fault) -> None:
        self.faults.setdefault(path, []).extend(faults)

    def sent(self, path: str | None = None) -> int:
        """Body bytes sent, of one file or of all."""
        return sum(asked.sent for asked in self.asked if path in (None, asked.path))

    def forget(self) -> None:
        self.asked.clear()


@dataclass
class Answer:
    """What a fault works with: the request, the whole file, and the first and perhaps last byte that was asked for."""

    handler: http.server.BaseHTTPRequestHandler
    asked: Asked
    content: bytes
    offset: int
    ranged: bool
    last: int | None = None

    def headers(self, code: int, headers: t.Mapping[str, str]) -> None:
        self.handler.send_response(code)
        for name, value in headers.items():
            self.handler.send_header(name, value)
        self.handler.end_headers()

    def body(self, chunk: bytes) -> None:
        self.handler.wfile.write(chunk)
        self.asked.sent += len(chunk)

    def start(self, content: bytes | None = None) -> bytes:
        """Send honest headers for a file and give the body that belongs to them."""
        whole = self.content if content is None else content
        rest = whole[self.offset : None if self.last is None else self.last + 1]
        headers = {"Content-Length": str(len(rest)), "ETag": f'"{hashlib.sha256(whole).hexdigest()}"'}
        if self.ranged:
            headers["Content-Range"] = f"bytes {self.offset}-{self.offset + len(rest) - 1}/{len(whole)}"
        self.headers(206 if self.ranged else 200, headers)
        return rest


def honest(answer: Answer) -> None:
    answer.body(answer.start())


def flipped(answer: Answer) -> None:
    """One byte of the file is another; the length is right."""
    middle = len(answer.content) // 2
    content = answer.content[:middle] + bytes([answer.content[middle] ^ 1]) + answer.content[middle + 1 :]
    answer.body(answer.start(content))


def zeroed(answer: Answer) -> None:
    """A page of the file is zeros; the length is right."""
    middle = len(answer.content) // 2
    content = answer.content[:middle] + bytes(8192) + answer.content[middle + 8192 :]
    answer.body(answer.start(content))


def shortened(answer: Answer) -> None:
    """A file that lacks its end, served as if that were all."""
    answer.body(answer.start(answer.content[:-100]))


def status(code: int, **headers: str) -> Fault:
    def fault(answer: Answer) -> None:
        answer.headers(code, {"Content-Length": "0"} | {name.replace("_", "-"): headers[name] for name in headers})

    return fault


def reset_after(size: int) -> Fault:
    """TCP reset in the body."""

    def fault(answer: Answer) -> None:
        answer.body(answer.start()[:size])
        answer.handler.wfile.flush()
        # A reset discards what the peer has not read yet, so give it the time to.
        time.sleep(0.2)
        answer.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        answer.handler.connection.close()

    return fault


def closed_after(size: int) -> Fault:
    """An orderly end in the body."""

    def fault(answer: Answer) -> None:
        answer.body(answer.start()[:size])

    return fault


def range_ignored(answer: Answer) -> None:
    answer.offset, answer.ranged = 0, False
    honest(answer)


def range_shifted(answer: Answer) -> None:
    """The right length from a wrong offset."""
    size = len(answer.content)
    rest = answer.content[answer.offset - 10 : size - 10]
    extent = f"bytes {answer.offset - 10}-{size - 11}/{size}"
    answer.headers(206, {"Content-Length": str(len(rest)), "Content-Range": extent})
    answer.body(rest)


def range_lied_about(answer: Answer) -> None:
    """The extent that was asked for, with bytes from a wrong offset in it."""
    size = len(answer.content)
    rest = answer.content[answer.offset - 10 : size - 10]
    extent = f"bytes {answer.offset}-{size - 1}/{size}"
    answer.headers(206, {"Content-Length": str(len(rest)), "Content-Range": extent})
    answer.body(rest)


def range_of_other_file(answer: Answer) -> None:
    """A range whose total contradicts the lock."""
    rest = answer.content[answer.offset :]
    size = len(answer.content)
    extent = f"bytes {answer.offset}-{size - 1}/{size + 5}"
    answer.headers(206, {"Content-Length": str(len(rest)), "Content-Range": extent})
    answer.body(rest)


def held_after(size: int, release: threading.Event) -> Fault:
    """Part of the body, then nothing until the test says so."""

    def fault(answer: Answer) -> None:
        rest = answer.start()
        answer.body(rest[:size])
        release.wait(60)
        answer.body(rest[size:])

    return fault


def dripping(rate: int) -> Fault:
    """The honest file at a number of bytes per second."""

    def fault(answer: Answer) -> None:
        rest = answer.start()
        step = max(1, min(16 << 10, rate // 20))
        for offset in range(0, len(rest), step):
            answer.body(rest[offset : offset + step])
            time.sleep(step / rate)

    return fault


def first(action: t.Callable[[], object]) -> Fault:
    """Do something else when the request comes in, then answer honestly."""

    def fault(answer: Answer) -> None:
        action()
        honest(answer)

    return fault


@contextlib.contextmanager
def running(files: dict[str, bytes], repo: str = REPO, revision: str = REVISION) -> t.Iterator[Hub]:
    """Serve files on a free loopback port until the block ends."""
    hub = Hub(files)
    root = f"/{repo}/resolve/{revision}/"

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urllib.parse.unquote(self.path)
            path = path[len(root) :] if path.startswith(root) else path
            asked = Asked(path, {name.title(): value for name, value in self.headers.items()})
            hub.asked.append(asked)
            wanted = _RANGE.match(self.headers.get("Range", ""))
            content = hub.files.get(path)
            queued = hub.faults.get(path)
            condition = self.headers.get("If-Range")
            if condition is not None and condition != f'"{hashlib.sha256(content or b"").hexdigest()}"':
                wanted = None
            answer = Answer(self, asked, content or b"", int(wanted[1]) if wanted else 0, wanted is not None)
            answer.last = int(wanted[2]) if wanted and wanted[2] else None
            with contextlib.suppress(ConnectionError):
                if queued:
                    queued.pop(0)(answer)
                elif content is None:
                    status(404)(answer)
                else:
                    honest(answer)

        def log_message(self, *_arguments: object) -> None:
            """The test looks at ``asked`` instead."""

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_arguments: object) -> None:
            """A client that went away is what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
