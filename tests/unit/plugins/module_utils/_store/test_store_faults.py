# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources that fail: nothing wrong is published, what is good is kept, and the message says what to do."""

from __future__ import annotations

import contextlib
import email.utils
import socket
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Pace, Patience
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.sources import open_sources, read_token
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

from tests.unit.plugins.module_utils._store import store_kit as kit

if t.TYPE_CHECKING:
    from tests.unit.plugins.module_utils._store.conftest import Subject

SIZE = len(kit.model_files()[kit.SHARD])


def failing(subject: Subject, *sources: dict[str, str], workers: int = 2) -> StoreError:
    with pytest.raises(StoreError) as failure:
        subject.present(*sources, store=subject.open(workers=workers))
    subject.assert_nothing_wrong()
    assert not (subject.model / "current").exists()
    assert not (subject.model / "snapshots").exists()
    return failure.value


@pytest.mark.parametrize("damage", [kit.flipped, kit.zeroed])
def test_wrong_bytes_are_named_kept_aside_and_not_published(subject: Subject, damage: kit.Fault) -> None:
    subject.hub.misbehave(kit.SHARD, damage)
    error = failing(subject)
    assert error.error_class == "corrupt_source"
    kept = subject.model / "quarantine" / subject.sha256(kit.SHARD)
    assert error.facts["file"] == kit.SHARD
    assert error.facts["expected_sha256"] == subject.sha256(kit.SHARD)
    assert error.facts["got_sha256"] == kit.sha256_of(kept)
    for said in (kit.SHARD, subject.hub.url, error.facts["expected_sha256"], error.facts["got_sha256"]):
        assert said in str(error)
    assert subject.present()[0], "the next run needs no cleaning up"
    subject.assert_whole()


def test_bad_bytes_again_replace_the_ones_in_quarantine(subject: Subject) -> None:
    subject.hub.misbehave(kit.SHARD, kit.flipped, kit.flipped)
    failing(subject)
    failing(subject)
    assert [entry.name for entry in (subject.model / "quarantine").iterdir()] == [subject.sha256(kit.SHARD)]


def test_a_source_of_bad_bytes_is_not_asked_again_and_the_next_one_serves(subject: Subject) -> None:
    with kit.running(subject.hub.files) as good:
        subject.hub.misbehave(kit.SHARD, kit.flipped)
        store = subject.open(workers=1)
        changed, _store = subject.present(
            {"type": "hub", "url": subject.hub.url}, {"type": "hub", "url": good.url}, store=store
        )
        assert changed
        assert [asked.path for asked in subject.hub.asked] == [kit.SHARD], "the largest is first, then no more"
        assert len(good.asked) == len(set(subject.hub.files.values())) - 1
        assert store.tally.served_by == [good.url]
        assert len(store.tally.quarantined) == 1
    subject.assert_whole()


def test_the_error_names_every_source(subject: Subject, tmp_path: Path) -> None:
    subject.hub.misbehave(kit.SHARD, kit.flipped)
    error = failing(subject, {"type": "hub", "url": subject.hub.url}, {"type": "path", "path": str(tmp_path / "none")})
    assert error.error_class == "corrupt_source", "bad bytes are the worst news"
    assert subject.hub.url in str(error)
    assert str(tmp_path / "none") in str(error)


def test_a_prefix_from_elsewhere_is_not_blamed_on_the_source(subject: Subject) -> None:
    subject.part(kit.SHARD).parent.mkdir(parents=True)
    subject.part(kit.SHARD).write_bytes(b"rot" * 1000)
    changed, store = subject.present()
    assert changed
    subject.assert_whole()
    assert len(store.tally.quarantined) == 1


def test_a_shortened_file_contradicts_the_lock(subject: Subject) -> None:
    subject.hub.misbehave(kit.SHARD, kit.shortened)
    error = failing(subject)
    assert error.error_class == "corrupt_source"
    assert f"a file of {SIZE - 100} bytes; the lock says {SIZE} bytes" in str(error)


def test_a_body_that_ends_early_is_resumed(subject: Subject) -> None:
    subject.hub.misbehave(kit.SHARD, kit.closed_after(300_000), kit.closed_after(1))
    _changed, store = subject.present()
    subject.assert_whole()
    assert subject.hub.sent(kit.SHARD) == SIZE
    assert store.tally.retries == 2


def test_a_body_that_always_ends_early_is_given_up(subject: Subject) -> None:
    subject.hub.misbehave(kit.SHARD, *[kit.closed_after(1000)] * 10)
    error = failing(subject)
    assert error.error_class == "network"
    assert f"ended after 4000 of {SIZE} bytes" in str(error), "three retries after the first try"
    assert subject.part(kit.SHARD).stat().st_size == 4000


def test_a_reset_in_the_body_is_resumed(subject: Subject) -> None:
    subject.hub.misbehave(kit.SHARD, kit.reset_after(300_000), kit.reset_after(200_000))
    _changed, store = subject.present()
    subject.assert_whole()
    asked = [request for request in subject.hub.asked if request.path == kit.SHARD]
    assert len(asked) == 3
    offsets = [int(request.headers.get("Range", "bytes=0-")[6:-1]) for request in asked]
    assert 0 < offsets[1] <= 300_000
    assert offsets[1] < offsets[2] <= 500_000
    assert store.tally.bytes_fetched == sum(map(len, set(subject.hub.files.values()))), "no byte came twice"


def test_a_stall_is_resumed(subject: Subject) -> None:
    subject.stall_timeout = 0.3
    release = threading.Event()
    try:
        subject.hub.misbehave(kit.SHARD, kit.held_after(250_000, release))
        _changed, store = subject.present()
    finally:
        release.set()
    subject.assert_whole()
    assert store.tally.retries == 1
    asked = [request for request in subject.hub.asked if request.path == kit.SHARD]
    assert asked[1].headers["Range"] == "bytes=250000-"


def test_an_interrupted_run_is_taken_up(subject: Subject) -> None:
    subject.interrupted(kit.SHARD, 345_678)
    changed, store = subject.present()
    assert changed
    subject.assert_whole()
    assert subject.hub.sent(kit.SHARD) == SIZE - 345_678
    assert store.tally.bytes_resumed == 345_678
    assert store.tally.bytes_hashed == 345_678, "the prefix is proved with the rest"


def test_a_source_that_ignores_ranges_costs_that_file_again(subject: Subject) -> None:
    subject.interrupted(kit.SHARD, 345_678)
    subject.hub.misbehave(kit.SHARD, kit.range_ignored)
    subject.present()
    subject.assert_whole()
    assert subject.hub.sent(kit.SHARD) == SIZE


def test_a_range_from_another_offset_is_not_spliced_in(subject: Subject) -> None:
    subject.interrupted(kit.SHARD, 345_678)
    subject.hub.misbehave(kit.SHARD, kit.range_shifted)
    _changed, store = subject.present()
    subject.assert_whole()
    asked = [request for request in subject.hub.asked if request.path == kit.SHARD]
    assert [request.headers.get("Range") for request in asked] == ["bytes=345678-", None]
    assert store.tally.quarantined == []


def test_a_range_that_is_lied_about_is_found_by_its_digest(subject: Subject) -> None:
    subject.interrupted(kit.SHARD, 345_678)
    subject.hub.misbehave(kit.SHARD, kit.range_lied_about)
    _changed, store = subject.present()
    subject.assert_whole()
    assert len(store.tally.quarantined) == 1, "the file is fetched again, from its start"
    assert subject.hub.sent(kit.SHARD) == SIZE - 345_678 + SIZE


def test_the_rest_is_asked_for_of_the_same_file_only(subject: Subject) -> None:
    """A file that is another one at the source meanwhile comes whole, not as the end of a mixture."""
    before = subject.hub.files[kit.SHARD]

    def then_another(answer: kit.Answer) -> None:
        subject.hub.files[kit.SHARD] = kit.safetensors("another", SIZE)
        kit.closed_after(300_000)(answer)

    def then_the_first_again(answer: kit.Answer) -> None:
        kit.closed_after(200_000)(answer)
        subject.hub.files[kit.SHARD] = before

    subject.hub.misbehave(kit.SHARD, then_another, then_the_first_again)
    subject.present()
    subject.assert_whole()
    asked = [request.headers for request in subject.hub.asked if request.path == kit.SHARD]
    assert [headers.get("Range") for headers in asked[:2]] == [None, "bytes=300000-"]
    assert asked[1]["If-Range"] == f'"{subject.sha256(kit.SHARD)}"'
    assert subject.hub.asked[0].headers.get("If-Range") is None


def test_a_weak_tag_and_a_part_of_an_earlier_run_set_no_condition(subject: Subject) -> None:
    def weakly(answer: kit.Answer) -> None:
        answer.headers(200, {"Content-Length": str(SIZE), "ETag": 'W/"about"'})
        answer.body(answer.content[:300_000])

    subject.hub.misbehave(kit.SHARD, weakly)
    subject.interrupted("model-00001-of-00002.safetensors", 1000)
    subject.present()
    subject.assert_whole()
    assert [request.headers.get("If-Range") for request in subject.hub.asked if "Range" in request.headers] == [
        None
    ] * 2


@pytest.mark.parametrize("damage", [None, kit.flipped])
def test_a_tag_is_not_believed(subject: Subject, damage: kit.Fault | None) -> None:
    """Neither a wrong one against good bytes nor the right one for bad bytes."""

    def tagged(answer: kit.Answer) -> None:
        tag = subject.sha256(kit.SHARD) if damage else "0" * 64
        content = answer.content if damage is None else answer.content[:-1] + b"?"
        answer.headers(200, {"Content-Length": str(SIZE), "ETag": f'"{tag}"', "X-Linked-Etag": f'"{tag}"'})
        answer.body(content)

    subject.hub.misbehave(kit.SHARD, tagged)
    if damage:
        assert failing(subject).error_class == "corrupt_source"
    else:
        subject.present()
        subject.assert_whole()


@pytest.mark.parametrize(
    ("fault", "error_class"), [(401, "auth"), (404, "not_found"), (500, "network"), (None, "network")]
)
def test_a_partial_model_is_no_success(subject: Subject, fault: int | None, error_class: str) -> None:
    """Whatever keeps the source from answering, only the lock says what is complete."""
    subject.interrupted(kit.SHARD, 1000)
    subject.interrupted("config.json", len(subject.hub.files["config.json"]))
    url = subject.hub.url
    if fault is None:
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    else:
        for path in subject.hub.files:
            subject.hub.misbehave(path, *[kit.status(fault)] * 10)
    assert failing(subject, {"type": "hub", "url": url}).error_class == error_class
    assert subject.part(kit.SHARD).stat().st_size == 1000


def test_a_failure_leaves_what_was_published_before(subject: Subject) -> None:
    """The next revision fails in every way; readers keep the one before."""
    subject.present()
    newer = {**subject.hub.files, kit.SHARD: kit.safetensors("newer", SIZE)}
    document, subject.document = subject.document, kit.lock_of(newer, "f" * 40)
    for fault in (kit.flipped, kit.shortened, kit.closed_after(1000), kit.reset_after(1000), kit.status(401)):
        with kit.running(newer, revision="f" * 40) as hub:
            hub.misbehave(kit.SHARD, *[fault] * 10)
            with pytest.raises(StoreError):
                subject.present({"type": "hub", "url": hub.url})
        subject.assert_whole()
    subject.document = document
    assert not subject.present()[0]


def test_a_connection_that_is_too_slow_counts_as_dead(subject: Subject) -> None:
    subject.patience = Patience(retries=3, first_wait=0.01, min_rate=200_000, rate_window=0.4)
    subject.hub.misbehave(kit.SHARD, kit.dripping(50_000))
    began = time.monotonic()
    _changed, store = subject.present()
    subject.assert_whole()
    assert store.tally.retries == 1
    assert time.monotonic() - began < SIZE / 50_000 / 2
    assert store.tally.bytes_fetched == sum(map(len, set(subject.hub.files.values()))), "no byte came twice"


def test_a_source_that_stays_too_slow_is_left_for_the_next_one(subject: Subject) -> None:
    subject.patience = Patience(retries=1, first_wait=0.01, min_rate=200_000, rate_window=0.2)
    subject.hub.misbehave(kit.SHARD, *[kit.dripping(50_000)] * 2)
    with kit.running(subject.hub.files) as second:
        subject.present({"type": "hub", "url": subject.hub.url}, {"type": "hub", "url": second.url})
        assert kit.SHARD in [asked.path for asked in second.asked]
        assert [asked.headers.get("Range") is None for asked in second.asked if asked.path == kit.SHARD] == [False]
    subject.assert_whole()


def test_the_pace_is_an_average_of_the_time_spent_waiting() -> None:
    pace = Pace(Patience(retries=0, min_rate=100, rate_window=10))
    assert pace.too_slow(0, 9.9) is None, "the window is not over"
    assert pace.too_slow(1000, 0.1) is None, "100 a second are enough"
    assert pace.too_slow(999, 10) == pytest.approx(99.9)
    assert pace.too_slow(1000, 10) is None, "each window is judged by itself"
    unlimited = Pace(Patience(retries=0, min_rate=0, rate_window=10))
    assert unlimited.too_slow(0, 1000) is None


def test_a_refused_range_is_asked_whole(subject: Subject) -> None:
    subject.interrupted(kit.SHARD, 345_678)
    subject.hub.misbehave(kit.SHARD, kit.status(416))
    subject.present()
    subject.assert_whole()


def test_a_range_of_a_file_of_another_size_contradicts_the_lock(subject: Subject) -> None:
    subject.interrupted(kit.SHARD, 345_678)
    subject.hub.misbehave(kit.SHARD, kit.range_of_other_file)
    error = failing(subject)
    assert error.error_class == "corrupt_source"
    assert subject.part(kit.SHARD).stat().st_size == 345_678, "the prefix is kept"


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_a_failure_that_passes_is_borne(subject: Subject, code: int) -> None:
    subject.hub.misbehave(kit.SHARD, kit.status(code), kit.status(code))
    _changed, store = subject.present()
    subject.assert_whole()
    assert store.tally.retries == 2


@pytest.mark.parametrize(
    ("code", "error_class", "tries"),
    [
        (401, "auth", 1),
        (403, "auth", 1),
        (404, "not_found", 1),
        (410, "not_found", 1),
        (418, "network", 1),
        (429, "rate_limited", 4),
        (503, "network", 4),
    ],
)
def test_a_failure_that_stays_has_its_class(subject: Subject, code: int, error_class: str, tries: int) -> None:
    subject.hub.misbehave(kit.SHARD, *[kit.status(code)] * 10)
    error = failing(subject)
    assert error.error_class == error_class
    assert f"answered {code}" in str(error)
    assert len([asked for asked in subject.hub.asked if asked.path == kit.SHARD]) == tries


def test_a_missing_file_is_asked_of_the_next_source_and_the_rest_of_the_first(subject: Subject) -> None:
    with kit.running(subject.hub.files) as second:
        subject.hub.misbehave(kit.SHARD, kit.status(404))
        subject.present({"type": "hub", "url": subject.hub.url}, {"type": "hub", "url": second.url})
        assert [asked.path for asked in second.asked] == [kit.SHARD]
    subject.assert_whole()


def test_a_dead_source_is_tried_once_per_run_not_once_per_file(subject: Subject) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    store = subject.open(workers=1)
    subject.present({"type": "hub", "url": address}, {"type": "hub", "url": subject.hub.url}, store=store)
    subject.assert_whole()
    assert store.tally.retries == subject.patience.retries


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"Retry_After": "7"}, 7, 8),
        (
            {"Retry_After": email.utils.formatdate(time.time() + 3600 * 24 * 365 * 20, usegmt=True)},
            None,
            None,
        ),
        ({"Retry_After": "Mon, 01 Jan 2001 00:00:00 GMT"}, 0, 1),
        ({"RateLimit": '"api";r=0;t=55'}, 55, 56),
        ({"Retry_After": "soon"}, 0, 1),
        ({"Retry_After": "331"}, None, None),
    ],
)
def test_the_wait_that_a_source_asks_for_is_kept(
    subject: Subject, headers: dict[str, str], low: float | None, high: float | None
) -> None:
    waited: list[float | None] = []

    class Noting(Patience):
        def wait(self, failures: int, asked: float | None) -> float | None:
            waited.append(super().wait(failures, asked))
            return None if waited[-1] is None else 0.0

    subject.patience = Noting(retries=3, first_wait=0.01)
    subject.hub.misbehave(kit.SHARD, kit.status(429, **headers))
    if low is None or high is None:
        assert failing(subject).error_class == "rate_limited"
        assert waited == [None]
    else:
        subject.present()
        assert waited[0] is not None
        assert low <= waited[0] <= high


def test_waits_grow_spread_and_end() -> None:
    patience = Patience(retries=5)
    for failures in range(1, 6):
        spread = {patience.wait(failures, None) for _round in range(50)}
        assert len(spread) > 1
        assert all(2 ** (failures - 1) / 2 <= (wait or 0) <= 2 ** (failures - 1) * 1.5 for wait in spread)
    assert patience.wait(6, None) is None
    assert (Patience(retries=50).wait(50, None) or 0) <= 90


def test_the_token_is_sent_to_the_source_and_not_where_it_redirects(subject: Subject) -> None:
    subject.token = "hf_canary"
    with kit.running(subject.hub.files) as elsewhere:
        target = f"{elsewhere.url}/{kit.REPO}/resolve/{kit.REVISION}/{kit.SHARD}"
        here = f"/{kit.REPO}/resolve/{kit.REVISION}/config.json"
        subject.hub.misbehave(kit.SHARD, kit.status(302, Location=target))
        subject.hub.misbehave("config.json", kit.status(307, Location=here))
        subject.interrupted(kit.SHARD, 1000)
        _changed, store = subject.present()
        assert [asked.path for asked in elsewhere.asked] == [kit.SHARD]
        assert "Authorization" not in elsewhere.asked[0].headers
        assert elsewhere.asked[0].headers["Range"] == "bytes=1000-"
    assert {asked.headers["Authorization"] for asked in subject.hub.asked} == {"Bearer hf_canary"}
    assert len([asked for asked in subject.hub.asked if asked.path == "config.json"]) == 2
    assert store.tally.requests == len(subject.hub.asked) + 1
    subject.assert_whole()


def test_a_permanent_redirect_is_followed_on_every_python(subject: Subject) -> None:
    with kit.running(subject.hub.files) as elsewhere:
        target = f"{elsewhere.url}/{kit.REPO}/resolve/{kit.REVISION}/{kit.SHARD}"
        subject.hub.misbehave(kit.SHARD, kit.status(308, Location=target))
        subject.present()
    subject.assert_whole()


def test_the_token_does_not_travel_in_the_clear(subject: Subject) -> None:
    subject.token = "hf_canary"
    error = failing(subject, {"type": "hub", "url": "http://mirror.invalid:8080"})
    assert error.error_class == "auth"
    assert "hf_canary" not in str(error)


@pytest.mark.parametrize("url", ["https://user:canary@hub.invalid", "https://hub.invalid/?token=canary"])
def test_an_address_with_a_secret_is_refused_without_repeating_it(subject: Subject, url: str) -> None:
    with pytest.raises(StoreError) as failure:
        subject.present({"type": "hub", "url": url})
    assert failure.value.error_class == "auth"
    assert "canary" not in str(failure.value)


def test_an_address_of_another_kind_is_refused(subject: Subject) -> None:
    lock = parse_lock(subject.document)
    with pytest.raises(ValueError, match="not an http or https address"):
        open_sources([{"type": "hub", "url": "ftp://hub.invalid"}], lock, None, 1, Tally())


@pytest.mark.parametrize("content", [b"", b"two canaries", b"canary\nother", b"canary\xff"])
def test_a_token_file_that_holds_something_else_is_not_quoted(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(StoreError) as failure:
        read_token(None, str(file))
    assert failure.value.error_class == "auth"
    assert "canar" not in str(failure.value)


def test_a_token_is_read_without_its_newline(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("hf_canary\n")
    assert read_token(None, str(file)) == "hf_canary"
    with pytest.raises(StoreError, match="No such file"):
        read_token(None, str(tmp_path / "none"))


def test_too_little_space_is_found_before_the_first_byte(subject: Subject, small_disk: Path) -> None:
    kit.fill(small_disk, 800_000)
    before = kit.listing(small_disk)
    with pytest.raises(StoreError) as predicted:
        subject.open().check_present()
    assert kit.listing(small_disk) == before
    error = failing(subject)
    assert error.error_class == predicted.value.error_class == "no_space"
    assert error.facts["bytes_needed"] > 1_620_000 > 800_000 >= error.facts["bytes_free"]
    assert subject.hub.asked == []


def test_the_reserve_stays_free(subject: Subject, small_disk: Path) -> None:
    store = subject.open(reserve_bytes=3_000_000)
    with pytest.raises(StoreError) as failure:
        subject.present(store=store)
    assert failure.value.error_class == "no_space"
    assert failure.value.facts["bytes_needed"] > 1_620_000 + 3_000_000
    assert store.space is not None
    assert not store.space.enough
    assert subject.hub.asked == []
    assert subject.present(store=subject.open(reserve_bytes=2_000_000))[0]
    assert not subject.present(store=subject.open(reserve_bytes=3_000_000))[0], "nothing is to come, nothing is refused"


def test_too_few_inodes_are_found_before_the_first_byte(subject: Subject) -> None:
    subject.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=20", "tmpfs", str(subject.root)], check=True)
    try:
        with pytest.raises(StoreError, match=r"needs \d+ inodes for org/model and has \d+ free") as failure:
            subject.present()
        assert failure.value.error_class == "no_space"
        assert subject.hub.asked == []
    finally:
        subprocess.run(["umount", str(subject.root)], check=True)


def test_a_store_that_cannot_be_written_to_is_found_before_the_first_byte(subject: Subject, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OSError, match="Read-only file system"):
        subject.present()
    with pytest.raises(OSError, match="Read-only file system; nothing has been fetched"):
        subject.open().check_present()
    assert subject.hub.asked == []


def test_a_disk_that_fills_up_keeps_what_came_and_goes_on_later(subject: Subject, small_disk: Path) -> None:
    subject.hub.misbehave(kit.SHARD, kit.first(lambda: kit.fill(small_disk, 300_000)))
    store = subject.open(workers=1)
    with pytest.raises(StoreError) as failure:
        subject.present(store=store)
    assert failure.value.error_class == "no_space"
    assert kit.SHARD in str(failure.value)
    subject.assert_nothing_wrong()
    assert not (subject.model / "current").exists()
    kept = subject.part(kit.SHARD).stat().st_size
    assert kept > 0
    (small_disk / "ballast").unlink()
    subject.hub.forget()
    subject.present()
    subject.assert_whole()
    assert subject.hub.sent(kit.SHARD) == SIZE - kept


def test_one_failure_stops_the_other_workers_and_keeps_their_bytes(subject: Subject) -> None:
    """The first shard drips in when the second proves bad: it ends early and serves the next run."""
    other = "model-00001-of-00002.safetensors"
    dripping = threading.Event()

    def drip(answer: kit.Answer) -> None:
        rest = answer.start()
        for offset in range(0, len(rest), 1000):
            answer.body(rest[offset : offset + 1000])
            dripping.set()
            time.sleep(0.01)

    def bad_once_the_other_drips(answer: kit.Answer) -> None:
        dripping.wait(30)
        kit.flipped(answer)

    subject.hub.misbehave(other, drip)
    subject.hub.misbehave(kit.SHARD, bad_once_the_other_drips)
    assert failing(subject).error_class == "corrupt_source"
    kept = subject.part(other).stat().st_size
    assert 0 < kept < len(subject.hub.files[other])
    subject.hub.forget()
    subject.present()
    subject.assert_whole()
    assert subject.hub.sent(other) == len(subject.hub.files[other]) - kept


def test_a_rotten_prefix_does_not_shield_a_bad_source(subject: Subject) -> None:
    subject.part(kit.SHARD).parent.mkdir(parents=True)
    subject.part(kit.SHARD).write_bytes(b"rot" * 1000)
    subject.hub.misbehave(kit.SHARD, kit.flipped, kit.flipped)
    assert failing(subject, workers=1).error_class == "corrupt_source"
    assert len(subject.hub.asked) == 2


def test_a_source_folder_with_holes(subject: Subject, tmp_path: Path) -> None:
    folder = tmp_path / "usb"
    folder.mkdir()
    (folder / kit.SHARD).write_bytes(b"short")
    error = failing(subject, {"type": "path", "path": str(folder)}, workers=1)
    assert error.error_class == "corrupt_source"
    (folder / kit.SHARD).unlink()
    assert failing(subject, {"type": "path", "path": str(folder)}).error_class == "not_found"
