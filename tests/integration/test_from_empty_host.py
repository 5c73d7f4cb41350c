# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job, told once from front to back on a real host with the real engine. The tests build on each other."""

from __future__ import annotations

import datetime
import json
import os
import random
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.engine import hub, models
from tests.integration.conftest import API_KEY, CANARY, HOST, ROOT, TOKEN, Run, Site

WORDS = 20
TEXT = models.expected_continuation("a rack of", WORDS)


@pytest.fixture(scope="module")
def told(site: Site) -> dict[str, Run]:
    """The runs so far, by what they were."""
    return {}


def test_check_mode_on_the_empty_host_writes_nothing(site: Site, told: dict[str, Run]) -> None:
    before = site.hosts.snapshot(HOST)
    told["check"] = site.play("site.yml", "--check", "--diff")
    assert told["check"].status == 0, told["check"].output
    assert site.hosts.snapshot(HOST) == before
    assert "tiny/k2" in told["check"].output


def test_the_real_run_changes_what_check_mode_said(site: Site, told: dict[str, Run]) -> None:
    told["real"] = site.play("site.yml", "--diff", "-vvv")
    assert told["real"].status == 0, told["real"].output[-6000:]
    assert told["real"].changed_tasks == told["check"].changed_tasks
    assert f"{HOST}: loading" in told["real"].output
    shown = "model, generation, server info, accept length, documents"
    assert re.search(rf"{HOST}: shown: {shown}", told["real"].output)
    assert re.search(rf"{HOST}: answers, accept length (1\.9\d|2\.0\d)", told["real"].output)


def test_the_server_answers_with_the_known_text_and_accept_length(site: Site) -> None:
    assert site.text(WORDS) == TEXT
    info = site.ask("/server_info")
    assert info["speculative_algorithm"] == "EAGLE3"
    assert info["internal_states"][0]["avg_spec_accept_length"] == pytest.approx(2.0, abs=0.05)
    assert site.ask("/v1/models")["data"][0]["id"] == "tiny/k2"


def test_a_second_run_changes_nothing_and_asks_the_mirror_nothing(site: Site) -> None:
    site.mirror.forget()
    started = site.sudo("systemctl show --property=InvocationID sglang-it")
    again = site.play()
    assert (again.status, again.changed) == (0, 0), again.output
    check = site.play("site.yml", "--check", "--diff")
    assert (check.status, check.changed) == (0, 0), check.output
    assert site.mirror.stats()["requests"] == 0
    assert site.sudo("systemctl show --property=InvocationID sglang-it") == started


def test_the_engine_refuses_in_a_rehearsal_what_would_end_it_at_its_start(site: Site, tmp_path: Path) -> None:
    started = site.sudo("systemctl show --property=InvocationID sglang-it")
    home = "/var/lib/sglang/it"
    unit = site.sudo("cat /etc/systemd/system/sglang-it.service").replace(f"{home}/releases/1", "@release@")
    change = {
        "home": home,
        "unit": "sglang-it.service",
        # the incident: draft tokens without steps, which the plan would never let come so far
        "unit_text": unit.replace(" --speculative-num-steps 1", ""),
        "environment": site.sudo(f"cat {home}/releases/1/environment"),
        "secret_args": site.sudo(f"cat {home}/releases/1/secret_args.yaml"),
        "plan": {},
    }
    (tmp_path / "own.yml").write_text(
        yaml.safe_dump([{"hosts": HOST, "tasks": [{"inferops.serving.server_change": change}]}])
    )
    run = site.play(str(tmp_path / "own.yml"))
    assert run.status != 0
    assert "the installed engine refuses the command line: AssertionError" in run.output
    assert "Known cause: " in run.output
    assert "docs/rules.md#spec-steps-missing" in run.output
    assert site.sudo("systemctl show --property=InvocationID sglang-it") == started
    assert site.sudo(f"ls {home}/releases").split() == ["1"]


def test_a_secret_of_the_environment_is_nowhere_but_in_its_file(site: Site, told: dict[str, Run]) -> None:
    assert CANARY not in told["check"].output
    assert CANARY not in told["real"].output
    assert CANARY not in site.sudo("journalctl --no-pager")
    assert CANARY not in site.sudo("cat /proc/[0-9]*/cmdline | tr \\\\0 \\\\n")
    # searched from outside: a search on the host would leave the word in the host's own journal
    root = site.hosts.root(HOST)
    places = [str(root / place) for place in ("etc", "var/lib", "opt/sglang/locks", "opt/sglang/tools", "srv", "home")]
    found = subprocess.run(["grep", "-rl", CANARY, *places], capture_output=True, text=True, check=False)
    assert found.stdout.split() == [str(root / "var/lib/sglang/it/releases/1/environment")]
    assert site.sudo("stat -c %a:%U /var/lib/sglang/it/releases/1/environment").strip() == "600:root"
    pid = site.sudo("systemctl show --property=MainPID --value sglang-it").strip()
    assert CANARY in site.sudo(f"cat /proc/{pid}/environ | tr \\\\0 \\\\n"), "the service itself has it"


def test_the_api_key_is_asked_for(site: Site) -> None:
    for headers in ({}, {"Authorization": "Bearer another"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{site.url}/v1/models", headers=headers), timeout=60)
        assert refused.value.code == 401


@pytest.mark.parametrize(
    ("secret", "files", "in_memory"),
    [
        # without the part that a log may write in another way; systemd gives it to the service
        (
            API_KEY[:11],
            ["var/lib/sglang/it/releases/1/secret_args.yaml"],
            ["/run/credentials/sglang-it.service/server.yaml"],
        ),
        # the transfer is over, and nothing else reads it
        (TOKEN, [], []),
    ],
)
def test_a_secret_is_nowhere_but_in_the_file_that_the_service_has_it_from(
    site: Site, told: dict[str, Run], secret: str, files: list[str], in_memory: list[str]
) -> None:
    assert secret not in told["check"].output
    assert secret not in told["real"].output
    journal = site.sudo("journalctl --no-pager")
    assert secret not in journal
    assert "Uvicorn running" in journal, "the server's other lines are there"
    assert secret not in site.sudo("cat /proc/[0-9]*/cmdline | tr \\\\0 \\\\n")
    assert secret not in site.sudo("cat /proc/[0-9]*/environ | tr \\\\0 \\\\n")
    root = site.hosts.root(HOST)
    places = [
        str(root / place) for place in ("etc", "var", "opt/sglang/locks", "opt/sglang/tools", "srv", "home", "root")
    ]
    places.append(str(site.inventory))
    found = subprocess.run(["grep", "-rls", secret, *places], capture_output=True, text=True, check=False)
    assert found.stdout.split() == [str(root / file) for file in files]
    for file in files:
        assert site.sudo(f"stat -c %a:%U /{file}").strip() == "600:root"
    # last, for the search itself leaves the word in the host's journal
    assert site.sudo(f"grep -rls {secret} /run /tmp || true").split() == in_memory


def test_a_drafter_that_does_not_help_fails_the_gate(site: Site) -> None:
    wanted = {"sglang_model_drafter": "tiny/k2-eagle3-bad", "sglang_server_accept_length_min": 1.5}
    run = site.play("site.yml", "-e", json.dumps(wanted))
    assert run.status != 0
    assert re.search(r"the accept length is 1\.\d+, below 1\.5", run.output), run.output[-3000:]
    assert re.search(r"Release 1 is restored and answers, accept length (1\.9\d|2\.0\d)", run.output)
    assert site.ask("/server_info")["speculative_algorithm"] == "EAGLE3"
    assert site.text(WORDS) == TEXT


def test_an_expectation_that_is_not_met_fails_the_gate(site: Site) -> None:
    unmet = [{"name": "context", "query": "models.data[0].max_model_len", "min": 1000000}]
    run = site.play("site.yml", "-e", json.dumps({"sglang_server_expect": unmet}))
    assert run.status != 0
    assert "Nothing is restored: it had been accepted before" in run.output
    assert re.search(
        r"not as expected: context: models\.data\[0\]\.max_model_len is \d+, wanted min 1000000", run.output
    )


def test_an_engine_that_ends_fails_the_gate_at_once_with_the_reason(site: Site) -> None:
    # a drafter path that SGLang's own argument check takes: there is a config.json, but there are no weights
    site.sudo("mkdir -p /srv/broken && cp -L /srv/models/models--tiny--k2-eagle3-good/current/*.json /srv/broken/")
    args = {
        **site.variables["sglang_server_args"],
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": "/srv/broken",
        "speculative_num_steps": 1,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 2,
    }
    run = site.play("site.yml", "-e", json.dumps({"sglang_model_drafter": None, "sglang_server_args": args}))
    assert run.status != 0
    ways = "ended with exit status|was ended by signal"
    assert re.search(rf"sglang-it.service: release \d+ failed: the server ({ways}) \d+: \w+", run.output)
    assert "Release 1 is restored and answers" in run.output
    assert "Cannot find any model weights" in run.output
    assert "Traceback (most recent call last):" in run.output
    (folder,) = set(re.findall(r"/var/lib/sglang/it/evidence/\w+", run.output))
    noticed = datetime.datetime.fromisoformat(json.loads(site.sudo(f"cat {folder}/cause.json"))["time"]).timestamp()
    ended = site.sudo('journalctl -u sglang-it -o short-unix --no-pager -g "Main process exited"').splitlines()
    last = max(moment for moment in (float(line.split()[0]) for line in ended) if moment < noticed)
    assert noticed - last < 15, "the gate waited although the process had ended"
    assert "Cannot find any model weights" in site.sudo(f"cat {folder}/journal.txt")
    assert site.text(WORDS) == TEXT


def test_without_speculation_and_from_the_built_collection_the_text_is_the_same(site: Site, tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    elsewhere = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "c"), "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")}
    galaxy = Path(sys.executable).parent / "ansible-galaxy"
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    for words in (["build", ROOT], ["install", "--collections-path", "c", f"inferops-serving-{version}.tar.gz"]):
        subprocess.run([galaxy, "collection", *words], cwd=tmp_path, env={**os.environ, **elsewhere}, check=True)
    plain = ("inferops.serving.site", "-e", json.dumps({"sglang_model_drafter": None}))
    run = site.play(*plain, cwd=tmp_path, **elsewhere)
    assert run.status == 0, run.output[-3000:]
    assert str(tmp_path / "c") not in site.sudo("cat /etc/systemd/system/sglang-it.service")
    assert site.ask("/server_info")["speculative_algorithm"] is None
    assert site.text(WORDS) == TEXT
    again = site.play(*plain, cwd=tmp_path, **elsewhere)
    assert (again.status, again.changed) == (0, 0), again.output


class Large:
    """A model that takes some seconds, and somebody's own playbook with the role and its part of the plan by hand."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        repo = site.folder / "hub/tiny/large"
        repo.mkdir(parents=True, exist_ok=True)
        self.sizes = {"a.gguf": 24_000_000, "b.gguf": 16_000_000, "c.gguf": 9_000_000}
        for name, size in self.sizes.items():
            (repo / name).write_bytes(random.Random(name).randbytes(size))
        self.sizes["config.json"] = (repo / "config.json").write_bytes(b"{}")
        self.lock = hub.make_lock(repo, "tiny/large")
        (folder / "large.json").write_text(hub.lock_text(self.lock))
        model = {"role": "target", "repo": "tiny/large", "revision": self.lock["revision"]}
        plan = {"store": str(Path("/srv") / folder.name), "models": [{**model, "lock": str(folder / "large.json")}]}
        self.store = plan["store"]
        self.playbook = folder / "own.yml"
        roles = [{"role": "inferops.serving.sglang_model"}]
        self.playbook.write_text(yaml.safe_dump([{"hosts": HOST, "roles": roles, "vars": {"sglang_model_plan": plan}}]))

    def lose_the_controller(self, sent: int, rate: int) -> None:
        """Begin, and lose the controller once the mirror has sent so many bytes. ``rate`` in bytes/s for each file."""
        self.site.mirror.forget()
        self.site.mirror.misbehave({"tiny/large": {"kind": "slow", "rate": rate}})
        self.site.kill_after(sent, self.playbook)

    def digests(self) -> dict[str, str]:
        words = self.site.sudo(f"cd {self.store}/models--tiny--large/current && sha256sum *").split()
        return dict(zip(words[1::2], words[::2]))

    def locked(self) -> dict[str, str]:
        return {one["path"]: one["sha256"] for one in self.lock["files"]}


def test_a_download_killed_anywhere_goes_on_where_it_was(site: Site, tmp_path: Path, chance: random.Random) -> None:
    large = Large(site, tmp_path)
    large.lose_the_controller(chance.randrange(2_000_000, 40_000_000), 8_000_000)
    site.sudo("systemctl kill --signal=KILL model-snapshot-\\*")
    site.mirror.misbehave({})
    assert "current" not in site.sudo(f"ls {large.store}/models--tiny--large")
    run = site.play(str(large.playbook))
    assert run.status == 0, run.output[-3000:]
    sent, total = site.mirror.stats()["bytes"], sum(large.sizes.values())
    assert total <= sent <= total + max(large.sizes.values())
    assert large.digests() == large.locked()
    again = site.play(str(large.playbook))
    assert (again.status, again.changed) == (0, 0), again.output


def test_a_download_outlives_its_controller_and_the_next_run_follows_it(site: Site, tmp_path: Path) -> None:
    large = Large(site, tmp_path)
    # so slow that the next run finds it at work also on a busy machine
    large.lose_the_controller(1_500_000, 800_000)
    assert "running" in site.sudo("systemctl list-units model-snapshot-\\*")
    run = site.play(str(large.playbook))
    assert run.status == 0, run.output[-3000:]
    assert re.search(rf"{HOST}: tiny/large, \d+\.\d MB of 49\.0 MB fetched, \d+\.\d MB/s", run.output), run.output
    assert large.digests() == large.locked()
    stats = site.mirror.stats()
    assert (stats["bytes"], stats["requests"]) == (sum(large.sizes.values()), len(large.sizes)), "nothing came twice"
    site.mirror.misbehave({})
    assert "model-snapshot" not in site.sudo("systemctl list-units --all model-snapshot-\\*")


def test_a_missing_lock_stops_before_anything_is_fetched(site: Site) -> None:
    site.mirror.forget()
    run = site.play("site.yml", "-e", json.dumps({"sglang_model_lock_dir": "/nowhere"}))
    assert run.status != 0
    assert "No lock file for the target tiny/k2" in run.output
    assert site.mirror.stats()["requests"] == 0


def test_stand_ins_are_refused_beside_a_gpu(site: Site) -> None:
    site.sudo("touch /dev/nvidiactl")
    run = site.play()
    site.sudo("rm /dev/nvidiactl")
    assert run.status != 0
    assert "stand-in" in run.output
    assert "NVIDIA" in run.output
