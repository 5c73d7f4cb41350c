# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new release changed, on two tiny packages."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import whats_new
from tools.whats_new import compare, flag_changes, moved, refusals

OLD = """
class ServerArgs:
    def _handle_speculative_decoding(self):
        if self.speculative_algorithm == "EAGLE3":
            if self.speculative_num_steps is None:
                assert self.speculative_eagle_topk is None
            if self.page_size > 1:
                raise ValueError("the draft backend takes pages of 1")
            if self.tp_size > 8:
                raise ValueError("EAGLE3 takes 8 GPUs")
        elif self.enable_draft_lora:
            raise ValueError("no LoRA")

    def check_server_args(self):
        assert self.nnodes > 0, "takes one node"
"""
NEW_HOOK = """
def handle_speculative_decoding(server_args):
    cfg = resolving_view(server_args)
    if cfg.speculative_algorithm == "EAGLE3":
        if resolved_view(server_args).speculative_num_steps is None:
            assert cfg.speculative_eagle_topk is None
        if cfg.page_size > 64:
            raise ValueError("the draft backend takes pages of 1")
        if cfg.tp_size > 8:
            raise ValueError("EAGLE3 takes 8 GPUs")
        try:
            load(cfg)
        except OSError:
            raise ValueError("no drafter")
"""
OLD_PACKAGE = {"sglang/srt/server_args.py": OLD, "sglang/srt/models/llama.py": "raise ValueError('speculative')"}
NEW_PACKAGE = {"sglang/srt/server_args.py": "", "sglang/srt/arg_groups/speculative_hook.py": NEW_HOOK}


def wheel(folder: Path, version: str, files: dict[str, str]) -> Path:
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return path


def test_refusals_come_with_their_conditions() -> None:
    found = {refusal.statement: refusal for refusal in refusals({"server_args.py": OLD})}
    assert len(found) == 4
    bare = found["assert speculative_eagle_topk is None"]
    assert bare.guards == ("speculative_algorithm == 'EAGLE3'", "speculative_num_steps is None")
    assert (bare.function, bare.place) == ("_handle_speculative_decoding", "server_args.py:6")
    assert found["raise ValueError('no LoRA')"].guards == (
        "not (speculative_algorithm == 'EAGLE3')",
        "enable_draft_lora",
    )


def test_a_move_to_another_file_is_no_change() -> None:
    changes = compare(refusals({"server_args.py": OLD}), refusals({"hook.py": NEW_HOOK}))
    assert [refusal.statement for refusal in changes.new] == ["raise ValueError('no drafter')"]
    assert changes.new[0].guards == ("speculative_algorithm == 'EAGLE3'", "OSError was raised")
    assert [refusal.statement for refusal in changes.gone] == ["raise ValueError('no LoRA')"]
    ((before, after),) = changes.changed
    assert (before.guards[-1], after.guards[-1]) == ("page_size > 1", "page_size > 64")


def test_a_refusal_in_other_words_is_changed() -> None:
    old = "def draft(cfg):\n    if cfg.x:\n        raise ValueError('a')\n"
    changes = compare(refusals({"a.py": old}), refusals({"a.py": old.replace("'a'", "'b'")}))
    assert (changes.new, changes.gone) == ([], [])
    assert [after.statement for _before, after in changes.changed] == ["raise ValueError('b')"]


def test_the_report_on_two_wheels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = wheel(tmp_path, "0.5.22", OLD_PACKAGE), wheel(tmp_path, "0.5.23", NEW_PACKAGE)
    whats_new.main([str(old), str(new)])
    said = capsys.readouterr().out
    assert "refusals: 1 new, 1 gone, 1 changed" in said
    assert "llama.py" not in said
    assert "flag changed: --moe-runner-backend choices: +lora_cutedsl +lora_triton +lora_marlin" in said
    unknown = wheel(tmp_path, "9.9.9", NEW_PACKAGE)
    whats_new.main([str(new), str(unknown)])
    assert "refusals: 0 new, 0 gone, 0 changed\nflags: not compared, the table has no 9.9.9" in capsys.readouterr().out


def fields(**values: Any) -> dict[str, Any]:
    return {"names": ["--a"], "choices": None, "default": None, **values}


def test_flags() -> None:
    old = {"--a": fields(choices=["x", "y"]), "--b": fields(choices=["x", "y"]), "--c": fields()}
    new = {"--a": fields(choices=["y", "x"]), "--b": fields(choices=["x", "z"], default=1), "--d": fields()}
    assert flag_changes(old, new) == [
        "new: --d",
        "gone: --c",
        "changed: --b choices: +z -y",
        "changed: --b default: None -> 1",
    ]


STARTS = {"ok": True, "resolved": {"page_size": 1, "speculative_eagle_topk": None}}
REFUSED = {"ok": False, "stage": "resolve", "exception": "ValueError", "message": "no"}


@pytest.mark.parametrize(
    ("old", "new", "move"),
    [
        (STARTS, STARTS, None),
        (REFUSED, {**REFUSED, "message": "no, in other words"}, None),
        (STARTS, REFUSED, "starts -> resolve ValueError"),
        (REFUSED, {**REFUSED, "stage": "check"}, "resolve ValueError -> check ValueError"),
        (STARTS, {"ok": True, "resolved": {**STARTS["resolved"], "page_size": 64}}, "page_size 1 -> 64"),  # type: ignore[dict-item]
    ],
)
def test_moves(old: dict[str, Any], new: dict[str, Any], move: str | None) -> None:
    assert moved(old, new) == move


def test_the_report_on_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rows(*verdicts: dict[str, Any]) -> bytes:
        asked = [{"gpu": "h200", "argv": ["--tp-size", str(number)]} for number in range(len(verdicts))]
        return "\n".join(json.dumps({**row, **verdict}) for row, verdict in zip(asked, verdicts)).encode()

    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl.gz"
    old.write_bytes(rows(STARTS, STARTS, STARTS, REFUSED))
    new.write_bytes(gzip.compress(rows(STARTS, REFUSED, REFUSED)))
    whats_new.main(["--verdicts", str(old), str(new)])
    assert capsys.readouterr().out.splitlines() == [
        "    2 starts -> resolve ValueError",
        "      h200: --tp-size 1",
        "      no",
        "moved 2 of 3; 1 are in one file only",
    ]
