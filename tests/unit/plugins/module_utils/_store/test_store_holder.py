# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One writer per store: waiting for it, and the lease where flock is not enough."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store import holder, lease
from ansible_collections.inferops.serving.plugins.module_utils._store import store as store_module
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.holder import sole_writer
from ansible_collections.inferops.serving.plugins.module_utils._store.lease import (
    Held,
    Lease,
    file_system_of,
    is_network,
)

if t.TYPE_CHECKING:
    from tests.unit.plugins.module_utils._store.conftest import Subject

WHO = {"pid": 4711, "host": "other.example.com", "started": "2026-01-31T12:00:00Z"}


def nfs(_path: str) -> str:
    return "nfs4"


def grow_old(file: Path, seconds: float) -> None:
    past = time.time() - seconds
    os.utime(file, (past, past))


def test_the_holder_is_waited_for(tmp_path: Path) -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with sole_writer(str(tmp_path)):
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        held.wait(30)
        began = time.monotonic()
        with pytest.raises(StoreError, match=f"process {os.getpid()} on "), sole_writer(str(tmp_path), wait=0.5):
            pass
        assert 0.5 <= time.monotonic() - began < 10
        threading.Timer(0.3, release.set).start()
        with sole_writer(str(tmp_path), wait=30):
            assert release.is_set()
    finally:
        release.set()
        thread.join()


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        *((kind, True) for kind in ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "ceph", "fuse.sshfs", "fuse")),
        *((kind, False) for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay")),
    ],
)
def test_on_network_file_systems_there_is_a_lease_too(tmp_path: Path, kind: str, network: bool) -> None:
    assert is_network(kind) == network
    with sole_writer(str(tmp_path), file_system=lambda _path: kind) as holding:
        holding.check()
        assert (tmp_path / ".lease").exists() == network
        if network:
            written = json.loads((tmp_path / ".lease").read_text())
            assert (written["pid"], set(written)) == (os.getpid(), {"pid", "host", "started", "token"})
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_the_kernel_tells_the_type(tmp_path: Path) -> None:
    assert file_system_of("/proc/self") == "proc"
    assert file_system_of(str(tmp_path)) not in ("unknown", "proc")


def test_a_lease_of_another_host_is_respected_while_it_is_fresh(tmp_path: Path) -> None:
    (tmp_path / ".lease").write_text(json.dumps({**WHO, "token": "x"}))
    fresh = pytest.raises(StoreError, match=r"process 4711 on other\.example\.com since")
    with fresh as refusal, sole_writer(str(tmp_path), file_system=nfs):
        pass
    assert (refusal.value.error_class, refusal.value.facts["holder"]) == ("locked", WHO)
    assert json.loads((tmp_path / ".lease").read_text())["token"] == "x"
    assert (tmp_path / ".lock").read_text() == "", "who could not write does not say that it does"


@pytest.mark.parametrize("text", [json.dumps({**WHO, "token": "x"}), "", "torn {"])
def test_a_stale_lease_is_taken_over_and_that_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / ".lease").write_text(text)
    grow_old(tmp_path / ".lease", 61)
    with sole_writer(str(tmp_path), file_system=nfs) as holding:
        assert holding.taken_over == (WHO if text.startswith("{") else {})
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_a_lease_is_kept_fresh(tmp_path: Path) -> None:
    path = tmp_path / ".lease"
    kept = Lease(str(path), WHO, refresh=0.05, stale=60)
    kept.take()
    grow_old(path, 1000)
    deadline = time.monotonic() + 30
    while time.time() - path.stat().st_mtime > 900:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not kept.lost
    kept.release()
    assert not path.exists()


def test_a_lease_that_was_taken_away_is_lost_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ".lease"
    kept = Lease(str(path), WHO, refresh=0.05, stale=60)
    kept.take()
    path.write_text("somebody else's")
    deadline = time.monotonic() + 30
    while not kept.lost:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(StoreError, match="lease on /store was lost"):
        holder.Holding("/store", kept).check()
    kept.release()
    assert path.read_text() == "somebody else's"


def test_a_lease_that_could_not_be_refreshed_counts_as_lost(tmp_path: Path) -> None:
    kept = Lease(str(tmp_path / ".lease"), WHO, refresh=60, stale=0.05)
    kept.take()
    time.sleep(0.1)
    assert kept.lost
    kept.release()


def test_one_of_many_takes_a_stale_lease(tmp_path: Path) -> None:
    path = tmp_path / ".lease"
    for _round in range(20):
        path.write_text("old")
        grow_old(path, 1000)
        rivals = [Lease(str(path), {**WHO, "pid": number}) for number in range(4)]
        start = threading.Barrier(len(rivals))
        winners: list[Lease] = []

        def compete(rival: Lease, start: threading.Barrier, winners: list[Lease]) -> None:
            start.wait(30)
            with contextlib.suppress(Held):
                rival.take()
                winners.append(rival)

        threads = [threading.Thread(target=compete, args=(rival, start, winners)) for rival in rivals]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) <= 1
        for winner in winners:
            assert json.loads(path.read_text())["token"] == json.loads(winner._text)["token"]
            winner.release()


def test_a_run_on_a_network_file_system(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells whose stale lease it took, and publishes nothing once it has lost its own."""
    monkeypatch.setattr(store_module, "sole_writer", functools.partial(sole_writer, file_system=nfs))
    subject.root.mkdir()
    (subject.root / ".lease").write_text(json.dumps({**WHO, "token": "x"}))
    grow_old(subject.root / ".lease", 61)

    with monkeypatch.context() as losing:
        losing.setattr(Lease, "lost", True)
        with pytest.raises(StoreError, match=r"lease on .* was lost") as failure:
            subject.present()
    assert failure.value.error_class == "locked"
    assert not (subject.model / "current").exists()
    (subject.root / ".lease").write_text(json.dumps({**WHO, "token": "x"}))
    grow_old(subject.root / ".lease", 61)
    subject.hub.forget()
    changed, run = subject.present()
    assert (changed, run.taken_over) == (True, WHO)
    assert subject.hub.asked == [], "what the first run had fetched was kept"
    subject.assert_whole()


def test_a_file_system_without_locks_has_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(_descriptor: int, _operation: int) -> t.NoReturn:
        raise OSError(holder.errno.ENOLCK, "no locks available")

    monkeypatch.setattr(holder.fcntl, "flock", no_locks)
    with sole_writer(str(tmp_path), file_system=nfs):
        assert (tmp_path / ".lease").exists()
    with pytest.raises(OSError, match="no locks"), sole_writer(str(tmp_path), file_system=lambda _path: "ext4"):
        pass


def test_mount_points_with_blanks_are_understood() -> None:
    assert lease._unescaped("/mnt/my\\040disk\\134x") == "/mnt/my disk\\x"
