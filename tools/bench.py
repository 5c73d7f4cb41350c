# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure this collection against its peers in the same run, and print the tables of docs/performance.md.

Usage: python tools/bench.py [plan] [store] [torrent] [noop] [--engine ENGINE/bin/python]

Every figure is that of a whole process, on two CPU cores. The runs of one table alternate, so that whatever else the
machine does hits all of them. There is no limit that fails: a time alone says more of the machine than of the code.

``plan`` measures ``ansible-playbook playbooks/plan.yml`` on inventories made here, against a playbook that does
nothing, against rules of the planner as asserts (tools/bench_asserts.yml), and, with ``--engine``, against one start of
the real argument handling: the Python of an environment with SGLang, as tools/real_server_args.py wants it.

``store`` measures the module model_snapshot and the program of the verification's timer, against the Hub's own client
and against hashlib alone, on a model of 4 GB that the test hub serves on the loopback. It takes 13 GB in the temporary
directory (``TMPDIR``), which is to be on a disk.

``torrent`` measures four hosts that fetch a model by torrent, against one after another (tools/bench_torrent.py).

``noop`` measures site.yml on 1, 4 and 8 test hosts where nothing is to be done (tools/bench_noop.py). It wants root.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
# Run as a script, where the checkout is not on the path.
sys.path.insert(0, str(ROOT))

from tests.engine import hub_client  # noqa: E402
from tools.bench_noop import noop  # noqa: E402
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
    """One thing to measure, ``rounds`` times.

    :ivar status: the exit status that it has to end with.
    :ivar env: variables of its environment, besides or instead of ours.
    :ivar prepare: is called before each run and not measured.
    """

    name: str
    argv: tuple[str, ...]
    rounds: int
    status: int = 0
    stdin: str = ""
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prepare: Callable[[], object] = lambda: None


@dataclasses.dataclass(frozen=True)
class Run:
    """One finished process with all its children: both times in seconds, the largest process in bytes, its output."""

    wall: float
    cpu: float
    memory: int = 0
    output: str = ""


def measure(peer: Peer) -> Run:
    """Run it once.

    :raises RuntimeError: it ended otherwise than it has to.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    env.update(ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1")
    env.update(peer.env)
    peer.prepare()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as words:
        words.write(peer.stdin)
        words.seek(0)
        begin = time.perf_counter()
        process = subprocess.Popen(peer.argv, cwd=ROOT, env=env, stdin=words, stdout=output, stderr=output)
        _pid, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read()
        if process.returncode != peer.status:
            raise RuntimeError(f"{peer.name}: exit status {process.returncode}\n{said[-2000:]}")
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, said)


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


def cpu(runs: Sequence[Run]) -> float:
    """The median of the CPU times, in seconds."""
    return statistics.median(run.cpu for run in runs)


def row(*cells: object) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def figures(runs: Sequence[Run]) -> tuple[str, ...]:
    """The cells that every table has of a peer's runs."""
    times = [run.wall for run in runs]
    return f"{wall(runs):.2f}", f"{min(times):.2f} to {max(times):.2f}", f"{cpu(runs):.2f}", str(len(runs))


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


# ---- the store ------------------------------------------------------------------------------------------------------

MODULE = ROOT / "plugins/modules/model_snapshot.py"
PROGRAM = "ansible_collections.inferops.serving.plugins.module_utils._store.verify"
OURS = {"PYTHONPATH": str(ROOT / "collections"), "no_proxy": "*"}
REPOS = LARGE, MANY_FILES = "bench/large", "bench/many"
SHARDS, SHARD_SIZE = 8, 512 << 20
#: Files of the snapshot that is run again, and the size of each.
FILES, FILE_SIZE = 96, 10_000
VERIFY_ROUNDS, FETCH_ROUNDS, RERUN_ROUNDS = 5, 3, 5

VERIFIED = "model_snapshot, verify: full"
TIMER = "the timer's program"
HF_VERIFY = "hf cache verify"
HASHLIB = "hashlib, two threads"
MEMORY = ", files in memory"
REREAD = f"model_snapshot, verify_age_max: 0{MEMORY}"
FETCHED = "model_snapshot"
HF_BOTH = "hf download, then hf cache verify"
RERUN = f"model_snapshot again, {FILES} files"

HASH_CODE = """
import concurrent.futures, hashlib, sys
def digest(path):
    hashed, buffer = hashlib.sha256(), bytearray(1 << 20)
    with open(path, "rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            hashed.update(memoryview(buffer)[:count])
    return hashed.hexdigest()
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    print(*pool.map(digest, sys.argv[1:]))
"""


def make_repositories(root: Path) -> None:
    """Two repositories of a hub: few large files of random bytes, and many small ones."""
    for repo in (LARGE, MANY_FILES):
        (root / repo).mkdir(parents=True)
        (root / repo / "config.json").write_text("{}", encoding="utf-8")
    for number in range(1, FILES):
        (root / MANY_FILES / f"file-{number:02}.txt").write_bytes(os.urandom(FILE_SIZE))
    for number in range(1, SHARDS + 1):
        # the module looks at the structure, so that has to be that of weights
        tensor = {"t": {"dtype": "U8", "shape": [SHARD_SIZE], "data_offsets": [0, SHARD_SIZE]}}
        header = json.dumps(tensor).encode()
        with (root / LARGE / f"model-{number:05}-of-{SHARDS:05}.safetensors").open("wb") as stream:
            stream.write(len(header).to_bytes(8, "little") + header)
            for _piece in range(SHARD_SIZE >> 20):
                stream.write(os.urandom(1 << 20))


@contextlib.contextmanager
def served(root: Path, locks: Path) -> Iterator[str]:
    """The address of the test hub, in a process of its own; it writes the locks first."""
    command = [sys.executable, str(ROOT / "tests/engine/hub.py"), "--root", str(root), "--port", "0"]
    with subprocess.Popen([*command, "--locks", str(locks)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().rpartition(" ")[2].strip()
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            for repo in (LARGE, MANY_FILES):
                # it reads and hashes a repository when it is first asked for it
                opener.open(f"{url}/api/models/{repo}").close()
            yield url
        finally:
            process.terminate()


def forget(folder: Path) -> None:
    """Drop the files under a folder from the page cache, so that whoever reads them next reads the disk."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def remember(folder: Path) -> None:
    """Have the files under a folder in the page cache."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                while stream.read(1 << 20):
                    pass


class StoreBench:
    """What the peers of this section are started with.

    :param folder: an empty directory, which is filled.
    :param url: the hub.
    """

    def __init__(self, folder: Path, locks: Path, url: str) -> None:
        self.store = folder / "store"
        self.fetched = folder / "fetched"
        self._locks = {repo: json.loads((locks / f"{repo.replace('/', '--')}.json").read_text()) for repo in REPOS}
        self._lock_folder = folder / "large-lock"
        self._lock_folder.mkdir()
        shutil.copy(locks / f"{LARGE.replace('/', '--')}.json", self._lock_folder)
        self._url = url
        self._client = hub_client.make()
        self._client_env = hub_client.environment(url, folder / "home")
        self._report = folder / "report.json"

    def module(self, name: str, rounds: int, repo: str, store: Path, **options: Any) -> Peer:
        """The module as Ansible starts it on a host, without Ansible."""
        arguments = {"lock": self._locks[repo], "store": str(store), "sources": [{"type": "hub", "url": self._url}]}
        told = json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, **options}})
        return Peer(name, (sys.executable, str(MODULE)), rounds, stdin=told, env=OURS)

    def verifying(self) -> list[Peer]:
        """Everything that verifies the large files in the store: from the disk, then from the page cache."""
        program = ["--store", self.store, "--locks", self._lock_folder, "--report", self._report]
        timer = (sys.executable, "-m", PROGRAM, *map(str, program))
        shards = (path for path in self.store.glob("*/blobs/*") if path.is_file())
        large = sorted(str(path) for path in shards if path.stat().st_size > SHARD_SIZE)
        hf_verify = ("sh", "-c", self._hf_verify(self.store))
        hashlib = (sys.executable, "-c", HASH_CODE, *large)
        verified = self.module(VERIFIED, VERIFY_ROUNDS, LARGE, self.store, state="verified", verify="full")
        # so that no stamp counts, and the files are read from wherever they are
        reread = self.module(REREAD, VERIFY_ROUNDS, LARGE, self.store, state="verified", verify_age_max=0)
        cold = [
            verified,
            Peer(TIMER, timer, VERIFY_ROUNDS, env=OURS),
            Peer(HF_VERIFY, hf_verify, VERIFY_ROUNDS, env=self._client_env),
            Peer(HASHLIB, hashlib, VERIFY_ROUNDS),
        ]
        warm = [
            reread,
            Peer(HF_VERIFY + MEMORY, hf_verify, VERIFY_ROUNDS, env=self._client_env),
            Peer(HASHLIB + MEMORY, hashlib, VERIFY_ROUNDS),
        ]
        return [
            *(dataclasses.replace(peer, prepare=lambda: forget(self.store)) for peer in cold),
            *(dataclasses.replace(peer, prepare=lambda: remember(self.store)) for peer in warm),
        ]

    def fetching(self) -> list[Peer]:
        """Everything that fetches the large files and proves them."""
        place = f"--revision {self._locks[LARGE]['revision']} --cache-dir {self.fetched}"
        both = f"{self._client}/hf download {LARGE} {place} && {self._hf_verify(self.fetched)}"
        peers = [
            self.module(FETCHED, FETCH_ROUNDS, LARGE, self.fetched),
            Peer(HF_BOTH, ("sh", "-c", both), FETCH_ROUNDS, env=self._client_env),
        ]
        return [dataclasses.replace(peer, prepare=self._empty) for peer in peers]

    def _hf_verify(self, cache: Path) -> str:
        revision = self._locks[LARGE]["revision"]
        return f"{self._client}/hf cache verify {LARGE} --revision {revision} --cache-dir {cache}"

    def _empty(self) -> None:
        shutil.rmtree(self.fetched, ignore_errors=True)
        # what was deleted is not to be written meanwhile
        os.sync()


def store(_engine: str | None) -> Iterator[str]:
    """The tables of the store, line by line."""
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        folder = Path(name)
        make_repositories(folder / "hub")
        with served(folder / "hub", folder / "locks") as url:
            bench = StoreBench(folder, folder / "locks", url)
            fetching = alternate(bench.fetching())
            for repo in REPOS:
                measure(bench.module(f"{repo} at first", 1, repo, bench.store))
            verifying = alternate(bench.verifying())
            again = alternate([bench.module(RERUN, RERUN_ROUNDS, MANY_FILES, bench.store)])
    yield row("what", "wall s, median", "min to max", "CPU s, median", "runs", "GB/s", "most memory, MB")
    yield row(*["---"] * 7)
    for found in (verifying, fetching, again):
        for peer, runs in found.items():
            speed = "" if peer == RERUN else f"{SHARDS * SHARD_SIZE / wall(runs) / 1e9:.2f}"
            yield row(peer, *figures(runs), speed, f"{_memory(runs):.0f}")
    yield ""
    yield from _store_answers(verifying, fetching, again[RERUN])


def _memory(runs: Sequence[Run]) -> float:
    """The largest process of all runs, in MB."""
    return max(run.memory for run in runs) / 1e6


def _store_answers(verifying: dict[str, list[Run]], fetching: dict[str, list[Run]], again: list[Run]) -> Iterator[str]:
    """What is wanted of the store, and what came out."""
    results = [json.loads(run.output) for run in again]
    ours = [*verifying[VERIFIED], *verifying[TIMER], *verifying[REREAD], *fetching[FETCHED], *again]
    yield row("wanted", "measured")
    yield row("---", "---")
    for peer, where in ((VERIFIED, ""), (TIMER, ""), (REREAD, MEMORY)):
        for other, times in ((HF_VERIFY, 1.8), (HASHLIB, 0.9)):
            measured = wall(verifying[other + where]) / wall(verifying[peer])
            yield row(f"{peer}: at least {times} times as fast as {other}", f"{measured:.2f} times")
    for peer in (VERIFIED, REREAD):
        inside = statistics.median(json.loads(run.output)["seconds"] for run in verifying[peer])
        yield row(f"{peer}: of that inside the module", f"{inside:.2f} s")
    share = cpu(fetching[FETCHED]) / cpu(fetching[HF_BOTH])
    yield row(f"fetch and proof: at most 0.6 of the CPU time of {HF_BOTH}", f"{share:.2f}")
    asked = f"{max(result['bytes_hashed'] for result in results)} bytes hashed"
    asked += f", {max(result['requests'] for result in results)} requests"
    seconds = statistics.median(result["seconds"] for result in results)
    yield row(f"{RERUN}: 0 bytes hashed, 0 requests, under 0.1 s inside the module", f"{asked}, {seconds:.3f} s")
    yield row("memory under 100 MB", f"{_memory(ours):.0f} MB")


# ---- the command ----------------------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[str | None], Iterator[str]]] = {
    "plan": plan,
    "store": store,
    "torrent": swarm,
    "noop": noop,
}


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
