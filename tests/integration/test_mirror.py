# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror on a real host with a real nginx, from an empty host on. The tests build on each other."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from ansible_collections.inferops.serving.plugins.module_utils._store import torrent
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock

from tests.engine import hub
from tests.engine.loopback import free_port
from tests.hosts.hosts import Hosts
from tests.playbook import run_playbook
from tests.unit.plugins.module_utils._engine import engine_venv_kit as engine_kit

ROOT = Path(__file__).resolve().parents[2]
HOST = "mirror1"
CLIENT = "gpu2"
CANARY = "hf_canary-7d2a-not-to-be-seen"
UNIT = "sglang-mirror.service"


class Mirror:
    """A site: a mirror that is a real host, and a serving host that is only planned."""

    def __init__(self, folder: Path, hosts: Hosts, upstream: hub.Hub) -> None:
        self.hosts = hosts
        self.upstream = upstream
        self.folder = folder
        self.inventory = folder / "inventory"
        self.port = free_port()
        self.lock = json.loads((folder / "locks/tiny--k2.json").read_text())
        self.variables: dict[str, Any] = {
            "sglang_plan_gpu": "none",
            "sglang_plan_file": "",
            "sglang_engine_version": "0.5.19",
            "sglang_engine_lock": str(folder / "engine"),
            "sglang_engine_python": engine_kit.PYTHON,
            "sglang_model_target": "tiny/k2",
            "sglang_model_lock_dir": str(folder / "locks"),
            "sglang_server_args": {"device": "cpu", "attention_backend": "intel_amx"},
            "sglang_server_env": {"SGLANG_USE_CPU_ENGINE": "1"},
            "sglang_mirror_sources": [{"type": "hub", "url": upstream.url}],
            "sglang_mirror_token_file": "/etc/hub-token",
            "sglang_mirror_address": "127.0.0.1",
            "sglang_mirror_port": self.port,
            "sglang_mirror_torrent": True,
            "sglang_mirror_url": f"http://127.0.0.1:{self.port}",
            "sglang_mirror_tracker_port": free_port(),
        }
        (self.inventory / "group_vars").mkdir(parents=True)
        (self.inventory / "group_vars/all.yml").write_text(yaml.safe_dump(self.variables))
        (self.inventory / "hosts.yml").write_text(hosts.inventory.read_text())
        groups = {"all": {"hosts": {"gpu1": None}, "children": {"sglang_mirror": {"hosts": {HOST: None}}}}}
        (self.inventory / "groups.yml").write_text(yaml.safe_dump(groups))

    def play(self, playbook: str, *words: str, fails: bool = False) -> tuple[int, str]:
        """Run a playbook of the collection. Returns the mirror's number of changes and the output."""
        return self._run(f"playbooks/{playbook}.yml", words, fails)

    def _run(self, path: str, words: tuple[str, ...], fails: bool) -> tuple[int, str]:
        environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder / "index")}
        done = run_playbook("-i", self.inventory, *words, path, environment=environment, timeout=600)
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, output
        recap = re.search(rf"^{HOST}\s.*changed=(\d+)", output, re.MULTILINE)
        return int(recap[1]) if recap else 0, output

    def sudo(self, command: str) -> str:
        """Run a shell command as root on the mirror."""
        done = self.hosts.run(HOST, f"sudo sh -c '{command}'")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer:
            content: bytes = answer.read()
            return content


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    folder = tmp_path_factory.mktemp("mirror")
    repository = folder / "hub/tiny/k2"
    repository.mkdir(parents=True)
    config = json.loads((ROOT / "inventories/locks/tiny--k2.json").read_text())["facts"]["config"]
    (repository / "config.json").write_text(json.dumps(config))
    (repository / "model.gguf").write_bytes(os.urandom(300_000))
    hub.write_locks(folder / "hub", folder / "locks")
    pin = engine_kit.wheel(folder / "index", "sglang", "0.5.19", {"sglang/__init__.py": ""})
    engine_kit.lock(folder / "engine", pin, sglang="0.5.19")
    (folder / "uv.txt").write_text(engine_kit.wheel(folder / "index", "uv", "0.1", {"uv.py": ""}))
    hosts = Hosts(folder / "hosts")
    with hub.Hub(folder / "hub") as upstream:
        try:
            hosts.up({HOST: None})
            yield Mirror(folder, hosts, upstream)
        finally:
            hosts.down()


def test_from_an_empty_host(mirror: Mirror) -> None:
    mirror.sudo(f"umask 077 && echo {CANARY} > /etc/hub-token")
    before = mirror.hosts.snapshot(HOST)
    predicted, output = mirror.play("mirror", "--check", "--diff")
    assert mirror.hosts.snapshot(HOST) == before
    assert "To be installed: nginx" in output
    assert "To be installed: opentracker" in output
    assert mirror.upstream.stats()["requests"] == 0
    changed, output = mirror.play("mirror", "--diff", "-v")
    assert changed >= predicted
    assert CANARY not in output
    for file in mirror.lock["files"]:
        content = mirror.get(f"/tiny/k2/resolve/{mirror.lock['revision']}/{file['path']}")
        assert len(content) == file["size"]
    assert json.loads(mirror.get("/api/models/tiny/k2"))["sha"] == mirror.lock["revision"]


def test_again_changes_nothing(mirror: Mirror) -> None:
    mirror.upstream.forget()
    assert mirror.play("mirror")[0] == 0
    assert mirror.play("mirror", "--check")[0] == 0
    assert mirror.upstream.stats()["requests"] == 0


def test_the_service_is_its_own_and_closed(mirror: Mirror) -> None:
    assert mirror.sudo(f"systemctl is-enabled {UNIT}").strip() == "enabled"
    assert mirror.sudo("systemctl is-active nginx.service; true").strip() == "inactive"
    workers = mirror.sudo(f"systemctl show --property=MainPID --value {UNIT}")
    assert mirror.sudo(f"ps -o user= --ppid {workers.strip()} | sort -u").strip() == "www-data"
    exposure = mirror.sudo(f"systemd-analyze security --no-pager {UNIT} | tail -n 1")
    score = re.search(r"(\d+\.\d)", exposure)
    assert score, exposure
    assert float(score[1]) < 5, exposure
    assert mirror.sudo(f"grep -rl {CANARY} /etc /var/lib /srv").split() == ["/etc/hub-token"]


def test_a_change_is_loaded_without_a_restart(mirror: Mirror) -> None:
    pid = mirror.sudo(f"systemctl show --property=MainPID {UNIT}")
    assert mirror.play("mirror", "-e", "sglang_mirror_server_name=mirror.example.org")[0] == 2
    assert mirror.sudo(f"systemctl show --property=MainPID {UNIT}") == pid
    refused = mirror.play("mirror", "-e", "sglang_mirror_server_name='x; nonsense on'", fails=True)[1]
    assert "nonsense" in refused
    assert mirror.get(f"/tiny/k2/resolve/main/{mirror.lock['files'][0]['path']}")


def test_the_tracker_is_its_own_and_closed(mirror: Mirror) -> None:
    assert mirror.sudo("systemctl is-active sglang-tracker.service").strip() == "active"
    assert mirror.sudo("systemctl is-active opentracker.service; true").strip() == "inactive"
    exposure = mirror.sudo("systemd-analyze security --no-pager sglang-tracker.service | tail -n 1")
    score = re.search(r"(\d+\.\d)", exposure)
    assert score, exposure
    assert float(score[1]) < 4, exposure


class Client:
    """A serving host that gets its model by the mirror's torrent, through the role sglang_model."""

    def __init__(self, hosts: Hosts, mirror: Mirror) -> None:
        self.hosts = hosts
        self.mirror = mirror
        self.lock = parse_lock(mirror.lock)
        self.model = f"/srv/models/models--{self.lock.repo.replace('/', '--')}"
        self.unit = f"sglang-seed-{self.lock.digest[:12]}"
        self.torrent = f"/torrents/{self.lock.digest}.torrent"
        model = {"role": "target", "repo": self.lock.repo, "revision": self.lock.revision}
        source = {"type": "torrent", "url": f"http://127.0.0.1:{mirror.port}", "ports": str(free_port())}
        play = {"hosts": CLIENT, "gather_facts": False, "roles": [{"role": "inferops.serving.sglang_model"}]}
        play["vars"] = {
            "sglang_model_plan": {
                "store": "/srv/models",
                "models": [{**model, "lock": str(mirror.folder / "locks/tiny--k2.json")}],
            },
            "sglang_model_sources": [source],
            "sglang_model_verify_calendar": "",
        }
        self.playbook = mirror.folder / "client.yml"
        self.playbook.write_text(yaml.safe_dump([play]))

    def play(self, *words: str) -> tuple[int, str]:
        """Play the role. Returns its number of changes and the output."""
        done = run_playbook("-i", self.hosts.inventory, *words, self.playbook, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        recap = re.search(rf"^{CLIENT}\s.*changed=(\d+)", done.stdout, re.MULTILINE)
        assert recap, done.stdout
        return int(recap[1]), done.stdout

    def sudo(self, command: str) -> str:
        """Run a shell command as root on the host."""
        done = self.hosts.run(CLIENT, f"sudo sh -c '{command}'")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shows(self, what: str) -> str:
        """A property of the unit that seeds."""
        return self.sudo(f"systemctl show --property={what} --value {self.unit}.service").strip()

    def assert_model(self) -> None:
        for file in self.lock.files:
            told = self.sudo(f"sha256sum {self.model}/current/{file.path}")
            assert told.split()[0] == file.sha256


@pytest.fixture(scope="module")
def client(mirror: Mirror) -> Iterator[Client]:
    hosts = Hosts(mirror.folder / "client")
    try:
        hosts.up({CLIENT: None})
        yield Client(hosts, mirror)
    finally:
        hosts.down()


def test_an_empty_host_fetches_by_torrent_and_seeds(client: Client) -> None:
    before = client.hosts.snapshot(CLIENT)
    predicted, output = client.play("--check", "--diff")
    assert client.hosts.snapshot(CLIENT) == before
    assert "To be installed: aria2" in output
    assert client.play()[0] == predicted
    client.assert_model()
    assert client.shows("ActiveState") == "active"
    assert client.sudo(f"test ! -e {client.model}/.torrent && dpkg-query --show aria2").startswith("aria2")


def test_another_run_changes_nothing_and_leaves_the_seeder(client: Client) -> None:
    seeder = client.shows("InvocationID")
    assert client.play()[0] == 0
    assert client.play("--check")[0] == 0
    assert client.shows("InvocationID") == seeder


def test_the_seeder_can_write_nothing(client: Client) -> None:
    assert client.sudo(f"ps -o user= -p {client.shows('MainPID')}").strip() not in ("root", "")
    exposure = client.sudo(f"systemd-analyze security --no-pager {client.unit}.service | tail -n 1")
    score = re.search(r"(\d+\.\d)", exposure)
    assert score, exposure
    assert float(score[1]) < 4, exposure


def test_the_seeder_ends_when_it_is_told_to(client: Client) -> None:
    client.sudo('systemctl stop "sglang-seed-*"')
    assert client.shows("LoadState") == "not-found"
    assert client.sudo("ls /run").count("sglang-seed") == 0
    assert client.play()[0] == 0, "who has everything does not begin again to serve it"


def test_a_seeder_gives_the_model_once_and_is_gone(client: Client) -> None:
    """What the host has lost comes by torrent again, and then another host gets all of it from this one alone."""
    for file in client.lock.files:
        client.sudo(f"rm {client.model}/blobs/{file.sha256}")
    assert client.play()[0] == 1
    client.assert_model()
    document = cast("dict[bytes, Any]", torrent.decode(client.mirror.get(client.torrent)))
    # without the web seed there are only the hosts
    document[b"url-list"] = []
    folder = client.mirror.folder / "another"
    folder.mkdir()
    (folder / "torrent").write_bytes(torrent.encode(document))
    options = ["--enable-dht=false", "--bt-enable-lpd=false", "--enable-peer-exchange=false", "--seed-time=0"]
    options += ["--bt-tracker-interval=1", f"--listen-port={free_port()}", f"--dir={folder}", "--quiet"]
    subprocess.run(["aria2c", *options, str(folder / "torrent")], check=True, timeout=120)
    for file in client.lock.files:
        content = (folder / client.lock.revision / file.path).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file.sha256
    deadline = time.monotonic() + 30
    while client.shows("LoadState") != "not-found":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert client.sudo("ls /run").count("sglang-seed") == 0


def test_unbundle_wants_a_bundle(mirror: Mirror) -> None:
    assert "Name the directory of the bundle" in mirror.play("unbundle", fails=True)[1]


def test_a_site_without_internet_is_served_from_a_bundle(mirror: Mirror) -> None:
    made = mirror.folder / "bundle"
    own = {"sglang_mirror_bundle": str(made), "sglang_mirror_token_file": ""}
    own["__sglang_mirror_uv_lock"] = str(mirror.folder / "uv.txt")
    for expected in (True, False):
        output = mirror.play("bundle", "-e", json.dumps(own))[1]
        recap = re.search(r"^localhost\s.*changed=(\d+)", output, re.MULTILINE)
        assert recap, output
        assert (int(recap[1]) > 0) is expected
    brought = mirror.hosts.root(HOST) / "srv/bundle"
    shutil.copytree(made, brought, symlinks=True)
    mirror.upstream.forget()
    there = {"sglang_mirror_bundle": "/srv/bundle", "sglang_mirror_store": "/srv/unbundled"}
    there["sglang_mirror_wheelhouse"] = "/srv/wheelhouse"
    assert mirror.play("unbundle", "-e", json.dumps(there))[0] > 0
    assert mirror.play("unbundle", "-e", json.dumps(there))[0] == 0
    assert mirror.upstream.stats()["requests"] == 0
    mirror.sudo("test -d /srv/unbundled/models--tiny--k2/current")
    (wheel,) = (mirror.folder / "index").glob("sglang-*.whl")
    assert mirror.get(f"/wheelhouse/{wheel.name}") == wheel.read_bytes()
    assert wheel.name.encode() in mirror.get("/wheelhouse/")

    mirror.sudo("echo more >> /srv/bundle/wheelhouse/" + wheel.name)
    refused = mirror.play("unbundle", "-e", json.dumps(there), fails=True)[1]
    assert f"wheelhouse/{wheel.name} is damaged" in " ".join(refused.split())
