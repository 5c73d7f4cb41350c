# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure this collection against its peers in the same run, and print the tables of docs/performance.md.

Usage: python tools/bench.py [plan] [torrent] [--engine ENGINE/bin/python]

Every figure is that of a whole process, on two CPU cores. The runs of one table alternate, so that whatever else the
machine does hits all of them. There is no limit that fails: a time alone says more of the machine than of the code.

``plan`` measures ``ansible-playbook playbooks/plan.yml`` on inventories made here, against a playbook that does
nothing, against rules of the planner as asserts (tools/bench_asserts.yml), and, with ``--engine``, against one start of
the real argument handling: the Python of an environment with SGLang, as tools/real_server_args.py wants it.

``torrent`` measures four hosts that fetch a model by torrent, against one after another (tools/bench_torrent.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.bench_torrent import swarm  # noqa: E402

CORES = 2
EXAMPLE = ROOT / "inventories/cluster/group_vars/all.yml"
ASSERTS = ROOT / "tools/bench_asserts.yml"
MODELS = ROOT / "tests/fixtures/verdicts/models"
FIRST_PORT = 30000

#: Hosts -> how often everything runs on them.
ROUNDS = {1: 7, 10: 5, 100: 3, 1000: 3, 5000: 1}
#: Hosts -> how often the asserts run: at 1,000 hosts they take minutes.
ASSERT_ROUNDS = {10: 3, 100: 1, 1000: 1}
ENGINE_ROUNDS = 3
MANY = 1000
GROWTH = (10, 1000, 5000)
FAULTY_EVERY = 100

SPECULATION = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
ENGINE_ARGV = [
    *("--model-path", "MODELS/kimi_k25", "--trust-remote-code", "--tp-size", "8"),
    *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "MODELS/eagle3"),
    *("--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
]
NOTHING = [
    {
        "name": "Nothing",
        "hosts": "all",
        "gather_facts": False,
        "tasks": [{"name": "Nothing", "ansible.builtin.debug": {"msg": "nothing"}, "run_once": True}],
    }
]


# ---- inventories and playbooks --------------------------------------------------------------------------------------


def host_name(number: int) -> str:
    """The name of the host of that number, from 1 on."""
    return f"gpu{number:04}"


def make_inventory(folder: Path, hosts: int, faulty_every: int | None = None) -> Path:
    """An inventory of so many hosts, that of inventories/cluster with a port and other variables of each host's own.

    :param faulty_every: each host whose number is a multiple of this lacks speculative_num_steps.
    """
    variables = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    args = {**variables["sglang_server_args"], **SPECULATION, "port": "{{ serve_port }}"}
    variables["sglang_server_args"] = args
    faulty = {key: value for key, value in args.items() if key != "speculative_num_steps"}
    rows: dict[str, dict[str, Any]] = {}
    for number in range(1, hosts + 1):
        name = host_name(number)
        rows[name] = {
            "ansible_host": f"{name}.example.org",
            "serve_port": FIRST_PORT + number,
            "rack": f"r{number // 16}",
            "slot": number % 16,
        }
        if faulty_every and number % faulty_every == 0:
            # a copy, so that it is written out for each host and has a place of its own
            rows[name]["sglang_server_args"] = dict(faulty)
    (folder / "group_vars").mkdir(parents=True)
    (folder / "group_vars/all.yml").write_text(yaml.safe_dump(variables), encoding="utf-8")
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": rows}}), encoding="utf-8")
    return folder


def assert_rules() -> list[dict[str, Any]]:
    """The rules of tools/bench_asserts.yml."""
    rows: list[dict[str, Any]] = yaml.safe_load(ASSERTS.read_text(encoding="utf-8"))
    return rows


def assert_play(in_one_task: bool) -> list[dict[str, Any]]:
    """The asserts as a playbook: a task for each rule, or one task with all conditions and no words for each."""
    rules = assert_rules()
    if in_one_task:
        that = [one for row in rules for one in (row["that"] if isinstance(row["that"], list) else [row["that"]])]
        tasks = [{"name": "All rules", "ansible.builtin.assert": {"that": that, "quiet": True}}]
    else:
        tasks = [
            {
                "name": row["rule"],
                "ansible.builtin.assert": {"that": row["that"], "fail_msg": row["fail_msg"], "quiet": True},
            }
            for row in rules
        ]
    return [{"name": "Asserts", "hosts": "all", "gather_facts": False, "tasks": tasks}]


# ---- measuring ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Peer:
    """One thing to measure, ``rounds`` times. ``status`` is the exit status that it has to end with."""

    name: str
    argv: tuple[str, ...]
    rounds: int
    status: int = 0
    stdin: str = ""


@dataclasses.dataclass(frozen=True)
class Run:
    """One finished process with all its children. Both times in seconds."""

    wall: float
    cpu: float


def measure(peer: Peer) -> Run:
    """Run it once.

    :raises RuntimeError: it ended otherwise than it has to.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    env.update(ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1")
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as words:
        words.write(peer.stdin)
        words.seek(0)
        begin = time.perf_counter()
        process = subprocess.Popen(peer.argv, cwd=ROOT, env=env, stdin=words, stdout=output, stderr=output)
        _pid, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != peer.status:
            output.seek(0)
            raise RuntimeError(f"{peer.name}: exit status {process.returncode}\n{output.read()[-2000:]}")
    return Run(wall, used.ru_utime + used.ru_stime)


def alternate(peers: Sequence[Peer]) -> dict[str, list[Run]]:
    """All peers in turn, again and again, until each has had its rounds."""
    found: dict[str, list[Run]] = {peer.name: [] for peer in peers}
    for number in range(max(peer.rounds for peer in peers)):
        for peer in peers:
            if number < peer.rounds:
                found[peer.name].append(measure(peer))
                print(f"{peer.name}: {found[peer.name][-1].wall:.1f} s", file=sys.stderr)
    return found


def wall(runs: Sequence[Run]) -> float:
    """The median of the wall times, in seconds."""
    return statistics.median(run.wall for run in runs)


def row(*cells: object) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def figures(runs: Sequence[Run]) -> tuple[str, ...]:
    """The cells that every table has of a peer's runs."""
    times = [run.wall for run in runs]
    cpu = statistics.median(run.cpu for run in runs)
    return f"{wall(runs):.2f}", f"{min(times):.2f} to {max(times):.2f}", f"{cpu:.2f}", str(len(runs))


# ---- the plan -------------------------------------------------------------------------------------------------------

PLAN = "plan.yml"
EMPTY = "empty playbook"
FAULTY = f"plan.yml, each {FAULTY_EVERY}th host refused"
TASKS = "asserts, a task for each rule"
ONE_TASK = "asserts, all in one task"
ENGINE = "one real ServerArgs start"


def plan(engine: str | None) -> Iterator[str]:
    """The tables of the plan, line by line."""
    found: dict[int, dict[str, list[Run]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, play in (("empty", NOTHING), ("tasks", assert_play(False)), ("one_task", assert_play(True))):
            (folder / f"{file}.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
        for hosts in ROUNDS:
            found[hosts] = alternate(_plan_peers(folder, hosts, engine))
    yield row("hosts", "what", "wall s, median", "min to max", "CPU s, median", "runs", "of plan.yml")
    yield row(*["---"] * 7)
    for hosts, by_peer in found.items():
        for peer, runs in by_peer.items():
            ratio = f"{wall(runs) / wall(by_peer[PLAN]):.2f}"
            yield row("1" if peer == ENGINE else f"{hosts:,}", peer, *figures(runs), ratio)
    if engine is None:
        yield ""
        yield f"Left out: {ENGINE}. It needs a Python with SGLang, given with --engine."
    yield ""
    yield from _plan_answers(found)


def _plan_peers(folder: Path, hosts: int, engine: str | None) -> list[Peer]:
    rounds = ROUNDS[hosts]
    inventory = make_inventory(folder / f"{hosts}", hosts)
    peers = [
        Peer(EMPTY, playbook(inventory, folder / "empty.yml"), rounds),
        Peer(PLAN, playbook(inventory, ROOT / "playbooks/plan.yml"), rounds),
    ]
    if hosts == MANY:
        faulty = make_inventory(folder / f"{hosts}-faulty", hosts, FAULTY_EVERY)
        peers.append(Peer(FAULTY, playbook(faulty, ROOT / "playbooks/plan.yml"), rounds, status=2))
    if hosts in ASSERT_ROUNDS:
        peers += [
            Peer(TASKS, playbook(inventory, folder / "tasks.yml"), ASSERT_ROUNDS[hosts]),
            Peer(ONE_TASK, playbook(inventory, folder / "one_task.yml"), ASSERT_ROUNDS[hosts]),
        ]
    if hosts == 1 and engine is not None:
        command = (engine, str(ROOT / "tools/real_server_args.py"), "verdicts", "--models", str(MODELS))
        peers.append(
            Peer(ENGINE, command, ENGINE_ROUNDS, stdin=json.dumps({"gpu": "h200", "argv": ENGINE_ARGV}) + "\n")
        )
    return peers


def _plan_answers(found: dict[int, dict[str, list[Run]]]) -> Iterator[str]:
    """What is wanted of the plan, and what came out."""
    one, many = found[1], found[MANY]
    extra = statistics.median(mine.wall - other.wall for mine, other in zip(one[PLAN], one[EMPTY]))
    yield row("wanted", "measured")
    yield row("---", "---")
    yield row(f"{MANY:,} hosts in under 5 s on {CORES} cores", f"{wall(many[PLAN]):.2f} s")
    for peer in (TASKS, ONE_TASK):
        times = wall(many[peer]) / wall(many[PLAN])
        yield row(f"at least 10 times faster than {peer}", f"{times:.1f} times")
    yield row("one host at most 0.3 s over the empty playbook", f"{extra:.2f} s")
    steps = [
        f"{_growth(found, PLAN, few, more):.1f} ms from {few:,} to {more:,} hosts"
        f" ({_growth(found, EMPTY, few, more):.1f} of them in the empty playbook)"
        for few, more in itertools.pairwise(GROWTH)
    ]
    yield row("growth: what each host more costs", ", ".join(steps))


def _growth(found: dict[int, dict[str, list[Run]]], peer: str, few: int, more: int) -> float:
    """What each host more costs between two numbers of hosts, in milliseconds."""
    return (wall(found[more][peer]) - wall(found[few][peer])) / (more - few) * 1000


def playbook(inventory: Path, path: Path) -> tuple[str, ...]:
    """The command line of one ansible-playbook run."""
    return str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), str(path)


# ---- the command ----------------------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[str | None], Iterator[str]]] = {"plan": plan, "torrent": swarm}


def machine() -> str:
    """Where this ran, in one line."""
    found = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line.partition(": ")[2] for line in found.splitlines() if line.startswith("model name")), "unknown")
    load = os.getloadavg()[0]
    return (
        f"{len(os.sched_getaffinity(0))} cores of {model}, Python {platform.python_version()}, "
        f"ansible-core {importlib.metadata.version('ansible-core')}; load average before the first run {load:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sections", nargs="*", help=f"what to measure: {', '.join(SECTIONS)} (default: everything)")
    parser.add_argument("--engine", help="the Python of an environment with SGLang")
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}")
    # inherited by everything that is measured
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    print(f"{machine()}\n")
    for name in options.sections or SECTIONS:
        print(f"## {name}\n")
        for line in SECTIONS[name](options.engine):
            print(line, flush=True)


if __name__ == "__main__":
    main()
