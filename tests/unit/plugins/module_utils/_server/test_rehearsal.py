# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The unit of a rehearsal, and what is read out of its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.rehearsal import (
    Refused,
    rehearsal_unit,
    rehearse,
)

UNIT = """[Unit]
Description=SGLang server a
StartLimitBurst=5

[Service]
Type=exec
User=sglang
EnvironmentFile=/r/7/environment
ExecStart=/opt/e/bin/python -m sglang.launch_server --served-model-name "100%% of $$HOME" --config ${CREDENTIALS}/s.yaml
Restart=on-failure
ProtectSystem=strict

[Install]
WantedBy=multi-user.target
"""


def test_it_is_the_services_unit_with_another_program() -> None:
    lines = rehearsal_unit(UNIT, 60, Path("/o"), Path("/e")).splitlines()
    assert lines[1] == "Description=Rehearsal of a release of an SGLang server"
    assert {"User=sglang", "EnvironmentFile=/r/7/environment", "ProtectSystem=strict", "TimeoutStartSec=60"} <= set(
        lines
    )
    assert not [
        line for line in lines if line.startswith(("Restart=", "StartLimit", "WantedBy", "Type=exec", "[Install"))
    ]
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    assert start.startswith('ExecStart=/opt/e/bin/python -c "')
    assert start.endswith(' --served-model-name "100%% of $$HOME" --config ${CREDENTIALS}/s.yaml')


def test_only_the_server_can_be_rehearsed() -> None:
    with pytest.raises(ValueError, match="does not start sglang"):
        rehearsal_unit(UNIT.replace("sglang.launch_server", "http.server"), 60, Path("/o"), Path("/e"))


class Systemd:
    """Starts the unit by writing what its program would."""

    def __init__(self, unit: Path, out: str = "", err: str = "", result: str = "success") -> None:
        self.unit = unit
        self.outputs = {"StandardOutput": out, "StandardError": err}
        self.result = result

    def __call__(self, command: list[str]) -> tuple[int, str, str]:
        if command[1] == "start":
            for line in self.unit.read_text().splitlines():
                key, _equals, value = line.partition("=file:")
                if key in self.outputs:
                    Path(value).write_text(self.outputs[key])
            return (0, "", "") if "verdict" in self.outputs["StandardOutput"] else (1, "", "Job failed. See journalctl")
        return 0, self.result if command[1] == "show" else "", ""


def verdict(**facts: object) -> str:
    return f"a warning\n\ninferops-verdict:{json.dumps(facts)}\nsome more\n"


def test_a_good_verdict_passes_and_leaves_no_unit(tmp_path: Path) -> None:
    unit = tmp_path / "units/a-rehearsal.service"
    rehearse(Systemd(unit, verdict(ok=True)), UNIT, unit, 60)
    assert not unit.exists()


@pytest.mark.parametrize(
    ("out", "err", "result", "words"),
    [
        (
            verdict(ok=False, exception="AssertionError", words="AssertionError", traceback="T"),
            "",
            "",
            "AssertionError",
        ),
        (verdict(ok=False, exception="SystemExit"), "usage: x\nx: error: no --foo\n", "", "x: error: no --foo"),
        (verdict(ok=False, exception="SystemExit"), "", "", "SystemExit"),
        (
            "",
            "ModuleNotFoundError: No module named 'torch'\n",
            "exit-code",
            "ModuleNotFoundError: No module named 'torch'",
        ),
        ("thinking", "", "timeout", "no verdict within 60 s"),
        ("", "", "resources", "Job failed. See journalctl"),
    ],
)
def test_anything_else_is_refused_in_its_words(tmp_path: Path, out: str, err: str, result: str, words: str) -> None:
    unit = tmp_path / "a-rehearsal.service"
    with pytest.raises(Refused) as refused:
        rehearse(Systemd(unit, out, err, result), UNIT, unit, 60)
    assert str(refused.value) == words
    assert not unit.exists()
