# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine says of a service that failed, also where it hardly answers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server import evidence
from ansible_collections.inferops.serving.plugins.module_utils._server.release import Content, Releases


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs, the only ones that are found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("systemctl", "journalctl"):
        _program(folder / name, f'echo "{name} $1"; echo "more of $KEY" >&2')
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("KEY", "canary-value")
    return folder


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _failed(tmp_path: Path) -> Releases:
    releases = Releases(tmp_path / "home")
    number = releases.stage(Content("[Unit]\n", 'KEY="canary-value"\n', {"argv": []}))
    releases.write_note(number, "begun")
    return releases


def test_what_all_say_is_kept_without_values(tmp_path: Path, programs: Path) -> None:
    _program(programs / "nvidia-smi", "echo 8 GPUs; exit 1")
    folder = evidence.collect(_failed(tmp_path), 1, "a.service", "it died of canary-value", {"traceback.txt": "T"})
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert texts["status.txt"] == "systemctl status\nmore of [the value of KEY]\n"
    assert texts["journal.txt"].startswith("journalctl --no-pager")
    assert (texts["nvidia-smi.txt"], texts["traceback.txt"]) == ("8 GPUs\n", "T")
    assert "canary" not in "".join(texts.values())


def test_no_gpu_program_no_file(tmp_path: Path, programs: Path) -> None:
    assert (programs / "journalctl").exists()
    folder = evidence.collect(_failed(tmp_path), 1, "a.service", "it died", {})
    assert not (folder / "nvidia-smi.txt").exists()
    assert (folder / "kernel.txt").exists()


def test_a_program_that_never_ends_holds_nothing_up(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nvidia-smi, when a GPU has fallen off the bus: the service is down until the evidence is kept."""
    monkeypatch.setattr(evidence, "_PATIENCE", 0.3)
    _program(programs / "nvidia-smi", "echo GPU 3 is lost; exec /bin/sleep 600")
    began = time.monotonic()
    folder = evidence.collect(_failed(tmp_path), 1, "a.service", "it died", {})
    assert time.monotonic() - began < 60
    kept = (folder / "nvidia-smi.txt").read_text()
    assert kept == "GPU 3 is lost\n\nnvidia-smi: had not ended after 0.3 s\n"
