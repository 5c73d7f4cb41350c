# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Hub's answers made from locks alone."""

from __future__ import annotations

import hashlib
import json
import typing as t

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.inferops.serving.plugins.filter.mirror import FilterModule
from ansible_collections.inferops.serving.plugins.module_utils._store.hub_pages import mirrored_models

from tests.unit.plugins.module_utils._store import store_kit as kit

hub_pages = FilterModule().filters()["hub_pages"]


def test_every_file_is_a_large_file_of_the_tree() -> None:
    files = kit.model_files()
    (model,) = mirrored_models([kit.lock_of(files)])
    for entry, (path, content) in zip(json.loads(model.tree), sorted(files.items())):
        digest = hashlib.sha256(content).hexdigest()
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"
        git_object = f"blob {len(pointer)}\0{pointer}".encode()
        assert entry == {
            "type": "file",
            "path": path,
            "size": len(content),
            "oid": hashlib.sha1(git_object).hexdigest(),
            "lfs": {"oid": digest, "size": len(content), "pointerSize": len(pointer)},
        }


def test_pages_name_the_blobs_of_the_store() -> None:
    (model,) = hub_pages([kit.lock_of(kit.model_files())])
    assert (model["repo"], model["revision"]) == (kit.REPO, kit.REVISION)
    for page in model["pages"]:
        assert page["blob"] == f"models--org--model/blobs/{page['sha256']}"


def test_models_are_in_the_order_of_their_names_and_given_once() -> None:
    one, other = kit.lock_of({"a": b"a"}), kit.lock_of({"b": b"b"}, repo="a/model")
    assert [model["repo"] for model in hub_pages([one, other, one])] == ["a/model", kit.REPO]


@pytest.mark.parametrize(
    ("locks", "said"),
    [
        ({}, "they are a list"),
        ([{}], "The model lock cannot be used"),
        ([kit.lock_of({"../x": b"a"})], "'..' part"),
        ([kit.lock_of({"a": b"a"}), kit.lock_of({"a": b"b"}, revision="1" * 40)], "two locks for org/model"),
    ],
)
def test_what_cannot_be_served(locks: t.Any, said: str) -> None:
    with pytest.raises(AnsibleFilterError, match=said):
        hub_pages(locks)
