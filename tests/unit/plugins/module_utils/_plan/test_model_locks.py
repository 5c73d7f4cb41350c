# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which locks an inventory needs, and which revision each is to have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._plan.model_locks import (
    ModelsToLockProblem,
    models_to_lock,
)

from tests.unit.plugins.module_utils._store.store_kit import lock_of

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
KIMI = "moonshotai/Kimi-K2.6"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "locks").mkdir()
    lock = json.dumps(lock_of({"config.json": b"{}"}, COMMIT))
    (tmp_path / "locks/org--model.json").write_text(lock)
    return tmp_path / "site"


def host(site: Path, **variables: Any) -> dict[str, Any]:
    named = {"target": "sglang_model_target", "drafter": "sglang_model_drafter", "revisions": "sglang_model_revisions"}
    return {"inventory_dir": str(site), **{named.get(name, name): value for name, value in variables.items()}}


def test_each_lock_once_where_the_plan_looks_for_it(site: Path) -> None:
    one = host(site, target="org/target", drafter="org/draft")
    draft, target = models_to_lock([one, host(site), *[one] * 1000])
    assert (target.repo, target.revision, target.tensors) == ("org/target", "main", False)
    assert target.dest == str(site.parent / "locks/org--target.json")
    assert (draft.repo, draft.tensors) == ("org/draft", True)


def test_a_place_of_its_own(site: Path) -> None:
    (model,) = models_to_lock([host(site, target={"repo": "org/x", "lock": "mine.json"}, sglang_model_lock_dir="/l")])
    assert model.dest == "/l/mine.json"


@pytest.mark.parametrize(
    ("repo", "asked", "revision"),
    [
        ("org/model", None, COMMIT),
        ("org/model", "main", "main"),
        (KIMI, None, "7eb5002f6aadc958aed6a9177b7ed26bb94011bb"),
        (KIMI, "v2", "v2"),
        ("org/other", None, "main"),
    ],
)
def test_no_lock_moves_unasked(site: Path, repo: str, asked: str | None, revision: str) -> None:
    (model,) = models_to_lock([host(site, target=repo, revisions={repo: asked} if asked else None)])
    assert model.revision == revision


def test_what_several_hosts_want_of_one_lock_comes_together(site: Path) -> None:
    (model,) = models_to_lock(
        [
            host(site, target="org/x", sglang_model_accept_pickle={"org/x": ["b.pt"]}),
            host(site, drafter="org/x", sglang_model_accept_pickle={"org/x": ["a.bin"], "org/y": ["c.pt"]}),
        ]
    )
    assert (model.tensors, model.accept_pickle) == (True, ("a.bin", "b.pt"))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"target": 7}, "sglang_model_target is 7"),
        ({"target": "org/x", "revisions": "main"}, "it is a mapping by repository"),
        ({"target": "org/x", "revisions": {"org/x": 1.0}}, "1.0 for org/x; write"),
        ({"target": "org/x", "sglang_model_accept_pickle": {"org/x": "a.pt"}}, "it is a list of paths"),
        ({"target": {"repo": "org/x", "lock": "broken.json"}}, "broken.json: Expecting"),
        ({"target": {"repo": "org/x", "lock": "a.json"}, "drafter": {"repo": "org/y", "lock": "a.json"}}, "org/y at"),
    ],
)
def test_variables_that_do_not_say_what_to_lock(site: Path, variables: dict[str, Any], said: str) -> None:
    (site.parent / "locks/broken.json").write_text("{")
    with pytest.raises(ModelsToLockProblem) as raised:
        models_to_lock([host(site, **variables), host(site, target=[])])
    assert said in str(raised.value)
    assert "sglang_model_target is []" in str(raised.value), "every host's problem is told"


def test_a_broken_lock_is_made_anew_where_a_revision_is_named(site: Path) -> None:
    (site.parent / "locks/broken.json").write_text("{")
    broken = {"repo": "org/x", "lock": "broken.json"}
    (model,) = models_to_lock([host(site, target=broken, revisions={"org/x": "main"})])
    assert model.revision == "main"


def test_two_hosts_that_want_two_revisions(site: Path) -> None:
    hosts = [host(site, target="org/x", revisions={"org/x": revision}) for revision in ("main", "v2")]
    with pytest.raises(ModelsToLockProblem, match="org/x at main and org/x at v2"):
        models_to_lock(hosts)
