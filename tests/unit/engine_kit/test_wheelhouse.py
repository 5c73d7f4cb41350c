# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wheelhouse: filled once, mended where it is damaged, never filled with anything else."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.engine import wheelhouse
from tests.engine.build_wheels import STAND_INS

CONTENTS = {f"demo-{number}": f"wheel {number}".encode() for number in range(5)}
UV = b"uv itself"
STAND_IN = STAND_INS[0]


class Pip:
    """pip in the place of `wheelhouse.fetch`: writes the wheels that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.fails_at: int | None = None

    def fetch(self, requirements: list[str], dest: Path, hashed: bool = True) -> None:
        assert hashed
        if len(self.asked) == self.fails_at:
            raise subprocess.CalledProcessError(1, "pip")
        names = [line.partition("==")[0] for line in requirements]
        self.asked.append(names)
        for name in names:
            (dest / f"{name}-1-py3-none-any.whl").write_bytes(UV if name == "uv" else CONTENTS[name])


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pip:
    pip = Pip()
    uv_lock = tmp_path / "uv.txt"
    uv_lock.write_text(f"uv==1 --hash=sha256:{hashlib.sha256(UV).hexdigest()}\n")
    monkeypatch.setattr(wheelhouse, "UV_LOCK", uv_lock)
    monkeypatch.setattr(wheelhouse, "BATCH", 2)
    monkeypatch.setattr(wheelhouse, "fetch", pip.fetch)
    return pip


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    lock = tmp_path / "lock"
    lock.mkdir()
    contents = {name: ("1", content) for name, content in CONTENTS.items()}
    contents[STAND_IN.name] = (STAND_IN.version, STAND_IN.build())
    pins = [
        wheelhouse.Pin(name, version, hashlib.sha256(wheel).hexdigest()) for name, (version, wheel) in contents.items()
    ]
    (lock / "requirements.txt").write_text("".join(f"{pin}\n" for pin in pins))
    return lock


def test_full_wheelhouse_is_not_fetched_again(pip: Pip, lock: Path, tmp_path: Path) -> None:
    first = wheelhouse.fill(tmp_path / "wheels", lock)
    assert (first.wheels, first.fetched) == (7, 7)
    assert pip.asked == [["uv"], ["demo-0", "demo-1"], ["demo-2", "demo-3"], ["demo-4"]]
    pip.asked.clear()
    second = wheelhouse.fill(tmp_path / "wheels", lock)
    assert (second.wheels, second.size, second.fetched, second.fetched_size) == (7, first.size, 0, 0)
    assert pip.asked == []


def test_damaged_wheel_is_fetched_again_and_a_strange_one_removed(pip: Pip, lock: Path, tmp_path: Path) -> None:
    dest = tmp_path / "wheels"
    wheelhouse.fill(dest, lock)
    pip.asked.clear()
    (dest / "demo-3-1-py3-none-any.whl").write_bytes(CONTENTS["demo-3"][:-1])
    (dest / STAND_IN.filename).write_bytes(b"")
    (dest / "demo-3-2-py3-none-any.whl").write_bytes(b"a newer release")
    report = wheelhouse.fill(dest, lock)
    assert pip.asked == [["demo-3"]]
    assert report.fetched == 2
    assert (dest / STAND_IN.filename).read_bytes() == STAND_IN.build()
    assert not (dest / "demo-3-2-py3-none-any.whl").exists()


def test_interrupted_run_is_taken_up_where_it_stopped(pip: Pip, lock: Path, tmp_path: Path) -> None:
    dest = tmp_path / "wheels"
    pip.fails_at = 2
    with pytest.raises(subprocess.CalledProcessError):
        wheelhouse.fill(dest, lock)
    pip.fails_at = None
    pip.asked.clear()
    wheelhouse.fill(dest, lock)
    assert pip.asked == [["demo-2", "demo-3"], ["demo-4"]]
    assert {f"{name}-1-py3-none-any.whl" for name in CONTENTS} <= {path.name for path in dest.iterdir()}


def test_stand_in_that_is_not_the_locks_is_refused(pip: Pip, lock: Path, tmp_path: Path) -> None:
    requirements = lock / "requirements.txt"
    built = hashlib.sha256(STAND_IN.build()).hexdigest()
    requirements.write_text(requirements.read_text().replace(built, "0" * 64))
    with pytest.raises(ValueError, match=rf"{STAND_IN.name} is not the one in the lock"):
        wheelhouse.fill(tmp_path / "wheels", lock)


@pytest.mark.parametrize("line", ["numpy==2.4.6", "numpy --hash=sha256:00", "--index-url somewhere"])
def test_requirements_without_one_hash_are_refused(line: str, tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"{line}\n")
    with pytest.raises(ValueError, match="no pin with one hash"):
        wheelhouse.read_pins(requirements)
