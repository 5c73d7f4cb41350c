# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The unit of sglang_server as the role writes it, read by systemd's own tools."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.playbook import run_playbook

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/sglang_server"
EXPOSURE_MAX = 2.5
CANARY = "canary-$HOME-%n-\"quoted\"-'too'-\\n-\nand on"
PLAN: dict[str, Any] = {
    "name": "a",
    "unit": "sglang-a.service",
    "engine_path": "/opt/sglang/engines/e",
    "argv": ["--served-model-name", "100% of $HOME"],
    "url": "http://127.0.0.1:30000",
}


def unit(folder: Path, plan: dict[str, Any], **variables: Any) -> str:
    """The text that the role stages, with the variables of the role as they are."""
    wanted = {"sglang_server_plan": {**PLAN, **plan}, "dest": str(folder / "unit"), **variables}
    template = f"lookup('ansible.builtin.template', '{ROLE}/templates/sglang.service.j2')"
    copy = {"content": f"{{{{ {template} }}}}", "dest": "{{ dest }}", "mode": "0600"}
    files = [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml")]
    tasks = [{"ansible.builtin.copy": copy}]
    play = {"hosts": "localhost", "gather_facts": False, "vars_files": files, "tasks": tasks}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "vars.json").write_text(json.dumps(wanted))
    done = run_playbook(
        "--inventory=localhost,",
        "--connection=local",
        f"--extra-vars=@{folder}/vars.json",
        f"--extra-vars=ansible_python_interpreter={sys.executable}",
        folder / "play.yml",
        environment={"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(folder / "tmp")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "unit").read_text()


def settings(text: str) -> list[str]:
    return [line for line in text.splitlines() if "=" in line and not line.startswith("#")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The unit of a server without secrets."""
    return unit(tmp_path_factory.mktemp("plain"), {})


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The unit of a server with a secret argument, bound to one NUMA node."""
    return unit(
        tmp_path_factory.mktemp("secret"),
        {"secret_args": ["api_key"], "log_level": "debug"},
        sglang_server_secret_args={"api_key": CANARY},
        sglang_server_numa_policy="bind",
        sglang_server_numa_mask="0",
        sglang_server_cpu_affinity="numa",
    )


@pytest.mark.parametrize("which", ["plain", "secret"])
def test_the_exposure_is_low(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path = tmp_path / "sglang-a.service"
    path.write_text(request.getfixturevalue(which).replace("@release@", "/var/lib/sglang/a/releases/1"))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"Overall exposure level for sglang-a\.service: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_MAX, done.stdout
    assert not done.stderr


def test_what_is_not_asked_for_is_not_there(plain: str) -> None:
    for absent in ("NUMA", "CPUAffinity", "Credential", "SGLANG_LOGGING", "--config"):
        assert absent not in plain
    assert "ExecStart=/opt/sglang/engines/e/bin/python -m sglang.launch_server " in plain
    assert '"100%% of $$HOME"' in plain


def test_numa_options_are_written_as_they_are_given(secret: str) -> None:
    assert {"NUMAPolicy=bind", "NUMAMask=0", "CPUAffinity=numa"} <= set(settings(secret))


def test_a_secret_is_named_and_never_written(secret: str) -> None:
    assert "canary" not in secret
    assert "LoadCredential=server.yaml:@release@/secret_args.yaml" in secret
    (start,) = (line for line in settings(secret) if line.startswith("ExecStart="))
    # one dollar sign: this one is for systemd
    assert start.endswith(" --config ${CREDENTIALS_DIRECTORY}/server.yaml")
    assert '"100%% of $$HOME"' in start


def test_the_module_that_would_log_the_arguments_is_quiet_and_the_others_are_not(secret: str) -> None:
    (text,) = (line.partition(":")[2] for line in settings(secret) if line.startswith("SetCredential=logging.json:"))
    logging = json.loads(text)
    assert logging["root"]["level"] == "DEBUG"
    assert logging["loggers"]["sglang.srt.entrypoints.engine"] == {"level": "WARNING"}
    assert "Environment=SGLANG_LOGGING_CONFIG_PATH=%t/credentials/%n/logging.json" in secret


def test_every_cache_is_in_the_directory_that_the_service_keeps(plain: str) -> None:
    (state,) = (line.partition("=")[2] for line in settings(plain) if line.startswith("ReadWritePaths="))
    caches = [line.split("=", 2) for line in settings(plain) if "CACHE" in line or "_HOME=" in line]
    assert len(caches) >= 7
    for _environment, name, path in caches:
        assert path.startswith(f"{state}/"), name
