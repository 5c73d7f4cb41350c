# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demonstration: from an empty host to an answering SGLang server, on a machine without a GPU.

    python tests/demo/demo.py up      make the host and the model mirror, deploy, show
    python tests/demo/demo.py down    remove everything that ``up`` made, but for its caches

Everything goes through the same playbook and roles as on a GPU host; see inventories/demo.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Also run as a script, where the checkout is not on the path.
sys.path.insert(0, str(ROOT))

from tests.engine import hub, models, wheelhouse  # noqa: E402
from tests.hosts.hosts import Hosts, start_time  # noqa: E402

LOCKS = ROOT / "inventories/locks"
STATE = ROOT / "build/demo"
CACHE = Path(os.environ.get("INFEROPS_CACHE", "/var/cache/inferops-serving"))
WHEELS = CACHE / "wheelhouse-cpu-0.5.19"
HOST = "demo1"
# the numbers that inventories/demo names
SSH_PORT = 2299
MIRROR_PORT = 8299
SERVER = "http://127.0.0.1:30299"
PROMPT = "a rack of"
WORDS = 24

INCIDENT = (
    {"speculative_num_draft_tokens": 3, "speculative_eagle_topk": 4},
    {"speculative_num_draft_tokens": 3},
    {"speculative_num_draft_tokens": 3, "speculative_num_steps": 1},
)


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def playbook(*words: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """One ansible-playbook run in the checkout, as a user would type it."""
    command = [str(Path(sys.executable).parent / "ansible-playbook"), *words]
    print(f"$ ansible-playbook {' '.join(words)}", flush=True)
    return subprocess.run(command, cwd=ROOT, capture_output=quiet, text=True, check=False)


# ---- the pieces -----------------------------------------------------------------------------------------


def make_mirror() -> None:
    """Write the tiny models and serve them like the Hub does, from a process that outlives this one."""
    repos = STATE / "hub"
    models.write_models(repos)
    for lock in sorted(LOCKS.glob("*.json")):
        locked = json.loads(lock.read_text())
        if hub.make_lock(repos / locked["repo"], locked["repo"]) != locked:
            raise RuntimeError(f"{lock} is not the lock of the model just made: run tests/demo/demo.py locks")
    with (STATE / "hub.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/engine/hub.py"), "--root", str(repos), "--port", str(MIRROR_PORT)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    (STATE / "hub.json").write_text(json.dumps({"pid": process.pid, "start": start_time(process.pid)}))
    for _attempt in range(100):
        try:
            get(f"http://127.0.0.1:{MIRROR_PORT}/_stats")
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the model mirror did not start: {(STATE / 'hub.log').read_text()}")


def write_locks() -> None:
    """Write the locks of the tiny models beside the demo's inventory."""
    repos = STATE / "hub"
    models.write_models(repos)
    hub.write_locks(repos, LOCKS)


def get(url: str, body: Any = None) -> Any:
    """The JSON answer of a server on this machine."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def generate() -> str:
    """What the server says after the prompt, WORDS words of it, always the most likely one."""
    body = {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": WORDS}}
    return str(get(f"{SERVER}/generate", body)["text"]).strip()


# ---- the story --------------------------------------------------------------------------------------------


def refuse_the_incident() -> None:
    say("The incident: three flags that go together. The plan refuses each combination before any connection.")
    for numbers in INCIDENT:
        args = {"tp_size": 8, "speculative_algorithm": "EAGLE3", **numbers}
        begin = time.monotonic()
        run = playbook(
            "-i", "inventories/ct200", "site.yml", "--check", "-e", json.dumps({"sglang_server_args": args}), quiet=True
        )
        seconds = time.monotonic() - begin
        message = re.search(r"^    msg: \|-\n((?:        .*\n|\n)+)", run.stdout, re.MULTILINE)
        if run.returncode == 0 or message is None:
            raise RuntimeError(f"the plan let this through: {numbers}\n{run.stdout}")
        print(message[1].rstrip())
        print(f"        (exit status {run.returncode} after {seconds:.1f} s)\n")


def deploy(*words: str) -> None:
    if playbook("site.yml", *words).returncode:
        raise RuntimeError("site.yml failed; see above. The host is still there: make demo-clean removes it")


def show(expected: str) -> str:
    text = generate()
    info = get(f"{SERVER}/server_info")
    accept = info["internal_states"][0].get("avg_spec_accept_length")
    print(f"  prompt         {PROMPT}")
    print(f"  answer         {text}")
    print(f"  algorithm      {info['speculative_algorithm']}")
    print(f"  accept length  {accept if accept is None else format(accept, '.2f')}")
    if text != expected:
        raise RuntimeError(f"the answer should have been: {expected}")
    if info["speculative_algorithm"] and not (accept and accept > 1.9):
        raise RuntimeError("the good drafter should reach an accept length of 2.0")
    return text


def up() -> None:
    begin = time.monotonic()
    down()
    STATE.mkdir(parents=True)
    refuse_the_incident()

    say(f"An engine to install: the wheels of tests/engine/lock in {WHEELS}")
    print(f"  {wheelhouse.fill(WHEELS)}")
    say("Models to serve: a tiny target with the architecture of Kimi K2, and drafters, behind a Hub-shaped mirror")
    make_mirror()
    say(f"An empty host: Debian 12 with systemd and sshd on 127.0.0.1:{SSH_PORT}")
    Hosts(STATE / "hosts").up({HOST: SSH_PORT}, (f"{WHEELS}:/opt/wheelhouse",))

    expected = models.expected_continuation(PROMPT, WORDS)
    say("From the empty host to an answering server: EAGLE-3 with the good drafter")
    deploy()
    show(expected)
    say("The same without speculation: the text does not change")
    deploy("-e", json.dumps({"sglang_model_drafter": None}))
    show(expected)
    say("And back")
    deploy()
    show(expected)

    say(f"Done in {time.monotonic() - begin:.0f} s")
    print("  real SGLang 0.5.19, toy weights, stand-in kernels: speeds mean nothing")
    print(
        f"""
  ask it          curl -s {SERVER}/generate -H 'Content-Type: application/json' \\
                    -d '{{"text": "{PROMPT}", "sampling_params": {{"temperature": 0, "max_new_tokens": {WORDS}}}}}'
  plan it         .venv/bin/ansible-playbook inferops.serving.plan
  run it again    .venv/bin/ansible-playbook site.yml          (changes nothing)
  log in          ssh -p {SSH_PORT} -i build/demo/hosts/id_ed25519 \\
                    -o UserKnownHostsFile=build/demo/hosts/known_hosts ops@127.0.0.1
  on the host     systemctl status sglang-demo; journalctl -u sglang-demo; ls /opt/sglang/engines /srv/models
  remove it       make demo-clean"""
    )


def down() -> None:
    """End the host and the mirror by their recorded ids, and remove the state."""
    if not STATE.exists():
        return
    Hosts(STATE / "hosts").down()
    record = STATE / "hub.json"
    if record.exists():
        mirror = json.loads(record.read_text())
        if start_time(mirror["pid"]) == mirror["start"]:
            os.kill(mirror["pid"], signal.SIGTERM)
    shutil.rmtree(STATE)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=["up", "down", "locks"])
    command = parser.parse_args().command
    try:
        {"up": up, "down": down, "locks": write_locks}[command]()
    except RuntimeError as exc:
        print(f"\ndemo: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
