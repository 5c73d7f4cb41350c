# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The torrent source with a real aria2 and a real tracker: what it brings is proved, whatever aria2 thought of it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store import swarm, torrent
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.store import ModelStore
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

from tests.engine.loopback import free_port
from tests.unit.plugins.module_utils._store import store_kit as kit
from tests.unit.plugins.module_utils._store import swarm_kit
from tests.unit.plugins.module_utils._store.test_store_torrent import HOSTILE
from tests.unit.plugins.modules import test_model_snapshot as module_kit

FILES = kit.model_files()
UNIQUE = sum(map(len, set(FILES.values())))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[swarm_kit.Site]:
    for name in [name for name in os.environ if "proxy" in name.lower()]:
        monkeypatch.delenv(name)
    with swarm_kit.site(tmp_path, FILES) as made:
        yield made


def assert_whole(store: Path) -> None:
    """Readers find every file with its content, and nothing is left beside."""
    model = store / "models--org--model"
    assert {path: (model / "current" / path).read_bytes() for path in FILES} == FILES
    assert not (model / ".torrent").exists()
    assert list((model / "blobs/.part").iterdir()) == []


def aria2_of(folder: Path) -> list[str]:
    """The running aria2 processes that write below a folder."""
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if swarm.ARIA2 in line and str(folder) in line]


def test_three_hosts_at_once(site: swarm_kit.Site) -> None:
    stores = [site.root / f"host{number}" for number in range(3)]
    models: dict[Path, ModelStore] = {}

    def fetch(store: Path) -> None:
        models[store] = site.present(store, site.source())

    threads = [threading.Thread(target=fetch, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for store in stores:
        assert_whole(store)
        tally = models[store].tally
        assert (tally.served_by, tally.quarantined) == ([site.name], [])
        assert tally.bytes_hashed == UNIQUE, "proved by reading, once"
        assert tally.requests == 1


def test_a_second_run_asks_nobody(site: swarm_kit.Site) -> None:
    store = site.root / "host"
    site.present(store, site.source())
    site.hub.forget()
    before = kit.listing(store)
    site.present(store, site.source())
    assert site.hub.asked == []
    assert kit.listing(store) == before


def test_only_what_is_missing_comes(site: swarm_kit.Site) -> None:
    store = site.root / "host"
    site.present(store, site.source())
    lock = parse_lock(site.document)
    blob = next(blob for blob in lock.blobs() if blob.path == "tokenizer/nested/vocab.txt")
    Path(ModelDir(str(store), lock.repo).blob(blob.sha256)).unlink()
    site.hub.forget()
    site.present(store, site.source(), stall_timeout=5)
    assert_whole(store)
    assert site.hub.sent() < UNIQUE / 2, "its pieces, and no more"


@pytest.mark.parametrize("change", ["file", "all"])
def test_a_mirror_that_lies_in_torrent_and_seed_is_found_out(site: swarm_kit.Site, change: str) -> None:
    """aria2 is content: the pieces are those that the torrent names."""
    bad = {path: bytes([content[0] ^ 1]) + content[1:] for path, content in FILES.items() if content}
    if change == "file":
        bad = {kit.SHARD: bad[kit.SHARD]}
    lock = parse_lock(site.document)
    model = ModelDir(str(site.root / "bad"), lock.repo)
    Path(model.blobs).mkdir(parents=True)
    for blob in lock.blobs():
        Path(model.blob(blob.sha256)).write_bytes(bad.get(blob.path, FILES[blob.path]))
    pieces = torrent.hash_pieces(model, lock, 1)
    site.offer(torrent.metainfo(lock, torrent.Metainfo(site.said.announce, site.said.web_seed, pieces)))
    site.hub.files.update(bad)
    with pytest.raises(StoreError) as failure:
        site.present(site.root / "host", site.source())
    assert failure.value.error_class == "corrupt_source"
    assert site.hub.url in str(failure.value)
    assert not (site.root / "host/models--org--model/current").exists()
    with kit.running(FILES) as good:
        model_store = site.present(site.root / "host", site.source(), {"type": "hub", "url": good.url})
    assert good.url in model_store.tally.served_by
    assert model_store.tally.quarantined
    assert_whole(site.root / "host")


def test_a_corrupt_web_seed_is_left_for_the_next_source(site: swarm_kit.Site) -> None:
    """aria2 itself finds the bad piece and would ask for it for ever. What it has brought before counts, and gives way
    file by file: this disk has room for the model once."""
    store = site.root / "host"
    store.mkdir()
    site.hub.files[kit.SHARD] = FILES[kit.SHARD][:-1] + b"x"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2400k", "tmpfs", str(store)], check=True)
    try:
        with kit.running(FILES) as good:
            hub = {"type": "hub", "url": good.url}
            model = site.present(store, site.source(), hub, stall_timeout=3)
            assert sorted(model.tally.served_by) == sorted([site.name, good.url])
            assert [asked.path for asked in good.asked if asked.path.startswith("model-")] == [kit.SHARD]
            assert good.sent() < 256 << 10, "of the last piece, which is bad"
        assert_whole(store)
        assert aria2_of(store) == []
    finally:
        subprocess.run(["umount", str(store)], check=True)


def test_what_an_earlier_run_has_staged_gives_way_too(site: swarm_kit.Site) -> None:
    """The mirror has no torrent any more."""
    store = site.root / "host"
    site.hub.misbehave(kit.SHARD, *[kit.flipped] * 200)
    with pytest.raises(StoreError):
        site.present(store, site.source(), stall_timeout=1.5)
    staged = store / "models--org--model/.torrent"
    assert any(staged.rglob("*.safetensors"))
    del site.hub.files[site.address]
    site.hub.faults.clear()
    seen = []
    site.hub.misbehave(kit.SHARD, kit.first(lambda: seen.append(staged.exists())))
    site.present(store, site.source(), {"type": "hub", "url": site.hub.url})
    assert seen == [False]
    assert_whole(store)


@pytest.mark.parametrize(
    "faults",
    [
        [kit.flipped, kit.zeroed],
        [kit.closed_after(300_000), kit.reset_after(300_000), kit.status(503)],
        ["silence"],
    ],
    ids=["wrong bytes", "breaks", "silence"],
)
def test_a_web_seed_that_fails_for_a_while_is_borne(site: swarm_kit.Site, faults: list[t.Any]) -> None:
    """aria2 asks again for the pieces that did not come, or came wrong."""
    release = threading.Event()
    faults = [kit.held_after(100_000, release) if fault == "silence" else fault for fault in faults]
    site.hub.misbehave(kit.SHARD, *faults)
    try:
        model = site.present(site.root / "host", site.source(), stall_timeout=6)
    finally:
        release.set()
    assert site.hub.faults[kit.SHARD] == []
    assert (model.tally.served_by, model.tally.quarantined) == ([site.name], [])
    assert_whole(site.root / "host")


@pytest.mark.parametrize(
    "fault",
    [kit.status(401), kit.status(404), kit.status(429), kit.reset_after(0), kit.range_shifted, kit.shortened],
    ids=["401", "404", "429", "gone", "wrong offset", "shorter file"],
)
def test_a_web_seed_that_fails_for_good_is_no_success(site: swarm_kit.Site, fault: kit.Fault) -> None:
    """What was published before stays; no other host has the files."""
    store = site.root / "host"
    document, before = site.document, {**FILES, kit.SHARD: kit.safetensors("before", 1000)}
    with kit.running(before, revision="e" * 40) as hub:
        site.document = kit.lock_of(before, "e" * 40)
        site.present(store, {"type": "hub", "url": hub.url})
    site.document = document
    site.hub.misbehave(kit.SHARD, *[fault] * 200)
    with pytest.raises(StoreError) as failure:
        site.present(store, site.source(), stall_timeout=1.5)
    assert failure.value.error_class == "network"
    assert site.hub.url in str(failure.value)
    current = store / "models--org--model/current"
    assert {path: (current / path).read_bytes() for path in before} == before
    assert aria2_of(store) == []


@pytest.mark.parametrize(
    ("fault", "error_class"),
    [
        (kit.status(401), "auth"),
        (kit.status(429, Retry_After="0"), "rate_limited"),
        (kit.status(503), "network"),
        (kit.closed_after(0), "network"),
        (kit.closed_after(100), "network"),
        (kit.flipped, "corrupt_source"),
        (kit.shortened, "corrupt_source"),
        (lambda answer: answer.body(answer.start(b"<html>Sign in</html>")), "corrupt_source"),
    ],
)
def test_a_torrent_that_does_not_come_has_its_class(
    site: swarm_kit.Site, monkeypatch: pytest.MonkeyPatch, fault: kit.Fault, error_class: str
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    site.hub.misbehave(site.address, *[fault] * 50)
    with pytest.raises(StoreError) as failure:
        site.present(site.root / "host", site.source())
    assert failure.value.error_class == error_class
    assert not (site.root / "host/models--org--model/current").exists()
    site.present(site.root / "host", site.source(), {"type": "hub", "url": site.hub.url})
    assert_whole(site.root / "host")  # the mirror's files are another source than its torrent


def test_the_torrent_of_another_lock_is_refused(site: swarm_kit.Site) -> None:
    lock = parse_lock(kit.lock_of(FILES, "f" * 40))
    site.offer(torrent.metainfo(lock, site.said))
    with pytest.raises(StoreError, match="are not those that follow from the lock") as failure:
        site.present(site.root / "host", site.source())
    assert failure.value.error_class == "corrupt_source"


def test_a_mirror_that_is_gone(site: swarm_kit.Site) -> None:
    source = site.source(url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(StoreError) as failure:
        site.present(site.root / "host", source)
    assert failure.value.error_class == "network"
    model = site.present(site.root / "host", source, {"type": "hub", "url": site.hub.url})
    assert model.tally.served_by == [site.hub.url]
    assert_whole(site.root / "host")


def test_without_the_tracker_the_web_seed_is_enough(site: swarm_kit.Site) -> None:
    away = torrent.Metainfo(f"http://127.0.0.1:{free_port()}/announce", site.said.web_seed, site.said.pieces)
    site.offer(torrent.metainfo(parse_lock(site.document), away))
    site.present(site.root / "host", site.source())
    assert_whole(site.root / "host")


def test_a_disk_that_fills_up_under_a_torrent(site: swarm_kit.Site) -> None:
    store = site.root / "host"
    store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(store)], check=True)
    try:
        # aria2 takes the pieces in any order
        for path in FILES:
            site.hub.misbehave(path, kit.first(lambda: kit.fill(store, 200_000)))
        with pytest.raises(StoreError) as failure:
            site.present(store, site.source())
        assert failure.value.error_class == "no_space"
        assert not (store / "models--org--model/current").exists()
        site.hub.faults.clear()
        (store / "ballast").unlink()
        site.present(store, site.source())
        assert_whole(store)
    finally:
        subprocess.run(["umount", str(store)], check=True)


@pytest.mark.parametrize("change", ["a path upwards", "more web seeds"])
def test_a_hostile_torrent_never_reaches_aria2(
    site: swarm_kit.Site, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    document = torrent.decode(site.hub.files[site.address])
    HOSTILE[change](document)
    site.offer(torrent.encode(document))
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(StoreError) as failure:
        site.present(site.root / "host", site.source())
    assert failure.value.error_class == "corrupt_source"
    assert "was refused" in str(failure.value)


def test_a_mirror_without_the_torrent_is_asked_once(site: swarm_kit.Site) -> None:
    del site.hub.files[site.address]
    model = site.present(site.root / "host", site.source(), {"type": "hub", "url": site.hub.url})
    assert [asked.path for asked in site.hub.asked].count(site.address) == 1
    assert model.tally.served_by == [site.hub.url]
    with pytest.raises(StoreError, match="sglang_mirror_torrent"):
        site.present(site.root / "other", site.source())


def test_a_host_without_aria2_is_told_the_package(site: swarm_kit.Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StoreError, match="Install the Debian package aria2"):
        site.present(site.root / "host", site.source())


@pytest.mark.parametrize("victim", ["module", "aria2"])
def test_a_killed_run_leaves_no_process_and_is_taken_up(tmp_path: Path, victim: str) -> None:
    files = {**FILES, "more.bin": kit.noise("more", 6 << 20)}
    with swarm_kit.site(tmp_path, files) as site:
        # slow enough to be killed in the middle
        for path in files:
            site.hub.misbehave(path, *[kit.dripping(1 << 20)] * 50)
        arguments = {"lock": site.document, "store": str(tmp_path / "host"), "sources": [site.source()]}
        process = module_kit.start(arguments)
        staged = tmp_path / "host/models--org--model/.torrent"

        def some_came() -> bool:
            records = list(staged.glob("*/*.aria2"))
            return bool(records) and any(records[0].read_bytes()[54:58])

        kit.wait_until(some_came)
        if victim == "module":
            process.send_signal(signal.SIGKILL)
            process.communicate()
        else:
            children = Path(f"/proc/{process.pid}/task").glob("*/children")
            (child,) = [int(pid) for file in children for pid in file.read_text().split()]
            os.kill(child, signal.SIGKILL)
            assert module_kit.finish(process)["error_class"] == "network"
        kit.wait_until(lambda: aria2_of(tmp_path / "host") == [])
        site.hub.faults.clear()
        site.hub.forget()
        result = module_kit.run(arguments)
        assert result["changed"]
        assert result["bytes_resumed"] > 0
        assert site.hub.sent() < sum(map(len, files.values()))
        assert (tmp_path / "host/models--org--model/current/more.bin").read_bytes() == files["more.bin"]
        assert aria2_of(tmp_path / "host") == []


def test_files_that_were_brought_before_a_kill_are_not_brought_again(site: swarm_kit.Site) -> None:
    """Killed while it proved: some files are moved away, the others wait."""
    store = site.root / "host"
    lock = parse_lock(site.document)
    model = ModelDir(str(store), lock.repo)
    opened = swarm.SwarmSource(site.hub.url, lock, swarm.Swarming(), 20, Tally())
    Path(model.blobs).mkdir(parents=True)
    first = lock.blobs()[0]
    os.replace(opened.take(first, model, threading.Event()), model.blob(first.sha256))
    site.hub.forget()
    site.present(store, site.source())
    assert {asked.path for asked in site.hub.asked} == {site.address}
    assert_whole(store)


def test_a_published_revision_is_seeded_without_a_write(site: swarm_kit.Site) -> None:
    lock = parse_lock(site.document)
    model = ModelDir(str(site.root / swarm_kit.MIRROR_STORE), lock.repo)
    (site.root / "file.torrent").write_bytes(site.hub.files[site.address])
    ports = str(free_port())
    before = kit.listing(Path(model.root))
    command = swarm.seed_command(str(site.root / "file.torrent"), model, swarm.Swarming(ports, seed_seconds=60))
    for path in FILES:
        # the seeder alone has the files
        del site.hub.files[path]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as seeder:
        try:
            time.sleep(1)
            site.present(site.root / "host", site.source())
            assert seeder.wait(30) == 0, "it ends by itself when it has given as much as there is"
        finally:
            seeder.kill()
    assert_whole(site.root / "host")
    assert kit.listing(Path(model.root)) == before
