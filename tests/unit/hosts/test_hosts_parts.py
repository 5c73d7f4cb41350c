# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the test hosts that need neither root nor a host."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts import hosts as module
from tests.hosts.hosts import Hosts, Record


def write_record(state: Path, name: str, port: int) -> None:
    (state / name).mkdir(parents=True)
    (state / name / "record.json").write_text(json.dumps({"name": name, "port": port, "binds": []}))


def test_only_folders_with_a_record_are_hosts(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    write_record(tmp_path, "two", 2202)
    write_record(tmp_path, "one", 2201)
    hosts = Hosts(tmp_path)
    assert hosts.names() == ["one", "two"]
    assert hosts.records() == [Record("one", 2201, []), Record("two", 2202, [])]
    assert hosts.record("precious") is None
    assert not hosts.is_running("one")


def test_down_removes_hosts_and_nothing_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    write_record(tmp_path, "one", 2201)
    Hosts(tmp_path).down()
    Hosts(tmp_path).down(["precious", "never-there"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inventory.yml", "precious"]


def test_down_of_a_state_that_is_not_there_makes_none(tmp_path: Path) -> None:
    Hosts(tmp_path / "state").down()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", ["..", ".", "", "/etc", "a/b", "One", "-one", "a" * 64])
def test_a_name_that_is_a_path_or_no_host_name_is_refused_before_anything_is_touched(tmp_path: Path, name: str) -> None:
    write_record(tmp_path / "state", "one", 2201)
    with pytest.raises(ValueError, match="is not a host name"):
        Hosts(tmp_path / "state").down(["one", name])
    with pytest.raises(ValueError, match="is not a host name"):
        Hosts(tmp_path / "state").up({name: None})
    assert Hosts(tmp_path / "state").names() == ["one"]


def test_the_inventory_is_read_by_ansible_and_names_the_known_hosts(tmp_path: Path) -> None:
    write_record(tmp_path, "one", 2207)
    hosts = Hosts(tmp_path)
    hosts._write_inventory()
    program = str(Path(sys.executable).parent / "ansible-inventory")
    done = subprocess.run(
        [program, "-i", str(hosts.inventory), "--host", "one"], capture_output=True, text=True, check=False
    )
    told = json.loads(done.stdout)
    assert (told["ansible_port"], told["ansible_user"], told["ansible_become"]) == (2207, "ops", True)
    assert told["ansible_ssh_common_args"] == f"-o UserKnownHostsFile={tmp_path}/known_hosts"


def test_a_state_folder_has_groups_of_its_own(tmp_path: Path) -> None:
    groups = {Hosts(tmp_path / state)._group(name) for state in ("a", "b") for name in ("one", "two")}
    assert len(groups) == 4
    assert Hosts(tmp_path / "a/../a")._group("one") in groups


def test_the_next_port_is_one_that_is_neither_promised_nor_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        busy = listener.getsockname()[1]
        assert not module.is_free(busy)
        monkeypatch.setattr(module, "is_free", lambda port: port not in (2201, 2203))
        assert module.free_port(set()) == 2202
        assert module.free_port({2202}) == 2204
        with pytest.raises(RuntimeError, match="no free port"):
            module.free_port(set(range(2201, 2299)))


def test_names_may_carry_ports() -> None:
    assert module.named_ports(["one", "two=2210"]) == {"one": None, "two": 2210}
    with pytest.raises(ValueError, match="invalid literal"):
        module.named_ports(["one="])


def test_the_digest_changes_with_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    before = module.recipe_digest("bookworm")
    assert len(before) == 12
    assert module.recipe_digest("bookworm") == before
    assert module.recipe_digest("trixie") != before
    monkeypatch.setattr(module, "PREPARE", module.PREPARE + "true\n")
    assert module.recipe_digest("bookworm") != before


def test_a_known_host_is_replaced_and_its_neighbours_stay() -> None:
    first = module.with_host_key("", 2201, "ssh-ed25519 AAAA root@base\n")
    second = module.with_host_key(first, 220, "ssh-ed25519 BBBB")
    third = module.with_host_key(second, 2201, "ssh-ed25519 CCCC")
    assert first == "[127.0.0.1]:2201 ssh-ed25519 AAAA\n"
    assert third == "[127.0.0.1]:220 ssh-ed25519 BBBB\n[127.0.0.1]:2201 ssh-ed25519 CCCC\n"


def test_a_process_that_ended_has_no_start_time() -> None:
    started = module.start_time(os.getpid())
    assert started is not None
    assert module.start_time(os.getpid()) == started
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert module.start_time(process.pid) is None, "a zombie"
    process.wait()
    assert module.start_time(process.pid) is None


def test_a_listing_tells_every_kind_of_change_and_leaves_out_what_changes_by_itself(tmp_path: Path) -> None:
    for folder in ("etc", "var/log/journal", "root/.ansible/tmp"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/a").write_text("12345")
    (tmp_path / "etc/link").symlink_to("a")
    (tmp_path / "var/log/wtmp").touch()
    os.utime(tmp_path / "etc/a", ns=(0, 1_500_000_001))
    os.chmod(tmp_path / "etc/a", 0o640)
    lines = list(module.listing(tmp_path))
    paths = [line.split()[0] for line in lines]
    assert paths == ["etc", "root", "var", "etc/a", "etc/link", "var/log"]
    owner = f"{os.getuid()} {os.getgid()}"
    assert lines[3] == f"etc/a - 0640 {owner} 5 1500000001"
    assert lines[4].startswith(f"etc/link l 0777 {owner} 1 ")
    (tmp_path / "var/log/journal/x").touch()
    (tmp_path / "root/.ansible/tmp/x").touch()
    assert list(module.listing(tmp_path)) == lines
    os.chmod(tmp_path / "etc/a", 0o600)
    assert list(module.listing(tmp_path)) != lines
