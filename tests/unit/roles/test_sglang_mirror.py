# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role sglang_mirror: predicted in check mode, and its configuration in a real nginx on a loopback port."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import subprocess
import sys
import tempfile
import typing as t
import urllib.parse
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.sources import open_sources
from ansible_collections.inferops.serving.plugins.module_utils._store.store import ModelStore, Policy

from tests.engine.loopback import free_port
from tests.unit.plugins.module_utils._store import store_kit as kit
from tests.unit.roles.role_play import play_role

NGINX = "/usr/sbin/nginx"
ODD = 'odd "name" $uri {x}; é.txt'
WHEEL = "toy-1.0+cpu-py3-none-any.whl"
FILES = {**kit.model_files(), ODD: b"odd"}
Answer = tuple[http.client.HTTPResponse, bytes]


class Site:
    """A mirror's variables, and a folder that stands for its host. nginx's workers are another user and read it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "srv/models"
        self.pages = root / "etc/pages"
        self.config = root / "etc/nginx.conf"
        self.port = free_port()
        self.lock = kit.lock_of(FILES)
        (root / "lock.json").write_text(json.dumps(self.lock))
        (root / "source").mkdir()
        for path, content in FILES.items():
            (root / "source" / path).parent.mkdir(parents=True, exist_ok=True)
            (root / "source" / path).write_bytes(content)
        (root / "wheels").mkdir()
        (root / "wheels" / WHEEL).write_bytes(b"wheel")
        (root / "wheels/notes.txt").write_text("secret")
        models = [{"role": "target", "repo": kit.REPO, "lock": str(root / "lock.json")}]
        self.variables: dict[str, t.Any] = {
            "sglang_plan_result": {
                "plans": {"gpu1": {"model": {"models": models}}, "gpu2": {"model": {"models": models}}}
            },
            "sglang_mirror_store": str(self.store),
            "sglang_mirror_sources": [{"type": "path", "path": str(root / "source")}],
            "sglang_mirror_root": str(root / "etc"),
            "sglang_mirror_wheelhouse": str(root / "wheels"),
            "sglang_mirror_address": "127.0.0.1",
            "sglang_mirror_port": self.port,
        }

    def keep_models(self) -> None:
        self.open(self.store, {"type": "path", "path": str(self.root / "source")})

    def open(self, store: Path, source: dict[str, str]) -> ModelStore:
        """Bring the model into a store, as the module does."""
        lock = parse_lock(self.lock)
        model = ModelStore(str(store), lock, Policy())
        model.make_present(open_sources([source], lock, None, 20, model.tally), Patience(0))
        return model

    def play(self, *options: str, tasks_from: str = "main", fails: bool = False) -> str:
        """Play the role, or the part of it that needs no systemd, and give what it prints."""
        done = play_role(self.root, "sglang_mirror", self.variables, *options, tasks_from=tasks_from)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def configure(self, *options: str, fails: bool = False) -> str:
        """Write the configuration."""
        return self.play(*options, tasks_from="configure", fails=fails)

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


@pytest.fixture
def site() -> t.Iterator[Site]:
    with a_site() as one:
        yield one


@contextlib.contextmanager
def a_site() -> t.Iterator[Site]:
    # pytest's own folders are closed to other users
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        yield Site(root)


@pytest.fixture(scope="module")
def served() -> t.Iterator[Site]:
    """A site whose mirror runs; for tests that leave it as it was."""
    with a_site() as site:
        site.keep_models()
        site.configure()
        settings = f"daemon off; pid {site.root}/nginx.pid;"
        command = [NGINX, "-e", "stderr", "-p", str(site.root), "-c", str(site.config), "-g", settings]
        with subprocess.Popen(command) as process:
            try:
                kit.wait_until(lambda: process.poll() is not None or (site.root / "nginx.pid").exists())
                assert process.poll() is None
                yield site
            finally:
                process.terminate()


def address(path: str, revision: str = kit.REVISION) -> str:
    return f"/{kit.REPO}/resolve/{revision}/{urllib.parse.quote(path)}"


def test_check_mode_on_an_empty_host_predicts_and_writes_nothing(site: Site) -> None:
    site.variables["sglang_mirror_nginx"] = str(site.root / "no-nginx")
    output = site.play("--check", "--diff")
    assert not (site.root / "etc").exists()
    assert not site.store.exists()
    for said in (
        f"+revision {kit.REVISION}",
        "To be installed: nginx",
        f"listen 127.0.0.1:{site.port};",
        "systemctl restart sglang-mirror.service",
    ):
        assert said in output
    assert output.count("lock.json)") == 1, "two hosts with one lock are one model"


def test_configuring_again_changes_nothing(site: Site) -> None:
    assert "changed=4 " in site.configure("--check")
    assert "changed=4 " in site.configure()
    before = kit.listing(site.root / "etc")
    assert "changed=0 " in site.configure()
    assert "changed=0 " in site.configure("--check")
    assert kit.listing(site.root / "etc") == before


def test_a_configuration_that_nginx_refuses_is_not_installed(site: Site) -> None:
    site.configure()
    before = site.config.read_bytes()
    site.variables["sglang_mirror_server_name"] = "mirror; nonsense on"
    assert 'unknown directive "nonsense"' in site.configure(fails=True)
    assert site.config.read_bytes() == before


def test_torrents_are_predicted_on_an_empty_host(site: Site) -> None:
    site.variables["sglang_mirror_torrent"] = True
    site.variables["sglang_mirror_tracker"] = str(site.root / "no-opentracker")
    output = site.play("--check", "--diff")
    assert not (site.root / "etc").exists()
    for said in (
        "To be installed: opentracker",
        "+listen.tcp 127.0.0.1:6969",
        "systemctl restart sglang-tracker.service",
        'location = "/torrents/',
    ):
        assert said in output


def test_no_model_and_a_missing_lock_are_named_before_anything(site: Site) -> None:
    site.variables["sglang_mirror_locks"] = []
    assert "There is no model to mirror" in site.play("--check", fails=True)
    site.variables["sglang_mirror_locks"] = ["/nowhere/org--model.json"]
    assert "No lock file /nowhere/org--model.json." in site.play("--check", fails=True)


def test_every_file_with_the_headers_of_a_hub(served: Site) -> None:
    for path, content in FILES.items():
        for revision in (kit.REVISION, "main"):
            answer, body = served.ask(address(path, revision))
            digest = f'"{hashlib.sha256(content).hexdigest()}"'
            assert (answer.status, body) == (200, content), path
            assert answer.headers["X-Repo-Commit"] == kit.REVISION
            assert answer.headers.get_all("ETag") == [digest]
            assert answer.headers["X-Linked-Etag"] == digest
            assert answer.headers["X-Linked-Size"] == str(len(content))
    answer, body = served.ask(address(kit.SHARD), "HEAD")
    assert (answer.status, body, answer.headers["Content-Length"]) == (200, b"", "900000")


def test_ranges(served: Site) -> None:
    content = FILES[kit.SHARD]
    answer, body = served.ask(address(kit.SHARD), Range="bytes=899990-")
    assert (answer.status, body) == (206, content[899_990:])
    assert answer.headers["Content-Range"] == "bytes 899990-899999/900000"
    assert answer.headers["X-Repo-Commit"] == kit.REVISION
    digest = hashlib.sha256(content).hexdigest()
    for etag, status in ((digest, 206), ("0" * 64, 200)):
        answer, _body = served.ask(address(kit.SHARD), Range="bytes=5-", **{"If-Range": f'"{etag}"'})
        assert answer.status == status
    assert served.ask(address(kit.SHARD), Range="bytes=900000-")[0].status == 416


def test_the_api_says_what_the_lock_says(served: Site) -> None:
    for path in ("", f"/revision/{kit.REVISION}", "/revision/main", "/revision/main?blobs=true"):
        answer, body = served.ask(f"/api/models/{kit.REPO}{path}")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
        model = json.loads(body)
        assert (model["id"], model["sha"]) == (kit.REPO, kit.REVISION)
        assert [entry["rfilename"] for entry in model["siblings"]] == sorted(FILES)
    tree = json.loads(served.ask(f"/api/models/{kit.REPO}/tree/{kit.REVISION}?recursive=true&expand=false")[1])
    found = {entry["path"]: (entry["size"], entry["lfs"]["oid"], entry["lfs"]["size"]) for entry in tree}
    assert found == {
        path: (len(content), hashlib.sha256(content).hexdigest(), len(content)) for path, content in FILES.items()
    }


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/", "RepoNotFound"),
        ("/org/other/resolve/main/config.json", "RepoNotFound"),
        ("/api/models/org/other", "RepoNotFound"),
        (f"/{kit.REPO}/resolve/{'0' * 40}/config.json", "RevisionNotFound"),
        (f"/api/models/{kit.REPO}/tree/{'0' * 40}", "RevisionNotFound"),
        (address("generation_config.json"), "EntryNotFound"),
        (f"/{kit.REPO}/resolve/main/", "EntryNotFound"),
        (f"/{kit.REPO}/resolve/main/tokenizer/", "EntryNotFound"),
        (f"/{kit.REPO}/resolve/main/config.json/", "EntryNotFound"),
        ("/models--org--model/refs/main", "RepoNotFound"),
        ("/models--org--model/current/config.json", "RepoNotFound"),
        ("/lock.json", "RepoNotFound"),
        ("/pages/org--model.tree.json", "RepoNotFound"),
        ("/wheelhouse/notes.txt", "RepoNotFound"),
        ("/wheelhouse/%2e%2e/lock.json", "RepoNotFound"),
        (f"/{kit.REPO}/resolve/main/%2e%2e/%2e%2e/%2e%2e/%2e%2e/lock.json", "RepoNotFound"),
        (f"/{kit.REPO}/resolve/main/..%2f..%2f..%2fnginx.conf", "RepoNotFound"),
        (f"/{kit.REPO}/resolve/main/config.json%00", None),
        ("/../../../../etc/passwd", None),
        ("/%2e%2e/%2e%2e/etc/passwd", None),
        ("/wheelhouse/../../../../../../etc/passwd", None),
        ("//etc/passwd", "RepoNotFound"),
    ],
)
def test_nothing_else_is_reachable(served: Site, path: str, code: str | None) -> None:
    answer, body = served.ask(path)
    assert (answer.status, answer.headers.get("X-Error-Code")) == (404 if code else 400, code)
    assert b"Index of" not in body
    assert b"root:" not in body


def test_a_link_in_place_of_a_blob_is_not_followed(served: Site) -> None:
    blob = served.store / "models--org--model/blobs" / hashlib.sha256(FILES["config.json"]).hexdigest()
    aside = blob.rename(blob.with_suffix(".aside"))
    blob.symlink_to("/etc/passwd")
    try:
        assert served.ask(address("config.json"))[0].status == 403
    finally:
        aside.replace(blob)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_can_only_be_read(served: Site, method: str) -> None:
    before = kit.listing(served.store)
    assert served.ask(address("config.json"), method)[0].status in (403, 405)
    assert kit.listing(served.store) == before


def test_the_wheelhouse(served: Site) -> None:
    answer, body = served.ask("/wheelhouse/")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html")
    assert body.count(b"<a ") == 1
    assert b"toy-1.0%2Bcpu-py3-none-any.whl" in body
    for name in (WHEEL, urllib.parse.quote(WHEEL)):
        assert served.ask(f"/wheelhouse/{name}")[1] == b"wheel"


def test_a_host_fetches_and_resumes_from_it(served: Site, tmp_path: Path) -> None:
    part = tmp_path / "models--org--model/blobs/.part" / hashlib.sha256(FILES[kit.SHARD]).hexdigest()
    part.parent.mkdir(parents=True)
    part.write_bytes(FILES[kit.SHARD][:123_456])
    model = served.open(tmp_path, {"type": "hub", "url": f"http://127.0.0.1:{served.port}"})
    assert model.tally.bytes_resumed == 123_456
    assert model.tally.bytes_fetched == sum(map(len, set(FILES.values()))) - 123_456
    for path, content in FILES.items():
        assert Path(model.path, path).read_bytes() == content


def test_uv_finds_wheels_there(served: Site, tmp_path: Path) -> None:
    """The page is one that uv reads: it finds the wheel, and refuses it for what is in it."""
    uv = str(Path(sys.executable).parent / "uv")
    command = [uv, "pip", "install", "--no-config", "--no-index", "--target", str(tmp_path), "toy==1.0+cpu"]
    done = subprocess.run(
        [*command, "--find-links", f"http://127.0.0.1:{served.port}/wheelhouse/"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        check=False,
    )
    assert WHEEL in urllib.parse.unquote(done.stderr), done.stderr
