# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verification that a timer runs: what it reads, what it says, and that it repairs nothing."""

from __future__ import annotations

import concurrent.futures
import fcntl
import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._store import verify
from ansible_collections.inferops.serving.plugins.module_utils._store.holder import sole_writer

from tests.module import run_module
from tests.unit.plugins.module_utils._store import store_kit as kit
from tests.unit.plugins.module_utils._store.conftest import Subject
from tests.unit.plugins.module_utils._store.test_store_damage import rot

ROOT = Path(__file__).resolve().parents[5]
PACKAGE = Path("ansible_collections/inferops/serving/plugins/module_utils/_store")
UNIQUE_SIZE = sum(map(len, set(kit.model_files().values())))
Report = dict[str, t.Any]
Play = t.Callable[..., Report]


class Verification:
    """A published model, a directory with its lock, and a report to come."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self.subject = subject
        self.locks = folder / "locks"
        self.report = folder / "reports/report.json"
        self.locks.mkdir()
        self.write_lock()
        subject.present()

    def write_lock(self) -> None:
        (self.locks / "org--model.json").write_text(json.dumps(self.subject.document))

    def run(self) -> tuple[bool, Report]:
        good = verify.verify_store(str(self.subject.root), str(self.locks), str(self.report))
        report: Report = json.loads(self.report.read_text())
        assert report["good"] is good
        return good, report

    def only(self) -> Report:
        """The verdict on the only model."""
        (model,) = self.run()[1]["models"]
        return dict(model)


@pytest.fixture
def verification(subject: Subject, tmp_path: Path) -> Verification:
    return Verification(subject, tmp_path)


def test_a_good_model_is_read_and_reported(verification: Verification, capsys: pytest.CaptureFixture[str]) -> None:
    subject = verification.subject
    before = [entry for entry in kit.listing(subject.root) if ".stamp" not in entry[0]]
    subject.hub.forget()
    good, report = verification.run()
    assert good
    (model,) = report["models"]
    assert (model["repo"], model["revision"], model["state"]) == (kit.REPO, kit.REVISION, "proved")
    assert (model["lock_digest"], model["files"]) == (subject.open()._lock.digest, len(subject.document["files"]))
    assert (model["bytes_read"], model["corrupt"], model["missing"]) == (UNIQUE_SIZE, [], [])
    assert report["started"] <= model["proved_at"] <= report["finished"]
    assert report["oldest_proof"] == model["oldest_proof"]
    assert capsys.readouterr().out.startswith(f"proved: org/model: {model['files']} files are what the lock says (")
    assert [entry for entry in kit.listing(subject.root) if ".stamp" not in entry[0]] == before
    assert subject.hub.asked == []


def test_rot_under_a_stamp_is_named_and_the_next_run_replaces_it(
    verification: Verification, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = verification.subject
    proved = verification.only()["proved_at"]
    rot(subject, kit.SHARD)
    blobs = kit.listing(subject.model / "blobs")
    model = verification.only()
    assert (model["state"], model["corrupt"], model["proved_at"]) == ("corrupt", [kit.SHARD], proved)
    assert f"corrupt: org/model: not what the lock says: {kit.SHARD}; " in capsys.readouterr().err
    assert [entry for entry in blobs if ".stamp" not in entry[0]] == [
        entry for entry in kit.listing(subject.model / "blobs") if ".stamp" not in entry[0]
    ]
    assert subject.present()[0], "a run that believes stamps"
    subject.assert_whole()
    assert verification.only()["state"] == "proved"


def test_a_stamp_that_has_to_stay_is_told(verification: Verification) -> None:
    rot(verification.subject, kit.SHARD)
    with sole_writer(str(verification.subject.root)):
        assert "sglang_model_verify: full" in verification.only()["message"]


@pytest.mark.parametrize("removed", [f"blobs/{{{kit.SHARD}}}", "current", "."])
def test_what_is_not_there_is_no_success(verification: Verification, removed: str) -> None:
    subject = verification.subject
    path = subject.model / removed.replace(f"{{{kit.SHARD}}}", subject.sha256(kit.SHARD))
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    model = verification.only()
    assert model["state"] == "incomplete"
    assert (kit.SHARD in model["missing"]) is (removed != "current")


def test_a_revision_that_another_one_has_replaced_is_not_judged(verification: Verification, tmp_path: Path) -> None:
    files = {"config.json": b"{}", "new.txt": b"new"}
    verification.subject.add_revision(tmp_path / "new", "b" * 40, files, keep_revisions=0)
    good, report = verification.run()
    assert good
    assert report["models"][0]["state"] == "superseded"
    verification.write_lock()
    assert verification.only()["state"] == "proved"


def test_nothing_to_prove_is_no_success(verification: Verification) -> None:
    (verification.locks / "org--model.json").write_text("{}")
    good, report = verification.run()
    assert (good, report["models"][0]["state"], report["models"][0]["repo"]) == (False, "failed", None)
    (verification.locks / "org--model.json").unlink()
    assert verification.run()[0] is False


#: Stands for systemd: a timer that was restarted runs, and a text with BAD in it is refused.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> {folder}/asked
case "$1" in
    show)
        test ! -e {folder}/runs || printf 'UnitFileState=enabled\nActiveState=active\n'
        test ! -e {folder}/unread-${{3##*.}} || printf 'NeedDaemonReload=yes\n' ;;
    daemon-reload) rm -f {folder}/unread-* ;;
    restart) touch {folder}/runs ;;
    verify) shift; ! grep -H BAD "$@" ;;
esac
"""


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, t.Any]:
    """Those of the module, in folders of the test."""
    return {
        **{name: str(tmp_path / name) for name in ("lib", "reports")},
        "locks": str(tmp_path / "installed-locks"),
        "lock_texts": {"org--other": "{}"},
        "unit": "sglang-verify-x",
        "service_text": "[Service]\nReadWritePaths=/x/@model@\n",
        "timer_text": "[Timer]\n",
        "unit_dir": str(tmp_path / "units"),
    }


@pytest.fixture
def systemd(tmp_path: Path) -> dict[str, str]:
    """An environment in which the commands of systemd are those of the test."""
    (tmp_path / "units").mkdir()
    (tmp_path / "bin").mkdir()
    for name in ("systemctl", "systemd-analyze"):
        (tmp_path / "bin" / name).write_text(SYSTEMCTL.format(folder=tmp_path))
        (tmp_path / "bin" / name).chmod(0o755)
    return {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}


@pytest.fixture
def play(arguments: dict[str, t.Any], systemd: dict[str, str]) -> Play:
    """Runs the module, with other arguments where some are given."""
    return lambda **more: run_module("model_verify_program", {**arguments, **more}, environment=systemd)


def test_the_units_are_installed_once_and_again_for_another_lock(play: Play, tmp_path: Path) -> None:
    assert play(_ansible_check_mode=True)["changed"]
    assert not (tmp_path / "lib").exists()
    assert list((tmp_path / "units").iterdir()) == []
    assert play()["changed"]
    assert not play()["changed"]
    assert not play(_ansible_check_mode=True)["changed"]
    service = tmp_path / "units/sglang-verify-x.service"
    assert service.read_text() == "[Service]\nReadWritePaths=/x/org--other\n"
    # the lock of another inventory
    (tmp_path / "installed-locks/a--b.json").write_text("{}")
    answer = play()
    assert (answer["changed"], answer["names"]) == (True, ["a--b", "org--other"])
    assert service.read_text() == "[Service]\nReadWritePaths=/x/a--b\nReadWritePaths=/x/org--other\n"
    assert [one["after_header"] for one in answer["diff"]] == [str(service)]
    (tmp_path / "runs").unlink()
    (tmp_path / "asked").unlink()
    assert play()["changed"]
    asked = [line for line in (tmp_path / "asked").read_text().splitlines() if not line.startswith("show ")]
    assert asked == [
        "daemon-reload",
        "enable --quiet sglang-verify-x.timer",
        "restart sglang-verify-x.timer",
    ]


@pytest.mark.parametrize("unit", ["timer", "service"])
def test_a_run_that_was_cut_off_before_systemd_had_read_the_units_is_finished(
    unit: str, play: Play, tmp_path: Path
) -> None:
    assert play()["changed"]
    (tmp_path / f"unread-{unit}").touch()
    assert play(_ansible_check_mode=True)["changed"]
    assert play()["changed"]
    assert not play()["changed"]


def test_two_hosts_of_one_machine_do_not_lose_each_others_locks(play: Play, tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    lib.mkdir()
    other = os.open(lib, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        run = threads.submit(play)
        try:
            with pytest.raises(concurrent.futures.TimeoutError):
                run.result(timeout=2)
            assert list((tmp_path / "units").iterdir()) == []
            (tmp_path / "installed-locks").mkdir(exist_ok=True)
            (tmp_path / "installed-locks/a--b.json").write_text("{}")
        finally:
            os.close(other)
        assert run.result(timeout=60)["names"] == ["a--b", "org--other"]


def test_a_unit_that_systemd_refuses_is_not_installed(play: Play, tmp_path: Path) -> None:
    answer = play(timer_text="BAD\n")
    assert "systemd refuses the unit" in answer["msg"]
    assert list((tmp_path / "units").iterdir()) == []


def test_what_the_role_installs_runs_by_itself(verification: Verification, play: Play, tmp_path: Path) -> None:
    assert play()["names"] == ["org--other"]
    names = [path.stem for path in (tmp_path / "lib" / PACKAGE).iterdir()]
    command = [sys.executable, "-B", "-E", "-s", "-m", ".".join((*PACKAGE.parts, "verify"))]
    command += ["--store", str(verification.subject.root), "--locks", str(verification.locks)]
    command += ["--report", str(verification.report)]
    listed = "import sys; print(*sorted(name for name in sys.modules if '_store.' in name))"
    imported = subprocess.run(
        [sys.executable, "-c", f"import {'.'.join((*PACKAGE.parts, 'verify'))}; {listed}"],
        cwd=tmp_path / "lib",
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(name.rpartition(".")[2] for name in imported.stdout.split()) == sorted(names)
    done = subprocess.run(command, cwd=tmp_path / "lib", env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    os.unlink(verification.subject.blob(kit.SHARD))
    done = subprocess.run(command, cwd=tmp_path / "lib", env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"missing: {kit.SHARD}" in done.stderr
