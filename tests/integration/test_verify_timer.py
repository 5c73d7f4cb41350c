# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The timer that proves the models, on a real host with its systemd. The tests build on each other."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine import hub
from tests.hosts.hosts import Hosts
from tests.playbook import run_playbook

ROOT = Path(__file__).resolve().parents[2]
HOST = "verify1"
STORE = "/srv/models"
UNIT = "sglang-verify-srv-models"
MODEL = f"{STORE}/models--tiny--k2"
WEIGHTS = "model.bin"


class Site:
    """A host with a model, which comes by the role sglang_model alone."""

    def __init__(self, folder: Path, hosts: Hosts, upstream: hub.Hub) -> None:
        self.hosts = hosts
        self.folder = folder
        path = folder / "locks/tiny--k2.json"
        self.lock = json.loads(path.read_text())
        (self.weights,) = (file for file in self.lock["files"] if file["path"] == WEIGHTS)
        model = {"role": "target", "repo": "tiny/k2", "revision": self.lock["revision"], "lock": str(path)}
        play = {"hosts": HOST, "gather_facts": False, "roles": [{"role": "inferops.serving.sglang_model"}]}
        play["vars"] = {
            "sglang_model_plan": {"store": STORE, "models": [model]},
            "sglang_model_sources": [{"type": "hub", "url": upstream.url}],
        }
        (folder / "play.yml").write_text(yaml.safe_dump([play]))

    def play(self, *words: str) -> int:
        """Play the role. Returns its number of changes."""
        done = run_playbook("-i", self.hosts.inventory, self.folder / "play.yml", *words, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        recap = re.search(rf"^{HOST}\s.*changed=(\d+)", done.stdout, re.MULTILINE)
        assert recap, done.stdout
        return int(recap[1])

    def sudo(self, command: str, status: int = 0) -> str:
        """Run a shell command as root on the host."""
        done = self.hosts.run(HOST, f"sudo sh -c {shlex.quote(command)}")
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def prove(self, status: int = 0) -> dict[str, Any]:
        """Start the service by hand, wait for its end, and give what it says of the model."""
        self.sudo(f"systemctl start {UNIT}.service", status)
        report = json.loads(self.sudo("cat /var/lib/sglang/verify/srv-models.json"))
        (model,) = report["models"]
        assert report["good"] is (status == 0)
        return dict(model)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("verify")
    repository = folder / "hub/tiny/k2"
    repository.mkdir(parents=True)
    (repository / "config.json").write_text("{}")
    (repository / WEIGHTS).write_bytes(os.urandom(300_000))
    hub.write_locks(folder / "hub", folder / "locks")
    hosts = Hosts(folder / "hosts")
    with hub.Hub(folder / "hub") as upstream:
        try:
            hosts.up({HOST: None})
            yield Site(folder, hosts, upstream)
        finally:
            hosts.down()


def test_from_an_empty_host_and_again(site: Site) -> None:
    before = site.hosts.snapshot(HOST)
    predicted = site.play("--check", "--diff")
    assert site.hosts.snapshot(HOST) == before
    assert site.play() == predicted
    assert site.play() == 0
    assert site.play("--check") == 0
    assert site.sudo(f"systemctl is-enabled {UNIT}.timer").strip() == "enabled"
    assert site.sudo(f"systemctl is-active {UNIT}.timer").strip() == "active"
    assert UNIT in site.sudo(f"systemctl list-timers --no-pager {UNIT}.timer")


def test_a_good_model_is_proved(site: Site) -> None:
    time.sleep(2)  # younger stamps are not renewed
    model = site.prove()
    assert (model["state"], model["revision"]) == ("proved", site.lock["revision"])
    assert model["bytes_read"] == site.lock["total_size"]
    assert "proved: tiny/k2: 2 files" in site.sudo(f"journalctl --no-pager -o cat -u {UNIT}.service")
    stamp = json.loads(site.sudo(f"cat {MODEL}/blobs/.stamp/{site.weights['sha256']}"))
    assert stamp["proved_at"] == model["proved_at"]


def test_it_writes_nothing_but_stamps_and_the_report(site: Site) -> None:
    exposure = site.sudo(f"systemd-analyze security --no-pager {UNIT}.service | tail -n 1")
    score = re.search(r"(\d+\.\d)", exposure)
    assert score, exposure
    assert float(score[1]) < 4, exposure
    # what the sandbox of the unit leaves to a program that would write
    probe = f"touch {MODEL}/blobs/.stamp/x && rm {MODEL}/blobs/.stamp/x && test -r {MODEL}/current/{WEIGHTS}"
    for path in (STORE, MODEL, f"{MODEL}/blobs", f"{MODEL}/snapshots", "/etc", "/opt/sglang/verify"):
        probe += f" && ! touch {path}/x"
    probe += f" && ! sh -c ': >> {MODEL}/blobs/{site.weights['sha256']}' && ! sh -c 'echo > {MODEL}/refs/main'"
    site.sudo(f"mkdir -p /run/systemd/system/{UNIT}.service.d")
    drop_in = f"[Service]\nExecStart=\nExecStart=/bin/sh -c {json.dumps(probe)}\n"
    site.sudo(f"printf %s {shlex.quote(drop_in)} > /run/systemd/system/{UNIT}.service.d/probe.conf")
    site.sudo(f"systemctl daemon-reload && systemctl start {UNIT}.service")
    site.sudo(f"rm -r /run/systemd/system/{UNIT}.service.d && systemctl daemon-reload")


def test_rot_fails_the_unit_is_named_and_the_next_play_repairs_it(site: Site) -> None:
    blob, stamp = (f"{MODEL}/blobs/{part}{site.weights['sha256']}" for part in ("", ".stamp/"))
    site.sudo(f"printf x | dd of={blob} bs=1 seek=1000 conv=notrunc status=none")
    forged = json.loads(site.sudo(f"cat {stamp}"))
    inode, size = site.sudo(f"stat -c '%i %s' {blob}").split()
    code = f"import os; s = os.stat('{blob}'); print(s.st_mtime_ns, s.st_ctime_ns)"
    mtime, ctime = site.sudo(f'python3 -c "{code}"').split()
    forged["key"].update(inode=int(inode), size=int(size), mtime_ns=int(mtime), ctime_ns=int(ctime))
    site.sudo(f"echo {shlex.quote(json.dumps(forged))} > {stamp}")
    assert site.play() == 0, "the stamp is believed"
    model = site.prove(status=1)
    assert (model["state"], model["corrupt"]) == ("corrupt", [WEIGHTS])
    assert model["proved_at"], "by an earlier verification"
    assert site.sudo(f"systemctl is-failed {UNIT}.service").strip() == "failed"
    assert f"what the lock says: {WEIGHTS}" in site.sudo(f"journalctl --no-pager -o cat -u {UNIT}.service")
    assert site.play() == 1
    assert site.prove()["state"] == "proved"


def test_without_a_calendar_the_timer_goes(site: Site) -> None:
    assert site.play("-e", "sglang_model_verify_calendar=") > 0
    assert site.play("-e", "sglang_model_verify_calendar=") == 0
    left = site.sudo("find /etc/systemd /var/lib/systemd/timers /opt/sglang/verify/locks -name '*verify*'")
    assert [line for line in left.split() if "stamp-" not in line] == []
    site.sudo(f"systemctl cat {UNIT}.timer", status=1)
