# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/rules.md from the rule data: python tools/rules_doc.py"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.inferops.serving.plugins.module_utils._sglang.findings import (  # noqa: E402
    OUTCOMES,
    Rule,
    rules,
)
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import known_releases  # noqa: E402

PAGE = ROOT / "docs/rules.md"
REPORTS = ROOT / "tools/reports.yml"


def page() -> str:
    """The whole page: the rules of each outcome, in the order of the data."""
    lines = [
        "<!-- SPDX-License-Identifier: GPL-3.0-or-later -->",
        "<!-- Written by tools/rules_doc.py from plugins/module_utils/_sglang/data/rules.yml. Change that instead. -->",
        "# The planner's rules",
        "",
        f"{len(rules())} rules for SGLang {known_releases()[0]} to {known_releases()[-1]}.",
        "Words in braces are filled in.",
    ]
    for outcome in OUTCOMES:
        chosen = [rule for rule in rules().values() if rule.outcome == outcome]
        lines += ["", f"## {outcome}", ""]
        for rule in chosen:
            lines += _rule(rule)
    lines += ["", "## Public reports", "", "What became of each report about a configuration or a model file.", ""]
    lines += ["| report | what it became |", "|---|---|", *(_report(row) for row in reports())]
    return "\n".join(lines).rstrip() + "\n"


def reports() -> list[dict[str, Any]]:
    """The reports with their rules, or the reason why there is none."""
    rows: list[dict[str, Any]] = yaml.safe_load(REPORTS.read_text(encoding="utf-8"))
    return rows


def _report(row: dict[str, Any]) -> str:
    became = ", ".join(f"[{rule}](#{rule})" for rule in row.get("rules", ())) or f"no rule: {row['reason']}"
    return f"| {row['id']}: {row['report']} | {became} |"


def _rule(rule: Rule) -> list[str]:
    releases = "all releases" if str(rule.releases) == "all" else f"releases {rule.releases}"
    ending = f" · {rule.exception} ({rule.stage})" if rule.exception else ""
    lines = [f"### {rule.id}", "", f"When {rule.condition}.", "", "> " + " ".join(rule.message.split())]
    if rule.advice:
        lines += [">", "> " + " ".join(rule.advice.split())]
    return [*lines, "", f"{releases}{ending} · source: {rule.source}", ""]


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(rules())} rules")
