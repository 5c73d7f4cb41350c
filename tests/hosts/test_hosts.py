# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test hosts themselves: they are real, several at a time, and nothing of them is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.hosts import Hosts, is_free, start_time

PROGRAM = [sys.executable, str(Path(__file__).with_name("hosts.py"))]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path / "state")
    yield made
    made.down()
    assert left(made) == []


def left(hosts: Hosts) -> list[str]:
    """What there is of hosts in mounts, processes, control groups and folders, found without their records."""
    state = str(hosts.state)
    found = [line for line in Path("/proc/mounts").read_text().splitlines() if state in line]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # the mounts of a guest's process name the folders that its root is made of
            seen = (folder / "cmdline").read_text() + (folder / "mountinfo").read_text()
        except (OSError, ValueError):
            continue
        if f"={state}/" in seen:
            found.append(f"process {folder.name}")
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{hosts._group('one').name}")]
    return found + [str(path) for path in hosts.state.glob("*/") if path.is_dir()]


def test_two_hosts_with_systemd_ssh_and_a_user_who_may_become_root(hosts: Hosts) -> None:
    hosts.up({"one": None, "two": None})
    for name in ("one", "two"):
        told = hosts.run(name, "hostname; whoami; sudo id -u; systemctl is-system-running; systemctl is-active ssh")
        assert told.stdout.split() == [name, "ops", "0", "running", "active"]
    first, second = hosts.processes("one"), hosts.processes("two")
    assert set(first).isdisjoint(second)
    hosts.down(["one"])
    assert not any(start_time(pid) for pid in first)
    assert hosts.names() == ["two"]
    assert list(json.loads(hosts.inventory.read_text())["all"]["hosts"]) == ["two"]
    hosts.up({"two": None})
    assert hosts.processes("two")[0] == second[0], "a host that runs is left as it is"


def test_units_of_the_same_name_on_two_hosts_have_nothing_to_do_with_each_other(hosts: Hosts) -> None:
    hosts.up({"one": None, "two": None})
    for name in ("one", "two"):
        started = hosts.run(name, "sudo systemd-run --quiet --unit probe sleep 1000")
        assert started.returncode == 0, started.stderr
    # processes of another host would show as further lines
    members = hosts.run("one", "cat $(find /sys/fs/cgroup -path '*/probe.service/cgroup.procs')").stdout.split()
    main = hosts.run("one", "systemctl show --property MainPID --value probe").stdout.strip()
    assert members == [main]
    assert hosts.run("one", "sudo systemctl stop probe; systemctl is-active probe").stdout == "inactive\n"
    assert hosts.run("two", "systemctl is-active probe").stdout == "active\n"


def test_a_service_keeps_its_journal_and_a_small_file_system_fills_up(hosts: Hosts) -> None:
    hosts.up({"one": None})
    hosts.run("one", "sudo systemd-run --quiet --wait --unit probe echo told by the probe")
    assert "told by the probe" in hosts.run("one", "sudo journalctl --unit probe --output cat").stdout
    assert hosts.run("one", "sudo systemd-analyze verify --man=no ssh.service").returncode == 0
    full = hosts.run("one", "sudo mount -t tmpfs -o size=64k none /mnt && sudo dd if=/dev/zero of=/mnt/x count=1k")
    assert "No space left on device" in full.stderr


def test_debian_13(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path / "state", "trixie")
    try:
        hosts.up({"one": None})
        told = hosts.run("one", ". /etc/os-release; echo $VERSION_CODENAME; sudo id -u; systemctl is-system-running")
        assert told.stdout.split() == ["trixie", "0", "running"]
    finally:
        hosts.down()
    assert left(hosts) == []


def test_ansible_reaches_them_with_host_key_checking_on(hosts: Hosts) -> None:
    def ping() -> str:
        ansible = [str(Path(sys.executable).parent / "ansible"), "-i", str(hosts.inventory), "all", "-m", "ping"]
        environment = {**os.environ, "ANSIBLE_HOST_KEY_CHECKING": "1", "ANSIBLE_SSH_ARGS": "-o ControlMaster=no"}
        return subprocess.run(ansible, capture_output=True, text=True, env=environment, check=False).stdout

    hosts.up({"one": None})
    assert "pong" in ping()
    hosts.known_hosts.write_text("")
    assert "Host key verification failed" in ping()


def test_a_listing_shows_a_write_and_nothing_else(hosts: Hosts) -> None:
    hosts.up({"one": None})
    before = hosts.snapshot("one")
    assert len(before) > 5000
    ansible = [str(Path(sys.executable).parent / "ansible"), "-i", str(hosts.inventory), "all", "-m", "setup"]
    subprocess.run(ansible, capture_output=True, check=True)
    terminal = [*hosts.ssh("one", "sudo true")]
    subprocess.run([terminal[0], "-tt", *terminal[1:]], capture_output=True, stdin=subprocess.DEVNULL, check=True)
    assert hosts.snapshot("one") == before
    hosts.run("one", "sudo touch /etc/motd")
    changed = set(hosts.snapshot("one")) - set(before)
    assert [line.split()[0] for line in changed] == ["etc/motd"]


def test_killed_with_nine_it_is_still_ended_whole(hosts: Hosts) -> None:
    hosts.up({"one": None})
    everything = hosts.processes("one")
    os.kill(hosts._supervisor("one")[0], signal.SIGKILL)
    hosts.down()
    assert not any(start_time(pid) for pid in everything)
    assert hosts.names() == []


def test_up_killed_at_any_moment_leaves_what_down_ends(hosts: Hosts) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _round in range(12):
        up = subprocess.Popen(
            [*PROGRAM, "up", "--state", str(hosts.state), "one", "two"],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(chance.uniform(0.05, 1.2))
        up.kill()
        up.wait()
        hosts.down()
        assert left(hosts) == []


def test_a_host_that_cannot_start_takes_nothing_with_it(hosts: Hosts, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"nowhere"):
        hosts.up({"one": None, "two": None}, binds=(f"{tmp_path}/nowhere:/mnt",))
    assert left(hosts) == []


def test_hosts_of_other_calls_live_through_a_failed_one(hosts: Hosts) -> None:
    hosts.up({"one": None})
    record = hosts.record("one")
    assert record is not None
    assert not is_free(record.port)
    with pytest.raises(RuntimeError, match=f"port {record.port} for host two is in use"):
        hosts.up({"two": record.port})
    assert hosts.is_running("one")
    assert hosts.run("one", "true").returncode == 0


def test_where_no_overlay_is_possible_the_root_is_a_copy(tmp_path: Path) -> None:
    for part in ("lower", "upper", "work", "merged"):
        (tmp_path / part).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    subprocess.run(["mount", "-t", "overlay", "below", "-o", options, str(tmp_path / "merged")], check=True)
    hosts = Hosts(tmp_path / "merged" / "state")
    try:
        hosts.up({"one": None})
        assert not os.path.ismount(hosts.root("one"))
        assert hosts.run("one", "hostname").stdout == "one\n"
    finally:
        hosts.down()
        subprocess.run(["umount", str(tmp_path / "merged")], check=True)
    assert not (tmp_path / "upper/state/one").exists()


def test_the_command_line(hosts: Hosts) -> None:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *words, "--state", str(hosts.state)], capture_output=True, text=True, check=False
        )

    up = call("up", "one")
    assert up.returncode == 0, up.stderr
    assert up.stdout == hosts.inventory.read_text()
    (listed,) = json.loads(call("list", "--json").stdout)
    assert (listed["name"], listed["running"]) == ("one", True)
    assert call("snapshot", "one").stdout.count("\n") > 5000
    assert call("up", "../two").returncode == 1
    assert call("down").returncode == 0
    assert call("list", "--json").stdout == "[]\n"
    assert call("down").returncode == 0
