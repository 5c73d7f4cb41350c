# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it; systemctl and systemd-analyze are scripts that keep what they were told."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest

from tests.module import run_module

ROOT = Path(__file__).resolve().parents[4]
UNIT = "sglang-a.service"
REHEARSAL = "sglang-a-rehearsal.service"
TEXT = "[Service]\nEnvironmentFile=@release@/environment\nExecStart=/bin/engine -m sglang.launch_server --port {port}\n"
CANARY = "canary-81c0"
RUNNING = "ActiveState=active\nSubState=running\nUnitFileState=enabled\nNeedDaemonReload=no\n"
Result = dict[str, t.Any]


class Host:
    """The directories of a service, and a systemd that does as it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.installed = folder / "units" / UNIT
        self.installed.parent.mkdir()
        (folder / "bin").mkdir()
        self.state("ActiveState=inactive\nSubState=dead\nUnitFileState=\n")
        self._script(
            "systemctl",
            f'case "$1 $*" in\n'
            f"""start*{REHEARSAL}) cat {folder}/verdict >"$(sed -n s/^StandardOutput=file://p {folder}/run/"$2")";;\n"""
            f"*{REHEARSAL}) ;;\n"
            f"show*) cat {folder}/state;;\n"
            f'*) echo "$*" >> {folder}/told;;\n'
            "esac",
        )
        self.verifies(True)
        self.judges(ok=True)

    def _script(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def state(self, text: str) -> None:
        (self.folder / "state").write_text(text)

    def verifies(self, good: bool) -> None:
        self._script("systemd-analyze", "exit 0" if good else "echo Unknown key >&2; exit 1")

    def judges(self, **verdict: t.Any) -> None:
        """What the engine says in a rehearsal."""
        (self.folder / "verdict").write_text(f"inferops-verdict:{json.dumps(verdict)}\n")

    def told(self) -> list[str]:
        """What systemctl was told since the last question."""
        path = self.folder / "told"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def run(self, state: str, check: bool = False, **arguments: t.Any) -> Result:
        wanted = {
            "state": state,
            "home": str(self.home),
            "unit": UNIT,
            "unit_dir": str(self.installed.parent),
            "runtime_unit_dir": str(self.folder / "run"),
            "run": "run-1",
            "_ansible_check_mode": check,
            **arguments,
        }
        path = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        result = run_module("server_release", wanted, environment=path)
        assert CANARY not in json.dumps(result)
        return result

    def stage(
        self, port: int = 1, environment: str = f'KEY="{CANARY}"\n', check: bool = False, secret_args: str = ""
    ) -> Result:
        content = {"unit_text": TEXT.format(port=port), "environment": environment, "secret_args": secret_args}
        return self.run("staged", check, plan={"argv": ["--port", str(port)]}, **content)

    def deploy(self, port: int, environment: str = f'KEY="{CANARY}"\n', keep: int = 5) -> int:
        """Stage, switch and accept, as the role does."""
        number: int = self.stage(port, environment)["release"]
        self.run("switched", release=number)
        self.state(RUNNING)
        self.run("accepted", release=number, keep_releases=keep, accept_length=2.0)
        return number

    def listing(self) -> list[tuple[str, int]]:
        return sorted((str(path), path.lstat().st_mtime_ns) for path in self.folder.rglob("*"))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_check_mode_says_what_would_be_and_writes_nothing(host: Host) -> None:
    before = host.listing()
    result = host.stage(check=True)
    assert (result["changed"], result["release"], result["action"]) == (True, 1, "restart")
    assert host.run("switched", check=True, release=1)["changed"]
    assert host.run("accepted", check=True, release=1)["changed"]
    assert host.listing() == before


def test_staging_touches_neither_the_service_nor_the_pointers(host: Host) -> None:
    assert host.stage()["changed"]
    assert set(host.told()) <= {"daemon-reload"}
    assert not host.installed.exists()
    release = host.home / "releases/1"
    assert not (host.home / "current").is_symlink()
    assert (release / "environment").stat().st_mode & 0o777 == 0o600
    assert json.loads((release / "plan.json").read_text()) == {"argv": ["--port", "1"]}


def test_switched_and_accepted_and_then_nothing_to_do(host: Host) -> None:
    host.deploy(1)
    assert host.installed.read_text() == (host.home / "current/unit").read_text()
    assert f"EnvironmentFile={host.home}/releases/1/environment" in host.installed.read_text()
    assert host.told()[-4:] == ["daemon-reload", f"enable --quiet {UNIT}", f"reset-failed {UNIT}", f"restart {UNIT}"]
    assert json.loads((host.home / "current/accepted").read_text())["accept_length"] == 2.0
    before = host.listing()
    again = host.stage()
    assert (again["changed"], again["action"], again["accepted"], again["release"]) == (False, "", True, 1)
    assert host.listing() == before


def test_a_change_is_a_new_release_and_the_accepted_one_becomes_the_previous(host: Host) -> None:
    host.deploy(1)
    host.deploy(2)
    assert os.readlink(host.home / "current") == "releases/2"
    assert os.readlink(host.home / "previous") == "releases/1"
    # 3 is never accepted, so it is not what a restore would go back to
    host.run("switched", release=host.stage(3)["release"])
    host.run("switched", release=host.stage(4)["release"])
    assert (os.readlink(host.home / "current"), os.readlink(host.home / "previous")) == ("releases/4", "releases/2")


def test_the_difference_names_what_changed_in_the_environment_and_no_value(host: Host) -> None:
    host.deploy(1, f'KEY="{CANARY}"\nOLD="x"\n')
    result = host.stage(2, f'KEY="{CANARY} and\nB=more"\nNEW="x"\n')
    argv, names = result["diff"][1:]
    assert (argv["before"], argv["after"]) == ("--port\n1\n", "--port\n2\n")
    assert (names["before"], names["after"]) == ("KEY\nOLD\n", "KEY (another value)\nNEW\n")


def test_secret_arguments_are_a_file_of_root_and_only_their_names_are_shown(host: Host) -> None:
    host.run("switched", release=host.stage(secret_args=json.dumps({"api-key": CANARY}))["release"])
    path = host.home / "current/secret_args.yaml"
    assert json.loads(path.read_text()) == {"api-key": CANARY}
    assert path.stat().st_mode & 0o777 == 0o600
    host.state(RUNNING)
    assert host.stage(secret_args=path.read_text())["changed"] is False
    other = host.stage(secret_args=json.dumps({"api-key": f"{CANARY}2", "admin-api-key": CANARY}))
    (names,) = other["diff"]
    assert (names["before"], names["after"]) == ("api-key\n", "admin-api-key\napi-key (another value)\n")
    none = host.stage()
    assert none["changed"] is True
    assert not (host.home / f"releases/{none['release']}/secret_args.yaml").exists()


def test_old_releases_go_and_the_current_and_the_previous_stay(host: Host) -> None:
    for port in range(1, 5):
        host.deploy(port, keep=1)
    assert sorted(path.name for path in (host.home / "releases").iterdir()) == ["3", "4"]


def test_a_unit_that_systemd_refuses_is_not_staged(host: Host) -> None:
    host.deploy(1)
    host.told()
    host.verifies(False)
    result = host.stage(2)
    assert result["failed"]
    assert result["msg"] == f"{UNIT}: systemd refuses the unit: Unknown key"
    assert [path.name for path in (host.home / "releases").iterdir()] == ["1"]
    assert host.told() == []


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (RUNNING.replace("Reload=no", "Reload=yes"), "restart"),
        (RUNNING.replace("running", "auto-restart"), "restart"),
        (RUNNING.replace("running", "failed"), "start"),
        (RUNNING.replace("enabled", "disabled"), "enable"),
    ],
)
def test_what_the_service_needs(host: Host, state: str, action: str) -> None:
    host.deploy(1)
    host.state(state)
    result = host.stage()
    assert (result["changed"], result["action"]) == (False, action)


def test_an_edited_unit_is_installed_again(host: Host) -> None:
    host.deploy(1)
    host.installed.write_text("edited")
    assert host.stage()["action"] == "restart"


def test_a_run_that_ended_before_the_restart_is_made_up_for(host: Host) -> None:
    host.deploy(1)
    (host.home / "current/started").unlink()
    result = host.stage()
    assert (result["changed"], result["action"]) == (False, "restart")


def test_what_an_interrupted_staging_left_is_no_release(host: Host) -> None:
    (host.home / "releases/.staging").mkdir(parents=True)
    (host.home / "releases/.staging/unit").write_text("half")
    assert host.deploy(1) == 1
    assert "half" not in host.installed.read_text()


def test_evidence_that_cannot_be_kept_is_no_obstacle_and_is_said(host: Host) -> None:
    first, second = host.deploy(1), host.deploy(2)
    (host.home / "evidence").write_text("no folder")
    result = host.run("failed", release=second, cause="no drafter")
    assert (result["fallback"], result["evidence"]) == (first, None)
    assert "The evidence cannot be kept" in json.dumps(result["warnings"])
