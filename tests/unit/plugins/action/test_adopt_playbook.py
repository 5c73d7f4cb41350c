# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook adopt as an operator calls it: what reaches it, what it shows, how it ends."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.playbook import run_playbook

ROOT = Path(__file__).resolve().parents[4]
GOOD = "python3 -m sglang.launch_server --model-path /srv/kimi --tp 8\n"
BAD = "sglang serve --model-path /m --tp 8 --speculative-algo EAGLE3 --speculative-num-draft-tokens 3 --tpp 4\n"
ADOPTED = """
---
sglang_engine_version: 0.5.23
sglang_server_name: main
sglang_server_args:
  model_path: /srv/kimi
  tp_size: 8
sglang_server_env: {}
sglang_plan_gpu: h200
"""


def adopt(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return run_playbook("playbooks/adopt.yml", *words, stderr=subprocess.STDOUT, **options)


RELEASE = ("-e", "sglang_engine_version=0.5.23", "-e", "sglang_plan_gpu=h200")


def test_a_pipe() -> None:
    run = adopt(*RELEASE, input=GOOD)
    assert run.returncode == 0, run.stdout
    assert ADOPTED in run.stdout


def test_a_file_as_standard_input_in_check_mode(tmp_path: Path) -> None:
    path = tmp_path / "running.sh"
    path.write_text(GOOD)
    with path.open() as stream:
        run = adopt(*RELEASE, "--check", stdin=stream)
    assert run.returncode == 0, run.stdout
    assert ADOPTED in run.stdout


def test_a_named_file(tmp_path: Path) -> None:
    path = tmp_path / "running.sh"
    path.write_text(GOOD)
    run = adopt(*RELEASE, "-e", f"sglang_adopt_file={path}", stdin=subprocess.DEVNULL)
    assert run.returncode == 0, run.stdout
    assert ADOPTED in run.stdout


def test_a_refused_server_is_shown_with_its_findings_and_ends_in_failure() -> None:
    run = adopt(*RELEASE, input=BAD)
    assert run.returncode == 2
    assert "  speculative_num_draft_tokens: 3\n  tpp: 4\n" in run.stdout
    assert "REFUSED flag-unknown on the adopted server" in run.stdout
    assert "REFUSED spec-steps-missing on the adopted server" in run.stdout
    assert "    speculative_num_steps: 2\n" in run.stdout


@pytest.mark.parametrize("verbosity", ["-v", "-vvv"])
def test_no_secret_is_shown(verbosity: str) -> None:
    run = adopt(*RELEASE, verbosity, input=f"HF_TOKEN=hidden-1 {GOOD.strip()} --api-key hidden-2\n")
    assert "# HF_TOKEN: a secret" in run.stdout
    assert "# api_key: a secret" in run.stdout
    assert "hidden" not in run.stdout


def test_a_terminal_is_told_what_to_do() -> None:
    ours, theirs = pty.openpty()
    try:
        run = adopt(*RELEASE, stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert run.returncode == 2
    assert "-e sglang_adopt_file=FILE" in run.stdout


@pytest.mark.parametrize(
    ("text", "words"), [("", "is empty"), ("ls\n", "starts no SGLang server"), ("\udcff", "not in UTF-8")]
)
def test_a_text_without_a_server(text: str, words: str) -> None:
    run = adopt(*RELEASE, input=text, errors="surrogateescape")
    assert run.returncode == 2
    assert words in " ".join(run.stdout.split())
