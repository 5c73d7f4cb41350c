# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One writer per store: waiting for it, and the lease where flock is not enough."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import threading
import time
import typing as t
import urllib.parse
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store import holder, lease
from ansible_collections.inferops.serving.plugins.module_utils._store import store as store_module
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.holder import sole_writer
from ansible_collections.inferops.serving.plugins.module_utils._store.lease import (
    LEASE_NAME,
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


def leave_lease(store: Path, seconds: float) -> Path:
    """A lease of another host that was touched so many seconds ago, as its run left it."""
    other = Lease(str(store / LEASE_NAME), WHO)
    other.take()
    other._ended.set()
    other._keeper.join()
    grow_old(entry(store), seconds)
    return entry(store)


def entry(store: Path) -> Path:
    """The one file whose name says whose the lease is."""
    (only,) = (path for path in (store / LEASE_NAME).iterdir() if path.name != "clock")
    return only


def pid_in(lease: Path) -> int:
    return int(urllib.parse.parse_qs(lease.name)["pid"][0])


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
        assert (tmp_path / LEASE_NAME).exists() == network
        assert not network or pid_in(entry(tmp_path)) == os.getpid()
    if network:
        assert entry(tmp_path).name == "free"
        shutil.rmtree(tmp_path / LEASE_NAME)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_the_kernel_tells_the_type(tmp_path: Path) -> None:
    assert file_system_of("/proc/self") == "proc"
    assert file_system_of(str(tmp_path)) not in ("unknown", "proc")


def test_a_lease_of_another_host_is_respected_while_it_is_fresh(tmp_path: Path) -> None:
    theirs = leave_lease(tmp_path, 50)
    fresh = pytest.raises(StoreError, match=r"process 4711 on other\.example\.com since")
    with fresh as refusal, sole_writer(str(tmp_path), file_system=nfs):
        pass
    assert (refusal.value.error_class, refusal.value.facts["holder"]) == ("locked", WHO)
    assert entry(tmp_path) == theirs
    assert (tmp_path / ".lock").read_text() == "", "who could not write does not say that it does"


def test_a_stale_lease_is_taken_over_and_that_is_told(tmp_path: Path) -> None:
    leave_lease(tmp_path, 61)
    with sole_writer(str(tmp_path), file_system=nfs) as holding:
        assert holding.taken_over == WHO
        assert pid_in(entry(tmp_path)) == os.getpid()
    assert entry(tmp_path).name == "free"
    with sole_writer(str(tmp_path), file_system=nfs) as holding:
        assert holding.taken_over is None, "a lease that was given back is nobody's, however old it is"


@pytest.mark.parametrize("there", [[], ["notes.txt"], ["pid=x&host=y&started=z"]])
def test_what_is_no_lease_is_not_taken(tmp_path: Path, there: list[str]) -> None:
    """A directory that somebody emptied gets a new lease; what somebody put into it is left alone and never taken."""
    (tmp_path / LEASE_NAME).mkdir()
    for name in there:
        (tmp_path / LEASE_NAME / name).touch()
    mine = Lease(str(tmp_path / LEASE_NAME), WHO)
    if there:
        with pytest.raises(Held):
            mine.take()
        assert {path.name for path in (tmp_path / LEASE_NAME).iterdir()} == {*there, "clock"}
    else:
        mine.take()
        mine.release()
        assert entry(tmp_path).name == "free"


def test_a_lease_is_kept_fresh(tmp_path: Path) -> None:
    kept = Lease(str(tmp_path / LEASE_NAME), WHO, refresh=0.05, stale=60)
    kept.take()
    path = entry(tmp_path)
    grow_old(path, 1000)
    deadline = time.monotonic() + 30
    while time.time() - path.stat().st_mtime > 900:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not kept.lost
    kept.release()
    assert not path.exists()


def test_a_lease_that_was_taken_away_is_lost_and_left_alone(tmp_path: Path) -> None:
    kept = Lease(str(tmp_path / LEASE_NAME), WHO, refresh=0.05, stale=60)
    kept.take()
    path = entry(tmp_path).rename(tmp_path / LEASE_NAME / "pid=1&host=other&started=now&token=x")
    deadline = time.monotonic() + 30
    while not kept.lost:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(StoreError, match="lease on /store was lost"):
        holder.Holding("/store", kept).check()
    kept.release()
    assert entry(tmp_path) == path


def test_a_lease_that_could_not_be_refreshed_counts_as_lost(tmp_path: Path) -> None:
    kept = Lease(str(tmp_path / LEASE_NAME), WHO, refresh=60, stale=0.05)
    kept.take()
    time.sleep(0.1)
    assert kept.lost
    kept.release()


@pytest.mark.parametrize("left", ["nothing", "a free lease", "a stale lease"])
def test_one_of_many_takes_the_lease(tmp_path: Path, left: str) -> None:
    for number in range(40):
        store = tmp_path / str(number)
        store.mkdir()
        if left != "nothing":
            leave_lease(store, 1000)
        if left == "a free lease":
            entry(store).rename(store / LEASE_NAME / "free")
        rivals = [Lease(str(store / LEASE_NAME), {**WHO, "pid": number}) for number in range(4)]
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
        (winner,) = winners
        assert str(entry(store)) == winner._ours
        winner.release()


def test_a_slow_rival_never_takes_a_lease_from_whom_it_has_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw a stale lease. Until it gets to take it, another run has it: that one keeps it, and no third gets one."""
    leave_lease(tmp_path, 1000)
    slow, fast, third = (Lease(str(tmp_path / LEASE_NAME), {**WHO, "pid": number}) for number in (1, 2, 3))
    look = slow._look

    def overtaken() -> tuple[str, float]:
        seen = look()
        fast.take()
        return seen

    monkeypatch.setattr(slow, "_look", overtaken)
    for late in (slow, third):
        with pytest.raises(Held):
            late.take()
    assert str(entry(tmp_path)) == fast._ours
    assert not fast.lost
    fast.release()


def test_a_rename_that_the_server_did_twice_is_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose answer got lost is sent again, and the second answer is that there is no such file."""
    rename = os.rename

    def twice(source: str, target: str) -> None:
        rename(source, target)
        rename(source, target)

    mine = Lease(str(tmp_path / LEASE_NAME), WHO)
    mine._make()
    monkeypatch.setattr(os, "rename", twice)
    mine.take()
    monkeypatch.undo()
    assert str(entry(tmp_path)) == mine._ours
    mine.release()


def test_a_run_on_a_network_file_system(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells whose stale lease it took, and publishes nothing once it has lost its own."""
    monkeypatch.setattr(store_module, "sole_writer", functools.partial(sole_writer, file_system=nfs))
    subject.root.mkdir()
    leave_lease(subject.root, 61)

    with monkeypatch.context() as losing:
        losing.setattr(Lease, "lost", True)
        with pytest.raises(StoreError, match=r"lease on .* was lost") as failure:
            subject.present()
    assert failure.value.error_class == "locked"
    assert not (subject.model / "current").exists()
    leave_lease(subject.root, 61)
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
        assert pid_in(entry(tmp_path)) == os.getpid()
    with pytest.raises(OSError, match="no locks"), sole_writer(str(tmp_path), file_system=lambda _path: "ext4"):
        pass


def test_mount_points_with_blanks_are_understood() -> None:
    assert lease._unescaped("/mnt/my\\040disk\\134x") == "/mnt/my disk\\x"
