# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in wheels: the very bytes of the committed lock, installable, and no use beside a GPU."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib
import io
import json
import sys
import typing as t
import zipfile
from pathlib import Path

import pytest

from tests.engine import build_wheels, make_lock, wheelhouse
from tests.engine.build_wheels import STAND_INS, StandIn

PINS = wheelhouse.read_pins(wheelhouse.LOCK / "requirements.txt")
EACH = pytest.mark.parametrize("stand_in", STAND_INS, ids=lambda stand_in: stand_in.name)


@EACH
def test_wheel_is_the_one_in_the_committed_lock(stand_in: StandIn) -> None:
    digests = {pin.name: (pin.version, pin.sha256) for pin in PINS}
    assert digests[stand_in.name] == (stand_in.version, hashlib.sha256(stand_in.build()).hexdigest())


@EACH
def test_record_lists_every_file_with_its_hash(stand_in: StandIn) -> None:
    with zipfile.ZipFile(io.BytesIO(stand_in.build())) as wheel:
        names = wheel.namelist()
        rows = list(csv.reader(io.StringIO(wheel.read(names[-1]).decode())))
        assert [row[0] for row in rows] == names
        for name, digest, size in rows[:-1]:
            content = wheel.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(content))
        assert rows[-1][1:] == ["", ""]


def test_file_names_are_those_of_the_wheels(tmp_path: Path) -> None:
    written = build_wheels.build_all(tmp_path)
    assert [path.name for path in written] == [stand_in.filename for stand_in in STAND_INS]
    assert all(path.name.endswith("+standin-py3-none-any.whl") for path in written)


def test_changed_source_changes_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = next(stand_in for stand_in in STAND_INS if stand_in.name == "sglang-kernel")
    source = tmp_path / str(kernel.sources) / "sgl_kernel/__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text("changed = True\n")
    before = kernel.build()
    monkeypatch.setattr(build_wheels, "SOURCES", tmp_path)
    assert kernel.build() != before


def test_committed_lock_is_for_what_make_lock_makes() -> None:
    assert json.loads((wheelhouse.LOCK / "lock.json").read_text()) == make_lock.FACTS
    versions = {pin.name: pin.version for pin in PINS}
    assert versions["sglang"] == make_lock.SGLANG
    assert versions["torch"] == make_lock.TORCH
    assert {pin.name for pin in PINS if pin.stand_in} == {stand_in.name for stand_in in STAND_INS}
    assert [pin.name for pin in PINS] == sorted(versions)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Callable[[str], t.Any]]:
    """Modules of the shared stand-in distribution, gone again after the test."""
    monkeypatch.syspath_prepend(str(build_wheels.SOURCES / "cpu_standin"))
    finders = list(sys.meta_path)
    yield lambda name: importlib.import_module(f"inferops_cpu_standin.{name}")
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.startswith(("inferops_cpu_standin", "toy_kernels"))]:
        del sys.modules[name]


def test_stand_ins_refuse_a_gpu(shared: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = shared("guard")
    monkeypatch.setattr(guard, "TRACES", (str(tmp_path / "nvidia*"),))
    guard.refuse_gpu()
    (tmp_path / "nvidia0").touch()
    with pytest.raises(RuntimeError, match=r"nvidia0 says that this one has a GPU"):
        guard.refuse_gpu()
    with pytest.raises(RuntimeError, match=r"stand-in kernels"):
        shared("plugin").activate()


def test_guard_looks_for_nvidia_devices_and_driver(shared: t.Any) -> None:
    assert set(shared("guard").TRACES) == {"/dev/nvidia*", "/proc/driver/nvidia"}


def test_absent_names_import_and_refuse_to_work(shared: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared("absent")
    package = tmp_path / "toy_kernels"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from inferops_cpu_standin.absent import absent_names\n__getattr__ = absent_names(__name__)\n"
    )
    (package / "real.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    toy = importlib.import_module("toy_kernels")
    deep: t.Any = importlib.import_module("toy_kernels.no.such.module")
    assert importlib.import_module("toy_kernels.real").answer == 42

    class Own(deep.Base):
        """Image processors subclass what they import."""

    with pytest.raises(NotImplementedError, match="Own is not part"):
        Own()
    with pytest.raises(NotImplementedError, match=r"toy_kernels\.fused_moe is not part"):
        toy.fused_moe(1, two=2)
    with pytest.raises(NotImplementedError, match=r"toy_kernels\.no\.such\.module\.Kind\.MODE is not part"):
        deep.Kind.MODE()
    with pytest.raises(AttributeError):
        toy.__path_of_nothing__  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("toy_kernels_too")
