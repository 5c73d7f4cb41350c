# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook that makes locks, against a loopback Hub and hosts that do not exist."""

from __future__ import annotations

import json
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.engine.hub import Hub
from tests.playbook import run_playbook

ROOT = Path(__file__).resolve().parents[3]
TARGET, DRAFTER = "org/target", "org/drafter"
HEADER = b'{"d2t": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}}'
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(16)


class Site:
    """An inventory of hosts behind an ssh that reaches nothing, and a Hub."""

    def __init__(self, root: Path, hub: Hub) -> None:
        self.root = root
        self.hub = hub
        self.locks = root / "inventories/locks"
        self.ssh = root / "ssh"
        self.called = root / "ssh-was-called"
        self.ssh.write_text(f"#!/bin/sh\ntouch {self.called}\nexit 255\n")
        self.ssh.chmod(0o755)
        self.inventory = root / "inventories/site/hosts.yml"
        self.inventory.parent.mkdir(parents=True)
        variables = {
            "ansible_become": True,
            "ansible_connection": "ssh",
            "sglang_model_hub": hub.url,
            "sglang_model_target": TARGET,
            "sglang_model_drafter": "{{ drafters[0] }}",
            "drafters": [DRAFTER],
        }
        hosts: dict[str, t.Any] = {f"gpu{number:02}": {} for number in range(30)}
        self.inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": variables}}))

    def write(self, repo: str, files: t.Mapping[str, bytes]) -> None:
        folder = self.root / "hub" / repo
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            (folder / path).write_bytes(content)

    def play(self, *words: str, playbook: str = "inferops.serving.lock") -> subprocess.CompletedProcess[str]:
        environment = {"ANSIBLE_SSH_EXECUTABLE": str(self.ssh), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        done = run_playbook("-i", self.inventory, playbook, *words, environment=environment, proxies=False)
        assert not self.called.exists()
        return done

    def lock(self, repo: str) -> dict[str, t.Any]:
        document: dict[str, t.Any] = json.loads((self.locks / f"{repo.replace('/', '--')}.json").read_text())
        return document


@pytest.fixture
def site(tmp_path: Path) -> t.Iterator[Site]:
    with Hub(tmp_path / "hub") as hub:
        site = Site(tmp_path, hub)
        site.write(TARGET, {"config.json": b'{"hidden_size": 2}', "model.safetensors": WEIGHTS})
        site.write(DRAFTER, {"config.json": b'{"hidden_size": 2}', "model.safetensors": WEIGHTS})
        yield site


def test_locks_are_made_once_and_move_when_asked(site: Site) -> None:
    predicted = site.play("--check", "--diff")
    assert predicted.returncode == 0, predicted.stdout
    assert not site.locks.exists()
    assert '+  "repo": "org/target",' in predicted.stdout

    site.hub.forget()
    made = site.play()
    assert made.returncode == 0, made.stdout
    assert "changed=1" in made.stdout
    # two branches, two trees, two config.json and the drafter's header, whatever the number of hosts
    assert site.hub.stats()["requests"] == 7
    target, drafter = site.lock(TARGET), site.lock(DRAFTER)
    assert target["facts"] == {"config": {"hidden_size": 2}}
    assert drafter["facts"]["tensors"] == {"d2t": {"dtype": "I64", "shape": [2]}}
    assert f"{TARGET} at {target['revision']} (main): 2 files" in made.stdout

    before = site.root / "hub" / f"{TARGET}@before"
    (site.root / "hub" / TARGET).rename(before)
    site.write(TARGET, {"config.json": b'{"hidden_size": 3}', "model.safetensors": WEIGHTS})
    unasked = site.play()
    assert unasked.returncode == 0, unasked.stdout
    assert "changed=0" in unasked.stdout
    assert site.lock(TARGET) == target

    asked = site.play("--diff", "-e", json.dumps({"sglang_model_revisions": {TARGET: "main"}}))
    assert "changed=1" in asked.stdout, asked.stdout
    assert f'-  "revision": "{target["revision"]}",' in asked.stdout
    assert site.lock(TARGET)["facts"]["config"] == {"hidden_size": 3}
    assert site.lock(DRAFTER) == drafter


def test_one_repository_that_cannot_be_locked_leaves_its_lock_and_not_the_other(site: Site) -> None:
    site.write(TARGET, {"pytorch_model.bin": b"x"})
    refused = site.play()
    assert refused.returncode != 0
    assert "pytorch_model.bin is a pickle" in refused.stdout
    assert not (site.locks / "org--target.json").exists()
    assert site.lock(DRAFTER)["repo"] == DRAFTER
    accepted = site.play("-e", json.dumps({"sglang_model_accept_pickle": {TARGET: ["pytorch_model.bin"]}}))
    assert accepted.returncode == 0, accepted.stdout
    assert len(site.lock(TARGET)["files"]) == 3


def test_the_plan_names_the_playbook_until_there_are_locks(site: Site) -> None:
    command = "inferops.serving.lock makes it"
    assert command in " ".join(site.play(playbook="inferops.serving.plan").stdout.split())
    assert site.play().returncode == 0
    assert command not in " ".join(site.play(playbook="inferops.serving.plan").stdout.split())
