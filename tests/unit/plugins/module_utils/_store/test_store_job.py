# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A transfer in a unit. systemd is a stand-in here, the process that it would start is real."""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import typing as t
import zipfile
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store import job
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import parse_lock

from tests.unit.plugins.module_utils._store import store_kit as kit

ROOT = Path(__file__).resolve().parents[5]
Params = dict[str, t.Any]


class Systemd:
    """Runs what systemd-run is asked to run, as a child that ends when it wants to."""

    def __init__(self) -> None:
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.starts = True
        self.asked: list[list[str]] = []

    def __call__(self, command: list[str]) -> tuple[int, str, str]:
        self.asked.append(command)
        if command[0] == "systemctl":
            child = self.children.get(command[2])
            return (0, "active\n", "") if child is not None and child.poll() is None else (3, "inactive\n", "")
        if command[0] == "journalctl":
            return 0, "the last words\n", ""
        if not self.starts:
            return 1, "", "Failed to start transient service unit: Access denied\n"
        options, words = command[: command.index("--")], command[command.index("--") + 1 :]
        values = dict(option.removeprefix("--setenv=").split("=", 1) for option in options if "--setenv=" in option)
        unit = next(option for option in options if option.startswith("--unit=")).removeprefix("--unit=")
        self.children[unit] = subprocess.Popen(words, env={"PATH": os.environ["PATH"], **values})
        return 0, "", ""


@pytest.fixture
def systemd() -> t.Iterator[Systemd]:
    running = Systemd()
    yield running
    for child in running.children.values():
        child.kill()
        child.wait()


@pytest.fixture
def hub() -> t.Iterator[kit.Hub]:
    with kit.running(kit.model_files()) as running:
        yield running


@pytest.fixture
def params(hub: kit.Hub, tmp_path: Path) -> Params:
    return {
        "lock": kit.lock_of(hub.files),
        "store": str(tmp_path / "models"),
        "state": "present",
        "sources": [{"type": "hub", "url": hub.url, "path": None}],
        "verify": "stamp",
        "verify_age_max": None,
        "token": None,
        "token_file": None,
        "workers": 2,
        "retries": 0,
        "stall_timeout": 20,
        "min_rate": 0,
        "reserve_bytes": 0,
        "keep_revisions": 1,
        "wait_lock": 0,
    }


def job_for(systemd: Systemd, params: Params, tmp_path: Path) -> job.Job:
    return job.Job(systemd, params["store"], parse_lock(params["lock"]).digest, str(tmp_path / "jobs"))


def test_a_unit_does_what_the_module_would(systemd: Systemd, params: Params, tmp_path: Path) -> None:
    work = job_for(systemd, params, tmp_path)
    assert not work.is_running()
    work.start(params, "a model")
    assert os.stat(work.folder).st_mode & 0o777 == 0o700
    assert work.wait(60)
    result = work.result()
    assert (result["failed"], result["changed"]) == (False, True), result
    assert result["bytes_fetched"] > 0
    assert Path(result["path"], kit.SHARD).read_bytes() == kit.model_files()[kit.SHARD]
    assert work.result() == result, "several runs may have waited"
    assert not os.path.exists(os.path.join(work.folder, "job.json"))
    work.start(params, "a model")
    assert work.result() == result, "whoever asked before it ended gets that result"
    systemd.children[work.unit].wait(60)
    later = job_for(systemd, params, tmp_path)
    later.start(params, "a model")
    assert later.wait(60)
    assert later.result()["changed"] is False


def test_of_many_that_start_it_at_once_one_does(systemd: Systemd, params: Params, tmp_path: Path) -> None:
    """As two hosts of the inventory that are one machine, with the same model for both."""
    jobs = [job_for(systemd, params, tmp_path) for _number in range(4)]

    def results(one: job.Job) -> t.Any:
        one.start(params, "a model")
        assert one.wait(60)
        return one.result()

    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        first, *others = pool.map(results, jobs)
    assert (first["failed"], first["changed"]) == (False, True)
    assert others == [first] * 3
    assert sum(command[0] == "systemd-run" for command in systemd.asked) == 1


def test_who_waits_goes_on_waiting_while_it_is_started_anew(systemd: Systemd, params: Params, tmp_path: Path) -> None:
    """Its result was removed for that, and the unit is not there yet."""
    waiting = job_for(systemd, params, tmp_path)
    waited: list[bool] = []
    thread = threading.Thread(target=lambda: waited.append(waiting.wait(60)))
    anew = job_for(systemd, params, tmp_path)
    with anew._alone():
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        anew._start(params, "a model")
    thread.join(60)
    assert waited == [True]
    assert waiting.result()["changed"] is True


def test_who_asks_again_finds_the_unit_that_is_at_it(
    systemd: Systemd, params: Params, hub: kit.Hub, tmp_path: Path
) -> None:
    # a source that never answers in time
    params["sources"] = [{"type": "hub", "url": "http://127.0.0.1:1", "path": None}]
    params["retries"] = 50
    job_for(systemd, params, tmp_path).start(params, "a model")
    again = job_for(systemd, params, tmp_path)
    assert again.is_running()
    assert not again.wait(0.3)
    other = kit.lock_of(hub.files, "f" * 40)
    assert not job_for(systemd, {**params, "lock": other}, tmp_path).is_running()


def test_a_failure_is_told_with_its_class(systemd: Systemd, params: Params, hub: kit.Hub, tmp_path: Path) -> None:
    del hub.files[kit.SHARD]
    work = job_for(systemd, params, tmp_path)
    work.start(params, "a model")
    assert work.wait(60)
    result = work.result()
    assert (result["failed"], result["error_class"]) == (True, "not_found")


def test_a_unit_that_was_killed_is_no_success(systemd: Systemd, params: Params, tmp_path: Path) -> None:
    params["sources"] = [{"type": "hub", "url": "http://127.0.0.1:1", "path": None}]
    params["retries"] = 50
    work = job_for(systemd, params, tmp_path)
    work.start(params, "a model")
    systemd.children[work.unit].kill()
    systemd.children[work.unit].wait()
    assert work.wait(5)
    with pytest.raises(job.JobFailed, match=r"ended without a result(.|\n)*the last words"):
        work.result()


def test_a_unit_that_does_not_start_says_why(systemd: Systemd, params: Params, tmp_path: Path) -> None:
    systemd.starts = False
    with pytest.raises(job.JobFailed, match="Access denied"):
        job_for(systemd, params, tmp_path).start(params, "a model")


def test_how_a_source_is_reached_goes_with_it_and_a_secret_is_in_no_command(
    systemd: Systemd, params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:canary-11@proxy:3128")
    work = job_for(systemd, params, tmp_path)
    systemd.starts = False
    with pytest.raises(job.JobFailed):
        work.start(params, "a model")
    written = json.loads(Path(work.folder, "job.json").read_text())
    assert written["environment"]["HTTPS_PROXY"] == "http://me:canary-11@proxy:3128"
    assert "canary-11" not in str(systemd.asked)


def test_progress_is_written_while_it_works(params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_REPORT_EVERY", 0.01)
    (tmp_path / "job").mkdir()
    (tmp_path / "job/job.json").write_text(json.dumps({"params": params, "environment": {}}))
    assert job.work(str(tmp_path / "job")) == 0
    progress = json.loads((tmp_path / "job/progress.json").read_text())
    assert progress["bytes_total"] == sum(map(len, set(kit.model_files().values())))
    assert 0 <= progress["bytes_done"] <= progress["bytes_total"]


def test_the_archive_that_ansible_sends_is_enough(systemd: Systemd, params: Params, tmp_path: Path) -> None:
    """Started from a zip, as in an Ansible module, the unit's process has the package when the zip is gone."""
    packages = "ansible_collections/inferops/serving/plugins/module_utils/_store"
    archive = tmp_path / "payload.zip"
    with zipfile.ZipFile(archive, "w") as payload:
        for depth in range(1, packages.count("/") + 1):
            payload.writestr("/".join(packages.split("/")[:depth]) + "/__init__.py", "")
        for path in (ROOT / "plugins/module_utils/_store").glob("*.py"):
            payload.write(path, f"{packages}/{path.name}")
    script = (
        "import json, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from ansible_collections.inferops.serving.plugins.module_utils._store import job\n"
        "made = job.Job(lambda command: (0, '', ''), '/srv', 'digest', sys.argv[2])\n"
        "made.start(json.loads(sys.argv[3]), 'a model')\n"
        "print(made.folder)\n"
    )
    words = [sys.executable, "-I", "-c", script, str(archive), str(tmp_path / "jobs"), json.dumps(params)]
    folder = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    archive.unlink()
    module = packages.replace("/", ".") + ".job"
    code = str(Path(folder, "code"))
    done = subprocess.run([sys.executable, "-m", module, folder], env={"PYTHONPATH": code}, cwd="/", check=False)
    assert done.returncode == 0
    assert json.loads(Path(folder, "result.json").read_text())["changed"] is True
