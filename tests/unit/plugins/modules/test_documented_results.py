# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules say that they return."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

MODULES = sorted((Path(__file__).resolve().parents[4] / "plugins/modules").glob("*.py"))
#: Names of ansible-core. 2.21 takes invocation out of a result, and deprecates warnings and deprecations in one.
RESERVED = {"invocation", "warnings", "deprecations", "exception", "ansible_facts", "skipped", "unreachable"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_result_has_a_name_that_ansible_keeps_for_itself(path: Path) -> None:
    module = importlib.import_module(f"ansible_collections.inferops.serving.plugins.modules.{path.stem}")
    documented = yaml.safe_load(module.RETURN)
    assert documented
    assert not RESERVED & set(documented)
