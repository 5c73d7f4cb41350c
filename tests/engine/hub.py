# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model hub on the loopback: a folder of repositories, served at the addresses that a Hub uses.

``ROOT/<org>/<name>/`` is one repository. Its ``main`` is what the folder holds, at a commit computed from that.
``ROOT/<org>/<name>@<branch>/`` is a further branch.
What was asked for and sent is counted at ``/_stats``; ``POST /_faults`` makes chosen answers go wrong::

    {"<regex of the request path>": {"kind": "reset", "at": 100000, "times": 1}}

====================  ==================================================================
kind                  what the client sees
====================  ==================================================================
status                the status ``code``, with ``retry_after`` seconds if that is given
flip                  the byte at offset ``at`` of the file is another one
truncate              an orderly end after ``at`` body bytes
reset                 a TCP reset after ``at`` body bytes
stall                 nothing more after ``at`` body bytes
slow                  a body of ``rate`` bytes per second
====================  ==================================================================

``times`` is how many answers go wrong; without it, all. New faults replace the old ones.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import http.server
import json
import re
import select
import socket
import struct
import threading
import time
import typing as t
import urllib.parse
from pathlib import Path

CHUNK = 64 * 1024
KINDS = frozenset({"status", "flip", "truncate", "reset", "stall", "slow"})
# A Hub keeps these as large files, whose ETag is the sha256 of the content; every other file's is its git object id.
LARGE_SUFFIXES = (".safetensors", ".bin", ".model")

_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
_API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(/(?P<what>revision|tree)/(?P<revision>[^/]+))?")
# Before the address of a large file where it is served from another origin.
_ELSEWHERE = "/_elsewhere"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclasses.dataclass(frozen=True)
class HubFile:
    """One file of a repository; ``size`` in bytes, digests in hex."""

    path: str
    size: int
    sha256: str
    git_sha1: str

    @property
    def large(self) -> bool:
        return self.path.endswith(LARGE_SUFFIXES)

    @property
    def pointer(self) -> bytes:
        """What git has in place of a large file."""
        return b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n" % (
            self.sha256.encode(),
            self.size,
        )

    @property
    def etag(self) -> str:
        return self.sha256 if self.large else self.git_sha1


def read_files(folder: Path) -> list[HubFile]:
    """Every file under a folder, sorted by path."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        found.append(
            HubFile(
                path=path.relative_to(folder).as_posix(),
                size=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                git_sha1=git_sha1(content),
            )
        )
    return sorted(found, key=lambda file: file.path)


def git_sha1(content: bytes) -> str:
    """The object id that git gives to a file with that content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def revision_of(files: t.Sequence[HubFile]) -> str:
    """40 hex digits that change when, and only when, a path or a content does."""
    listing = "".join(f"{file.sha256} {file.path}\n" for file in files)
    return hashlib.sha1(listing.encode(), usedforsecurity=False).hexdigest()


def make_lock(folder: Path, repo: str) -> dict[str, t.Any]:
    """The lock of a repository: what it is made of, byte for byte.

    :raises FileNotFoundError: the folder has no config.json.
    """
    files = read_files(folder)
    return {
        "format": 1,
        "repo": repo,
        "repo_type": "model",
        "revision": revision_of(files),
        "files": [dataclasses.asdict(file) for file in files],
        "total_size": sum(file.size for file in files),
        "facts": {"config": json.loads((folder / "config.json").read_text())},
    }


def lock_text(lock: t.Mapping[str, t.Any]) -> str:
    """A lock as canonical JSON: equal locks are equal bytes."""
    return json.dumps(lock, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def write_locks(root: Path, dest: Path) -> list[Path]:
    """Write ``DEST/<org>--<name>.json`` for every repository under a hub's root."""
    dest.mkdir(parents=True, exist_ok=True)
    written = []
    for config in sorted(root.glob("*/*/config.json")):
        repo = config.parent.relative_to(root).as_posix()
        written.append(dest / f"{repo.replace('/', '--')}.json")
        written[-1].write_text(lock_text(make_lock(config.parent, repo)))
    return written


@dataclasses.dataclass
class Fault:
    """How an answer goes wrong; ``at`` in bytes, ``rate`` in bytes per second, ``times`` answers left (None: all)."""

    kind: str
    at: int = 0
    code: int = 500
    rate: int = CHUNK
    retry_after: int | None = None
    times: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no fault is called {self.kind!r}; there are {', '.join(sorted(KINDS))}")


class Hub(http.server.ThreadingHTTPServer):
    """The server. ``with Hub(root) as hub:`` serves on a free loopback port until the block ends.

    :param root: the folder of repositories.
    :param port: the TCP port on 127.0.0.1; 0 takes a free one.

    A test may set ``token`` (asked of everyone), ``page`` (entries per page of the tree), ``redirects`` (large files
    come from ``localhost``, another origin, which takes no token, as with signed addresses) and ``retouch`` (changes
    the entries of a tree before they are sent).
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, root: Path, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), HubHandler)
        self.root = root
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.stopping = threading.Event()
        self.token: str | None = None
        self.page = 1000
        self.redirects = False
        self.retouch: t.Callable[[list[dict[str, t.Any]]], object] = list
        self._faults: list[tuple[re.Pattern[str], Fault]] = []
        self._repos: dict[str, tuple[tuple[t.Any, ...], list[HubFile]]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.forget()

    def __enter__(self) -> Hub:
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        if self._thread is not None:
            self._thread.join()

    def handle_error(self, *_arguments: object) -> None:
        """A client that goes away is no error of the hub."""

    def files(self, repo: str) -> list[HubFile] | None:
        """A repository's files as they are now, or None for a repository that is not there."""
        folder = self.root / repo
        if not folder.is_dir() or ".." in repo.split("/"):
            return None
        stats = [(str(path), path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
        seen = tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats)
        with self._lock:
            if repo not in self._repos or self._repos[repo][0] != seen:
                self._repos[repo] = (seen, read_files(folder))
            return self._repos[repo][1]

    def folder(self, repo: str, revision: str) -> str | None:
        """The repository's folder, relative to the root, that holds a branch or commit; None if none does."""
        for folder in [repo, *(f"{repo.partition('/')[0]}/{path.name}" for path in self.root.glob(f"{repo}@*"))]:
            branch = folder.partition("@")[2] or "main"
            if revision in (branch, revision_of(self.files(folder) or [])):
                return folder
        return None

    def misbehave(self, faults: t.Mapping[str, t.Mapping[str, t.Any]]) -> None:
        """Replace the faults.

        :raises ValueError, TypeError: an unknown kind, an unknown field.
        """
        parsed = [(re.compile(pattern), Fault(**fault)) for pattern, fault in faults.items()]
        with self._lock:
            self._faults = parsed

    def fault_for(self, path: str) -> Fault | None:
        """The first fault that applies to a request path; counts as one of its times."""
        with self._lock:
            for pattern, fault in self._faults:
                if fault.times != 0 and pattern.search(path):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    def forget(self) -> None:
        """Set the counters to zero."""
        with self._lock:
            self._requests = 0
            self._files: dict[str, dict[str, int]] = {}

    def count_request(self, file: str | None = None) -> None:
        with self._lock:
            self._requests += 1
            if file is not None:
                self._files.setdefault(file, {"requests": 0, "bytes": 0})["requests"] += 1

    def count_bytes(self, file: str, size: int) -> None:
        with self._lock:
            self._files[file]["bytes"] += size

    def stats(self) -> dict[str, t.Any]:
        """``{requests, bytes, files: {"<org>/<name>/<path>": {requests, bytes}}}`` since the start or `forget`."""
        with self._lock:
            files = {name: dict(counts) for name, counts in sorted(self._files.items())}
            return {
                "requests": self._requests,
                "bytes": sum(counts["bytes"] for counts in files.values()),
                "files": files,
            }


class HubHandler(http.server.BaseHTTPRequestHandler):
    """One connection to the hub."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_arguments: object) -> None:
        """The counters at ``/_stats`` say more."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        if self.path == "/_stats":
            self._send_json(self.server.stats())
        else:
            self._answer()

    def do_DELETE(self) -> None:
        if self.path == "/_stats":
            self.server.forget()
            self._send_json(self.server.stats())
        else:
            self._send_json({"error": "only /_stats can be deleted"}, 405)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/_faults":
            self._send_json({"error": "only /_faults takes a POST"}, 405)
            return
        try:
            faults = json.loads(body)
            self.server.misbehave(faults)
        except (AttributeError, TypeError, ValueError, re.error) as problem:
            self._send_json({"error": str(problem)}, 400)
        else:
            self._send_json({"faults": len(faults)})

    def _answer(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        fault = self.server.fault_for(path)
        if fault is not None and fault.kind == "status":
            self.server.count_request()
            headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            self._send_json({"error": "made to fail"}, fault.code, headers)
        elif not path.startswith(_ELSEWHERE) and not self._may_ask():
            self.server.count_request()
            self._send_json({"error": "this hub wants its token"}, 401, {"X-Error-Code": "GatedRepo"})
        elif path.startswith(_ELSEWHERE) and "Authorization" in self.headers:
            self.server.count_request()
            self._send_json({"error": "a signed address takes no token"}, 400)
        elif resolve := _RESOLVE.fullmatch(path.removeprefix(_ELSEWHERE)):
            self._resolve(resolve["repo"], resolve["revision"], resolve["path"], fault)
        elif api := _API.fullmatch(path):
            self.server.count_request()
            self._api(api["repo"], api["what"], api["revision"] or "main")
        else:
            self.server.count_request()
            self._not_found("EntryNotFound", f"nothing is at {path}")

    def _may_ask(self) -> bool:
        return self.server.token in (None, self.headers.get("Authorization", "").removeprefix("Bearer "))

    def _repository(self, repo: str, revision: str) -> tuple[str, list[HubFile]] | None:
        """The folder and files of a repository at a revision; answers 404 itself when there is no such thing."""
        if self.server.files(repo) is None:
            self._not_found("RepoNotFound", f"no repository is called {repo}")
            return None
        folder = self.server.folder(repo, revision)
        if folder is None:
            self._not_found("RevisionNotFound", f"{repo} has no revision {revision}")
            return None
        return folder, self.server.files(folder) or []

    def _api(self, repo: str, what: str | None, revision: str) -> None:
        found = self._repository(repo, revision)
        if found is None:
            return
        files = found[1]
        if what == "tree":
            self._tree([_tree_entry(file) for file in files])
            return
        siblings = [{"rfilename": file.path} for file in files]
        sha = revision_of(files)
        self._send_json({"id": repo, "modelId": repo, "sha": sha, "private": False, "siblings": siblings})

    def _tree(self, entries: list[dict[str, t.Any]]) -> None:
        """One page of a tree; ``Link`` names the next."""
        self.server.retouch(entries)
        address = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(address.query))
        start = int(query.get("cursor", 0))
        end = start + self.server.page
        headers = {}
        if end < len(entries):
            query["cursor"] = str(end)
            headers["Link"] = f'<{self.server.url}{address.path}?{urllib.parse.urlencode(query)}>; rel="next"'
        self._send_json(entries[start:end], 200, headers)

    def _resolve(self, repo: str, revision: str, path: str, fault: Fault | None) -> None:
        found = self._repository(repo, revision)
        if found is None:
            self.server.count_request()
            return
        folder, files = found
        file = next((file for file in files if file.path == path), None)
        if file is None:
            self.server.count_request()
            self._not_found("EntryNotFound", f"{repo} has no file {path}")
            return
        headers = {"X-Repo-Commit": revision_of(files)}
        if file.large:
            headers |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        if file.large and self.server.redirects and not self.path.startswith(_ELSEWHERE):
            self.server.count_request()
            elsewhere = f"http://localhost:{self.server.server_address[1]}{_ELSEWHERE}{self.path}"
            self._send_headers(302, headers | {"Location": elsewhere, "Content-Length": "0"})
            return
        name = f"{repo}/{path}"
        self.server.count_request(name)
        headers |= {
            "ETag": f'"{file.etag}"',
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        try:
            start, end, partial = _wanted(self.headers.get("Range"), file.size)
        except ValueError:
            self._send_headers(416, headers | {"Content-Range": f"bytes */{file.size}", "Content-Length": "0"})
            return
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
        self._send_headers(206 if partial else 200, headers | {"Content-Length": str(end - start)})
        if self.command == "GET":
            with (self.server.root / folder / path).open("rb") as content:
                content.seek(start)
                self._send_body(name, content, end - start, fault)

    def _send_body(self, name: str, content: t.BinaryIO, size: int, fault: Fault | None) -> None:
        """Send the next ``size`` bytes of a file, going wrong as told."""
        kind = fault.kind if fault is not None else None
        at = fault.at if fault is not None else 0
        flipped = at - content.tell()
        whole = kind not in ("truncate", "reset", "stall")
        sent = size if whole else min(at, size)
        for offset in range(0, sent, CHUNK):
            chunk = content.read(min(CHUNK, sent - offset))
            if kind == "flip" and offset <= flipped < offset + len(chunk):
                spoiled = bytearray(chunk)
                spoiled[flipped - offset] ^= 1
                chunk = bytes(spoiled)
            self.wfile.write(chunk)
            self.server.count_bytes(name, len(chunk))
            if fault is not None and kind == "slow":
                self.server.stopping.wait(len(chunk) / fault.rate)
        if whole:
            return
        self.wfile.flush()
        self.close_connection = True
        if kind == "reset":
            # A reset throws away what the peer has not read yet, so give it the time to.
            time.sleep(0.2)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif kind == "stall":
            self._hold()

    def _hold(self) -> None:
        """Keep the connection open and silent until the client leaves or the hub stops."""
        while not self.server.stopping.is_set():
            readable, _writable, _failed = select.select([self.connection], [], [], 0.05)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return

    def _send_headers(self, code: int, headers: t.Mapping[str, str]) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_json(self, document: t.Any, code: int = 200, headers: t.Mapping[str, str] | None = None) -> None:
        body = json.dumps(document).encode()
        own = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        self._send_headers(code, {**own, **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _not_found(self, code: str, message: str) -> None:
        self._send_json({"error": message}, 404, {"X-Error-Code": code, "X-Error-Message": message})


def _tree_entry(file: HubFile) -> dict[str, t.Any]:
    entry: dict[str, t.Any] = {"type": "file", "path": file.path, "size": file.size, "oid": file.git_sha1}
    if file.large:
        entry["oid"] = git_sha1(file.pointer)
        entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": len(file.pointer)}
    return entry


def _wanted(header: str | None, size: int) -> tuple[int, int, bool]:
    """``(start, end, partial)`` of a Range header for a file of ``size`` bytes; ``end`` is exclusive.

    A header that is no single byte range is ignored, as RFC 9110 section 14.2 allows.

    :raises ValueError: the range has no byte of the file.
    """
    match = _RANGE.fullmatch(header or "")
    if match is None or match[0] == "bytes=-":
        return 0, size, False
    first, last = match[1], match[2]
    if first:
        start, end = int(first), min(int(last) + 1, size) if last else size
    else:
        start, end = max(size - int(last), 0), size
    if start >= end:
        raise ValueError(f"{header} is outside of {size} bytes")
    return start, end, True


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="folder of <org>/<name> repositories")
    parser.add_argument("--port", type=int, required=True, help="TCP port on 127.0.0.1")
    parser.add_argument("--locks", type=Path, help="write the repositories' locks into this folder first")
    arguments = parser.parse_args()
    if arguments.locks:
        write_locks(arguments.root, arguments.locks)
    with Hub(arguments.root, arguments.port) as hub:
        print(f"serving {arguments.root} at {hub.url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
