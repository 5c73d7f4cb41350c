# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loopback hub: Hub answers, ranges, counters, and every fault as a client sees it."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from tests.engine import hub as engine_hub

REPO = "org/model"
CONTENT = hashlib.shake_256(b"weights").digest(300_000)
CONFIG = b'{"model_type": "toy"}'
SCRIPT = Path(engine_hub.__file__)


class Client:
    """One request per connection, as the counters are per request."""

    def __init__(self, hub: engine_hub.Hub, folder: Path) -> None:
        self.hub = hub
        self.revision = engine_hub.make_lock(folder, REPO)["revision"]
        self.weights = f"/{REPO}/resolve/{self.revision}/nested/model.safetensors"
        self.config = f"/{REPO}/resolve/{self.revision}/config.json"

    def ask(
        self, path: str, method: str = "GET", body: object = None, timeout: float = 20, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.hub.server_address[1], timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def json(self, path: str) -> t.Any:
        return json.loads(self.ask(path)[1])

    def break_weights(self, **fault: object) -> None:
        answer, _body = self.ask("/_faults", "POST", {"model.safetensors$": fault})
        assert answer.status == 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / REPO
    (folder / "nested").mkdir(parents=True)
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "nested/model.safetensors").write_bytes(CONTENT)
    return folder


@pytest.fixture
def client(tmp_path: Path, folder: Path) -> t.Iterator[Client]:
    with engine_hub.Hub(tmp_path) as hub:
        yield Client(hub, folder)


def test_file_has_the_headers_of_a_hub(client: Client) -> None:
    answer, body = client.ask(client.weights)
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert (answer.status, body) == (200, CONTENT)
    assert answer.headers["X-Repo-Commit"] == client.revision
    assert answer.headers["ETag"] == answer.headers["X-Linked-Etag"] == f'"{digest}"'
    assert int(answer.headers["X-Linked-Size"]) == len(CONTENT)
    git_object = hashlib.sha1(b"blob %d\0" % len(CONFIG) + CONFIG).hexdigest()
    assert client.ask(client.config)[0].headers["ETag"] == f'"{git_object}"'


def test_head_has_the_length_and_no_body(client: Client) -> None:
    answer, body = client.ask(client.weights, "HEAD")
    assert (answer.status, body, answer.headers["Content-Length"]) == (200, b"", str(len(CONTENT)))


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=100-199", 100, 200),
        ("bytes=299990-", 299_990, 300_000),
        ("bytes=299990-400000", 299_990, 300_000),
        ("bytes=-10", 299_990, 300_000),
        ("bytes=-400000", 0, 300_000),
    ],
)
def test_range(client: Client, wanted: str, start: int, end: int) -> None:
    answer, body = client.ask(client.weights, Range=wanted)
    assert (answer.status, body) == (206, CONTENT[start:end])
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/300000"


@pytest.mark.parametrize("wanted", ["bytes=300000-", "bytes=300001-300002", "bytes=20-10", "bytes=-0"])
def test_range_that_is_not_there(client: Client, wanted: str) -> None:
    answer, body = client.ask(client.weights, Range=wanted)
    assert (answer.status, body, answer.headers["Content-Range"]) == (416, b"", "bytes */300000")


@pytest.mark.parametrize("wanted", ["bytes=0-1,5-6", "items=0-1", "bytes=-"])
def test_other_ranges_are_ignored(client: Client, wanted: str) -> None:
    answer, body = client.ask(client.weights, Range=wanted)
    assert (answer.status, body) == (200, CONTENT)


def test_api(client: Client) -> None:
    for revision in ("main", client.revision):
        model = client.json(f"/api/models/{REPO}/revision/{revision}")
        assert model["sha"] == client.revision
        assert [entry["rfilename"] for entry in model["siblings"]] == ["config.json", "nested/model.safetensors"]
    config, weights = client.json(f"/api/models/{REPO}/tree/{client.revision}?recursive=true")
    assert (config["path"], config["size"], "lfs" in config) == ("config.json", len(CONFIG), False)
    assert weights["lfs"]["oid"] == hashlib.sha256(CONTENT).hexdigest()
    assert weights["lfs"]["size"] == weights["size"] == len(CONTENT)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/org/other/resolve/main/config.json", "RepoNotFound"),
        (f"/{REPO}/resolve/{'0' * 40}/config.json", "RevisionNotFound"),
        (f"/{REPO}/resolve/main/nowhere.json", "EntryNotFound"),
        (f"/{REPO}/resolve/main/../../secret", "EntryNotFound"),
        ("/../x/resolve/main/secret", "RepoNotFound"),
        ("/api/models/org/other/revision/main", "RepoNotFound"),
        ("/elsewhere", "EntryNotFound"),
    ],
)
def test_what_is_not_there(client: Client, tmp_path: Path, path: str, code: str) -> None:
    (tmp_path.parent / "x").mkdir(exist_ok=True)
    (tmp_path.parent / "x/secret").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    answer, _body = client.ask(path)
    assert (answer.status, answer.headers["X-Error-Code"]) == (404, code)


def test_changed_content_is_another_revision(client: Client, folder: Path) -> None:
    before = client.json(f"/api/models/{REPO}")["sha"]
    (folder / "config.json").write_bytes(CONFIG + b"\n")
    after = client.json(f"/api/models/{REPO}")["sha"]
    assert (before, after == engine_hub.make_lock(folder, REPO)["revision"]) == (client.revision, True)
    assert after != before
    assert client.ask(client.config)[0].headers["X-Error-Code"] == "RevisionNotFound"


def test_lock_is_canonical_and_complete(folder: Path, tmp_path: Path) -> None:
    lock = engine_hub.make_lock(folder, REPO)
    assert [file["path"] for file in lock["files"]] == ["config.json", "nested/model.safetensors"]
    assert lock["files"][1]["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert lock["total_size"] == len(CONTENT) + len(CONFIG)
    assert lock["facts"] == {"config": {"model_type": "toy"}}
    (written,) = engine_hub.write_locks(tmp_path, tmp_path / "locks")
    assert written.name == "org--model.json"
    assert written.read_text() == engine_hub.lock_text(lock)
    assert written.read_text() == json.dumps(json.loads(written.read_text()), sort_keys=True, indent=2) + "\n"


def test_requests_and_bytes_are_counted(client: Client) -> None:
    client.ask(client.weights, Range="bytes=0-99")
    client.ask(client.weights, "HEAD")
    client.ask(client.config)
    client.ask("/elsewhere")
    assert client.json("/_stats") == {
        "requests": 4,
        "bytes": 100 + len(CONFIG),
        "files": {
            f"{REPO}/config.json": {"requests": 1, "bytes": len(CONFIG)},
            f"{REPO}/nested/model.safetensors": {"requests": 2, "bytes": 100},
        },
    }
    client.ask("/_stats", "DELETE")
    assert client.json("/_stats") == {"requests": 0, "bytes": 0, "files": {}}


def test_status_fault(client: Client) -> None:
    client.break_weights(kind="status", code=503, retry_after=7, times=1)
    answer, _body = client.ask(client.weights)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "7")
    assert client.ask(client.weights)[0].status == 200


def test_flipped_byte(client: Client) -> None:
    client.break_weights(kind="flip", at=1000)
    for start in (0, 900, 1000):
        body = client.ask(client.weights, Range=f"bytes={start}-")[1]
        changed = [
            number for number, (got, right) in enumerate(zip(body, CONTENT[start:], strict=True)) if got != right
        ]
        assert changed == [1000 - start]
    assert client.ask(client.weights, Range="bytes=1001-")[1] == CONTENT[1001:]


def test_truncated_body(client: Client) -> None:
    client.break_weights(kind="truncate", at=100_000, times=1)
    with pytest.raises(http.client.IncompleteRead) as caught:
        client.ask(client.weights)
    assert caught.value.partial == CONTENT[:100_000]
    assert client.json("/_stats")["bytes"] == 100_000


def test_reset_body(client: Client) -> None:
    client.break_weights(kind="reset", at=100_000, times=1)
    with pytest.raises(ConnectionResetError):
        client.ask(client.weights)
    assert client.ask(client.weights)[1] == CONTENT


def test_stalled_body(client: Client) -> None:
    client.break_weights(kind="stall", at=10, times=1)
    with pytest.raises(TimeoutError):
        client.ask(client.weights, timeout=0.3)
    assert client.json("/_stats")["bytes"] == 10


def test_hub_stops_although_a_client_is_stalled(tmp_path: Path, folder: Path) -> None:
    with engine_hub.Hub(tmp_path) as hub:
        client = Client(hub, folder)
        client.break_weights(kind="stall", at=10)
        stalled = socket.create_connection(("127.0.0.1", hub.server_address[1]), timeout=20)
        stalled.sendall(f"GET {client.weights} HTTP/1.1\r\nHost: hub\r\n\r\n".encode())
        assert stalled.recv(1)
    while stalled.recv(65536):
        pass
    stalled.close()


def test_slow_body_is_whole(client: Client) -> None:
    client.break_weights(kind="slow", rate=1_000_000)
    begin = time.monotonic()
    assert client.ask(client.weights)[1] == CONTENT
    # the hub waits after each piece, of which the client does not see the last
    assert time.monotonic() - begin >= 0.2


@pytest.mark.parametrize(
    "faults", [{"x": {"kind": "magic"}}, {"x": {"kind": "flip", "no": 1}}, {"(": {"kind": "flip"}}, 1]
)
def test_unknown_faults_are_refused(client: Client, faults: object) -> None:
    answer, body = client.ask("/_faults", "POST", faults)
    assert answer.status == 400
    assert json.loads(body)["error"]


def test_command_line_serves_and_writes_locks(tmp_path: Path, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    locks = tmp_path / "locks"
    command = [sys.executable, str(SCRIPT), "--root", str(tmp_path), "--port", str(port), "--locks", str(locks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert f"http://127.0.0.1:{port}" in process.stdout.readline()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", f"/{REPO}/resolve/main/config.json")
            assert connection.getresponse().read() == CONFIG
            connection.close()
        finally:
            process.terminate()
    assert (locks / "org--model.json").exists()
