# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several hosts, and several services on one, with an engine that starts at once. The tests build on each other."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine import fake_engine
from tests.hosts.hosts import Hosts
from tests.integration.conftest import Run, fake_hosts
from tests.playbook import run_playbook

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("fleet1", "fleet2", "fleet3", "fleet4")
FIRST_PORT = 30601
#: A second service on the first host.
SECOND = "fleet1b"
CANARY = "canary-77d1-not-to-be-seen"


class FleetRun(Run):
    """One finished run with its table."""

    @property
    def table(self) -> dict[str, list[str]]:
        """The rows of the table, by host."""
        lines = self.output[self.output.index("\nhost  ") :].strip().splitlines()
        rows = [re.split(r"\s{2,}", line) for line in lines[1:]]
        return {row[0]: row[1:] for row in rows if len(row) == 6}


class Fleet:
    """An inventory of the hosts, of which each test chooses some and gives variables."""

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        self.folder = folder
        self.hosts = hosts
        self.common = {**fake_engine.variables(folder / "engine"), "sglang_server_name": "main"}
        self.connections = yaml.safe_load(hosts.inventory.read_text())["all"]["hosts"]

    def play(self, playbook: str, hosts: Mapping[str, Mapping[str, Any]], *words: str, **common: Any) -> FleetRun:
        """Run a playbook.

        :param hosts: host -> its own variables, server arguments among them under ``args``.
        """
        rows = {}
        for number, (name, given) in enumerate(hosts.items()):
            variables = dict(given)
            args = {**self.common["sglang_server_args"], "port": port(name), **variables.pop("args", {})}
            connection = self.connections[NAMES[0] if name == SECOND else name]
            rows[name] = {**connection, "sglang_server_args": args, "number": number, **variables}
        inventory = {"all": {"hosts": rows, "vars": {**self.common, **common}}}
        (self.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))
        path = self.folder / "inventory.yml"
        done = run_playbook("-i", path, f"playbooks/{playbook}.yml", *words, timeout=300, stdin=subprocess.DEVNULL)
        return FleetRun(done)

    def sudo(self, name: str, command: str) -> str:
        """Run a shell command as root on a host."""
        done = self.hosts.run(name, f"sudo sh -c '{command}'")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def port(name: str) -> int:
    return FIRST_PORT + (len(NAMES) if name == SECOND else NAMES.index(name))


def served(name: str) -> str | None:
    """The model that a service names, None where it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port(name)}/v1/models", timeout=5) as answer:
            return str(json.load(answer)["data"][0]["id"])
    except OSError:
        return None


class Client:
    """Asks all services again and again, and keeps which of them refused in one round."""

    def __init__(self) -> None:
        self.refused: list[set[str]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._stop.wait(0.05):
            self.refused.append({name for name in NAMES if served(name) is None})


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    with fake_hosts(folder, NAMES) as hosts:
        yield Fleet(folder, hosts)


def test_two_services_of_one_machine_install_at_the_same_time_and_serve_side_by_side(fleet: Fleet) -> None:
    both: dict[str, dict[str, Any]] = {NAMES[0]: {}, SECOND: {"sglang_server_name": "second"}}
    run = fleet.play("site", both, sglang_rollout_batches=[2])
    assert run.status == 0, run.output
    assert served(NAMES[0])
    assert served(SECOND)
    assert len(fleet.sudo(NAMES[0], "ls /opt/sglang/engines").split()) == 1
    again = fleet.play("site", both, sglang_rollout_batches=[2])
    assert [again.recap(name, "changed") for name in both] == [0, 0], again.output


def test_a_fault_on_the_second_host_leaves_the_others_as_they_are(fleet: Fleet) -> None:
    run = fleet.play("site", {name: {} for name in NAMES})
    assert run.status == 0, run.output
    assert list(run.table) == list(NAMES)
    units = [fleet.sudo(name, "systemctl show --property=InvocationID --value sglang-main") for name in NAMES]
    new: dict[str, dict[str, Any]] = {name: {"args": {"served_model_name": "new"}} for name in NAMES}
    new[NAMES[1]]["sglang_server_env"] = {"FAKE_EXIT_AFTER": "1.5", "CANARY": CANARY}
    with Client() as client:
        run = fleet.play("site", new)
    assert run.status == 2, run.output
    assert served(NAMES[0]) == "new"
    after = [fleet.sudo(name, "systemctl show --property=InvocationID --value sglang-main") for name in NAMES]
    assert [one == other for one, other in zip(units, after)] == [False, False, True, True]
    assert [row[2] for row in run.table.values()] == ["changed", "restored", "untouched", "untouched"]
    assert [row[:2] for row in run.table.values()] == [["1", "2"], ["1", "1"], ["-", "-"], ["-", "-"]]
    assert served(NAMES[1]) == served(NAMES[2]) == "100% of $HOME"
    assert "Release 1 is restored and answers, accept length 2.00" in run.output
    assert CANARY not in run.output
    assert [run.recap(name, "failed") for name in NAMES] == [0, 1, 0, 0]
    assert "Not begun on 2 of 4 hosts" in run.output
    assert client.refused
    assert max(map(len, client.refused)) == 1


def test_what_runs_is_diagnosed_and_nothing_touched(fleet: Fleet) -> None:
    before = fleet.hosts.snapshot(NAMES[1])
    run = fleet.play("diagnose", {NAMES[1]: {"args": {"served_model_name": "new"}}})
    assert run.status == 0, run.output
    assert run.recap(NAMES[1], "changed") == 0
    assert fleet.hosts.snapshot(NAMES[1]) == before
    assert re.search(r"release 1, accepted .*; previous:\s+none; kept: 1, 2", run.output), run.output
    assert "last failure: release 2 at " in run.output
    assert "+ --served-model-name new" in run.output
    assert CANARY not in run.output


def test_a_restart_serves_what_is_deployed_and_stops_at_a_failure(fleet: Fleet) -> None:
    fleet.sudo(NAMES[1], "echo FAKE_EXIT_AFTER=1 >> /var/lib/sglang/main/releases/1/environment")
    run = fleet.play("restart", {name: {} for name in NAMES[:3]})
    assert run.status == 2, run.output
    assert served(NAMES[0]) == "new"
    assert [run.recap(name, "failed") for name in NAMES[:3]] == [0, 1, 0]
    assert [run.table[name][2] for name in NAMES[:3]] == ["changed", "failed", "untouched"]


def test_a_service_is_removed_only_when_asked_and_without_the_other_one(fleet: Fleet) -> None:
    second = {SECOND: {"sglang_server_name": "second"}}
    refused = fleet.play("remove", second)
    assert refused.status == 2, refused.output
    assert served(SECOND)
    words = ("-e", "sglang_remove=yes", "-e", "sglang_remove_models=true", "-e", "sglang_remove_engines=true")
    before = fleet.hosts.snapshot(NAMES[0])
    predicted = fleet.play("remove", second, "--check", *words)
    assert fleet.hosts.snapshot(NAMES[0]) == before
    run = fleet.play("remove", second, *words)
    assert run.status == 0, run.output
    assert run.recap(SECOND, "changed") == predicted.recap(SECOND, "changed") == 3
    assert served(SECOND) is None
    assert served(NAMES[0]) == "new"
    assert (
        fleet.sudo(NAMES[0], "ls /var/lib/sglang /opt/sglang/engines /etc/systemd/system | grep -c second || true")
        == "0"
    )
    assert fleet.play("remove", second, *words).recap(SECOND, "changed") == 0
    last = fleet.play("remove", {NAMES[0]: {}}, *words)
    assert last.recap(NAMES[0], "changed") == 6, last.output
    assert (
        fleet.sudo(
            NAMES[0],
            "ls /opt/sglang/engines /srv/models /opt/sglang/verify/locks/* | grep -c -e 0.5.19 -e tiny-- || true",
        )
        == "0"
    )
