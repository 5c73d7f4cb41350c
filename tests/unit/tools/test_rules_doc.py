# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._sglang.findings import rules

from tools.rules_doc import PAGE, examples, finding_of, page, reports


def test_the_page_of_rules_is_what_the_data_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run tools/rules_doc.py"


def test_every_report_has_rules_that_exist_or_a_reason() -> None:
    rows = reports()
    assert len({row["id"] for row in rows}) == len(rows) == 44
    for row in rows:
        assert bool(row.get("rules")) != bool(row.get("reason")), row["id"]
        assert set(row.get("rules", ())) <= set(rules()), row["id"]


def test_every_rule_has_an_example() -> None:
    assert list(examples()) == list(rules())


@pytest.mark.parametrize("rule", rules())
def test_an_example_is_found_fault_with_by_its_rule(rule: str) -> None:
    finding = finding_of(rule, examples()[rule])
    assert finding.outcome == rules()[rule].outcome
    assert "{" not in finding.message.replace("{{", "")
