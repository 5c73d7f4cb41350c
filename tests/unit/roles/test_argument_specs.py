# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults and argument specifications of every role may not drift apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLES = sorted(path.parent.parent for path in ROOT.glob("roles/*/tasks/main.yml"))


def _options(role: Path) -> dict[str, dict[str, Any]]:
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    return spec["argument_specs"]["main"]["options"]


def _defaults(role: Path) -> dict[str, Any]:
    path = role / "defaults/main.yml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def test_there_are_roles() -> None:
    assert {"sglang_engine", "sglang_model", "sglang_plan", "sglang_server"} <= {role.name for role in ROLES}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_default_is_specified_and_the_same(role: Path) -> None:
    options, defaults = _options(role), _defaults(role)
    assert set(defaults) <= set(options), "a default that the specification does not know"
    for name, value in defaults.items():
        specified = options[name].get("default")
        if "{{" in str(value) or value in ("", None):
            # computed from the plan: the specification says so in words, not as a default
            assert specified is None, name
        else:
            assert specified == value, name


@pytest.mark.parametrize("role", [role for role in ROLES if role.name != "sglang_plan"], ids=lambda role: role.name)
def test_every_specified_default_is_a_default(role: Path) -> None:
    # sglang_plan's inputs are read by the action, whose defaults a test of its own compares
    options, defaults = _options(role), _defaults(role)
    assert {name for name, option in options.items() if "default" in option} <= set(defaults)
    assert {name for name, option in options.items() if not option.get("required")} <= set(defaults)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_option_carries_a_roles_name_and_says_what_it_is(role: Path) -> None:
    for name, option in _options(role).items():
        assert name.startswith("sglang_" if role.name == "sglang_plan" else f"{role.name}_"), name
        assert option["description"], name
        assert not (option.get("required") and "default" in option), name
