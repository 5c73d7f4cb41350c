# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._sglang.versions import Release, ReleaseRange

ORDERED = ["0.5.5.post3", "0.5.6", "0.5.9", "0.5.10rc0", "0.5.10", "0.5.10.post1", "0.5.11", "0.5.12.post1", "0.6"]


def test_releases_order_as_they_were_published() -> None:
    assert sorted([*ORDERED[4:], *ORDERED[:4]], key=Release.parse) == ORDERED


def test_a_local_label_is_the_same_release() -> None:
    assert Release.parse("0.5.11+cu130") == Release.parse("0.5.11")
    assert hash(Release.parse("0.5.11.0")) == hash(Release.parse("0.5.11"))


@pytest.mark.parametrize("text", ["", "latest", "0.5.x", "v0.5.11", "0.5.11-1", "0.5.11.post", "\n"])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an SGLang release number"):
        Release.parse(text)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        (">=0.5.12", "0.5.12", "0.5.11"),
        (">=0.5.7,<0.5.12", "0.5.11", "0.5.12"),
        ("==0.5.12.post1", "0.5.12.post1", "0.5.12"),
        ("<=0.5.18", "0.5.18", "0.5.18.post1"),
        (">0.5.18", "0.5.19", "0.5.18"),
    ],
)
def test_ranges(bounds: str, inside: str, outside: str) -> None:
    releases = ReleaseRange.parse(bounds)
    assert Release.parse(inside) in releases
    assert Release.parse(outside) not in releases


def test_all_holds_every_release() -> None:
    assert all(Release.parse(text) in ReleaseRange.parse("all") for text in ORDERED)


def test_a_bound_without_an_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="not a bound"):
        ReleaseRange.parse("0.5.12")
