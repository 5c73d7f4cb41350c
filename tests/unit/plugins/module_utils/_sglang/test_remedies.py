# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every remedy is applied mechanically: what it is for must be gone afterwards."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.inferops.serving.plugins.module_utils._sglang.findings import REFUSED, Finding
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import FlagTable, flag_table, inventory_key
from ansible_collections.inferops.serving.plugins.module_utils._sglang.hardware import read_gpu
from ansible_collections.inferops.serving.plugins.module_utils._sglang.judge import judge
from ansible_collections.inferops.serving.plugins.module_utils._sglang.versions import Release

from tools.verdicts import read_model

ROOT = Path(__file__).resolve().parents[5]
RECORDED = ROOT / "tests/fixtures/verdicts"


def as_written(argv: list[str], table: FlagTable) -> dict[str, Any]:
    """A command line as an operator might have it in an inventory, mistakes and all."""
    args: dict[str, Any] = {}
    key = ""
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            meant = {flag.name for flag in table.flags.values() for one in flag.names if one.startswith(name)}
            if table.find(name) is None and len(meant) == 1:
                name = meant.pop()
            key = inventory_key(name)
            args.pop(key, None)
            args[key] = value if equals else True
        elif args[key] is True:
            args[key] = word
        else:
            args[key] = [*(args[key] if isinstance(args[key], list) else [args[key]]), word]
    return args


def recorded_cases() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each recorded line once, with its arguments as a mapping."""
    seen = set()
    with gzip.open(RECORDED / "recorded.jsonl.gz", "rt", encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            args = as_written(row["argv"], flag_table(row["version"]))
            key = json.dumps([row["version"], row["gpu"], row.get("env"), args])
            if key not in seen:
                seen.add(key)
                yield row, args


def refused(row: dict[str, Any], args: dict[str, Any]) -> list[Finding]:
    report = judge(
        args,
        Release.parse(row["version"]),
        read_gpu(row["gpu"]),
        read_model(args.get("model_path"), RECORDED / "models"),
        read_model(args.get("speculative_draft_model_path"), RECORDED / "models"),
        row.get("env"),
    )
    return [finding for finding in report.findings if finding.outcome == REFUSED]


def apply(row: dict[str, Any], args: dict[str, Any], findings: list[Finding]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The case with every remedy in place, as a person would paste them."""
    row, args = dict(row), dict(args)
    for finding in findings:
        if finding.remedy.variable == "sglang_server_args":
            for key in finding.remedy.remove:
                args.pop(key, None)
    for finding in findings:
        if finding.remedy.variable == "sglang_server_args":
            args.update(finding.remedy.set)
        else:
            row["version"] = finding.remedy.set.get("sglang_engine_version", row["version"])
    return row, args


def test_what_the_server_refused_is_clean_once_the_remedies_are_in_place() -> None:
    cases, left = 0, []
    for row, args in recorded_cases():
        findings = refused(row, args)
        assert row["ok"] or findings, row
        if findings:
            cases += 1
            left += [(row["id"], finding.rule) for finding in refused(*apply(row, args, findings))]
    assert cases > 4000
    assert left == []


def test_every_refusal_names_every_flag_that_it_is_about() -> None:
    silent = {
        (finding.rule, key)
        for row, args in recorded_cases()
        for finding in refused(row, args)
        for key in finding.keys
        if key not in finding.message
    }
    assert silent == set()
