# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules say that they return."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

MODULES = sorted((Path(__file__).resolve().parents[4] / "plugins/modules").glob("*.py"))
#: Names of ansible-core. 2.21 takes invocation out of a result, and deprecates warnings and deprecations in one.
RESERVED = {"invocation", "warnings", "deprecations", "exception", "ansible_facts", "skipped", "unreachable"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_result_has_a_name_that_ansible_keeps_for_itself(path: Path) -> None:
    texts = {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        if statement.targets[0].id == "RETURN"
    }
    documented = yaml.safe_load(texts["RETURN"])
    assert documented
    assert not RESERVED & set(documented)
