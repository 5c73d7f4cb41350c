# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of faults of docs/changes.md on a real systemd host: what fails, and that the service is not lost.

The engine is the HTTP stand-in, whose faults are variables of its environment. The tests build on each other only in
that each finds an accepted release that answers, and leaves one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.loopback import free_port
from tests.hosts.hosts import SUITE, SUITES, Hosts
from tests.integration.conftest import Run, fake_hosts
from tests.playbook import PROGRAM, run_playbook

ROOT = Path(__file__).resolve().parents[2]
HOST = "fault1"
UNIT = "sglang-faults.service"
HOME = "/var/lib/sglang/faults"
CANARY = "canary-env-93b1-not-to-be-seen"
#: Plan and server only: engine and models are there from the first run on.
SERVE = [
    {"ansible.builtin.import_playbook": "inferops.serving.plan"},
    {"hosts": "all", "gather_facts": False, "roles": ["inferops.serving.sglang_server"]},
]


class Site:
    """One host with one service."""

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        self.hosts = hosts
        self.folder = folder
        self.inventory = folder / "inventory"
        self.port = free_port()
        self.playbook = folder / "serve.yml"
        self.playbook.write_text(yaml.safe_dump(SERVE))
        numbers = {"speculative_num_steps": 1, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 2}
        drafter = {"algorithm": "EAGLE3", "args": numbers}
        self.args = {"port": self.port, "device": "cpu", "attention_backend": "intel_amx"}
        self.environment = {"CANARY": CANARY, "FAKE_LOAD_SECONDS": "0.5", "FAKE_WARMUP_SECONDS": "0.5"}
        variables: dict[str, Any] = {
            "sglang_engine_version": "0.5.19",
            "sglang_engine_lock": str(folder / "engine/lock"),
            "sglang_engine_python": SUITES[SUITE],
            "sglang_engine_wheelhouse": "/opt/wheelhouse",
            "sglang_plan_gpu": "none",
            "sglang_plan_file": "",
            "sglang_model_target": "tiny/k2",
            "sglang_model_drafter": "tiny/k2-eagle3-good",
            "sglang_model_lock_dir": str(ROOT / "inventories/locks"),
            "sglang_model_sources": [{"type": "path", "path": "/opt/hub"}],
            "sglang_plan_models": {"drafters": {"tiny/k2-eagle3-good": drafter, "tiny/k2-eagle3-half": drafter}},
            "sglang_server_name": "faults",
            "sglang_server_args": self.args,
            "sglang_server_env": self.environment,
            "sglang_server_ready_timeout": 15,
            "sglang_server_accept_length_min": 1.5,
        }
        (self.inventory / "group_vars").mkdir(parents=True)
        (self.inventory / "group_vars/all.yml").write_text(yaml.safe_dump(variables))
        (self.inventory / "hosts.yml").write_text(hosts.inventory.read_text())

    def play(
        self,
        *words: str,
        playbook: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
        **variables: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run the server's role, or another playbook."""
        more = ["-e", json.dumps(variables)] if variables else []
        playbook = playbook or self.playbook
        return run_playbook("-i", self.inventory, playbook, *more, *words, environment=environment, timeout=300)

    def fault(self, **faults: str) -> dict[str, Any]:
        """The environment with faults of the engine."""
        return {"sglang_server_env": {**self.environment, **faults}}

    def start(self, **variables: Any) -> subprocess.Popen[str]:
        """Start a run whose controller is to be lost: a session of its own, and its output in a pipe."""
        return subprocess.Popen(
            [PROGRAM, "-i", str(self.inventory), str(self.playbook), "-e", json.dumps(variables)],
            cwd=ROOT,
            # into a pipe Python writes a line only with many others, and the tests wait for one
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def sudo(self, command: str) -> str:
        """Run a shell command as root on the host."""
        done = self.hosts.run(HOST, f"sudo sh -c '{command}'")
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    def current(self) -> int:
        return int(Path(self.sudo(f"readlink {HOME}/current")).name)

    def started(self) -> str:
        """The start of the service that runs; another one after each restart."""
        return self.sudo(f"systemctl show --property=InvocationID --value {UNIT}")

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=5) as answer:
                return bool(json.load(answer)["data"][0]["id"] == "tiny/k2")
        except OSError:
            return False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("faults")
    with fake_hosts(folder, [HOST]) as hosts:
        made = Site(folder, hosts)
        done = made.play(playbook="site.yml")
        assert done.returncode == 0, done.stdout + done.stderr
        yield made


@pytest.fixture
def good(site: Site) -> int:
    """The number of a release that runs and answers."""
    assert site.answers()
    assert json.loads(site.sudo(f"cat {HOME}/current/accepted"))["accept_length"] >= 1.5
    return site.current()


class Outage:
    """A client that asks all the time, and for how long in a row it was not served."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self.refused = 0

    def _poll(self) -> None:
        while not self._end.wait(0.1):
            self.refused += not self._site.answers()

    def __enter__(self) -> Outage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def _evidence(site: Site, output: str) -> dict[str, str]:
    """The files of the evidence that a message names, and what is in them."""
    found = re.search(rf"({HOME}/evidence/\w+)", output)
    assert found, output
    names = site.sudo(f"ls {found[1]}").split()
    assert site.sudo(f"stat -c %a:%U {found[1]}") == "700:root"
    return {name: site.sudo(f"cat {found[1]}/{name}") for name in names}


def test_what_the_engine_refuses_never_touches_the_service(site: Site, good: int) -> None:
    before = site.started()
    with Outage(site) as outage:
        done = site.play("--diff", **site.fault(FAKE_REFUSE="steps and draft tokens go together"))
    assert done.returncode != 0
    said = "the installed engine refuses the command line: AssertionError: steps and draft tokens go together"
    assert said in done.stdout + done.stderr
    assert "The service was not touched" in done.stdout
    assert (outage.refused, site.started(), site.current()) == (0, before, good)
    evidence = _evidence(site, done.stdout)
    assert "check_server_args" in evidence["rehearsal.txt"]
    # the words come from a variable of the environment here, and those are not kept
    assert json.loads(evidence["cause.json"])["cause"].endswith("AssertionError: [the value of FAKE_REFUSE]")
    assert site.sudo(f"ls {HOME}/releases").split()[-1] == str(good)
    assert "rehearsal" not in site.sudo("systemctl list-units --all --no-legend sglang-*")


FAULTS: dict[str, tuple[dict[str, str], str]] = {
    "it exits at once": ({"FAKE_EXIT_AFTER": "0"}, r"the server ended with exit status 1: RuntimeError: made to fail"),
    "it is killed after 10 s": (
        {"FAKE_LOAD_SECONDS": "60", "FAKE_EXIT_AFTER": "10", "FAKE_EXIT_CODE": "-9"},
        r"the server was ended by signal 9",
    ),
    "its port never opens": ({"FAKE_LOAD_SECONDS": "600"}, r"still loading after 15 s"),
    "it warms up for ever": ({"FAKE_WARMUP_SECONDS": "600"}, r"still warming up after 15 s"),
    "it serves another model": ({"FAKE_MODEL": "other/m"}, r"the server serves other/m, not tiny/k2"),
    "it answers with nothing": ({"FAKE_TEXT": ""}, r"the server generates nothing"),
    "it answers with gibberish": ({"FAKE_TEXT": "!"}, r"the server generates one token 64 times"),
    "its drafter does not help": ({"FAKE_ACCEPT_LENGTH": "1.03"}, r"the accept length is 1\.0\d*, below 1\.5"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_release_that_fails_is_replaced_by_the_one_before(site: Site, good: int, name: str) -> None:
    faults, cause = FAULTS[name]
    # less than some of these changes take: Ansible's own limit must not cut them off half-way
    done = site.play("-vvv", "--diff", environment={"ANSIBLE_TASK_TIMEOUT": "14"}, **site.fault(**faults))
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert re.search(cause, output), output[-3000:]
    assert f"Release {good} is restored and answers, accept length 2.00" in output
    assert (site.answers(), site.current()) == (True, good)
    evidence = _evidence(site, output)
    assert {"cause.json", "journal.txt", "status.txt", "show.txt", "kernel.txt", "plan.json", "unit"} <= set(evidence)
    assert re.search(cause, json.loads(evidence["cause.json"])["cause"])
    assert not [file for file, text in evidence.items() if CANARY in text]
    assert CANARY not in output


def test_what_was_restored_is_what_the_inventory_says(site: Site, good: int) -> None:
    again = site.play()
    assert (again.returncode, "changed=0" in again.stdout, site.current()) == (0, True, good), again.stdout


def test_a_service_that_fails_without_a_change_is_not_replaced(site: Site, good: int) -> None:
    done = site.play(sglang_server_accept_length_min=9.0)
    assert done.returncode != 0
    assert "Nothing is restored: it had been accepted before" in done.stdout
    assert (site.answers(), site.current()) == (True, good)
    assert site.play().returncode == 0


def test_a_host_without_room_is_refused_before_the_service_is_touched(site: Site, good: int) -> None:
    before = site.started()
    releases = f"{HOME}/releases"
    site.sudo(f"cp -a {releases} /root/r && mount -t tmpfs -o size=1M full {releases} && cp -a /root/r/. {releases}/")
    try:
        site.sudo(f"dd if=/dev/zero of={releases}/fill bs=4k 2>/dev/null || true")
        done = site.play(**site.fault(SOMETHING="new"))
    finally:
        site.sudo(f"umount {releases} && rm -rf /root/r")
    assert done.returncode != 0
    assert "No space left on device" in done.stdout
    assert (site.answers(), site.current(), site.started()) == (True, good, before)


def test_a_unit_that_systemd_refuses_is_refused_before_the_service_is_touched(site: Site, good: int) -> None:
    before = site.started()
    change = {"home": HOME, "unit": UNIT, "unit_text": "[Service]\nExecStart=no-path\n", "environment": "", "plan": {}}
    own = site.folder / "own.yml"
    own.write_text(yaml.safe_dump([{"hosts": HOST, "tasks": [{"inferops.serving.server_change": change}]}]))
    done = site.play(playbook=own)
    assert done.returncode != 0
    assert "systemd refuses the unit" in done.stdout
    assert (site.answers(), site.current(), site.started()) == (True, good, before)


def test_what_is_missing_on_the_host_is_seen_before_the_service_is_touched(site: Site, good: int) -> None:
    before = site.started()
    drafter = site.sudo("readlink -f /srv/models/models--tiny--k2-eagle3-good/current")
    site.sudo(f"mv {drafter} /root/drafter")
    try:
        done = site.play(**site.fault(SOMETHING="new"))
    finally:
        site.sudo(f"mv /root/drafter {drafter}")
    assert done.returncode != 0
    assert f"needs what is not here: {drafter}" in done.stdout
    assert (site.answers(), site.current(), site.started()) == (True, good, before)


def test_consent_is_asked_for_a_restart_only(site: Site, good: int) -> None:
    new = site.fault(SOMETHING="with consent")
    before = site.started()
    assert site.play(sglang_server_restart="needs_consent").returncode == 0
    for policy, words in (("needs_consent", "Consent with -e sglang_server_consent=true"), ("never", "is never")):
        done = site.play(sglang_server_restart=policy, **new)
        assert done.returncode != 0
        assert words in done.stdout
        check = site.play("--check", sglang_server_restart=policy, **new)
        assert re.search(rf"{HOST}: would restart as release \d+: another release is to run", check.stdout)
        assert "and interrupts the service; but a real run stops: " in check.stdout
        assert words in check.stdout
    assert site.started() == before
    done = site.play(sglang_server_restart="needs_consent", sglang_server_consent=True, **new)
    assert (done.returncode, site.started() == before) == (0, False), done.stdout
    assert site.current() > good


def test_a_rollback_runs_what_was_accepted_before(site: Site, good: int) -> None:
    assert site.play(**site.fault(SOMETHING="else")).returncode == 0
    newer = site.current()
    assert newer > good
    listing = site.hosts.snapshot(HOST)
    check = site.play("--check", "--diff", playbook="playbooks/rollback.yml")
    assert (check.returncode, site.hosts.snapshot(HOST) == listing) == (0, True), check.stdout
    assert re.search(rf"{HOST} .*changed=1 ", check.stdout)
    done = site.play("--diff", playbook="playbooks/rollback.yml")
    assert (done.returncode, site.current(), site.answers()) == (0, good, True), done.stdout
    assert re.search(rf"{HOST} .*changed=1 ", done.stdout)
    again = site.play(playbook="playbooks/rollback.yml", sglang_server_release=str(good))
    assert (again.returncode, "changed=0" in again.stdout) == (0, True), again.stdout
    nothing = site.play(playbook="playbooks/rollback.yml", sglang_server_release="4711")
    assert nothing.returncode != 0
    assert "there is no release 4711" in nothing.stdout
    assert site.play().returncode == 0


def _lose(run: subprocess.Popen[str], until: Callable[[str], bool]) -> str:
    """Kill a controller with everything it started, once it has said so."""
    said = ""
    try:
        assert run.stdout
        for line in run.stdout:
            said += line
            if until(line):
                return said
        raise AssertionError(f"it never came to that:\n{said}")
    finally:
        _kill_tree(run.pid)
        run.wait()
        assert run.stdout
        run.stdout.close()


def _kill_tree(pid: int) -> None:
    """The run's workers and their ssh have sessions of their own."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if Path(f"/proc/{pid}").exists() else []
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    for child in children:
        _kill_tree(int(child))


def test_a_lost_controllers_change_is_undone_by_the_next_run(site: Site, good: int) -> None:
    bad = site.fault(FAKE_LOAD_SECONDS="600")
    _lose(site.start(**bad), lambda line: f"{HOST}: loading" in line)
    assert site.current() > good
    assert not site.answers()
    done = site.play(**bad)
    assert done.returncode != 0
    assert f"Release {good} is restored and answers" in done.stdout
    assert (site.answers(), site.current()) == (True, good)


def test_a_lost_controllers_good_change_is_finished_by_the_next_run(site: Site, good: int) -> None:
    new = site.fault(SOMETHING="after a loss")
    _lose(site.start(**new), lambda line: bool(re.search(rf"{HOST}: release \d+: restart", line)))
    done = site.play(**new)
    assert done.returncode == 0, done.stdout
    assert site.answers()
    assert json.loads(site.sudo(f"cat {HOME}/current/accepted"))["accept_length"] == 2.0


def test_a_connection_that_is_lost_is_said_and_the_next_run_finishes_the_change(site: Site, good: int) -> None:
    new = {**site.fault(SOMETHING="after a cut", FAKE_LOAD_SECONDS="25"), "sglang_server_ready_timeout": 60}
    run = site.start(**new)
    try:
        assert run.stdout
        said = next(line for line in run.stdout if f"{HOST}: loading" in line)
        # in the middle of the next call: between two of them nobody notices
        time.sleep(3)
        for process in site.hosts.processes(HOST):
            # the session of the login user, as Debian 12 and 13 call it; the server that listens is another process
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith((b"sshd: ops", b"sshd-session: ops")):
                os.kill(process, signal.SIGKILL)
        said += run.communicate(timeout=120)[0]
    finally:
        _kill_tree(run.pid)
    assert run.returncode != 0
    assert f"The change of {UNIT} is not finished. Run the play again: it goes on from there" in said, said
    assert site.current() > good
    again = site.play(**new)
    assert again.returncode == 0, again.stdout
    assert site.answers()
    assert json.loads(site.sudo(f"cat {HOME}/current/accepted"))["accept_length"] == 2.0


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def test_a_host_goes_back_by_itself_where_nobody_confirms(site: Site, good: int) -> None:
    bad = site.fault(FAKE_LOAD_SECONDS="600")
    _lose(site.start(**bad, sglang_server_confirm_timeout=20), lambda line: f"{HOST}: loading" in line)
    assert site.current() > good
    assert _wait(lambda: site.current() == good and site.answers(), 60)
    assert "unconfirmed" not in site.sudo("ls -R /etc/systemd/system")
    # the dead run of this controller is in nobody's way
    done = site.play(playbook="playbooks/rollback.yml", sglang_server_release=str(good))
    assert (done.returncode, "changed=0" in done.stdout, site.current()) == (0, True, good), done.stdout


def test_a_host_that_loses_its_power_in_the_middle_goes_back_by_itself(site: Site, good: int) -> None:
    bad = site.fault(FAKE_LOAD_SECONDS="600")
    _lose(site.start(**bad, sglang_server_confirm_timeout=20), lambda line: f"{HOST}: loading" in line)
    site.hosts.cut_power(HOST)
    assert _wait(lambda: site.current() == good and site.answers(), 60)
    done = site.play(playbook="playbooks/rollback.yml", sglang_server_release=str(good))
    assert (done.returncode, "changed=0" in done.stdout, site.current()) == (0, True, good), done.stdout


def test_a_second_operator_is_told_who_is_at_work(site: Site, good: int) -> None:
    # long enough for the second one to come that far
    first = site.start(**site.fault(SOMETHING="first", FAKE_LOAD_SECONDS="25"), sglang_server_ready_timeout=60)
    try:
        assert first.stdout
        for line in first.stdout:
            if f"{HOST}: loading" in line:
                break
        second = site.play(**site.fault(SOMETHING="second"))
        output = first.communicate(timeout=120)[0]
    finally:
        _kill_tree(first.pid)
    assert first.returncode == 0, output
    assert second.returncode != 0
    assert re.search(r"changes this service since .*; if that run is dead, its lock ends in \d+ s", second.stdout)
    assert site.answers()
    assert site.current() > good


def test_a_restore_that_fails_is_said_loudly_and_the_next_run_mends_it(site: Site, good: int) -> None:
    site.sudo(f"echo FAKE_EXIT_AFTER=0 >> {HOME}/releases/{good}/environment")
    done = site.play(**site.fault(FAKE_EXIT_AFTER="0"))
    assert done.returncode != 0
    assert f"THE SERVICE IS DOWN: release {good} could not be restored either" in done.stdout
    assert len(set(re.findall(rf"{HOME}/evidence/\w+", done.stdout))) == 2
    mended = site.play()
    assert (mended.returncode, site.answers()) == (0, True), mended.stdout


def _changes(site: Site, name: str) -> dict[str, Any]:
    """The variables of a change."""
    if name == "a flag":
        return {"sglang_server_args": {**site.args, "max_running_requests": 4}}
    if name == "a model":
        return {"sglang_model_drafter": "tiny/k2-eagle3-half"}
    if name == "the engine":
        other = site.folder / "other-lock"
        shutil.copytree(site.folder / "engine/lock", other)
        facts = json.loads((other / "lock.json").read_text())
        (other / "lock.json").write_text(json.dumps({**facts, "note": "the same distribution, another lock"}))
        return {"sglang_engine_lock": str(other)}
    return {}


@pytest.mark.parametrize("name", ["nothing", "a flag", "a model", "the engine"])
def test_check_mode_says_what_a_change_changes(site: Site, good: int, name: str) -> None:
    # each other one is a change of what the one before has left
    if name == "nothing":
        assert site.play(playbook="site.yml").returncode == 0
    variables = _changes(site, name)
    before = site.hosts.snapshot(HOST)
    check = Run(site.play("--check", "--diff", playbook="site.yml", **variables))
    assert site.hosts.snapshot(HOST) == before
    real = Run(site.play("--diff", playbook="site.yml", **variables))
    assert (check.status, real.status) == (0, 0), real.output
    assert check.changed_tasks == real.changed_tasks
    assert bool(real.changed_tasks) == (name != "nothing"), real.changed_tasks
    assert site.answers()
