# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake server looks to a client like the real one, whose recorded answers are the fixtures."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from tests.engine import fake_server, real_server, record
from tests.engine.loopback import free_port
from tests.engine.server_flags import ONE_GUESS, SERVER_ARGS

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/engine"
RECORDED = {path.stem: json.loads(path.read_text()) for path in FIXTURES.glob("*.json")}
NAME = "tiny-k2"


@contextlib.contextmanager
def fake(
    executable: Path, port: int, drafter: bool = True, config: Path | None = None, **environment: str
) -> t.Iterator[subprocess.Popen[str]]:
    """The server in the place of an engine's Python, with the command line of the real one."""
    args: dict[str, t.Any] = {"model_path": "/srv/k2", "served_model_name": NAME, "port": port, **SERVER_ARGS}
    if drafter:
        args |= {**ONE_GUESS, "speculative_draft_model_path": "/srv/good"}
    if config:
        args["config"] = str(config)
    quick = {"FAKE_LOAD_SECONDS": "0", "FAKE_WARMUP_SECONDS": "0", **environment}
    process = subprocess.Popen(
        [str(executable), "-m", "sglang.launch_server", *real_server.flags(args)],
        env=os.environ | quick,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_port(port: int) -> None:
    for _attempt in range(400):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        time.sleep(0.02)
    raise AssertionError("the fake server does not listen")


@pytest.fixture(scope="module")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engine") / "python"
    path.write_text(fake_server.script(sys.executable))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def answers(executable: Path) -> dict[str, t.Any]:
    """What the fake answers where the real server was asked the same."""
    port = free_port()
    with fake(executable, port):
        wait_for_port(port)
        return record.answers(lambda path, document: real_server.ask(port, path, document), NAME)


def shape(value: t.Any) -> t.Any:
    """Keys and types of a JSON value; whole and broken numbers are both numbers."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


@pytest.mark.parametrize("name", sorted(RECORDED.keys() - {"start", "completions", "chat_completions"}))
def test_answer_has_keys_and_types_of_the_real_one(answers: dict[str, t.Any], name: str) -> None:
    assert shape(answers[name]) == shape(RECORDED[name])


@pytest.mark.parametrize("name", ["completions", "chat_completions"])
def test_openai_answer_has_keys_and_types_of_the_real_one(answers: dict[str, t.Any], name: str) -> None:
    real = shape(RECORDED[name])
    # Which weights gave which tokens, for servers whose weights are exchanged while they run.
    del real["body"]["metadata"]["weight_versions"]
    assert shape(answers[name]) == real


def test_speculation_figures_are_those_of_the_real_good_drafter(answers: dict[str, t.Any]) -> None:
    for name in ("generate", "generate_long"):
        keys = ("spec_accept_length", "spec_accept_rate", "spec_verify_ct", "completion_tokens", "prompt_tokens")
        fake_meta, real_meta = (found[name]["body"]["meta_info"] for found in (answers, RECORDED))
        assert [fake_meta[key] for key in keys] == [real_meta[key] for key in keys]
    for name in ("metrics", "metrics_measured"):
        for gauge in ("accept_length", "accept_rate", "num_steps", "num_draft_tokens"):
            metric = f"sglang:spec_{gauge}"
            assert answers[name]["body"][metric] == RECORDED[name]["body"][metric]


def test_health_on_the_way_to_ready_is_that_of_the_real_server(executable: Path) -> None:
    port = free_port()
    with fake(executable, port, FAKE_LOAD_SECONDS="0.3", FAKE_WARMUP_SECONDS="0.3"):
        seen: list[int] = []
        while not seen or seen[-1] != 200:
            begin = time.monotonic()
            status = real_server.ask(port, "/health")[0]
            took = time.monotonic() - begin
            seen += [status] if not seen or seen[-1] != status else []
            time.sleep(0.02)
    assert seen == RECORDED["start"] == [0, 503, 200]
    assert took >= fake_server.HEALTH_SECONDS


def test_without_speculation_there_are_no_figures_of_it(executable: Path) -> None:
    port = free_port()
    with fake(executable, port, drafter=False):
        wait_for_port(port)
        found = record.answers(lambda path, document: real_server.ask(port, path, document), NAME)
    assert found["server_info_measured"]["body"]["speculative_algorithm"] is None
    assert "avg_spec_accept_length" not in found["server_info_measured"]["body"]["internal_states"][0]
    assert not [key for key in found["generate"]["body"]["meta_info"] if key.startswith("spec_")]


def test_accept_length_is_the_wanted_one(executable: Path) -> None:
    port = free_port()
    with fake(executable, port, FAKE_ACCEPT_LENGTH="1.25"):
        wait_for_port(port)
        found = record.answers(lambda path, document: real_server.ask(port, path, document), NAME)
    assert found["server_info_measured"]["body"]["internal_states"][0]["avg_spec_accept_length"] == 1.25
    assert found["generate_long"]["body"]["meta_info"]["spec_accept_length"] == 1.25
    assert found["metrics_measured"]["body"]["sglang:spec_accept_length"] == 1.25


@pytest.mark.parametrize(("code", "ended"), [("3", 3), ("-9", -signal.SIGKILL)])
def test_fails_when_told_to(executable: Path, code: str, ended: int) -> None:
    with fake(executable, free_port(), FAKE_EXIT_AFTER="0.05", FAKE_EXIT_CODE=code) as process:
        _output, errors = process.communicate(timeout=20)
        assert process.returncode == ended
    assert errors.startswith("Traceback (most recent call last):\n")
    assert errors.endswith("RuntimeError: made to fail by FAKE_EXIT_AFTER\n")


def test_sigterm_ends_it_cleanly(executable: Path) -> None:
    port = free_port()
    with fake(executable, port) as process:
        wait_for_port(port)
        process.terminate()
        process.communicate(timeout=20)
        assert process.returncode == 0
