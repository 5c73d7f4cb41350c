#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_lock
short_description: Write the lock of one revision of a Hub repository
version_added: 0.2.0
description:
  - Asks a Hub once for the commit of a branch or tag and for the commit's files, and writes a lock file with the size
    and sha256 of each, which M(inferops.serving.model_snapshot) fetches by.
  - Small files, which the Hub knows by their git object id only, are fetched and proved by it, so that code in the
    repository is locked like the weights.
  - Refuses a repository with redacted hashes, with a shard missing that the index or the shards' names tell of, with
    pickle files that nobody accepted, and with unsafe, duplicate or case-colliding paths. All problems are told
    together, and an existing lock stays as it was.
  - The lock also has what the plan reads of the model, the content of C(config.json) and, if wanted, the names, shapes
    and dtypes of its tensors.
  - Run it on the controller, where the locks lie beside the inventory. The playbook C(inferops.serving.lock) runs it
    for every model of an inventory.
requirements:
  - Python 3.9 or newer where it runs, and nothing else
attributes:
  check_mode:
    support: full
    description: Asks the Hub, tells what would change and writes nothing.
  diff_mode:
    support: full
    description: The lock file before and after.
  idempotent:
    support: full
    description: As long as the branch is at the same commit, a second run changes nothing.
options:
  repo:
    description: The repository, V(org/name).
    type: str
    required: true
  revision:
    description: Branch, tag or commit of 40 hex digits.
    type: str
    default: main
  dest:
    description:
      - The lock file. Its folder is made when it is not there.
      - A file that locks another repository is left alone.
    type: path
    required: true
  endpoint:
    description: Address of the Hub, without credentials.
    type: str
    default: https://huggingface.co
  token:
    description: The access token of O(token_file) itself, from a lookup.
    type: str
  token_file:
    description:
      - File with an access token. It is sent to O(endpoint) only, never to where it redirects, and but for loopback
        only over https.
    type: path
  accept_pickle:
    description:
      - Paths of pickle files (C(.bin), C(.pt), C(.pth), C(.ckpt), C(.pkl), C(.pickle)) that the lock may have. Loading
        one may run any code.
    type: list
    elements: str
    default: []
  tensors:
    description:
      - Whether to read the header of every safetensors file, by range request, and to keep the tensors' names, shapes
        and dtypes in the lock. Files whose length contradicts their header are refused then.
      - The plan reads them of drafters.
    type: bool
    default: false
  retries:
    description:
      - Further tries per request after a reset, a stall, 429 or 5xx. Waits double from one second to a minute, and
        C(Retry-After) is honoured up to 330 seconds.
    type: int
    default: 5
seealso:
  - module: inferops.serving.model_snapshot
author:
  - inferops contributors (@inferops)
"""

EXAMPLES = r"""
- name: Lock the target where main is now
  inferops.serving.model_lock:
    repo: moonshotai/Kimi-K2.6
    dest: "{{ inventory_dir }}/../locks/moonshotai--Kimi-K2.6.json"
  delegate_to: localhost
  run_once: true

- name: Move the drafter's lock to a commit, with what the plan wants of its tensors
  inferops.serving.model_lock:
    repo: lightseekorg/kimi-k2.6-eagle3.1-mla
    revision: 0123456789abcdef0123456789abcdef01234567
    dest: "{{ inventory_dir }}/../locks/lightseekorg--kimi-k2.6-eagle3.1-mla.json"
    tensors: true
    token_file: ~/.config/hub-token
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
path:
  description: The lock file.
  returned: always
  type: str
revision:
  description: The locked commit.
  returned: success
  type: str
  sample: 0123456789abcdef0123456789abcdef01234567
previous_revision:
  description: The commit that the file locked before. Null when there was no readable lock.
  returned: success
  type: str
lock_digest:
  description: sha256 of the lock, as M(inferops.serving.model_snapshot) returns it.
  returned: success
  type: str
files:
  description: Number of locked files.
  returned: success
  type: int
total_size:
  description: Bytes of all files.
  returned: success
  type: int
added:
  description: Paths that the lock did not have before.
  returned: success
  type: list
  elements: str
removed:
  description: Paths that the lock has no more.
  returned: success
  type: list
  elements: str
modified:
  description: Paths whose content is another one than before.
  returned: success
  type: list
  elements: str
requests:
  description: HTTP requests made.
  returned: once the Hub was to be asked
  type: int
retries:
  description: Waits before another try.
  returned: once the Hub was to be asked
  type: int
bytes_fetched:
  description: Bytes received.
  returned: once the Hub was to be asked
  type: int
seconds:
  description: Duration of the run.
  returned: once the Hub was to be asked
  type: float
error_class:
  description:
    - One of C(auth), C(not_found), C(rate_limited), C(network), C(corrupt_source) and C(lock_invalid). The last is a
      repository that cannot be locked.
    - Not set when the host itself failed, for example on a read-only file system.
  returned: failure
  type: str
problems:
  description: Every problem of the repository.
  returned: failure because the repository cannot be locked
  type: list
  elements: str
source:
  description: The Hub that was asked.
  returned: failure by what the Hub answered
  type: str
status:
  description: The HTTP status that the Hub answered.
  returned: failure by an HTTP status
  type: int
"""

import json
import os
import tempfile
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience
from ansible_collections.inferops.serving.plugins.module_utils._store.hub_api import HubApi
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import ModelLock, canonical, parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.lock_maker import MadeLock, Order, make_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.sources import read_token
from ansible_collections.inferops.serving.plugins.module_utils._store.tally import Tally

# Seconds without a byte; a Hub answers these questions at once or not at all.
TIMEOUT = 60.0


def make_module() -> AnsibleModule:
    """The module with its argument spec."""
    return AnsibleModule(
        argument_spec={
            "repo": {"type": "str", "required": True},
            "revision": {"type": "str", "default": "main"},
            "dest": {"type": "path", "required": True},
            "endpoint": {"type": "str", "default": "https://huggingface.co"},
            "token": {"type": "str", "no_log": True},
            "token_file": {"type": "path", "no_log": False},
            "accept_pickle": {"type": "list", "elements": "str", "default": []},
            "tensors": {"type": "bool", "default": False},
            "retries": {"type": "int", "default": 5},
        },
        mutually_exclusive=[("token", "token_file")],
        supports_check_mode=True,
    )


def read_text(path: str) -> str:
    """The file's text, nothing if there is none. What is no UTF-8 is kept for the difference as far as it goes."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def previous_lock(text: str, path: str, repo: str) -> ModelLock | None:
    """The lock that a file holds, None if it holds none.

    :raises StoreError: class ``lock_invalid``; it is the lock of another repository.
    """
    try:
        lock = parse_lock(json.loads(text))
    except (ValueError, StoreError):
        return None
    if lock.repo != repo:
        raise StoreError("lock_invalid", f"{path} locks {lock.repo}, not {repo}.", "Name another file.", source=path)
    return lock


def ask(module: AnsibleModule, tally: Tally) -> MadeLock:
    """Make the lock from the Hub's answers."""
    params = module.params
    token = read_token(params["token"], params["token_file"])
    if token:
        module.no_log_values.add(token)
    hub = HubApi(params["endpoint"], token, Patience(params["retries"]), TIMEOUT, tally)
    accepted = frozenset(params["accept_pickle"])
    return make_lock(hub, Order(params["repo"], params["revision"], accepted, params["tensors"]))


def write(module: AnsibleModule, path: str, text: str) -> None:
    """Replace the file in one step."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    module.atomic_move(temporary, path)
    module.set_mode_if_different(path, "0644", True)


def differences(before: ModelLock | None, after: ModelLock) -> dict[str, t.Any]:
    """What another lock means for the files."""
    old = {file.path: file.sha256 for file in before.files} if before else {}
    new = {file.path: file.sha256 for file in after.files}
    return {
        "previous_revision": before.revision if before else None,
        "added": sorted(new.keys() - old.keys()),
        "removed": sorted(old.keys() - new.keys()),
        "modified": sorted(path for path in new.keys() & old.keys() if new[path] != old[path]),
    }


def summary(repo: str, revision: str, result: dict[str, t.Any], changed: bool) -> str:
    """One line for the operator."""
    commit, before = result["revision"], result["previous_revision"]
    at = commit if revision == commit else f"{commit} ({revision})"
    said = f"{repo} at {at}: {result['files']} files, {result['total_size']} bytes"
    if not changed:
        return f"{said}, locked already"
    if before is None:
        return f"{said}, newly locked"
    counts = ", ".join(f"{len(result[kind])} {kind}" for kind in ("added", "removed", "modified"))
    return f"{said}; {counts} since {before}"


def main() -> None:
    started = time.monotonic()
    module = make_module()
    tally = Tally()
    repo, path = module.params["repo"], os.path.abspath(module.params["dest"])

    def figures() -> dict[str, t.Any]:
        return {
            "requests": tally.requests,
            "retries": tally.retries,
            "bytes_fetched": tally.bytes_fetched,
            "seconds": round(time.monotonic() - started, 3),
        }

    if module.params["retries"] < 0:
        module.fail_json(msg=f"retries is {module.params['retries']}, it has to be 0 or more", path=path)
    try:
        before_text = read_text(path)
        before = previous_lock(before_text, path, repo)
        made = ask(module, tally)
        lock, text = parse_lock(made.document), canonical(made.document)
        changed = text != before_text
        if changed and not module.check_mode:
            write(module, path, text)
    except StoreError as error:
        module.fail_json(msg=str(error), error_class=error.error_class, path=path, **error.facts, **figures())
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{repo} in {path}: {error}", path=path, **figures())
    for warning in made.warnings:
        module.warn(warning)
    result = {
        "path": path,
        "revision": lock.revision,
        "lock_digest": lock.digest,
        "files": len(lock.files),
        "total_size": lock.total_size,
        **differences(before, lock),
        **figures(),
    }
    module.exit_json(
        changed=changed,
        msg=summary(repo, module.params["revision"], result, changed),
        diff={"before_header": path, "after_header": path, "before": before_text, "after": text},
        **result,
    )


if __name__ == "__main__":
    main()
