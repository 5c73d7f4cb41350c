# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml in batches, with roles that only pretend: who is changed, who is left alone, what the table says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.playbook import run_playbook

ROOT = Path(__file__).resolve().parents[3]
PRETENDED = {
    # ends as its host's variable says; one with which nothing is to be done is seen to be that where it is only held
    "sglang_server": [
        {
            "ansible.builtin.fail": {"msg": "no room for a user"},
            "when": "breaks == 'alone' and not __sglang_server_hold",
        },
        {"ansible.builtin.fail": {"msg": "no secret in the vault"}, "when": "breaks == 'before'"},
        # an argument that fails leaves a result without an outcome
        {
            "ansible.builtin.ping": {
                "data": "{{ 'pong' if breaks != 'argument' else ('no number' | int(default=none) + 1) }}"
            },
            "register": "sglang_server_result",
        },
        {
            "ansible.builtin.set_fact": {
                "sglang_server_result": {
                    "outcome": "{{ 'due' if __sglang_server_hold and outcome not in quiet else outcome }}"
                }
            },
            "when": "sglang_server_result.unreachable is undefined",
        },
        {
            "when": "not __sglang_server_hold and sglang_server_result.unreachable is undefined",
            "block": [
                {
                    "ansible.builtin.fail": {"msg": "the gate says no"},
                    "when": "outcome in ['restored', 'failed', 'not ready'] and not waited",
                },
                {
                    "ansible.builtin.lineinfile": {
                        "path": "{{ log }}",
                        "line": "{{ inventory_hostname }}",
                        "create": True,
                    },
                    "delegate_to": "localhost",
                    "when": "not ansible_check_mode",
                },
            ],
        },
    ],
    "sglang_engine": [{"ansible.builtin.fail": {"msg": "no space"}, "when": "prepares is defined and not prepares"}],
    "sglang_model": [],
}
HOOK = [
    {
        "ansible.builtin.lineinfile": {"path": "{{ log }}", "line": "HOOK {{ inventory_hostname }}", "create": True},
        "delegate_to": "localhost",
    },
    {"ansible.builtin.fail": {"msg": "the gateway says no"}, "when": "'HOOK' in refuse | default([])"},
]
#: The way to a machine that cannot be reached.
CLOSED = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        collection = folder / "collections/ansible_collections/inferops/serving"
        (collection / "roles").mkdir(parents=True)
        for name in ("plugins", "playbooks", "meta", "galaxy.yml", "roles/sglang_plan", "roles/sglang_rollout"):
            (collection / name).symlink_to(ROOT / name)
        for role, tasks in PRETENDED.items():
            (collection / f"roles/{role}/tasks").mkdir(parents=True)
            (collection / f"roles/{role}/tasks/main.yml").write_text(yaml.safe_dump(tasks))
        (collection / "roles/sglang_server/vars").mkdir()
        (collection / "roles/sglang_server/vars/main.yml").write_text("__sglang_server_hold: false\n")
        # shows by which tasks a host was changed
        restart = yaml.safe_dump(PRETENDED["sglang_server"]).replace(
            "{{ inventory_hostname", "restart {{ inventory_hostname"
        )
        (collection / "roles/sglang_server/tasks/restart.yml").write_text(restart)
        (collection / "roles/sglang_server/tasks/remove.yml").write_text(yaml.safe_dump(HOOK))
        for hook in ("drain", "join"):
            (folder / f"{hook}.yml").write_text(yaml.safe_dump(HOOK).replace("HOOK", hook))
        self.hooks = {f"sglang_rollout_{hook}": str(folder / f"{hook}.yml") for hook in ("drain", "join")}

    def play(
        self, hosts: dict[str, dict[str, Any]], playbook: str = "site", **common: Any
    ) -> subprocess.CompletedProcess[str]:
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "sglang_engine_version": "0.5.19",
            "sglang_engine_lock": str(ROOT / "tests/engine/lock"),
            "sglang_engine_python": "3.11",
            "sglang_plan_gpu": "none",
            "sglang_model_target": "tiny/k2",
            "sglang_model_lock_dir": str(ROOT / "inventories/locks"),
            "sglang_server_args": {"device": "cpu", "attention_backend": "intel_amx"},
            "log": str(self.log),
            "outcome": "changed",
            "breaks": "",
            "waited": False,
            "quiet": ["unchanged", "not ready"],
            **common,
        }
        (self.folder / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": variables}}))
        empty = self.folder / "ansible.cfg"
        empty.write_text("[defaults]\n")
        return run_playbook(
            "--inventory=inventory.yml",
            f"inferops.serving.{playbook}",
            environment={
                "ANSIBLE_CONFIG": str(empty),
                "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
                "ANSIBLE_LOCAL_TEMP": str(self.folder / "tmp"),
                "ANSIBLE_REMOTE_TEMP": str(self.folder / "tmp"),
            },
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
        )

    @property
    def done(self) -> list[str]:
        """What was done, in order."""
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def outcomes(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The table's hosts with their outcomes."""
    assert "\nhost " in run.stdout, run.stdout + run.stderr
    lines = run.stdout[run.stdout.index("\nhost ") :].strip().split("\n\n")[0].splitlines()[1:]
    rows = [re.split(r"\s{2,}", line) for line in lines]
    return {row[0]: row[3] for row in rows if len(row) == 6}


def test_a_failed_batch_leaves_the_others_alone_and_ends_the_run_as_failed(site: Site) -> None:
    hosts: dict[str, dict[str, Any]] = {"a1": {}, "a2": {"outcome": "failed"}, "a3": {}, "a4": {}}
    run = site.play(hosts)
    assert run.returncode == 2, run.stdout + run.stderr
    assert outcomes(run) == {"a1": "changed", "a2": "failed", "a3": "untouched", "a4": "untouched"}
    assert site.done == ["a1"]
    assert [int(one) for one in re.findall(r"failed=(\d)", run.stdout)] == [0, 1, 0, 0]


def test_some_may_fail_where_that_is_said(site: Site) -> None:
    hosts: dict[str, dict[str, Any]] = {"a1": {}, "a2": {"outcome": "failed"}, "a3": {}, "a4": {}}
    run = site.play(hosts, sglang_rollout_max_fail_percentage=25, sglang_rollout_batches=[1])
    assert run.returncode == 2, run.stdout + run.stderr
    assert site.done == ["a1", "a3", "a4"]


def test_the_canary_is_the_first_host_that_could_be_prepared(site: Site) -> None:
    hosts: dict[str, dict[str, Any]] = {"a1": {"prepares": False}, "a2": {"outcome": "failed"}, "a3": {}, "a4": {}}
    run = site.play(hosts)
    assert run.returncode == 2, run.stdout + run.stderr
    assert outcomes(run) == {"a2": "failed", "a3": "untouched", "a4": "untouched", "a1": "not prepared"}
    assert site.done == []


def test_an_unreachable_host_is_a_failed_one_and_in_the_table(site: Site) -> None:
    run = site.play({"a1": CLOSED, "a2": {}}, **site.hooks)
    assert run.returncode == 2, run.stdout + run.stderr
    assert outcomes(run) == {"a1": "failed", "a2": "untouched"}
    assert site.done == []


@pytest.mark.parametrize(("hook", "done"), [("drain", []), ("join", ["drain a1", "a1"])])
def test_a_gateway_that_cannot_be_reached_stops_the_run(site: Site, hook: str, done: list[str]) -> None:
    tasks = [{"ansible.builtin.ping": None, "delegate_to": "gateway", "vars": CLOSED}]
    (site.folder / f"{hook}.yml").write_text(yaml.safe_dump(tasks))
    run = site.play({"a1": {}, "a2": {}}, **site.hooks)
    assert run.returncode == 4, run.stdout + run.stderr
    assert site.done == done


def test_a_gateway_of_one_host_that_cannot_be_reached_stops_the_next_batch(site: Site) -> None:
    task = {"ansible.builtin.ping": None, "delegate_to": "gateway", "vars": CLOSED}
    (site.folder / "drain.yml").write_text(yaml.safe_dump([{**task, "when": "inventory_hostname == 'a1'"}]))
    run = site.play({"a1": {}, "a2": {}, "a3": {}}, sglang_rollout_batches=[2, 1], **site.hooks)
    assert run.returncode == 4, run.stdout + run.stderr
    assert outcomes(run) == {"a1": "failed", "a2": "changed", "a3": "untouched"}
    assert site.done == ["a2", "join a2"]


def test_only_hosts_that_change_are_in_batches(site: Site) -> None:
    same = {"outcome": "unchanged"}
    run = site.play({"a1": same, "a2": {}, "a3": same, "a4": {"outcome": "failed"}}, **site.hooks)
    assert run.returncode == 2, run.stdout + run.stderr
    assert outcomes(run) == {"a2": "changed", "a4": "failed", "a1": "unchanged", "a3": "unchanged"}
    assert site.done == ["drain a2", "a2", "join a2", "drain a4"]


def test_a_service_that_is_only_waited_for_is_not_drained(site: Site) -> None:
    run = site.play({"a1": {"outcome": "not ready"}, "a2": {}}, **site.hooks)
    assert run.returncode == 2, run.stdout + run.stderr
    assert outcomes(run) == {"a1": "not ready", "a2": "changed"}
    # the canary is a host that changes
    assert site.done == ["drain a2", "a2", "join a2"]


def test_a_host_that_an_earlier_run_left_drained_joins_once_it_answers(site: Site) -> None:
    assert site.play({"a1": {"outcome": "failed"}}, **site.hooks).returncode == 2
    run = site.play({"a1": {"outcome": "not ready", "waited": True}}, **site.hooks)
    assert run.returncode == 0, run.stdout + run.stderr
    assert site.done == ["drain a1", "a1", "join a1"]


@pytest.mark.parametrize(("breaks", "why"), [("before", "no secret in the vault"), ("argument", "Task failed")])
def test_a_host_that_cannot_be_looked_at_fails_in_its_batch_and_says_why(site: Site, breaks: str, why: str) -> None:
    run = site.play({"a1": {}, "a2": {"breaks": breaks}, "a3": {}}, **site.hooks)
    assert run.returncode == 2, run.stdout + run.stderr
    assert outcomes(run) == {"a1": "changed", "a2": "failed", "a3": "untouched"}
    assert [line for line in run.stdout.splitlines() if line.startswith(f"a2: {why}")], run.stdout
    assert site.done == ["drain a1", "a1", "join a1", "drain a2", "join a2"]


@pytest.mark.parametrize("breaks", [{"refuse": ["drain"]}, {"breaks": "alone"}])
def test_an_unchanged_member_of_a_replica_that_fails_before_its_change_joins_again(
    site: Site, breaks: dict[str, Any]
) -> None:
    def node(rank: int, **variables: Any) -> dict[str, Any]:
        args = {"device": "cpu", "attention_backend": "intel_amx", "tp_size": 2}
        args.update(nnodes=2, node_rank=rank, dist_init_addr="10.0.0.1:5000")
        return {"sglang_server_args": args, **variables}

    ethernet = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
    hosts = {"a1": node(0, outcome="unchanged", **breaks), "a2": node(1), "a3": {}}
    run = site.play(hosts, sglang_rollout_batches=[2], sglang_server_env=ethernet, **site.hooks)
    assert run.returncode == 2, run.stdout + run.stderr
    assert outcomes(run) == {"a1": "failed", "a2": "changed", "a3": "untouched"}
    assert sorted(site.done) == ["a2", "drain a1", "drain a2", "join a1", "join a2"]


def test_where_all_is_as_it_shall_be_there_is_no_batch(site: Site) -> None:
    run = site.play({"a1": {}, "a2": {}}, outcome="unchanged")
    assert run.returncode == 0, run.stdout + run.stderr
    assert outcomes(run) == {"a1": "unchanged", "a2": "unchanged"}
    assert site.done == []


def test_a_refused_plan_prepares_nothing(site: Site) -> None:
    run = site.play({"a1": {}, "a2": {"sglang_server_args": {"no_such_flag": 1}}})
    assert run.returncode == 2
    assert "flag-unknown" in run.stdout + run.stderr
    assert "Prepare all hosts" not in run.stdout
    assert site.done == []


def test_a_size_that_is_none_is_said_before_a_service_is_touched(site: Site) -> None:
    run = site.play({"a1": {}}, sglang_rollout_batches=["half"])
    assert run.returncode == 2
    assert "sglang_rollout_batches: 'half' is no size of a batch" in run.stdout + run.stderr
    assert site.done == []


def test_a_gateway_is_told_before_and_after(site: Site) -> None:
    run = site.play({"a1": {}, "a2": {}}, **site.hooks)
    assert run.returncode == 0, run.stdout + run.stderr
    assert site.done == ["drain a1", "a1", "join a1", "drain a2", "a2", "join a2"]


@pytest.mark.parametrize(
    ("host", "done", "said"),
    [
        ({"refuse": ["drain"]}, ["drain a1", "join a1"], "the gateway says no"),
        ({"refuse": ["join"]}, ["drain a1", "a1", "join a1"], "It did not join again: the gateway says no"),
        ({"outcome": "failed"}, ["drain a1"], "The host stays drained."),
    ],
)
def test_what_a_gateway_is_told_of_a_host_that_fails(
    site: Site, host: dict[str, Any], done: list[str], said: str
) -> None:
    run = site.play({"a1": host, "a2": {}}, **site.hooks)
    assert run.returncode == 2, run.stdout + run.stderr
    assert site.done == done
    assert said in " ".join(run.stdout.split())
    assert outcomes(run)["a2"] == "untouched"


def test_a_restart_goes_in_the_same_batches(site: Site) -> None:
    hosts: dict[str, dict[str, Any]] = {"a1": {}, "a2": {"outcome": "failed"}, "a3": {"sglang_server_args": {"no": 1}}}
    run = site.play(hosts, "restart")
    assert run.returncode == 2, run.stdout + run.stderr
    assert outcomes(run) == {"a1": "changed", "a2": "failed", "a3": "untouched"}
    assert site.done == ["restart a1"]


def test_nothing_is_removed_where_nobody_can_be_asked(site: Site) -> None:
    run = site.play({"a1": {}}, "remove")
    assert run.returncode == 2, run.stdout + run.stderr
    assert "Say -e sglang_remove=yes if that is what you want." in " ".join((run.stdout + run.stderr).split())
