# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers that a Hub does not give. What it does give is in the tests of the module model_lock."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience
from ansible_collections.inferops.serving.plugins.module_utils._store.hub_api import HubApi
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

from tests.unit.plugins.module_utils._store import store_kit as kit

BRANCH = f"/api/models/{kit.REPO}/revision/main"
TREE = f"/api/models/{kit.REPO}/tree/{kit.REVISION}?recursive=true&expand=false"
SIZE = len(kit.model_files()[kit.SHARD])


@pytest.fixture
def api(hub: kit.Hub) -> HubApi:
    return HubApi(hub.url, None, Patience(0), 1.0, Tally())


def sends(body: bytes, code: int = 200, **headers: str) -> kit.Fault:
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def fault(answer: kit.Answer) -> None:
        answer.headers(code, {"Content-Length": str(len(body)), **named})
        answer.body(body)

    return fault


def failure(action: t.Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as raised:
        action()
    return raised.value


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"sha": 7}', b'{"sha": "main"}', b"[" * 100_000])
def test_no_commit(hub: kit.Hub, api: HubApi, body: bytes) -> None:
    hub.misbehave(BRANCH, sends(body))
    assert failure(lambda: api.commit(kit.REPO, "main")).error_class == "corrupt_source"


def test_a_branch_with_a_slash_is_one_name(hub: kit.Hub, api: HubApi) -> None:
    failure(lambda: api.commit(kit.REPO, "refs/pr/1"))
    assert hub.asked[0].path == f"/api/models/{kit.REPO}/revision/refs/pr/1"


def test_a_list_of_pages(hub: kit.Hub, api: HubApi) -> None:
    following = f'<{hub.url}/further?a=b>; rel="next", <{hub.url}/first>; rel="first"'
    hub.misbehave(TREE, sends(b"[1]", Link=following))
    hub.misbehave("/further?a=b", sends(b"[2]", Link='</last>; rel="next"'))
    hub.misbehave("/last", sends(b"[3]", Link='</first>; rel="first"'))
    assert api.tree(kit.REPO, kit.REVISION) == [1, 2, 3]


@pytest.mark.parametrize(
    ("body", "link", "said"),
    [
        (b"{}", "", "is no list"),
        (b"[]", '<http://hub.example.com/x>; rel="next"', "at another server"),
        (b"[]", f'<{TREE}>; rel="next"', "does not end"),
    ],
)
def test_a_list_that_is_none(hub: kit.Hub, api: HubApi, body: bytes, link: str, said: str) -> None:
    hub.misbehave(TREE, sends(body, Link=link))
    assert said in failure(lambda: api.tree(kit.REPO, kit.REVISION)).problem


def beginning(api: HubApi, length: int = 100) -> bytes:
    return api.beginning(kit.REPO, kit.REVISION, kit.SHARD, SIZE, length)


def test_a_server_that_ignores_the_range_is_read_no_further(hub: kit.Hub) -> None:
    tally = Tally()
    api = HubApi(hub.url, None, Patience(0), 1.0, tally)
    assert beginning(api) == hub.files[kit.SHARD][:100]
    assert hub.asked[0].headers["Range"] == "bytes=0-99"
    assert tally.bytes_fetched == 100


@pytest.mark.parametrize(
    ("extent", "length"),
    [
        (f"bytes 1-100/{SIZE}", 100),
        (f"bytes 0-98/{SIZE}", 99),
        (f"bytes 0-99/{SIZE + 1}", 100),
        ("bytes 0-99/*", 100),
        ("", 100),
        (f"bytes 0-99/{SIZE}", 99),
    ],
)
def test_another_range_than_the_one_asked_for(hub: kit.Hub, api: HubApi, extent: str, length: int) -> None:
    hub.misbehave(kit.SHARD, sends(bytes(length), 206, Content_Range=extent))
    assert failure(lambda: beginning(api)).error_class == "corrupt_source"


def test_a_file_that_is_longer_than_the_tree_says_is_read_no_further(hub: kit.Hub, api: HubApi) -> None:
    assert len(api.content(kit.REPO, kit.REVISION, kit.SHARD, 1000)) == 1001


def test_the_wait_that_a_hub_asks_for(hub: kit.Hub) -> None:
    tally = Tally()
    api = HubApi(hub.url, None, Patience(1, first_wait=0.01), 1.0, tally)
    hub.misbehave(BRANCH, kit.status(429, RateLimit='"api";r=0;t=0'), sends(json.dumps({"sha": "0" * 40}).encode()))
    assert api.commit(kit.REPO, "main") == "0" * 40
    assert tally.retries == 1
    hub.misbehave(BRANCH, kit.status(429, Retry_After="1000"))
    assert "asks to wait 1000 s" in failure(lambda: api.commit(kit.REPO, "main")).problem


@pytest.mark.parametrize("url", ["ftp://hub.example.com", "hub.example.com", "http://"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="not an http or https address"):
        HubApi(url, None, Patience(0), 1.0, Tally())
