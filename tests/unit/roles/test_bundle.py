# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle is filled and sealed by the role, and what happened to it on the way is named before a byte is served."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest

from tests.module import run_module
from tests.unit.plugins.module_utils._engine import engine_venv_kit as engine_kit
from tests.unit.plugins.module_utils._store import store_kit as kit
from tests.unit.roles.role_play import play_role

ROOT = Path(__file__).resolve().parents[3]
FILES = kit.model_files()


class Site:
    """The folder with internet, and what the plan says there. uv is a wheel of a few bytes, as the engine is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bundle = root / "bundle"
        self.wheels = root / "index"
        line = engine_kit.wheel(self.wheels, "sglang", engine_kit.VERSION, {"sglang/__init__.py": ""})
        (root / "uv.txt").write_text(engine_kit.wheel(self.wheels, "uv", "0.1", {"uv.py": ""}) + "\n")
        digest = engine_kit.lock(root / "lock", line)
        for path, content in FILES.items():
            (root / "source" / path).parent.mkdir(parents=True, exist_ok=True)
            (root / "source" / path).write_bytes(content)
        (root / "lock.json").write_text(json.dumps(kit.lock_of(FILES)))
        engine = {"lock": str(root / "lock"), "digest": digest, "python": engine_kit.PYTHON}
        model = {"models": [{"lock": str(root / "lock.json")}]}
        self.digest = digest
        self.variables: dict[str, t.Any] = {
            "sglang_plan_result": {"plans": {"gpu1": {"model": model, "engine": engine}}},
            "sglang_mirror_bundle": str(self.bundle),
            "sglang_mirror_sources": [{"type": "path", "path": str(root / "source")}],
            "sglang_mirror_store": str(root / "srv/models"),
            "sglang_mirror_wheelhouse": str(root / "srv/wheelhouse"),
            "sglang_mirror_root": str(root / "etc"),
            "__sglang_mirror_uv_lock": str(root / "uv.txt"),
        }

    def play(self, *options: str, tasks_from: str = "bundle", fails: bool = False) -> tuple[int, str]:
        """Play one part of the role. Returns the number of changed tasks and the output."""
        os.environ.update(PIP_FIND_LINKS=str(self.wheels), PIP_NO_INDEX="1")
        try:
            done = play_role(self.root, "sglang_mirror", self.variables, *options, tasks_from=tasks_from)
        finally:
            del os.environ["PIP_FIND_LINKS"], os.environ["PIP_NO_INDEX"]
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, output
        changed = re.search(r"changed=(\d+)", done.stdout)
        assert changed, output
        return int(changed[1]), output


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site with a bundle that was filled in three runs: predicted, real, again."""
    site = Site(tmp_path_factory.mktemp("bundle"))
    predicted, output = site.play("--check", "--diff")
    assert not site.bundle.exists()
    assert "2 wheels to be downloaded" in output
    assert site.play()[0] == predicted
    before = kit.listing(site.bundle)
    assert site.play()[0] == 0
    assert site.play("--check")[0] == 0
    assert kit.listing(site.bundle) == before
    return site


def test_what_is_in_it(sealed: Site) -> None:
    listed = json.loads((sealed.bundle / "bundle.json").read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", listed["made"])
    (model,) = listed["models"]
    assert (model["repo"], model["revision"], model["files"]) == (kit.REPO, kit.REVISION, len(FILES))
    assert model["total_size"] == sum(map(len, FILES.values()))
    assert [engine["digest"] for engine in listed["engines"]] == [sealed.digest]
    assert listed["wheels"] == 2


def test_sha256sum_knows_its_sums(sealed: Site) -> None:
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=sealed.bundle, check=False)
    assert done.returncode == 0
    named = {line.split("  ", 1)[1] for line in (sealed.bundle / "SHA256SUMS").read_text().splitlines()}
    there = {str(path.relative_to(sealed.bundle)) for path in sealed.bundle.rglob("*") if path.is_file()}
    unnamed = {path for path in there - named if not any(part.startswith(".") for part in Path(path).parts)}
    assert {path for path in unnamed if not (sealed.bundle / path).is_symlink() and "/current/" not in path} == {
        "SHA256SUMS"
    }


def _verify(site: Site, bundle: Path, **changes: t.Any) -> dict[str, t.Any]:
    """Ask the module on another copy of the bundle."""
    arguments = {
        "path": str(bundle),
        "state": "verified",
        "locks": [json.loads((site.root / "lock.json").read_text())],
        "engines": [site.digest],
        **changes,
    }
    return run_module("model_bundle", arguments, python="python3")


@pytest.fixture
def copy(sealed: Site, tmp_path: Path) -> Path:
    """The bundle as it arrives at another place."""
    return Path(shutil.copytree(sealed.bundle, tmp_path / "arrived", symlinks=True))


BLOB = f"models/models--org--model/blobs/{hashlib.sha256(FILES[kit.SHARD]).hexdigest()}"
WHEEL = f"wheelhouse/sglang-{engine_kit.VERSION}-py3-none-any.whl"


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


def test_it_arrives_whole(sealed: Site, copy: Path) -> None:
    result = _verify(sealed, copy)
    assert (result["changed"], result["problems"]) == (False, [])
    assert result["bytes_hashed"] > sum(map(len, set(FILES.values())))


@pytest.mark.parametrize("path", [BLOB, WHEEL, "locks/org--model.json", "bundle.json", "engines/uv.txt"])
@pytest.mark.parametrize("harm", [_flip, Path.unlink], ids=["flipped", "missing"])
def test_damage_is_named(sealed: Site, copy: Path, path: str, harm: t.Callable[[Path], None]) -> None:
    before = copy / path
    harm(before)
    result = _verify(sealed, copy)
    assert (result["failed"], result["error_class"]) == (True, "corrupt_source")
    assert path in result["msg"]


def test_an_extra_wheel_is_named_even_when_the_sums_know_it(sealed: Site, copy: Path) -> None:
    (copy / "wheelhouse/evil-1.0-py3-none-any.whl").write_bytes(b"evil")
    with (copy / "SHA256SUMS").open("a") as sums:
        sums.write(f"{hashlib.sha256(b'evil').hexdigest()}  wheelhouse/evil-1.0-py3-none-any.whl\n")
    assert _verify(sealed, copy)["problems"] == ["wheelhouse/evil-1.0-py3-none-any.whl belongs to no lock"]


def test_consistent_sums_do_not_hide_other_bytes(sealed: Site, copy: Path) -> None:
    """Somebody who can change the bundle can change its sums; the site's own locks came another way."""
    _flip(copy / BLOB)
    digest = kit.sha256_of(copy / BLOB)
    sums = (copy / "SHA256SUMS").read_text().replace(f"{Path(BLOB).name}  ", f"{digest}  ")
    (copy / "SHA256SUMS").write_text(sums)
    assert _verify(sealed, copy)["problems"] == [f"{BLOB} ({kit.REPO} {kit.SHARD}) is damaged"]


def test_another_lock_than_the_sites_is_named(sealed: Site, copy: Path) -> None:
    other = kit.lock_of({**FILES, "config.json": b"{}"})
    problems = _verify(sealed, copy, locks=[other])["problems"]
    assert any("locks/org--model.json is not the lock of this site" in problem for problem in problems)
    problems = _verify(sealed, copy, engines=["0123456789ab"])["problems"]
    assert any("engines/0123456789ab" in problem for problem in problems)


def test_a_redirected_link_is_named(sealed: Site, copy: Path) -> None:
    link = copy / "models/models--org--model/snapshots" / kit.REVISION / "config.json"
    link.unlink()
    link.symlink_to("/etc/passwd")
    (problem,) = _verify(sealed, copy)["problems"]
    assert problem.endswith("/config.json is not the link to its content")


def test_an_unfinished_bundle_is_named(sealed: Site, copy: Path) -> None:
    (copy / "SHA256SUMS").unlink()
    assert "the bundle is not finished" in _verify(sealed, copy)["msg"]


def test_a_bundle_is_not_sealed_when_it_is_not_whole(sealed: Site, copy: Path) -> None:
    (copy / WHEEL).unlink()
    before = kit.listing(copy)
    result = _verify(sealed, copy, state="sealed")
    assert result["failed"] is True
    assert f"wheelhouse has no wheel of sglang=={engine_kit.VERSION}" in result["msg"]
    assert kit.listing(copy) == before


def test_the_mirror_refuses_a_damaged_bundle_before_it_writes(sealed: Site, copy: Path) -> None:
    _flip(copy / BLOB)
    sealed.variables["sglang_mirror_bundle"] = str(copy)
    output = sealed.play(tasks_from="main", fails=True)[1]
    assert "is refused" in output
    assert not (sealed.root / "srv").exists()


def test_the_mirror_predicts_from_a_whole_bundle(sealed: Site, copy: Path) -> None:
    sealed.variables["sglang_mirror_bundle"] = str(copy)
    output = sealed.play("--check", "--diff", tasks_from="main")[1]
    assert f"+revision {kit.REVISION}" in output
    assert not (sealed.root / "srv").exists()
