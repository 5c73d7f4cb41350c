# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site with one empty host, a model mirror and the real engine, for the tests of this folder."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine import fake_engine, hub, models, wheelhouse
from tests.hosts.hosts import Hosts
from tests.playbook import PROGRAM, run_playbook

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("INFEROPS_CACHE", "/var/cache/inferops-serving"))
HOST = "it1"
CANARY = "canary-4f1d-not-to-be-seen"
API_KEY = "canary-9a7e-$HOME-%n-not-to-be-seen"
TOKEN = "hf_canary2c60notToBeSeen"


class Run:
    """One finished ansible-playbook run."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status = done.returncode
        self.output = done.stdout + done.stderr

    @property
    def changed_tasks(self) -> list[str]:
        """Names of the tasks that reported a change, in order."""
        found, task = [], ""
        for line in self.output.splitlines():
            if line.startswith("TASK ["):
                task = line[6 : line.rindex("]")]
            elif line.startswith("changed: [") and task not in found:
                found.append(task)
        return found

    @property
    def changed(self) -> int:
        """How much changed on the site's host."""
        return self.recap(HOST, "changed")

    def recap(self, host: str, what: str) -> int:
        """A number of the recap, such as changed."""
        found = re.search(rf"^{host}\s.*\b{what}=(\d+)", self.output, re.MULTILINE)
        assert found, self.output
        return int(found[1])


@contextlib.contextmanager
def fake_hosts(folder: Path, names: Iterable[str]) -> Iterator[Hosts]:
    """Hosts for the engine that starts at once: its wheelhouse is their /opt/wheelhouse, the models their /opt/hub."""
    fake_engine.make(folder / "engine")
    models.write_models(folder / "hub")
    hosts = Hosts(folder / "hosts")
    try:
        hosts.up(dict.fromkeys(names), (f"{folder}/engine/wheels:/opt/wheelhouse", f"{folder}/hub:/opt/hub"))
        yield hosts
    finally:
        hosts.down()


class Site:
    """An inventory like inventories/demo, with a host, a mirror and ports of its own."""

    def __init__(self, folder: Path, hosts: Hosts, mirror: hub.Hub) -> None:
        self.folder = folder
        self.hosts = hosts
        self.mirror = mirror
        self.inventory = folder / "inventory"
        self.url = "http://127.0.0.1:30399"
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"}
        (self.inventory / "group_vars").mkdir(parents=True)
        (self.inventory / "hosts.yml").write_text(hosts.inventory.read_text())
        variables = yaml.safe_load((ROOT / "inventories/demo/group_vars/all.yml").read_text())
        variables["sglang_engine_lock"] = str(ROOT / "tests/engine/lock")
        variables["sglang_model_lock_dir"] = str(ROOT / "inventories/locks")
        variables["sglang_model_sources"] = [{"type": "hub", "url": mirror.url}]
        (folder / "token").write_text(TOKEN)
        variables["sglang_model_token"] = f"{{{{ lookup('ansible.builtin.file', '{folder}/token') }}}}"
        mirror.token = TOKEN
        variables["sglang_server_name"] = "it"
        variables["sglang_server_args"]["port"] = 30399
        variables["sglang_server_env"]["CANARY"] = CANARY
        (folder / "api-key").write_text(API_KEY)
        key = f"{{{{ lookup('ansible.builtin.file', '{folder}/api-key') }}}}"
        variables["sglang_server_secret_args"] = {"api_key": key}
        variables["sglang_server_expect"] = [
            {"name": "the server's own port", "query": "server_info.port", "equals": 30399},
            {"name": "the model", "query": "models.data[0].id", "equals": "tiny/k2"},
            {"name": "a text", "query": "length(generation.text)", "min": 1},
        ]
        self.variables = variables
        (self.inventory / "group_vars/all.yml").write_text(yaml.safe_dump(variables))

    def play(self, playbook: str = "site.yml", *words: str, cwd: Path = ROOT, **environment: str) -> Run:
        """Run a playbook to its end."""
        done = run_playbook("-i", self.inventory, playbook, *words, environment=environment, timeout=900, cwd=cwd)
        return Run(done)

    def kill_after(self, sent: int, playbook: Path) -> None:
        """Start a playbook and kill it, as a lost controller, once the mirror has sent so many bytes."""
        process = subprocess.Popen(
            [PROGRAM, "-i", str(self.inventory), str(playbook)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + 120
            while self.mirror.stats()["bytes"] < sent:
                assert process.poll() is None, "the run ended before it could be killed"
                assert time.monotonic() < end
                time.sleep(0.02)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def sudo(self, command: str) -> str:
        """Run a shell command as root on the host."""
        done = self.hosts.run(HOST, f"sudo sh -c '{command}'")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, path: str, body: Any = None) -> Any:
        """The server's JSON answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def text(self, words: int = 20) -> str:
        """The most likely continuation of a prompt."""
        body = {"text": "a rack of", "sampling_params": {"temperature": 0, "max_new_tokens": words}}
        return str(self.ask("/generate", body)["text"]).strip()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    wheels = CACHE / "wheelhouse-cpu-0.5.19"
    wheelhouse.fill(wheels)
    models.write_models(folder / "hub")
    hosts = Hosts(folder / "hosts")
    with hub.Hub(folder / "hub", 0) as mirror:
        try:
            hosts.up({HOST: None}, (f"{wheels}:/opt/wheelhouse",))
            yield Site(folder, hosts, mirror)
        finally:
            hosts.down()


@pytest.fixture(scope="session")
def chance() -> random.Random:
    """Random numbers whose seed is printed with a failing test."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)
