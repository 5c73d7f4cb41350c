# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/rules.md from the rule data: python tools/rules_doc.py"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.inferops.serving.plugins.module_utils._plan.fleet import plan_fleet  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._plan.host import plan_host  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._plan.places import nowhere  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.findings import (  # noqa: E402
    OUTCOMES,
    Finding,
    Remedy,
    Rule,
    rules,
)
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import known_releases  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.hardware import read_gpu  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.judge import judge  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.models import Model  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.versions import Release  # noqa: E402

PAGE = ROOT / "docs/rules.md"
REPORTS = ROOT / "tools/reports.yml"
EXAMPLES = ROOT / "tools/examples.yml"


def page() -> str:
    """The whole page: the rules of each outcome, in the order of the data."""
    lines = [
        "<!-- SPDX-License-Identifier: GPL-3.0-or-later -->",
        "<!-- Written by tools/rules_doc.py from plugins/module_utils/_sglang/data/rules.yml. Change that instead. -->",
        "# The planner's rules",
        "",
        f"{len(rules())} rules for SGLang {known_releases()[0]} to {known_releases()[-1]}.",
        "Each is shown on the smallest configuration that it finds fault with, with what the planner says of that.",
    ]
    shown = examples()
    for outcome in OUTCOMES:
        chosen = [rule for rule in rules().values() if rule.outcome == outcome]
        lines += ["", f"## {outcome}", ""]
        for rule in chosen:
            lines += _rule(rule, shown[rule.id])
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


@functools.cache
def examples() -> dict[str, dict[str, Any]]:
    """An example for each rule, by its id."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))
    return found


def finding_of(rule: str, example: Mapping[str, Any]) -> Finding:
    """What the planner says of an example by that rule.

    :raises LookupError: it says nothing by it.
    """
    # a package that is None here cannot be imported
    with mock.patch.dict(sys.modules, {example["without"]: None} if "without" in example else {}):
        findings = _of_hosts(example["hosts"]) if "hosts" in example else _of_arguments(example)
    found = [finding for finding in findings if finding.rule == rule]
    if not found:
        raise LookupError(f"the example of {rule} is not found fault with by it")
    # of two hosts that clash, one may stay as it is
    return next((finding for finding in found if finding.remedy.set), found[0])


def _of_arguments(example: Mapping[str, Any]) -> list[Finding]:
    return list(
        judge(
            example["args"],
            Release.parse(example["release"]),
            read_gpu(example.get("gpu")),
            Model(**example.get("target", {})),
            Model(**example.get("drafter", {})),
            example.get("env"),
        ).findings
    )


def _of_hosts(hosts: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """The findings for whole hosts, whose inventory lies beside the examples. A template is one that is undefined."""
    plans = []
    for host, variables in hosts.items():
        undefined = {name: "'ranks' is undefined" for name, value in variables.items() if "{{" in str(value)}
        plans.append(plan_host(host, {**variables, "inventory_dir": str(EXAMPLES.parent)}, undefined))
    return [problem.finding for problem in plan_fleet(plans, lambda host: nowhere).problems]


def _rule(rule: Rule, example: Mapping[str, Any]) -> list[str]:
    finding = finding_of(rule.id, example)
    releases = "all releases" if str(rule.releases) == "all" else f"releases {rule.releases}"
    ending = f" · {rule.exception} ({rule.stage})" if rule.exception else ""
    # paths of the machine that writes the page say nothing
    message = finding.message.replace(str(ROOT), "...")
    lines = [f"### {rule.id}", "", f"When {rule.condition}.", "", "```yaml", *_written(example), "```", ""]
    lines += ["> " + message]
    for more in (finding.advice, _remedy(finding.remedy)):
        if more:
            lines += [">", "> " + more]
    return [*lines, "", f"{releases}{ending} · source: {rule.source}", ""]


def _written(example: Mapping[str, Any]) -> list[str]:
    """An example as it would stand in an inventory."""
    if "hosts" in example:
        without = [f"# without the package {example['without']}"] if "without" in example else []
        return [*without, *_yaml({"hosts": example["hosts"]})]
    names = {"release": "sglang_engine_version", "gpu": "sglang_plan_gpu", "env": "sglang_server_env"}
    lines = [f"# {role}: {_flow(example[role])}" for role in ("target", "drafter") if role in example]
    variables = {names.get(key, key): example[key] for key in ("release", "gpu", "env") if key in example}
    return [*lines, *_yaml({**variables, "sglang_server_args": example["args"]})]


def _yaml(value: Any) -> list[str]:
    return yaml.safe_dump(value, sort_keys=False, width=120).splitlines()


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
    return text.strip()


def _remedy(remedy: Remedy) -> str:
    """The change that mends it, in one line."""
    words = []
    if remedy.set:
        words.append(f"set {', '.join(f'{key}: {_flow([value])[1:-1]}' for key, value in remedy.set.items())}")
    removed = [key for key in remedy.remove if key not in remedy.set]
    if removed:
        words.append(f"take out {', '.join(removed)}")
    where = "in the inventory" if not remedy.variable else f"in {remedy.variable}"
    return f"Remedy: {' and '.join(words)} {where}." if words else ""


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(rules())} rules")
