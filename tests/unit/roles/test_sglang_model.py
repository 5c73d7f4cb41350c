# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role sglang_model on the controller itself, with a loopback Hub and a store in a temporary directory."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from tests.unit.plugins.module_utils._store import store_kit as kit
from tests.unit.roles.role_play import play_role

ROOT = Path(__file__).resolve().parents[3]
DRAFTER = "org/drafter"


class Site:
    """A playbook, its variables and what it prints."""

    def __init__(self, root: Path, variables: dict[str, t.Any]) -> None:
        self.root = root
        self.variables = variables
        self.store = root / "srv/models"

    def play(self, *options: str, fails: bool = False) -> dict[str, t.Any]:
        """Run the playbook and give the result of the last task; the whole output is in ``output``."""
        done = play_role(self.root, "sglang_model", self.variables, *options)
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, output
        recap = next((line for line in done.stdout.splitlines() if line.startswith("localhost  ")), "")
        return {"output": output, **dict(pair.split("=") for pair in recap.split() if "=" in pair)}


@pytest.fixture
def hub() -> t.Iterator[kit.Hub]:
    with kit.running(kit.model_files()) as running:
        yield running


@pytest.fixture
def drafter_hub() -> t.Iterator[kit.Hub]:
    with kit.running({"config.json": b"{}", "model.safetensors": kit.safetensors("drafter", 5000)}, DRAFTER) as running:
        yield running


@pytest.fixture
def site(tmp_path: Path, hub: kit.Hub, drafter_hub: kit.Hub) -> Site:
    (tmp_path / "target.json").write_text(json.dumps(kit.lock_of(hub.files)))
    (tmp_path / "drafter.json").write_text(json.dumps(kit.lock_of(drafter_hub.files, repo=DRAFTER)))
    store = str(tmp_path / "srv/models")

    def model(role: str, repo: str) -> dict[str, str]:
        folder = repo.replace("/", "--")
        return {
            "role": role,
            "repo": repo,
            "lock": str(tmp_path / f"{role}.json"),
            "revision": kit.REVISION,
            "path": f"{store}/models--{folder}/snapshots/{kit.REVISION}",
        }

    plan = {"store": store, "models": [model("target", kit.REPO), model("drafter", DRAFTER)]}
    return Site(
        tmp_path,
        {
            "sglang_plan_result": {"plans": {"localhost": {"model": plan}}},
            "sglang_model_sources": [
                {"type": "hub", "url": hub.url},
                {"type": "hub", "url": drafter_hub.url},
            ],
            # this machine gets no timer
            "sglang_model_verify_calendar": "",
            "sglang_model_verify_root": str(tmp_path / "opt/verify"),
            "sglang_model_verify_reports": str(tmp_path / "var/verify"),
        },
    )


def test_check_run_and_run_again(site: Site, hub: kit.Hub, drafter_hub: kit.Hub) -> None:
    predicted = site.play("--check", "--diff")
    assert not site.store.exists()
    assert hub.asked == drafter_hub.asked == []
    done = site.play("--diff")
    for said in ("(item=target org/model)", "(item=drafter org/drafter)", f"+revision {kit.REVISION}"):
        assert said in predicted["output"]
        assert said in done["output"]
    assert predicted["changed"] == done["changed"] == "1"
    for model in site.variables["sglang_plan_result"]["plans"]["localhost"]["model"]["models"]:
        assert (Path(model["path"]) / "config.json").is_file(), "where the plan says it is"
    asked = len(hub.asked) + len(drafter_hub.asked)
    before = kit.listing(site.store)
    assert site.play()["changed"] == "0"
    assert site.play("--check")["changed"] == "0"
    assert len(hub.asked) + len(drafter_hub.asked) == asked
    assert kit.listing(site.store) == before


def test_a_lock_that_is_not_there_is_named_before_anything(site: Site, hub: kit.Hub) -> None:
    (site.root / "drafter.json").unlink()
    output = site.play(fails=True)["output"]
    assert f"the drafter org/drafter at revision {kit.REVISION}: {site.root}/drafter.json." in output
    assert "inferops.serving.lock" in output
    assert not site.store.exists()
    assert hub.asked == []


def test_the_timer_is_predicted_on_an_empty_host(site: Site) -> None:
    site.variables["sglang_model_verify_calendar"] = "weekly"
    output = site.play("--check", "--diff")["output"]
    unit = "sglang-verify-" + str(site.store).replace("-", "--").strip("/").replace("/", "-")
    for said in (
        "+OnCalendar=weekly",
        "+RandomizedDelaySec=12h",
        "+IOSchedulingClass=idle",
        f"+ReadWritePaths=-{site.store}/models--org--drafter/blobs/.stamp",
        f"--report={site.root}/var/verify/{unit.removeprefix('sglang-verify-')}.json",
        f"+++ after: /etc/systemd/system/{unit}.timer",
    ):
        assert said in output, said
    assert not (site.root / "opt").exists()
    assert not (site.root / "var").exists()
