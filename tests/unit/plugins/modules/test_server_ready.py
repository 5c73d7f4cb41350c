# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it, beside the fake server; systemctl and journalctl are scripts of the test's own."""

from __future__ import annotations

import json
import os
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._sglang.command_line import config_text

from tests.engine import fake_server
from tests.engine.loopback import free_port
from tests.module import run_module
from tests.unit.engine_kit.test_fake_server import NAME, fake

ROOT = Path(__file__).resolve().parents[4]
RUNNING = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "InvocationID": "one"}
FAILED = {**RUNNING, "ActiveState": "failed", "SubState": "failed", "ExecMainCode": "1", "ExecMainStatus": "1"}
TRACEBACK = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "OSError: no drafter"]
Result = dict[str, t.Any]


class Host:
    """A host whose unit is what a file says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.engine = folder / "python"
        self._script(self.engine, fake_server.script(sys.executable))
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        self._script(bin_folder / "systemctl", f"#!/bin/sh\ncat {folder}/unit\n")
        self._script(bin_folder / "journalctl", f'#!/bin/sh\n[ "$1" = --sync ] || cat {folder}/journal\n')
        self.is_now(RUNNING)
        lines = [{"MESSAGE": line, "_PID": "7", "_SYSTEMD_INVOCATION_ID": "one"} for line in ["loading", *TRACEBACK]]
        (folder / "journal").write_text("".join(json.dumps(line) + "\n" for line in lines))

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def is_now(self, unit: dict[str, str]) -> None:
        """Change the unit, for a reader at once as a whole."""
        new = self.folder / "unit.new"
        new.write_text("".join(f"{name}={value}\n" for name, value in unit.items()))
        new.rename(self.folder / "unit")

    def run(self, **arguments: t.Any) -> Result:
        """The module's result."""
        wanted = {"unit": "sglang-a.service", "url": f"http://127.0.0.1:{self.port}", "timeout": 20, **arguments}
        return run_module("server_ready", wanted, environment={"PATH": f"{self.folder}/bin:{os.environ['PATH']}"})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def phases(result: Result) -> list[str]:
    return [step["phase"] for step in result["timeline"]]


def test_from_a_closed_port_to_an_answer(host: Host) -> None:
    with fake(host.engine, host.port, FAKE_LOAD_SECONDS="1", FAKE_WARMUP_SECONDS="1.5", FAKE_ACCEPT_LENGTH="2.3"):
        result = host.run(served_model_name=NAME, speculative=True, accept_length_min=2.0)
    assert (result["ready"], result["changed"], result["model"]) == (True, False, NAME)
    assert phases(result) == ["loading", "warming up", "ready"]
    assert result["answer"].split()[:4] == ["once", "upon", "a", "time"]
    assert result["accept_length"] == pytest.approx(2.3)
    assert result["server_info"]["speculative_algorithm"] == "EAGLE3"
    assert result["unit_state"]["SubState"] == "running"


def test_what_the_server_does_not_show_fails(host: Host) -> None:
    with fake(host.engine, host.port, drafter=False):
        result = host.run(served_model_name="another")
        assert result["cause"] == f"the server serves {NAME}, not another"
        result = host.run(speculative=True)
        assert result["cause"] == "the server runs without speculation"
    assert result["msg"].endswith("the server runs without speculation. More: journalctl -u sglang-a.service")


def test_a_server_plan_of_speculation_is_held_against_the_server(host: Host) -> None:
    planned = {"algorithm": "EAGLE3", "steps": 1, "topk": 1, "draft_tokens": 2}
    with fake(host.engine, host.port):
        good = host.run(speculative=True, speculation=planned, tool_calls=True, json_schema=True, throughput_min=1.0)
        bad = host.run(speculative=True, speculation={**planned, "steps": 3})
    assert good["ready"], good
    names = ["model", "generation", "tool call", "json", "server info", "accept length", "throughput"]
    assert [step["step"] for step in good["steps"]] == names
    assert good["throughput"] > 1
    assert bad["step"] == "server info"
    assert bad["cause"].endswith("speculative_num_steps is 1, planned is 3")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"FAKE_TEXT": "!"}, "the server generates one token 64 times"),
        ({"FAKE_CHAT_STATUS": "500"}, "/v1/chat/completions gave status 500"),
        ({"FAKE_SERVER_INFO": '{"speculative_algorithm": null}'}, "the server runs without speculation"),
        ({"FAKE_ACCEPT_LENGTH": "1.03"}, "the accept length is 1.03, below 1.5: the drafter does not help"),
    ],
)
def test_a_fault_of_the_server(host: Host, environment: dict[str, str], words: str) -> None:
    with fake(host.engine, host.port, True, None, **environment):
        assert host.run(speculative=True, accept_length_min=1.5, tool_calls=True)["cause"] == words


def test_documents_are_returned_for_expectations_without_secrets(host: Host) -> None:
    expect = [{"name": "a", "query": "server_info.version", "equals": "x"}]
    with fake(host.engine, host.port, FAKE_SERVER_INFO='{"api_key": "s3cret"}'):
        result = host.run(expect=expect)
    assert set(result["documents"]) == {"server_info", "models", "generation"}
    assert "s3cret" not in json.dumps(result)


def test_a_proof_is_taken_up_where_the_slice_left_it(host: Host) -> None:
    with fake(host.engine, host.port):
        first = host.run(slice=0.0, timeout=20)
        while not first.get("proof"):
            first = host.run(slice=0.0, invocation_id="one")
        assert not first["ready"]
        assert [step["step"] for step in first["proof"]["steps"]] == ["model"]
        last = host.run(slice=10, invocation_id="one", proof=first["proof"])
    assert [step["step"] for step in last["steps"]] == ["model", "generation", "server info"]


def test_a_unit_that_has_failed_fails_with_its_reason(host: Host) -> None:
    host.is_now(FAILED)
    result = host.run(timeout=3600)
    assert (result["failed"], result["ready"]) == (True, False)
    assert result["cause"] == "the server ended with exit status 1: OSError: no drafter"
    assert result["traceback"].splitlines() == TRACEBACK
    assert result["journal"] == ["loading", *TRACEBACK]
    assert result["unit_state"] == FAILED


def test_slices_know_of_each_other(host: Host) -> None:
    first = host.run(slice=0.5)
    assert (first["ready"], first["phase"], first["invocation_id"]) == (False, "loading", "one")
    assert "failed" not in first
    host.is_now({**RUNNING, "InvocationID": "two"})
    again = host.run(slice=0.5, waited=0.5, invocation_id=first["invocation_id"])
    assert again["cause"] == "the unit was started again while it was watched: OSError: no drafter"


def test_the_whole_time_is_named_when_it_is_over(host: Host) -> None:
    result = host.run(timeout=60, slice=10, waited=59.5)
    assert result["cause"] == "still loading after 60 s"


def test_check_mode_looks_once_and_does_not_fail(host: Host) -> None:
    waiting = host.run(_ansible_check_mode=True, timeout=3600)
    assert (waiting["ready"], phases(waiting)) == (False, ["loading"])
    host.is_now({"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"})
    absent = host.run(_ansible_check_mode=True)
    assert (absent["changed"], absent["cause"]) == (False, "the unit is not there")
    assert "failed" not in absent


def test_a_health_timeout_that_the_engine_cannot_keep(host: Host) -> None:
    assert "at least 5 seconds" in host.run(health_timeout=4)["msg"]


def test_the_api_key_is_read_from_its_file_and_is_in_no_result(host: Host) -> None:
    key = 'canary-"quoted"-$HOME'
    secret_args = host.folder / "secret_args.yaml"
    secret_args.write_text(config_text({"api_key": key}))
    with fake(host.engine, host.port, config=secret_args):
        refused = host.run()
        result = host.run(secret_args_file=str(secret_args), prompt=key)
        missing = host.run(secret_args_file=str(host.folder / "none"))
    assert "/v1/models gave status 401" in refused["msg"]
    assert result["ready"] is True
    assert "canary" not in json.dumps(result)
    assert missing["msg"].startswith("The API key cannot be read: ")
