# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan as an operator meets it: real ansible-playbook runs against hosts that do not exist."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.playbook import run_playbook

ROOT = Path(__file__).resolve().parents[4]
VARS = ROOT / "inventories/ct200/group_vars/all.yml"
SPEC = {"tp_size": 8, "speculative_algorithm": "EAGLE3"}


class Site:
    """Runs site.yml with an ssh that reaches nothing and notes that it was called."""

    def __init__(self, folder: Path) -> None:
        self.called = folder / "ssh-was-called"
        self.ssh = folder / "ssh"
        self.ssh.write_text(f"#!/bin/sh\ntouch {self.called}\necho 'no such host' >&2\nexit 255\n")
        self.ssh.chmod(0o755)

    def __call__(self, inventory: Path | str, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {"ANSIBLE_SSH_EXECUTABLE": str(self.ssh)}
        return run_playbook("-i", inventory, "site.yml", "--check", *words, environment=environment)


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("ssh"))


def extra(args: dict[str, Any]) -> tuple[str, str]:
    return "-e", json.dumps({"sglang_server_args": args})


@pytest.mark.parametrize(
    ("numbers", "missing", "lines"),
    [
        (
            {"speculative_num_draft_tokens": 3, "speculative_eagle_topk": 4},
            "without speculative_num_steps",
            ["speculative_num_steps: 2", "speculative_eagle_topk: 4", "speculative_num_draft_tokens: 3"],
        ),
        (
            {"speculative_num_draft_tokens": 3},
            "without speculative_num_steps and without speculative_eagle_topk",
            ["speculative_num_steps: 2", "speculative_eagle_topk: 1", "speculative_num_draft_tokens: 3"],
        ),
        (
            {"speculative_num_draft_tokens": 3, "speculative_num_steps": 1},
            "speculative_eagle_topk is missing",
            ["speculative_num_steps: 1", "speculative_eagle_topk: 1", "speculative_num_draft_tokens: 2"],
        ),
    ],
)
def test_the_incident_stops_before_any_connection(
    site: Site, numbers: dict[str, int], missing: str, lines: list[str]
) -> None:
    run = site("inventories/ct200", *extra({**SPEC, **numbers}))
    assert run.returncode != 0
    assert "UNREACHABLE" not in run.stdout + run.stderr
    assert not site.called.exists()
    text = " ".join(run.stdout.split())
    assert missing in text
    assert "<CLI option '-e'>" in text
    assert all(line in run.stdout for line in lines)


def test_the_mended_incident_passes_the_plan_and_is_told_of_the_rewriting(site: Site) -> None:
    numbers = {"speculative_num_draft_tokens": 3, "speculative_num_steps": 1, "speculative_eagle_topk": 1}
    run = site("inventories/ct200", *extra({**SPEC, **numbers}))
    assert "rewrites speculative_num_draft_tokens from 3 to 2" in " ".join(run.stdout.split())
    # the plan let it through: what fails is the connection to a host that does not exist
    assert "UNREACHABLE" in run.stdout
    assert site.called.exists()


@pytest.fixture
def two_hosts(tmp_path: Path) -> Path:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text(VARS.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/a1.yml").write_text(
        "---\nsglang_server_args:\n  tp_size: 8\n  speculative_algorithm: EAGLE3\n  speculative_num_draft_tokens: 3\n"
    )
    (tmp_path / "host_vars/a2.yml").write_text(
        "---\nsglang_server_args:\n  tp_size: '{{ ranks }}'\n  speculative_algorithm: EAGLE3\nranks: eight\n"
    )
    (tmp_path / "hosts.yml").write_text(
        "all: {hosts: {a1: {ansible_host: a1.invalid}, a2: {ansible_host: a2.invalid}}}\n"
    )
    return tmp_path


def test_two_hosts_with_different_mistakes_are_told_in_one_run(site: Site, two_hosts: Path) -> None:
    run = site(two_hosts)
    assert run.returncode != 0
    assert "UNREACHABLE" not in run.stdout + run.stderr
    assert not site.called.exists()
    assert "spec-steps-missing on a1" in run.stdout
    assert f"{two_hosts}/host_vars/a1.yml:5:33" in run.stdout
    assert "flag-value on a2" in run.stdout
    assert f"{two_hosts}/host_vars/a2.yml:3:12" in run.stdout


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("sglang_server_args:\n  tp_size: 8\n  api_key: canary\n", "flag-holds-secret"),
        ("sglang_server_secret_args:\n  ssl_keyfile_password: canary\n  api_key: -canary\n", "secret-arg-value"),
        (
            'sglang_server_secret_args:\n  a: canary\n  api_key: \'{{ lookup("file", "/none") }}\'\n',
            "variable-undefined",
        ),
    ],
)
def test_where_a_secret_is_wrong_is_shown_and_the_secret_is_not(
    site: Site, two_hosts: Path, written: str, rule: str
) -> None:
    (two_hosts / "host_vars/a1.yml").write_text(f"---\n{written}")
    (two_hosts / "host_vars/a2.yml").write_text("---\n{}\n")
    run = site(two_hosts, "-vvv")
    assert run.returncode != 0
    assert f"{rule} on a1" in run.stdout
    assert f"{two_hosts}/host_vars/a1.yml:" in run.stdout
    assert "canary" not in run.stdout + run.stderr


def test_an_undefined_variable_is_reported_with_the_rest(site: Site, two_hosts: Path) -> None:
    (two_hosts / "host_vars/a2.yml").write_text("---\nsglang_server_name: '{{ no_such_variable }}'\n")
    run = site(two_hosts)
    assert "spec-steps-missing on a1" in run.stdout
    assert "variable-undefined on a2" in run.stdout
    assert "no_such_variable" in run.stdout


def test_a_host_may_refer_to_another_one(site: Site, two_hosts: Path) -> None:
    args = {"tp_size": 8, "served_model_name": "{{ hostvars['a2'].ansible_host }}-{{ inventory_hostname }}"}
    for host in ("a1", "a2"):
        (two_hosts / f"host_vars/{host}.yml").write_text(json.dumps({"sglang_server_args": args}))
    run = site(two_hosts)
    text = " ".join(run.stdout.split())
    assert "--served-model-name a2.invalid-a1" in text
    assert "--served-model-name a2.invalid-a2" in text


def own_playbook(folder: Path, inventory: Path, *tasks: str) -> subprocess.CompletedProcess[str]:
    playbook = folder / "own.yml"
    lines = ["- hosts: all", "  gather_facts: false", "  tasks:", *(f"    - {task}" for task in tasks)]
    playbook.write_text("\n".join(lines) + "\n")
    return run_playbook("-i", inventory, playbook)


def test_programs_get_problems_and_plans(two_hosts: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("own")
    run = own_playbook(
        folder,
        two_hosts,
        "{inferops.serving.plan: {refuse: false}, run_once: true, register: planned}",
        f"{{ansible.builtin.copy: {{content: '{{{{ planned | to_json }}}}', dest: {folder}/planned.json}},"
        " run_once: true, delegate_to: localhost}",
    )
    assert run.returncode == 0, run.stdout + run.stderr
    planned = json.loads((folder / "planned.json").read_text())
    assert planned["refused"] is True
    assert {problem["rule"] for problem in planned["problems"] if problem["stops"]} == {
        "spec-steps-missing",
        "flag-value",
    }
    assert set(planned["plans"]) == {"a1", "a2"}
    assert planned["plans"]["a1"]["server"]["unit"] == "sglang-kimi.service"


def test_the_action_alone_fails_at_the_operators_line(
    two_hosts: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = own_playbook(tmp_path_factory.mktemp("own"), two_hosts, "{inferops.serving.plan: {}, run_once: true}")
    assert run.returncode != 0
    assert f"Origin: {two_hosts}/host_vars/a1.yml:5:33" in run.stdout + run.stderr


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Two hosts with nothing wrong."""
    (tmp_path / "inventory/group_vars").mkdir(parents=True)
    text = (ROOT / "inventories/cluster/group_vars/all.yml").read_text(encoding="utf-8")
    (tmp_path / "inventory/group_vars/all.yml").write_text(text, encoding="utf-8")
    (tmp_path / "inventory/hosts.yml").write_text("all: {hosts: {b1: {}, b2: {}}}\n")
    return tmp_path / "inventory"


def plan_playbook(inventory: Path, *words: str) -> str:
    run = run_playbook("-i", inventory, "playbooks/plan.yml", "--diff", *words)
    return run.stdout + run.stderr


def test_the_last_plan_is_kept_and_compared_with(fleet: Path) -> None:
    saved = fleet / ".sglang_plan.json"
    assert "changed=1" in plan_playbook(fleet, "--check")
    assert not saved.exists()
    assert "changed=1" in plan_playbook(fleet)
    assert set(json.loads(saved.read_text())["hosts"]) == {"b1", "b2"}
    assert "changed=0" in plan_playbook(fleet)

    (fleet / "host_vars").mkdir()
    (fleet / "host_vars/b2.yml").write_text("sglang_server_args: {tp_size: 8, port: 31000}\n")
    before = saved.read_text()
    told = plan_playbook(fleet, "--check", "--limit", "b2")
    assert '-        "port": 30000,' in told
    assert '+        "port": 31000,' in told
    assert saved.read_text() == before
    plan_playbook(fleet, "--limit", "b2")
    hosts = json.loads(saved.read_text())["hosts"]
    assert [hosts[host]["server"]["port"] for host in ("b1", "b2")] == [30000, 31000]


def test_a_refused_plan_is_not_kept(fleet: Path) -> None:
    assert "REFUSED" in plan_playbook(fleet, *extra({"tp_size": 8, "no_such_flag": 1}))
    assert not (fleet / ".sglang_plan.json").exists()


@pytest.mark.parametrize("name", ["", "no-such-folder/plan.json"])
def test_a_run_does_not_need_a_place_for_the_plan(fleet: Path, name: str) -> None:
    told = plan_playbook(fleet, "-e", f"sglang_plan_file={name}")
    assert "failed=0" in told
    assert ("The plan is not saved" in told) is bool(name)
    assert not list(fleet.glob(".*"))
