# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bench measures what it says it measures. How long that takes is no matter for a test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.inferops.serving.plugins.module_utils._sglang.findings import rules

from tools import bench


def play(inventory: Path, path: Path) -> subprocess.CompletedProcess[str]:
    command = bench.playbook(inventory, path)
    return subprocess.run(command, cwd=bench.ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_the_plan_passes_an_inventory_of_the_bench(tmp_path: Path) -> None:
    run = play(bench.make_inventory(tmp_path / "inventory", 3), bench.ROOT / "playbooks/plan.yml")
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.findall(r"^(gpu\d+): SGLang 0\.5\.23", run.stdout, re.MULTILINE) == ["gpu0001", "gpu0002", "gpu0003"]
    assert re.findall(r"--port (\d+)", run.stdout) == ["30001", "30002", "30003"]


def test_the_plan_refuses_the_faulty_hosts_and_no_others(tmp_path: Path) -> None:
    run = play(bench.make_inventory(tmp_path / "inventory", 6, 2), bench.ROOT / "playbooks/plan.yml")
    assert run.returncode == 2
    assert "The plan refuses 3 of 6 hosts for 3 problems." in run.stdout
    refused = re.findall(r"^ *REFUSED (\S+) on (.*)", run.stdout + run.stderr, re.MULTILINE)
    assert set(refused) == {("spec-steps-missing", name) for name in ("gpu0002", "gpu0004", "gpu0006")}


@pytest.mark.parametrize("in_one_task", [False, True])
def test_the_asserts_judge_as_the_plan_does(tmp_path: Path, in_one_task: bool) -> None:
    path = tmp_path / "asserts.yml"
    path.write_text(yaml.safe_dump(bench.assert_play(in_one_task)))
    assert play(bench.make_inventory(tmp_path / "good", 2), path).returncode == 0
    run = play(bench.make_inventory(tmp_path / "faulty", 2, 2), path)
    assert re.findall(r"^(gpu\d+) .*failed=1", run.stdout, re.MULTILINE) == ["gpu0002"]


def test_the_asserts_are_rules_of_the_planner() -> None:
    named = [row["rule"] for row in bench.assert_rules()]
    assert len(named) == 11
    assert set(named) <= set(rules())


def test_peers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def measure(peer: bench.Peer) -> bench.Run:
        order.append(peer.name)
        return bench.Run(len(order), 0.0)

    monkeypatch.setattr(bench, "measure", measure)
    found = bench.alternate([bench.Peer("a", (), 3), bench.Peer("b", (), 2)])
    assert order == ["a", "b", "a", "b", "a"]
    assert bench.figures(found["a"]) == ("3.00", "1.00 to 5.00", "0.00", "3")


def test_a_peer_that_fails_is_no_measurement() -> None:
    assert bench.measure(bench.Peer("three", (sys.executable, "-c", "exit(3)"), 1, status=3)).wall > 0
    with pytest.raises(RuntimeError, match="three: exit status 3\nwhy"):
        bench.measure(bench.Peer("three", (sys.executable, "-c", "print('why'); exit(3)"), 1))
