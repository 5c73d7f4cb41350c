# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engines built by the real uv from a wheelhouse of a few bytes."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import stat
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._engine.build import (
    BuildProblem,
    Recipe,
    build,
    is_complete,
    passwords,
)

from tests.unit.plugins.module_utils._engine import engine_venv_kit as kit

ROOT = Path(__file__).resolve().parents[5]
UV = "0.0.7"
GOOD = {"sglang/__init__.py": "print('a banner')\n"}


class Bench:
    """The directories of one host, and the recipe of an engine there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wheelhouse = root / "wheelhouse"
        self.uv_venv = root / "tools/uv"
        self.uv_lock = root / "tools/uv.txt"
        (root / "engines").mkdir()
        self.use_uv()
        self.uv_lock.write_text(f"uv=={UV} --hash=sha256:{'0' * 64}\n")

    def use_uv(self, before: str = "") -> None:
        kit.place_uv(self.uv_venv, UV, before)

    def recipe(self, requirements: str, **changed: t.Any) -> Recipe:
        digest = kit.lock(self.root / "lock", requirements, **changed.pop("facts", {}))
        usual: dict[str, t.Any] = {
            "path": str(self.root / f"engines/x-{digest}"),
            "lock": str(self.root / "lock"),
            "digest": digest,
            "uv_venv": str(self.uv_venv),
            "uv_lock": str(self.uv_lock),
            "python": sys.executable,
            "cache": str(self.root / "cache"),
            "index_url": None,
            "wheelhouse": str(self.wheelhouse),
            "timeout": 120,
        }
        return Recipe(**{**usual, **changed})

    def good(self, **changed: t.Any) -> Recipe:
        return self.recipe(kit.wheel(self.wheelhouse, "sglang", kit.VERSION, GOOD), **changed)


@pytest.fixture
def bench(tmp_path: Path) -> t.Iterator[Bench]:
    mask = os.umask(0o022)
    yield Bench(tmp_path)
    os.umask(mask)


def listing(path: str) -> list[tuple[str, int]]:
    return sorted((str(entry), entry.lstat().st_mtime_ns) for entry in Path(path).rglob("*"))


def test_a_build_is_complete_and_left_alone(bench: Bench) -> None:
    recipe = bench.good()
    assert not is_complete(recipe.path, recipe.digest)
    assert build(recipe) is True
    assert is_complete(recipe.path, recipe.digest)
    marker = json.loads((Path(recipe.path) / ".complete").read_text())
    built_at = marker.pop("built_at")
    assert marker == {"digest": recipe.digest, "version": kit.VERSION, "uv": UV}
    assert time.strptime(built_at, "%Y-%m-%dT%H:%M:%SZ")
    assert list(Path(recipe.path).rglob("sglang/__pycache__/*.pyc")), "compiled for a user that cannot write here"
    before = listing(recipe.path)
    assert build(recipe) is False
    assert listing(recipe.path) == before


def test_everybody_reads_and_only_root_writes(bench: Bench) -> None:
    os.umask(0o077)
    recipe = bench.good()
    build(recipe)
    for entry in [Path(recipe.path), *Path(recipe.path).rglob("*")]:
        mode = entry.lstat().st_mode
        if not stat.S_ISLNK(mode):
            assert mode & 0o044 == 0o044, entry
            assert mode & 0o022 == 0, entry


def test_what_an_interrupted_build_left_is_removed(bench: Bench) -> None:
    recipe = bench.good()
    left = Path(recipe.path) / "lib/left"
    left.mkdir(parents=True)
    assert build(recipe) is True
    assert not left.exists()


@pytest.mark.parametrize("written", ["", "{", '{"digest": "another"}', "[]"])
def test_a_marker_that_does_not_say_the_digest_is_none(tmp_path: Path, written: str) -> None:
    (tmp_path / ".complete").write_text(written)
    assert not is_complete(str(tmp_path), "0123456789ab")


def test_wrong_bytes_are_refused_by_name_and_mended_by_the_next_run(bench: Bench) -> None:
    recipe = bench.good()
    wheel = next(bench.wheelhouse.iterdir())
    right = wheel.read_bytes()
    kit.wheel(bench.wheelhouse, "sglang", kit.VERSION, {"sglang/__init__.py": "print('another')\n"})
    with pytest.raises(BuildProblem) as caught:
        build(recipe)
    assert caught.value.step == "installing the locked wheels"
    assert "sglang" in caught.value.reason
    assert "hash" in caught.value.reason.lower()
    assert not is_complete(recipe.path, recipe.digest)
    wheel.write_bytes(right)
    assert build(recipe) is True


def test_packages_that_do_not_fit_together_are_named(bench: Bench) -> None:
    line = kit.wheel(bench.wheelhouse, "sglang", kit.VERSION, GOOD, requires="not_there>=2")
    recipe = bench.recipe(line)
    with pytest.raises(BuildProblem, match="not-there") as caught:
        build(recipe)
    assert caught.value.step == "checking that the packages fit together"
    assert not is_complete(recipe.path, recipe.digest)


def test_an_sglang_that_cannot_be_imported_is_none(bench: Bench) -> None:
    broken = {"sglang/__init__.py": "raise ValueError('Either a revision or a version must be specified')\n"}
    recipe = bench.recipe(kit.wheel(bench.wheelhouse, "sglang", kit.VERSION, broken))
    with pytest.raises(BuildProblem, match="Either a revision or a version") as caught:
        build(recipe)
    assert caught.value.step == "importing sglang"
    assert not is_complete(recipe.path, recipe.digest)


@pytest.mark.parametrize(("fact", "value"), [("sglang", "9.1.3"), ("python", "3.1")])
def test_another_release_than_the_lock_says_is_refused(bench: Bench, fact: str, value: str) -> None:
    with pytest.raises(BuildProblem, match=f"the lock is for .*{value}") as caught:
        build(bench.good(facts={fact: value}))
    assert caught.value.step == "importing sglang"


def test_an_interpreter_that_is_not_there_is_named(bench: Bench) -> None:
    with pytest.raises(BuildProblem, match=r"3\.99") as caught:
        build(bench.good(python="python3.99"))
    assert caught.value.step == "making the virtual environment"


def test_a_lock_with_another_digest_is_refused_before_anything_is_removed(bench: Bench) -> None:
    recipe = bench.good()
    kept = Path(recipe.path) / "kept"
    kept.mkdir(parents=True)
    (bench.root / "lock/requirements.txt").write_text("")
    with pytest.raises(BuildProblem, match=f"the plan's is {recipe.digest}"):
        build(recipe)
    assert kept.exists()


@pytest.mark.parametrize("path", ["/opt/sglang", "engines/x-0123456789ab", "/"])
def test_nothing_but_a_directory_of_that_digest_is_ever_removed(bench: Bench, path: str) -> None:
    with pytest.raises(ValueError, match="has to end in"):
        dataclasses.replace(bench.good(), path=path)


@pytest.mark.parametrize("there", ["absent", "another version", "cut short"])
def test_uv_is_installed_from_its_lock_where_it_does_not_answer(bench: Bench, there: str) -> None:
    script = {f"uv-{UV}.data/scripts/uv": kit.uv_script(UV)}
    bench.uv_lock.write_text("# a comment\n" + kit.wheel(bench.wheelhouse, "uv", UV, script))
    (bench.uv_venv / "bin/uv").unlink()
    if there == "another version":
        kit.place_uv(bench.uv_venv, "0.0.70")
    elif there == "cut short":
        (bench.uv_venv / "bin/uv").write_bytes(b"\x7fELF")
    assert build(bench.good()) is True


def test_a_uv_that_its_lock_does_not_allow_is_refused(bench: Bench) -> None:
    (bench.uv_venv / "bin/uv").unlink()
    kit.wheel(bench.wheelhouse, "uv", UV, {f"uv-{UV}.data/scripts/uv": kit.uv_script(UV)})
    with pytest.raises(BuildProblem, match=r"0{64}") as caught:
        build(bench.good())
    assert caught.value.step == "installing uv"


def test_a_build_that_takes_too_long_is_ended_with_all_its_processes(bench: Bench) -> None:
    bench.use_uv(before=f"sleep 600 & echo $! > {bench.root}/pid; wait")
    recipe = bench.good(timeout=2)
    with pytest.raises(BuildProblem, match="not over after 2 seconds"):
        build(recipe)
    pid = int((bench.root / "pid").read_text())
    # killed, and gone as soon as the kernel has come to it
    until(lambda: not is_running(pid))


def test_a_killed_build_that_uv_goes_on_with_is_waited_for(bench: Bench) -> None:
    wait = f"touch {bench.root}/started; while [ ! -e {bench.root}/go ]; do sleep 0.1; done"
    bench.use_uv(before=f'if [ "$1" = pip ]; then echo $$ > {bench.root}/pid; {wait}; fi')
    recipe = bench.good()
    builder = subprocess.Popen([sys.executable, "-c", BUILDER, json.dumps(dataclasses.asdict(recipe))], cwd=ROOT)
    try:
        until((bench.root / "started").exists)
        builder.send_signal(signal.SIGKILL)
        builder.wait()
        with pytest.raises(BuildProblem, match="another build still holds"):
            build(dataclasses.replace(recipe, timeout=1))
    finally:
        builder.kill()
        builder.wait()
        (bench.root / "go").touch()
    assert not is_complete(recipe.path, recipe.digest)
    assert build(recipe) is True


def test_the_password_of_an_index_is_in_no_message(bench: Bench) -> None:
    bench.use_uv(before='echo "asked $UV_DEFAULT_INDEX and p@ss" >&2; exit 3')
    with pytest.raises(BuildProblem) as caught:
        build(bench.good(index_url="https://user:p%40ss@mirror.example/simple", wheelhouse=None))
    assert caught.value.reason == "asked https://user:****@mirror.example/simple and ****"


@pytest.mark.parametrize("by", ["recipe", "environment"])
def test_a_wheelhouse_replaces_every_index(bench: Bench, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    # nothing listens there, so that asking it fails
    refused = "http://127.0.0.1:9/simple"
    if by == "environment":
        monkeypatch.setenv("UV_DEFAULT_INDEX", refused)
    assert build(bench.good(index_url=refused if by == "recipe" else None)) is True


def test_passwords_are_found_as_written_and_as_meant() -> None:
    assert passwords("https://u:a%2Fb@h/simple") == ["a%2Fb", "a/b"]
    assert passwords("https://h/simple") == []
    assert passwords(None) == []


BUILDER = """
import json, sys
sys.path.insert(0, "collections")
from ansible_collections.inferops.serving.plugins.module_utils._engine.build import Recipe, build
build(Recipe(**json.loads(sys.argv[1])))
"""


def until(true: t.Callable[[], bool]) -> None:
    """Wait for something that will be; a minute is long enough to say that it will not."""
    for _attempt in range(600):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen within a minute")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
