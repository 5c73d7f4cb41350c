# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it: a process of its own, arguments and result as JSON."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest

from tests.engine import hub as engine_hub
from tests.unit.plugins.module_utils._store import store_kit as kit

ROOT = Path(__file__).resolve().parents[4]
MODULE = ROOT / "plugins/modules/model_snapshot.py"
SIZE = len(kit.model_files()[kit.SHARD])
UNIQUE_SIZE = sum(map(len, set(kit.model_files().values())))
READ_BLOCK = 256 << 10
Result = dict[str, t.Any]


def spawn() -> subprocess.Popen[str]:
    """The module, which waits for its arguments."""
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return subprocess.Popen(
        [sys.executable, str(MODULE)],
        env={**environment, "PYTHONPATH": str(ROOT / "collections")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start(arguments: Result, process: subprocess.Popen[str] | None = None) -> subprocess.Popen[str]:
    process = process or spawn()
    assert process.stdin is not None
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    process.stdin.close()
    process.stdin = None
    return process


def finish(process: subprocess.Popen[str]) -> Result:
    output, errors = process.communicate(timeout=120)
    assert errors == ""
    result: Result = json.loads(output)
    assert process.returncode == (1 if result.get("failed") else 0)
    return result


def run(arguments: Result, **changes: t.Any) -> Result:
    return finish(start({**arguments, **changes}))


@pytest.fixture
def hub() -> t.Iterator[kit.Hub]:
    with kit.running(kit.model_files()) as running:
        yield running


@pytest.fixture
def arguments(hub: kit.Hub, tmp_path: Path) -> Result:
    return {
        "lock": kit.lock_of(hub.files),
        "store": str(tmp_path / "srv/models"),
        "sources": [{"type": "hub", "url": hub.url}],
    }


def test_check_then_run_then_run_again(arguments: Result, hub: kit.Hub) -> None:
    store = Path(arguments["store"])
    predicted = run(arguments, _ansible_check_mode=True, _ansible_diff=True)
    assert not store.parent.exists()
    assert hub.asked == []
    assert (predicted["changed"], predicted["verified"]) == (True, None)
    assert predicted["missing"] == sorted(hub.files)
    assert predicted["bytes_to_fetch"] == UNIQUE_SIZE
    assert f"lacks 6 of 6 files, {UNIQUE_SIZE} bytes to fetch" in predicted["msg"]

    done = run(arguments, _ansible_diff=True)
    assert done["changed"] is True
    assert done["diff"] == predicted["diff"]
    assert done["diff"]["before"] == ""
    assert done["diff"]["after"].startswith(f"revision {kit.REVISION}\n")
    for name in ("missing", "corrupt", "bytes_to_fetch", "path", "revision", "lock_digest"):
        assert done[name] == predicted[name]
    assert done["path"] == str(store / "models--org--model/snapshots" / kit.REVISION)
    assert (Path(done["path"]) / kit.SHARD).read_bytes() == hub.files[kit.SHARD]
    assert done["bytes_fetched"] == UNIQUE_SIZE
    assert (done["source"], done["retries"], done["verified"]) == (hub.url, 0, "stamp")
    assert done["seconds"] >= 0

    hub.forget()
    for mode in (False, True):
        again = run(arguments, _ansible_check_mode=mode, _ansible_diff=True)
        assert again["changed"] is False
        assert (again["requests"], again["bytes_fetched"], again["bytes_hashed"]) == (0, 0, 0)
        assert again["missing"] == again["corrupt"] == again["quarantined"] == []
        assert again["diff"]["before"] == again["diff"]["after"]
        assert again["source"] is None
    assert hub.asked == []


def test_the_digest_is_that_of_a_committed_lock(arguments: Result) -> None:
    arguments["lock"]["facts"]["note"] = "caf\u00e9"
    text = json.dumps(arguments["lock"], indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    result = run(arguments, _ansible_check_mode=True)
    assert result["lock_digest"] == hashlib.sha256(text.encode()).hexdigest()


def test_the_engine_kits_hub_and_its_locks(tmp_path: Path) -> None:
    """Another server and another lock maker than this test's own agree with the module."""
    repository = tmp_path / "hub/tiny/model"
    repository.mkdir(parents=True)
    (repository / "config.json").write_text("{}")
    (repository / "model.safetensors").write_bytes(kit.safetensors("weights", 300_000))
    lock = engine_hub.make_lock(repository, "tiny/model")
    with engine_hub.Hub(tmp_path / "hub") as hub:
        hub.misbehave({"safetensors": {"kind": "reset", "at": 100_000, "times": 1}})
        result = run({"lock": lock, "store": str(tmp_path / "store"), "sources": [{"type": "hub", "url": hub.url}]})
        assert result["changed"] is True
        assert hub.stats()["requests"] == result["requests"] == 3
    for name in ("config.json", "model.safetensors"):
        assert Path(result["path"], name).read_bytes() == (repository / name).read_bytes()
    assert result["lock_digest"] == hashlib.sha256(engine_hub.lock_text(lock).encode()).hexdigest()


def test_verified_proves_every_byte_or_fails(arguments: Result, hub: kit.Hub) -> None:
    verify = {"state": "verified", "verify": "full", "sources": None}
    lacking = run(arguments, **verify)
    assert (lacking["failed"], lacking["error_class"], lacking["changed"]) == (True, "not_found", False)
    run(arguments)
    proved = run(arguments, **verify)
    assert (proved["changed"], proved["verified"], proved["bytes_hashed"]) == (False, "full", UNIQUE_SIZE)
    blob = (Path(proved["path"]) / kit.SHARD).resolve()
    os.truncate(blob, SIZE - 1)
    damaged = run(arguments, **verify)
    assert (damaged["error_class"], damaged["corrupt"]) == ("corrupt_source", [kit.SHARD])
    assert blob.stat().st_size == SIZE - 1


def test_a_failure_tells_what_an_operator_and_a_script_need(arguments: Result, hub: kit.Hub) -> None:
    hub.misbehave(kit.SHARD, kit.flipped)
    failed = run(arguments, workers=1)
    assert failed["error_class"] == "corrupt_source"
    assert failed["file"] == kit.SHARD
    expected = hashlib.sha256(hub.files[kit.SHARD]).hexdigest()
    assert failed["expected_sha256"] == expected
    assert failed["quarantined"] == [f"{arguments['store']}/models--org--model/quarantine/{expected}"]
    for said in (
        kit.SHARD,
        f"{hub.url}/{kit.REPO}/resolve/",
        expected,
        failed["got_sha256"],
        "Use another source",
    ):
        assert said in failed["msg"]
    assert failed["changed"] is True
    assert not Path(failed["path"]).exists()


def test_a_bad_lock_is_refused_before_anything(arguments: Result) -> None:
    arguments["lock"]["files"][0]["path"] = "../../etc/passwd"
    failed = run(arguments)
    assert failed["error_class"] == "lock_invalid"
    assert "'../../etc/passwd' is absolute or has an empty, '.' or '..' part" in failed["msg"]
    assert not Path(arguments["store"]).exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"stall_timeout": 0}, "stall_timeout is 0"),
        ({"store": "models"}, "absolute path"),
        ({"min_rate": -1}, "min_rate is -1"),
        ({"reserve_bytes": -1}, "reserve_bytes is -1"),
        ({"keep_revisions": -1}, "keep_revisions is -1"),
        ({"wait_lock": -1}, "wait_lock is -1"),
        ({"verify_age_max": -0.5}, "verify_age_max is -0.5"),
        ({"verify_age_max": "nan"}, "verify_age_max is nan"),
        ({"sources": []}, "at least one"),
        ({"sources": None}, "sources"),
        ({"sources": [{"type": "hub"}]}, "url"),
        ({"sources": [{"type": "path"}]}, "path"),
        ({"sources": [{"type": "hub", "url": "ftp://127.0.0.1"}]}, "not an http or https address"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(arguments: Result, changes: Result, said: str) -> None:
    failed = run(arguments, **changes)
    assert failed["failed"] is True
    assert said in failed["msg"]


@pytest.mark.parametrize("given", ["token", "token_file"])
def test_the_token_reaches_the_source_and_no_output(
    arguments: Result, hub: kit.Hub, tmp_path: Path, given: str
) -> None:
    (tmp_path / "token").write_text("hf_canary\n")
    token = {given: "hf_canary" if given == "token" else str(tmp_path / "token")}
    hub.misbehave(kit.SHARD, kit.status(403))
    outputs = [run(arguments, **token), run(arguments, **token)]
    assert [output.get("error_class") for output in outputs] == ["auth", None]
    assert {asked.headers["Authorization"] for asked in hub.asked} == {"Bearer hf_canary"}
    assert "hf_canary" not in json.dumps(outputs)
    kept = [path for path in Path(arguments["store"]).rglob("*") if path.is_file()]
    assert not [path for path in kept if b"hf_canary" in path.read_bytes()]


def test_a_token_that_is_none_is_not_shown(arguments: Result, hub: kit.Hub) -> None:
    failed = run(arguments, token="hf_canary and more")
    assert (failed["failed"], failed["error_class"]) == (True, "auth")
    assert "hf_canary" not in json.dumps(failed)
    assert hub.asked == []


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_is_resumed_at_the_byte(arguments: Result, hub: kit.Hub, stop: signal.Signals) -> None:
    """Bytes sent again are at most what the file in transfer still lacked."""
    offset = random.randrange(1, SIZE)
    release = threading.Event()
    hub.misbehave(kit.SHARD, kit.held_after(offset, release))
    part = Path(arguments["store"], "models--org--model/blobs/.part", hashlib.sha256(hub.files[kit.SHARD]).hexdigest())
    process = start({**arguments, "workers": 1})
    try:
        kit.wait_until(lambda: part.exists() and part.stat().st_size == offset)
        process.send_signal(stop)
        process.communicate(timeout=30)
    finally:
        release.set()
        process.kill()
        process.wait()
    assert process.returncode == -stop
    assert not (part.parents[2] / "current").exists()
    hub.forget()
    predicted = run(arguments, _ansible_check_mode=True)
    assert predicted["bytes_to_fetch"] == UNIQUE_SIZE - offset, f"killed at {offset}"
    resumed = run(arguments)
    assert hub.sent(kit.SHARD) == SIZE - offset, f"killed at {offset}"
    assert hub.sent() == resumed["bytes_fetched"] == UNIQUE_SIZE - offset
    assert resumed["bytes_resumed"] == offset
    assert (Path(resumed["path"]) / kit.SHARD).read_bytes() == hub.files[kit.SHARD]


def on_disk(model: Path) -> int:
    """Bytes of the model that have come, whole files and parts."""
    size = 0
    for folder in (model / "blobs", model / "blobs/.part"):
        for entry in os.scandir(folder) if folder.exists() else ():
            # it may have been renamed since
            with contextlib.suppress(FileNotFoundError):
                size += entry.stat().st_size if entry.is_file() else 0
    return size


def test_fifty_kills_cost_a_block_each_and_leave_nothing(arguments: Result, hub: kit.Hub) -> None:
    """kill -9 at 50 random points of the transfer, and some before and after it."""
    model = Path(arguments["store"], "models--org--model")
    rate, kills = 2_000_000, 50
    for path in hub.files:
        hub.misbehave(path, *[kit.dripping(rate)] * kills)
    points = sorted(random.sample(range(UNIQUE_SIZE), kills))
    killed = 0
    process = spawn()
    for point in points:
        upcoming = spawn()
        try:
            start({**arguments, "workers": 2, "retries": 0}, process)
            while process.poll() is None and on_disk(model) < point:
                time.sleep(0.001)
        finally:
            process.kill()
            process.communicate()
        killed += process.returncode == -signal.SIGKILL
        process = upcoming
    hub.faults.clear()
    done = finish(start(arguments, process))
    said = f"{killed} of {kills} were killed, at {points}; {hub.sent()} bytes sent for {UNIQUE_SIZE}"
    assert killed >= kills * 0.9, said
    assert hub.sent() <= UNIQUE_SIZE + kills * READ_BLOCK, said
    assert done["bytes_resumed"] + done["bytes_fetched"] <= UNIQUE_SIZE
    for path, content in hub.files.items():
        assert Path(done["path"], path).read_bytes() == content
    names = {str(entry.relative_to(model)) for entry in model.rglob("*") if entry.is_file() and not entry.is_symlink()}
    blobs = {hashlib.sha256(content).hexdigest() for content in hub.files.values()}
    assert {name for name in names if ".stamp/" not in name} == {f"blobs/{blob}" for blob in blobs} | {"refs/main"}
    assert {name for name in names if ".stamp/" in name} <= {f"blobs/.stamp/{blob}" for blob in blobs}
    assert not (model / ".publishing").exists()
    assert [entry.name for entry in Path(arguments["store"]).iterdir() if entry != model] == [".lock"]


def test_check_mode_tells_the_state_of_each_file(arguments: Result, hub: kit.Hub) -> None:
    done = run(arguments)
    assert done["files_state"] == {"present": 0, "missing": 6, "partial": 0, "corrupt": 0, "suspect": 0}
    assert (done["previous_revision"], done["removed"], done["bytes_freed"]) == (None, [], 0)
    model = Path(arguments["store"], "models--org--model")
    first, second = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    blob = (model / "current" / first).resolve()
    content = blob.read_bytes()
    blob.unlink()
    (model / "blobs/.part").mkdir(exist_ok=True)
    (model / "blobs/.part" / blob.name).write_bytes(content[:1000])
    (model / "current" / second).resolve().touch()
    (model / "current/tokenizer/nested/vocab.txt").resolve().write_bytes(b"short")
    (model / "current/config.json").resolve().unlink()
    before = kit.listing(model.parent)
    hub.forget()
    told = run(arguments, _ansible_check_mode=True, reserve_bytes=10**15)
    assert kit.listing(model.parent) == before
    assert hub.asked == []
    assert told["files_state"] == {"present": 1, "missing": 2, "partial": 1, "corrupt": 1, "suspect": 1}
    assert told["missing"] == ["config.json", "copy/of config.json", first]
    assert told["partial"] == [{"path": first, "have": 1000, "size": len(content)}]
    assert (told["corrupt"], told["suspect"]) == (["tokenizer/nested/vocab.txt"], [second])
    assert told["bytes_to_fetch"] == len(content) - 1000 + 20_000 + 21
    assert told["bytes_hashed"] == 0
    assert (told["failed"], told["error_class"], told["space"]["enough"]) == (True, "no_space", False)
    assert told["space"]["needed"] > 10**15 > told["space"]["free"] > 0
    predicted = run(arguments, _ansible_check_mode=True)
    assert (predicted["changed"], predicted["space"]["enough"], predicted["verified"]) == (True, True, None)
    assert "; 1 would be read" in predicted["msg"]
    mended = run(arguments)
    assert (mended["changed"], mended["resumed"], mended["bytes_resumed"]) == (True, [first], 1000)
    assert (mended["suspect"], mended["files_state"]["present"]) == ([], 2)
    assert mended["previous_revision"] == kit.REVISION


def test_what_was_proved_when_is_told(arguments: Result, hub: kit.Hub) -> None:
    began = time.time() - 1
    done = run(arguments)
    when = datetime.datetime.fromisoformat(done["oldest_verification"].replace("Z", "+00:00")).timestamp()
    assert began - 1 <= when <= time.time()
    stamps = Path(arguments["store"]).rglob(".stamp/*")
    assert min(json.loads(stamp.read_text())["proved_at"] for stamp in stamps) == done["oldest_verification"]
    time.sleep(2)
    for verify in ("sample", "full"):
        result = run(arguments, verify=verify)
        assert (result["changed"], result["verified"]) == (False, verify)
        assert result["oldest_verification"] >= done["oldest_verification"]
    assert result["bytes_hashed"] == UNIQUE_SIZE
    assert result["oldest_verification"] > done["oldest_verification"]
    believed = run(arguments, verify_age_max=0.5)
    assert (believed["bytes_hashed"], believed["oldest_verification"]) == (0, result["oldest_verification"])
    assert run(arguments, verify_age_max=0)["bytes_hashed"] == UNIQUE_SIZE


def test_absent(arguments: Result, hub: kit.Hub) -> None:
    done = run(arguments)
    absent = {"state": "absent", "sources": None}
    with Path(done["path"], kit.SHARD).open("rb"):
        refused = run(arguments, **absent)
    assert (refused["error_class"], refused["pids"], refused["changed"]) == ("locked", [os.getpid()], False)
    predicted = run(arguments, **absent, _ansible_check_mode=True, _ansible_diff=True)
    assert Path(done["path"]).exists()
    removed = run(arguments, **absent, _ansible_diff=True)
    for name in ("changed", "removed", "bytes_freed", "diff"):
        assert removed[name] == predicted[name]
    assert (removed["changed"], removed["bytes_freed"]) == (True, UNIQUE_SIZE)
    assert (removed["diff"]["before"], removed["diff"]["after"]) == (done["diff"]["after"], "")
    assert (removed["verified"], removed["oldest_verification"]) == (None, None)
    assert os.listdir(arguments["store"]) == [".lock"]
    again = run(arguments, **absent)
    assert (again["changed"], again["removed"]) == (False, [])
    assert again["msg"].endswith("is not there")


def test_a_run_waits_for_the_other_one(arguments: Result, hub: kit.Hub) -> None:
    release = threading.Event()
    hub.misbehave(kit.SHARD, kit.held_after(1000, release))
    one = start(arguments)
    other = spawn()
    try:
        kit.wait_until(lambda: bool(hub.sent(kit.SHARD)))
        start({**arguments, "wait_lock": 60}, other)
        time.sleep(1)
        assert other.poll() is None
        release.set()
        assert finish(one)["changed"] is True
        waited = finish(other)
        assert (waited["changed"], waited["bytes_fetched"]) == (False, 0)
    finally:
        release.set()
        for process in (one, other):
            process.kill()
            process.wait()
    assert hub.sent() == UNIQUE_SIZE


def test_two_runs_at_once(arguments: Result, hub: kit.Hub) -> None:
    release = threading.Event()
    hub.misbehave(kit.SHARD, kit.held_after(1000, release))
    one = start(arguments)
    try:
        kit.wait_until(lambda: bool(hub.sent(kit.SHARD)))
        refused = run(arguments)
        assert refused["error_class"] == "locked"
        assert f"process {one.pid} on " in refused["msg"]
        assert refused["holder"]["pid"] == one.pid
        release.set()
        assert finish(one)["changed"] is True
    finally:
        release.set()
        one.kill()
        one.wait()
    assert run(arguments)["changed"] is False


def test_the_store_belongs_to_whom_it_shall_and_everybody_may_read_it(arguments: Result) -> None:
    store = Path(arguments["store"])
    wanted = {**arguments, "store_owner": str(os.getuid()), "store_group": str(os.getgid()), "detach": False}
    assert run(wanted, _ansible_check_mode=True)["changed"]
    assert not store.exists()
    assert run(wanted)["changed"]
    assert not run(wanted)["changed"]
    store.chmod(0o700)
    assert run(wanted, _ansible_check_mode=True)["changed"]
    assert store.stat().st_mode & 0o777 == 0o700
    assert run(wanted)["changed"]
    assert store.stat().st_mode & 0o777 == 0o755
    assert not run(wanted, _ansible_check_mode=True)["changed"]


def test_a_link_to_the_store_is_followed_for_its_owner(arguments: Result, tmp_path: Path) -> None:
    disk, link = tmp_path / "disk", Path(arguments["store"])
    disk.mkdir(mode=0o755)
    link.parent.mkdir()
    link.symlink_to(disk)
    os.chown(disk, 4321, 4321)
    os.chown(link, 4321, 4321, follow_symlinks=False)
    wanted = {**arguments, "store_owner": "0", "store_group": "0", "detach": False}
    assert run(wanted)["changed"]
    assert (disk.stat().st_uid, disk.stat().st_gid, link.lstat().st_uid) == (0, 0, 4321)
    assert not run(wanted)["changed"]
    assert not run(wanted, _ansible_check_mode=True)["changed"]


def test_only_what_fetches_a_model_owns_the_store(arguments: Result) -> None:
    store = Path(arguments["store"])
    wanted = {**arguments, "store_owner": str(os.getuid()), "detach": False}
    assert run({**wanted, "state": "absent"})["changed"] is False
    assert not store.exists()
    run(wanted)
    store.chmod(0o750)
    assert run({**wanted, "state": "verified"})["changed"] is False
    assert store.stat().st_mode & 0o777 == 0o750
