# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test hosts themselves: they are real, several at a time, and nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hosts import Hosts, _is_free, start_time


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path / "state")
    yield made
    made.down()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def processes(hosts: Hosts, name: str) -> list[int]:
    record = hosts.record(name)
    assert record is not None
    return [pid for pid, _start in record.processes]


def test_two_hosts_with_systemd_ssh_and_a_user_who_may_become_root(hosts: Hosts) -> None:
    hosts.up({"one": None, "two": None})
    for name in ("one", "two"):
        told = hosts.run(name, "hostname; whoami; sudo id -u; systemctl is-system-running; systemctl is-active ssh")
        assert told.stdout.split() == [name, "ops", "0", "running", "active"]
    first, second = processes(hosts, "one"), processes(hosts, "two")
    hosts.down(["one"])
    assert not any(start_time(pid) for pid in first)
    assert all(start_time(pid) for pid in second)
    assert hosts.names() == ["two"]
    hosts.up({"two": None})
    assert processes(hosts, "two") == second, "a host that runs is left as it is"


def test_ansible_reaches_them_with_host_key_checking_on(hosts: Hosts) -> None:
    hosts.up({"one": None})
    ansible = [str(Path(sys.executable).parent / "ansible"), "-i", str(hosts.inventory), "all", "-m", "ping"]
    done = subprocess.run(
        ansible, capture_output=True, text=True, env={**os.environ, "ANSIBLE_HOST_KEY_CHECKING": "1"}, check=False
    )
    assert '"ping": "pong"' in done.stdout or "ping: pong" in done.stdout


def test_a_listing_shows_a_write_and_nothing_else(hosts: Hosts) -> None:
    hosts.up({"one": None})
    before = hosts.snapshot("one")
    assert len(before) > 5000
    hosts.run("one", "sudo true")
    assert hosts.snapshot("one") == before
    hosts.run("one", "sudo touch /etc/motd")
    changed = set(hosts.snapshot("one")) - set(before)
    assert [line.split()[0] for line in changed] == ["etc/motd"]


def test_killed_with_nine_it_is_still_ended_whole(hosts: Hosts) -> None:
    hosts.up({"one": None})
    nspawn, init = processes(hosts, "one")
    os.kill(nspawn, signal.SIGKILL)
    hosts.down()
    assert start_time(init) is None
    assert hosts.names() == []


def test_a_host_that_cannot_start_takes_nothing_with_it(hosts: Hosts, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not"):
        hosts.up({"one": None, "two": None}, binds=(f"{tmp_path}/nowhere:/mnt",))
    assert hosts.names() == []


def test_a_port_in_use_is_said(hosts: Hosts) -> None:
    hosts.up({"one": None})
    record = hosts.record("one")
    assert record is not None
    assert not _is_free(record.port)
    with pytest.raises(RuntimeError, match=f"port {record.port} for host two is in use"):
        hosts.up({"two": record.port})
    assert hosts.is_running("one")
