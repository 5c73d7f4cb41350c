# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool that makes engine locks, without uv, and the form of every lock that the collection ships."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._plan.engine_lock import read_engine_lock
from packaging.specifiers import SpecifierSet

from tools import engine_lock
from tools.engine_lock import LockProblem, Pin, best_wheel, pins, platform_tags, wheel_tags

LOCKS = sorted(path for path in engine_lock.SHIPPED.iterdir() if path.is_dir())
PINNED = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)==([A-Za-z0-9.+!]+) --hash=sha256:([0-9a-f]{64})")
RANKS = wheel_tags("3.12", "x86_64-manylinux_2_34")


def wheel(name: str, sha256: str = "0" * 64) -> dict[str, Any]:
    return {"url": f"https://mirror.example/packages/{name}", "hashes": {"sha256": sha256}}


@pytest.mark.parametrize(
    ("offered", "taken"),
    [
        (["p-1-py3-none-any.whl", "p-1-cp312-cp312-manylinux2014_x86_64.whl"], 1),
        (["p-1-cp312-cp312-manylinux_2_17_x86_64.whl", "p-1-cp312-cp312-manylinux_2_28_x86_64.whl"], 1),
        (["p-1-cp312-cp312-manylinux_2_35_x86_64.whl", "p-1-cp312-cp312-manylinux_2_34_x86_64.whl"], 1),
        (["p-1-cp39-abi3-manylinux1_x86_64.whl", "p-1-cp310-abi3-manylinux1_x86_64.whl"], 1),
        (["p-1-cp312-cp312-manylinux1_x86_64.whl", "p-1-cp312-abi3-manylinux_2_28_x86_64.whl"], 0),
        (["p-1-py39-none-any.whl", "p-1-py311-none-any.whl", "p-1-py312-none-any.whl"], 2),
        (["p-1-py3-none-any.whl", "p-1-2-py3-none-any.whl", "p-1-1-py3-none-any.whl"], 1),
        (["p-1-cp312-cp312-manylinux2014_aarch64.whl", "p-1-py3-none-any.whl"], 1),
        (["p-1-cp313-cp313-manylinux2014_x86_64.whl", "p-1-cp312-cp312-win_amd64.whl", "p-1-py3-none-any.whl"], 2),
        (["p-1-cp311-cp311-linux_x86_64.whl", "p-1-cp312-cp312-linux_x86_64.whl"], 1),
    ],
)
def test_the_wheel_that_an_installer_takes(offered: list[str], taken: int) -> None:
    wheels = [wheel(name) for name in offered]
    assert best_wheel(wheels, RANKS) is wheels[taken]
    assert best_wheel(wheels[::-1], RANKS) is wheels[taken], "the order of the index must not matter"


def test_platforms_are_tried_from_the_newest_c_library_down() -> None:
    tags = platform_tags("aarch64-manylinux_2_18")
    assert tags[:3] == ["manylinux_2_18_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"]
    assert tags[-1] == "linux_aarch64"


@pytest.mark.parametrize("platform", ["x86_64", "linux", "manylinux_2_34", "x86_64-musllinux_1_2", ""])
def test_an_unknown_platform_is_refused(platform: str) -> None:
    with pytest.raises(LockProblem, match="no platform of the form"):
        platform_tags(platform)


def test_pins_are_sorted_and_named_canonically() -> None:
    packages = [
        {"name": "Zope.X_y", "version": "2.0", "wheels": [wheel("zope_x_y-2.0-py3-none-any.whl", "a" * 64)]},
        {"name": "aa", "version": "1", "wheels": [wheel("aa-1-py3-none-any.whl", "b" * 64)]},
    ]
    found = pins({"packages": packages}, RANKS)
    assert found == [Pin("aa", "1", "b" * 64), Pin("zope-x-y", "2.0", "a" * 64)]
    lines = engine_lock.requirements_text(found).splitlines()
    assert lines == [f"aa==1 --hash=sha256:{'b' * 64}", f"zope-x-y==2.0 --hash=sha256:{'a' * 64}"]
    assert all(PINNED.fullmatch(line) for line in lines)


@pytest.mark.parametrize("package", [{}, {"wheels": []}, {"wheels": [wheel("p-1-cp312-cp312-win_amd64.whl")]}])
def test_a_package_without_a_fitting_wheel_is_named(package: dict[str, Any]) -> None:
    with pytest.raises(LockProblem, match="p 1: no wheel fits"):
        pins({"packages": [{"name": "p", "version": "1", **package}]}, RANKS)


def test_what_is_recorded_does_not_depend_on_the_order_of_constraints() -> None:
    command = ["0.5.11", "--exclude-newer", "2026-05-15"]
    one = engine_lock.facts_text(engine_lock.read_arguments([*command, "--constraint", "b<2", "--constraint", "a<1"]))
    two = engine_lock.facts_text(engine_lock.read_arguments([*command, "--constraint", "a<1", "--constraint", "b<2"]))
    assert one == two
    assert json.loads(one)["constraints"] == ["a<1", "b<2"]
    assert json.loads(one)["exclude_newer"] == "2026-05-15"


@pytest.mark.parametrize("date", ["15.5.2026", "2026-13-01", "yesterday"])
def test_a_date_that_is_none_is_refused(date: str) -> None:
    with pytest.raises(SystemExit):
        engine_lock.read_arguments(["0.5.11", "--exclude-newer", date])


def test_a_failed_resolution_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: object) -> dict[str, Any]:
        raise LockProblem("cuda-tile has no usable wheels")

    monkeypatch.setattr(engine_lock, "resolve", fail)
    assert engine_lock.main(["0.5.19", "--output", str(tmp_path)]) == 1
    assert "cuda-tile has no usable wheels" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_same_answer_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = [{"name": name, "version": "1", "wheels": [wheel(f"{name}-1-py3-none-any.whl")]} for name in "ba"]
    written = []
    for order in (packages, packages[::-1]):
        monkeypatch.setattr(engine_lock, "resolve", lambda _arguments, found=order: {"packages": found})
        command = ["0.5.11", "--python", "3.11", "--exclude-newer", "2026-05-15", "--output", str(tmp_path)]
        assert engine_lock.main(command) == 0
        folder = tmp_path / "0.5.11-cp311-x86_64"
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1]
    assert read_engine_lock(str(folder)).python == "3.11"


# ---- the locks that are shipped ------------------------------------------------------------------


def pinned(folder: Path) -> dict[str, str]:
    lines = (folder / "requirements.txt").read_text().splitlines()
    return {line.split("==")[0]: line.split("==")[1].split()[0] for line in lines}


def test_the_shipped_locks_are_there() -> None:
    assert {path.name for path in LOCKS} >= {
        f"{version}-cp{python}-x86_64" for version in ("0.5.11", "0.5.23") for python in ("311", "312")
    }


@pytest.mark.parametrize("folder", LOCKS, ids=lambda folder: folder.name)
def test_a_shipped_lock_holds_sorted_exact_pins_with_one_hash_each_and_nothing_else(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"requirements.txt", "lock.json"}
    text = (folder / "requirements.txt").read_text()
    lines = text.splitlines()
    assert text == "".join(f"{line}\n" for line in lines)
    assert [line for line in lines if not PINNED.fullmatch(line)] == []
    names = [line.split("==")[0] for line in lines]
    assert names == sorted(set(names))
    assert "://" not in text + (folder / "lock.json").read_text()


@pytest.mark.parametrize("folder", LOCKS, ids=lambda folder: folder.name)
def test_a_shipped_lock_is_named_after_what_it_says(folder: Path) -> None:
    lock = read_engine_lock(str(folder))
    machine = lock.platform.split("-")[0]
    assert folder.name == f"{lock.sglang}-cp{lock.python.replace('.', '')}-{machine}"
    assert pinned(folder)["sglang"] == lock.sglang
    assert not lock.stand_ins


@pytest.mark.parametrize("folder", LOCKS, ids=lambda folder: folder.name)
def test_a_shipped_lock_says_how_it_was_made_and_keeps_its_constraints(folder: Path) -> None:
    facts = json.loads((folder / "lock.json").read_text())
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", facts["exclude_newer"])
    assert facts["note"].strip()
    assert "\n" not in facts["note"]
    for constraint in facts["constraints"]:
        name, bound = re.fullmatch(r"([a-z0-9-]+)(.+)", constraint).groups()  # type: ignore[union-attr]
        assert pinned(folder)[name] in SpecifierSet(bound)


@pytest.mark.parametrize("python", ["311", "312"])
def test_0_5_11_has_the_kernels_that_its_transformers_takes(python: str) -> None:
    # SGLang 0.5.11 leaves `kernels` open; with 0.17.2 `import sglang` ends in a ValueError of transformers 5.6.0.
    found = pinned(engine_lock.SHIPPED / f"0.5.11-cp{python}-x86_64")
    assert found["transformers"] == "5.6.0"
    assert found["kernels"] in SpecifierSet(">=0.12,<0.13")
