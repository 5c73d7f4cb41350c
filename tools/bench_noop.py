# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml on hosts where nothing is to be done: time, remote executions, bytes. A section of tools/bench.py.

The hosts are those of tests/hosts with the fake engine. Executions are counted by the host's own sudo, and bytes by its
kernel on the one connection that Ansible keeps to it, so that counting costs the run nothing.
"""

from __future__ import annotations

import dataclasses
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
# this checkout where it is not on the path
sys.path.insert(0, str(ROOT))

from tests.engine import fake_engine, models  # noqa: E402
from tests.hosts.hosts import Hosts  # noqa: E402

SIZES = (1, 4, 8)
ROUNDS = 3
FIRST_PORT = 30701
MOST_EXECUTIONS, MOST_SECONDS, MOST_EACH = 25, 12.0, 1.5
#: Seconds that Ansible's connections stay open when they are not used. The bench ends them after it has looked at them.
PERSIST = 600


@dataclasses.dataclass(frozen=True)
class Noop:
    """One run: seconds, and of one host the executions and the bytes in both directions."""

    wall: float
    executions: int
    received: int
    sent: int


class Site:
    """An inventory of so many of the hosts."""

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        self.folder = folder
        self.hosts = hosts
        self.connections = yaml.safe_load(hosts.inventory.read_text(encoding="utf-8"))["all"]["hosts"]

    def play(self, count: int, control: Path) -> float:
        """Run site.yml and give the seconds.

        :param control: where ssh keeps the connections of this run.
        :raises RuntimeError: it failed.
        """
        variables = fake_engine.variables(self.folder / "engine")
        chosen = dict(list(self.connections.items())[:count])
        for number, connection in enumerate(chosen.values()):
            connection["sglang_server_args"] = {**variables["sglang_server_args"], "port": FIRST_PORT + number}
        inventory = self.folder / "inventory.yml"
        inventory.write_text(yaml.safe_dump({"all": {"hosts": chosen, "vars": variables}}), encoding="utf-8")
        control.mkdir()
        env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        env.update(
            ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"),
            ANSIBLE_NOCOLOR="1",
            ANSIBLE_SSH_CONTROL_PATH_DIR=str(control),
            ANSIBLE_SSH_ARGS=f"-C -o ControlMaster=auto -o ControlPersist={PERSIST}s",
        )
        command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), "playbooks/site.yml"]
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        seconds = time.perf_counter() - begin
        if done.returncode:
            raise RuntimeError(done.stdout[-3000:])
        return seconds

    def measure(self, count: int, name: str) -> Noop:
        """Run site.yml on so many hosts and count on the first of them."""
        host = next(iter(self.connections))
        begun = time.time()
        wall = self.play(count, self.folder / name)
        counted = self._ask(
            host, f"sudo journalctl --quiet --output=cat --since=@{begun:.3f} _COMM=sudo | grep -c COMMAND="
        )
        port = self.connections[host]["ansible_port"]
        # all of the host's connections but the one that asks
        words = self._ask(host, f"ss -tinHO state established '( sport = :{port} )' | grep -v \"$PEER \"")
        sent, received = (
            sum(int(one) for one in re.findall(rf"\b{what}:(\d+)", words)) for what in ("bytes_sent", "bytes_received")
        )
        for socket in (self.folder / name).iterdir():
            end = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", host]
            subprocess.run(end, stderr=subprocess.DEVNULL, check=False)
        # less the journalctl itself
        return Noop(wall, int(counted) - 1, received, sent)

    def _ask(self, host: str, command: str) -> str:
        # the address and port of the one that asks, as ss writes them
        return self.hosts.run(host, f"set -- $SSH_CONNECTION; PEER=$1:$2; {command}").stdout


def noop(_engine: str | None) -> Iterator[str]:
    """The tables of the no-op run, line by line."""
    with tempfile.TemporaryDirectory(prefix="bench-noop-") as name:
        folder = Path(name)
        fake_engine.make(folder / "engine")
        models.write_models(folder / "hub")
        hosts = Hosts(folder / "hosts")
        names = [f"noop{number}" for number in range(1, max(SIZES) + 1)]
        try:
            hosts.up(dict.fromkeys(names), (f"{folder}/engine/wheels:/opt/wheelhouse", f"{folder}/hub:/opt/hub"))
            site = Site(folder, hosts)
            site.measure(max(SIZES), "first")
            found = {count: [site.measure(count, f"{count}-{number}") for number in range(ROUNDS)] for count in SIZES}
        finally:
            hosts.down()
    yield "| hosts | wall s, median | min to max | remote executions on one host | kB to it | kB from it | runs |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for count, runs in found.items():
        walls = [run.wall for run in runs]
        cells = [
            count,
            f"{_wall(runs):.1f}",
            f"{min(walls):.1f} to {max(walls):.1f}",
            max(run.executions for run in runs),
        ]
        cells += [f"{max(getattr(run, what) for run in runs) / 1000:.0f}" for what in ("received", "sent")]
        yield f"| {' | '.join(map(str, [*cells, len(runs)]))} |"
    yield ""
    each = (_wall(found[SIZES[-1]]) - _wall(found[SIZES[0]])) / (SIZES[-1] - SIZES[0])
    yield "| wanted | measured |"
    yield "| --- | --- |"
    yield f"| at most {MOST_EXECUTIONS} remote executions on one host | {max(run.executions for run in found[1])} |"
    yield f"| one host in at most {MOST_SECONDS:.0f} s | {_wall(found[1]):.1f} s |"
    yield f"| each further host at most {MOST_EACH} s | {each:.2f} s |"


def _wall(runs: Sequence[Noop]) -> float:
    return statistics.median(run.wall for run in runs)
