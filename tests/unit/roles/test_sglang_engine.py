# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role sglang_engine on the controller itself, as root, with an engine of a few bytes in a temporary directory."""

from __future__ import annotations

import json
import os
import re
import sys
import typing as t
from pathlib import Path

import pytest

from tests.unit.plugins.module_utils._engine import engine_venv_kit as kit
from tests.unit.roles.role_play import play_role

ROOT = Path(__file__).resolve().parents[3]


class Site:
    """A playbook, its variables, and the directory that stands for the host's /opt/sglang."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.engines = root / "opt/sglang"
        self.wheelhouse = root / "wheelhouse"
        line = kit.wheel(self.wheelhouse, "sglang", kit.VERSION, {"sglang/__init__.py": ""})
        digest = kit.lock(root / "lock", line)
        self.engine = self.engines / f"engines/{kit.VERSION}-{digest}"
        self.plan = {
            "version": kit.VERSION,
            "lock": str(root / "lock"),
            "digest": digest,
            "path": str(self.engine),
            "python": kit.PYTHON,
            "stand_ins": True,
        }
        self.variables: dict[str, t.Any] = {
            "sglang_plan_result": {"plans": {"localhost": {"engine": self.plan}}},
            "sglang_engine_root": str(self.engines),
            "sglang_engine_interpreter": sys.executable,
            "sglang_engine_wheelhouse": str(self.wheelhouse),
            "sglang_engine_packages": [],
            # This test may run on a machine with a GPU.
            "__sglang_engine_gpu_paths": [str(root / "gpu")],
        }

    def place_uv(self) -> None:
        """Spare the test the installation of uv, which has tests of its own."""
        pinned = re.search(r"uv==(\S+)", (ROOT / "roles/sglang_engine/files/uv.txt").read_text())
        assert pinned
        kit.place_uv(self.engines / f"tools/uv-{pinned[1]}", pinned[1])

    def play(self, *options: str, fails: bool = False) -> tuple[int, str]:
        """Run the playbook. Returns the number of changed tasks and the output."""
        done = play_role(self.root, "sglang_engine", self.variables, *options)
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, output
        changed = re.search(r"changed=(\d+)", done.stdout)
        assert changed, output
        return int(changed[1]), output


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_check_mode_predicts_on_an_empty_host_and_writes_nothing(site: Site) -> None:
    changed, output = site.play("--check", "--diff")
    assert changed == 4
    assert f"+{site.plan['digest']}" in output
    assert not site.engines.exists()


def test_run_and_run_again(site: Site) -> None:
    site.place_uv()
    assert site.play()[0] == 4
    assert (site.engine / "bin/python").exists()
    assert json.loads((site.engine / ".complete").read_text())["digest"] == site.plan["digest"]
    before = sorted((str(entry), entry.lstat().st_mtime_ns) for entry in site.engines.rglob("*"))
    assert site.play()[0] == 0
    assert site.play("--check")[0] == 0
    assert sorted((str(entry), entry.lstat().st_mtime_ns) for entry in site.engines.rglob("*")) == before


def test_an_interrupted_build_is_built_again(site: Site) -> None:
    site.place_uv()
    site.play()
    (site.engine / ".complete").unlink()
    (site.engine / "bin/python").unlink()
    assert site.play("--check")[0] == 1
    assert not (site.engine / "bin/python").exists()
    assert site.play()[0] == 1
    assert (site.engine / ".complete").exists()


def test_packages_that_are_missing_are_predicted(site: Site) -> None:
    site.variables["sglang_engine_packages"] = ["dpkg", "no-such-package"]
    changed, output = site.play("--check")
    assert changed == 5
    assert "To be installed: no-such-package" in output


def test_stand_ins_are_refused_beside_a_gpu_before_anything_is_written(site: Site) -> None:
    (site.root / "gpu").touch()
    for options in ([], ["--check"]):
        output = " ".join(site.play(*options, fails=True)[1].split())
        assert f"this host has an NVIDIA device ({site.root}/gpu)" in output
        assert "sglang_engine_lock" in output
    assert not site.engines.exists()


def test_a_real_engine_is_not_refused_beside_a_gpu(site: Site) -> None:
    (site.root / "gpu").touch()
    site.plan["stand_ins"] = False
    assert site.play("--check")[0] == 4


def test_a_failure_says_which_package_and_why_and_no_password(site: Site) -> None:
    site.place_uv()
    kit.wheel(site.wheelhouse, "sglang", kit.VERSION, {"sglang/__init__.py": "tampered = True\n"})
    site.variables["sglang_engine_index_url"] = "https://user:canary@mirror.example/simple"
    output = site.play("-vvv", fails=True)[1]
    assert "failed while installing the locked wheels" in output
    assert f"sglang=={kit.VERSION}" in output
    assert "hash" in output.lower()
    assert output.count("canary") == 0
    assert not (site.engine / ".complete").exists()


@pytest.mark.parametrize(
    ("interpreter", "stand_ins", "wanted"),
    [
        ("python3.12", False, {"python3.12", "python3.12-dev", "gcc", "libc6-dev", "libnuma1"}),
        ("/usr/local/bin/python3.12", False, {"gcc", "libc6-dev", "libnuma1"}),
        ("python3.11", True, {"python3.11"}),
    ],
)
def test_packages_follow_from_interpreter_and_lock(
    site: Site, interpreter: str, stand_ins: bool, wanted: set[str]
) -> None:
    del site.variables["sglang_engine_packages"]
    site.variables["sglang_engine_interpreter"] = interpreter
    site.plan["stand_ins"] = stand_ins
    # nothing is installed below an empty dpkg database, so that all of them are missing
    (site.root / "dpkg").mkdir()
    (site.root / "dpkg/status").touch()
    os.environ["DPKG_ADMINDIR"] = str(site.root / "dpkg")
    try:
        output = site.play("--check")[1]
    finally:
        del os.environ["DPKG_ADMINDIR"]
    missing = re.search(r"To be installed: ([^']+)'", output)
    assert missing, output
    assert set(re.split(r",\s+", missing[1])) == {"ca-certificates", "python3-venv", *wanted}
