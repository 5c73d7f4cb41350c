# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a converged host looks like, seen by testinfra over ssh."""

from __future__ import annotations

import json
import re
from typing import Any

ENGINES = "/opt/sglang/engines"
STORE = "/srv/models"
UNIT = "sglang-molecule.service"
RELEASE = "/var/lib/sglang/molecule/releases/1"
KEY = "molecule-canary-$HOME-%n-'\"\\"
ASK = "http://127.0.0.1:30499/v1/models"


def test_the_service_runs_as_its_own_user_and_starts_at_boot(host: Any) -> None:
    service = host.service(UNIT)
    assert service.is_running
    assert service.is_enabled
    pid = host.check_output(f"systemctl show --property=MainPID --value {UNIT}")
    assert host.process.get(pid=int(pid)).user == "sglang"
    assert host.user("sglang").shell == "/usr/sbin/nologin"


def test_every_word_of_the_command_line_arrives_as_it_was_planned(host: Any) -> None:
    with host.sudo():
        pid = host.check_output(f"systemctl show --property=MainPID --value {UNIT}")
        words = host.check_output(f"cat /proc/{pid}/cmdline | tr '\\0' '\\n'").splitlines()
    assert words[words.index("--served-model-name") + 1] == "100% of $HOME"
    assert words[words.index("--port") + 1] == "30499"


def test_the_unit_is_verified_and_for_root_alone_to_change(host: Any) -> None:
    unit = host.file(f"/etc/systemd/system/{UNIT}")
    assert (unit.user, unit.group, unit.mode) == ("root", "root", 0o644)
    assert host.run(f"systemd-analyze verify {unit.path}").rc == 0


def test_the_deployed_state_is_an_accepted_release_that_the_service_cannot_write(host: Any) -> None:
    home = "/var/lib/sglang/molecule"
    current = host.file(f"{home}/current")
    assert current.is_symlink
    assert current.linked_to == f"{home}/releases/1"
    assert host.file(f"{home}/releases").listdir() == ["1"]
    assert host.file(f"{current.linked_to}/unit").content == host.file(f"/etc/systemd/system/{UNIT}").content
    assert json.loads(host.file(f"{current.linked_to}/accepted").content_string)["accept_length"] > 1
    plan = json.loads(host.file(f"{current.linked_to}/plan.json").content_string)
    assert plan["engine"]["path"] == plan["engine_path"]
    assert [model["repo"] for model in plan["models"]] == ["tiny/k2", "tiny/k2-eagle3-good"]
    environment = host.file(f"{current.linked_to}/environment")
    assert (environment.user, environment.mode) == ("root", 0o600)
    with host.sudo("sglang"):
        assert host.run(f"touch {home}/x").failed
        assert host.run(f"touch {home}/state/x").succeeded


def test_the_engine_is_complete_and_the_service_cannot_write_it(host: Any) -> None:
    (engine,) = host.file(ENGINES).listdir()
    with host.sudo():
        marker = json.loads(host.file(f"{ENGINES}/{engine}/.complete").content_string)
    assert engine == f"0.5.19-{marker['digest']}"
    assert host.file(f"{ENGINES}/{engine}").user == "root"
    with host.sudo("sglang"):
        assert host.run(f"touch {ENGINES}/{engine}/x").failed


def test_the_models_are_published_whole(host: Any) -> None:
    for model in ("models--tiny--k2", "models--tiny--k2-eagle3-good"):
        current = host.file(f"{STORE}/{model}/current")
        assert current.is_symlink
        assert host.file(f"{current.linked_to}/config.json").is_file
        # a blob's name is its sha256, so the store proves itself without a lock
        listing = host.check_output(f"cd {STORE}/{model}/blobs && sha256sum -- *").splitlines()
        assert listing
        assert all(digest == name for digest, name in (line.split() for line in listing))


def test_the_server_answers_those_who_have_the_key(host: Any) -> None:
    refused = host.run(f"python3 -c 'import urllib.request as r; r.urlopen(\"{ASK}\")'")
    assert "HTTP Error 401" in refused.stderr
    # the key comes from the host's own file: on a command line it would be in a journal
    script = (
        f'import json, urllib.request as r; key = json.load(open("{RELEASE}/secret_args.yaml"))["api-key"]; '
        f'asked = r.Request("{ASK}", headers={{"Authorization": "Bearer " + key}}); '
        "print(r.urlopen(asked).read().decode())"
    )
    with host.sudo():
        answer = host.check_output(f"python3 -c '{script}'")
    assert json.loads(answer)["data"][0]["id"] == "100% of $HOME"


def test_the_key_is_in_one_file_of_root_and_nowhere_else(host: Any) -> None:
    secret = host.file(f"{RELEASE}/secret_args.yaml")
    assert (secret.user, secret.group, secret.mode) == ("root", "root", 0o600)
    with host.sudo():
        assert json.loads(secret.content_string) == {"api-key": KEY}
        # a pattern that does not match itself, as this command may be logged
        pattern = KEY[:3] + "[" + KEY[3] + "]" + KEY[4:15]
        places = "/etc /var/lib /opt/sglang /srv /home /root /run/systemd/system"
        found = host.run(f"grep -rl -e '{pattern}' {places}").stdout.split()
        assert found == [secret.path]
        assert host.run(f"journalctl --no-pager | grep -e '{pattern}'").stdout == ""
        assert host.run(f"cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | grep -a -e '{pattern}'").stdout == ""


def test_the_unit_exposes_little(host: Any) -> None:
    found = host.check_output(f"systemd-analyze security --no-pager {UNIT}")
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", found)
    assert exposure, found
    assert float(exposure[1]) <= 2.5, found
