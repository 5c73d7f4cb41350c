#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: bring one locked revision of a model into a host's store, proved byte for byte."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_snapshot
short_description: Keep one locked revision of a model in a verified store
version_added: 0.1.0
description:
  - Fetches the files that a model lock names, proves each by its sha256 before it can be seen, and publishes the
    revision in one step.
  - An interrupted run, also a killed one, is taken up where it stopped.
  - The store has the layout of the Hub cache, so an engine reads it by path or, offline, by repository name.
  - A run that finds everything in place asks no source and changes nothing.
requirements:
  - Python 3.9 or newer on the host, and nothing else
attributes:
  check_mode:
    support: full
    description:
      - Tells what is missing and how many bytes are to come. Asks no source and writes nothing. Files whose proof is
        out of date are read.
  diff_mode:
    support: full
    description: The published revision and its files, before and after.
  idempotent:
    support: full
    description: A second run with the same lock changes nothing.
options:
  lock:
    description:
      - The model lock, a mapping with C(format), C(repo), C(repo_type), C(revision), C(files) and C(total_size). Each
        file has a C(path), a C(size) in bytes and a C(sha256).
    type: dict
    required: true
  store:
    description: Absolute path of the store. It is made when it is not there.
    type: path
    required: true
  state:
    description:
      - V(present) fetches what is missing, replaces what is corrupt and publishes the revision.
      - V(verified) only proves the published revision. It asks no source, writes nothing, and fails when a file is
        missing or is not what the lock says.
    type: str
    choices: [present, verified]
    default: present
  sources:
    description:
      - Where files come from, in this order. Required for O(state=present).
      - A source that fails is not asked again in the run, and the next one takes over, whatever has been fetched so
        far. A single file that a source does not have is asked of the next source.
    type: list
    elements: dict
    suboptions:
      type:
        description:
          - V(hub) is a server with the Hub's addresses, C(<url>/<repo>/resolve/<revision>/<path>).
          - V(path) is a directory on the host, either another store (or Hub cache) or a folder with the repository's
            files.
        type: str
        choices: [hub, path]
        required: true
      url:
        description: Address of a V(hub) source, without credentials.
        type: str
      path:
        description:
          - Directory of a V(path) source, which is another store, a directory with a directory C(org/name) for each
            repository, or one repository's files.
        type: path
  verify:
    description:
      - V(stamp) trusts a file that was proved before when its size, times, inode and device are those of then. Any
        program that changes a file changes its ctime.
      - V(full) reads every file, which also finds what the disk itself has damaged.
    type: str
    choices: [stamp, full]
    default: stamp
  token_file:
    description:
      - File on the host that holds an access token. It is sent to V(hub) sources only, never to where they redirect,
        and but for loopback only over https.
    type: path
  workers:
    description: Files that are fetched or read at once.
    type: int
    default: 4
  retries:
    description:
      - Further tries per file and source while the file makes no progress, after a reset, a stall, 429 or 5xx. Waits
        double from one second to a minute, and C(Retry-After) is honoured up to 330 seconds.
    type: int
    default: 5
  stall_timeout:
    description: Seconds without a byte after which a connection counts as dead.
    type: int
    default: 60
author:
  - inferops contributors (@inferops)
"""

EXAMPLES = r"""
- name: Keep the target model on the host
  inferops.serving.model_snapshot:
    lock: "{{ lookup('ansible.builtin.file', 'locks/kimi-k2.6.json') | from_json }}"
    store: /srv/models
    sources:
      - type: hub
        url: http://mirror.example.com:8080
      - type: hub
        url: https://huggingface.co
    token_file: /etc/sglang/hub-token

- name: Read every byte again
  inferops.serving.model_snapshot:
    lock: "{{ lookup('ansible.builtin.file', 'locks/kimi-k2.6.json') | from_json }}"
    store: /srv/models
    state: verified
    verify: full
"""

RETURN = r"""
path:
  description: Directory of the revision.
  returned: unless the lock is invalid
  type: str
  sample: /srv/models/models--org--name/snapshots/0123456789abcdef0123456789abcdef01234567
revision:
  description: The locked commit.
  returned: unless the lock is invalid
  type: str
lock_digest:
  description: sha256 of the lock in canonical form. Hosts with the same digest hold the same model.
  returned: unless the lock is invalid
  type: str
missing:
  description: Paths that were not there when the run began.
  returned: once the store was looked at
  type: list
  elements: str
corrupt:
  description: Paths whose bytes were not what the lock says when the run began.
  returned: once the store was looked at
  type: list
  elements: str
bytes_to_fetch:
  description: Bytes that were to come when the run began, less what an interrupted run had left.
  returned: once the store was looked at
  type: int
quarantined:
  description: Where wrong bytes were put aside in this run.
  returned: unless the lock is invalid
  type: list
  elements: str
bytes_fetched:
  description: Bytes received from sources.
  returned: unless the lock is invalid
  type: int
bytes_resumed:
  description: Bytes kept from an interrupted run.
  returned: unless the lock is invalid
  type: int
bytes_hashed:
  description: Bytes read from disk to prove them.
  returned: unless the lock is invalid
  type: int
requests:
  description: HTTP requests made.
  returned: unless the lock is invalid
  type: int
retries:
  description: Waits before another try.
  returned: unless the lock is invalid
  type: int
source:
  description: The source that served the files, several joined by a comma. Null when nothing was fetched.
  returned: unless the lock is invalid
  type: str
verified:
  description: How the revision is proved, as O(verify) says. Null when it is not complete.
  returned: success
  type: str
  sample: stamp
seconds:
  description: Duration of the run.
  returned: unless the lock is invalid
  type: float
error_class:
  description:
    - One of C(auth), C(not_found), C(rate_limited), C(no_space), C(corrupt_source), C(network), C(locked) and
      C(lock_invalid). With O(state=verified) the store itself is the source.
    - Not set when the host itself failed, for example on a read-only file system.
  returned: failure
  type: str
file:
  description: The file that the failure is about.
  returned: failure about one file
  type: str
expected_sha256:
  description: What the lock says.
  returned: failure by wrong bytes from a source
  type: str
got_sha256:
  description: What the source sent.
  returned: failure by wrong bytes from a source
  type: str
status:
  description: The HTTP status that the source answered.
  returned: failure by an HTTP answer
  type: int
bytes_needed:
  description: Bytes that the store's file system has to have free.
  returned: failure by too little space, found before the first byte
  type: int
bytes_free:
  description: Bytes that it has free.
  returned: failure by too little space, found before the first byte
  type: int
holder:
  description: Who writes the store, as C(pid), C(host) and C(started). Null when it has not said so yet.
  returned: failure because another run writes the store
  type: dict
problems:
  description: Every problem of the lock.
  returned: failure by an invalid lock
  type: list
  elements: str
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.fetch import Patience
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import Blob, ModelLock, parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.store import (
    ModelStore,
    open_sources,
    read_token,
)


def make_module() -> AnsibleModule:
    """The module with its argument spec."""
    return AnsibleModule(
        argument_spec={
            "lock": {"type": "dict", "required": True},
            "store": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "verified"], "default": "present"},
            "sources": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "type": {"type": "str", "choices": ["hub", "path"], "required": True},
                    "url": {"type": "str"},
                    "path": {"type": "path"},
                },
                "required_if": [("type", "hub", ["url"]), ("type", "path", ["path"])],
            },
            "verify": {"type": "str", "choices": ["stamp", "full"], "default": "stamp"},
            "token_file": {"type": "path", "no_log": False},
            "workers": {"type": "int", "default": 4},
            "retries": {"type": "int", "default": 5},
            "stall_timeout": {"type": "int", "default": 60},
        },
        required_if=[("state", "present", ["sources"])],
        supports_check_mode=True,
    )


def check_ranges(module: AnsibleModule) -> None:
    """Refuse values that the argument spec cannot."""
    for name, least in (("workers", 1), ("retries", 0), ("stall_timeout", 1)):
        if module.params[name] < least:
            module.fail_json(msg=f"{name} is {module.params[name]}, it has to be {least} or more")
    if not os.path.isabs(module.params["store"]):
        module.fail_json(msg=f"store is {module.params['store']!r}, it has to be an absolute path")
    if module.params["state"] == "present" and not module.params["sources"]:
        module.fail_json(msg="sources is empty, state=present needs at least one")


def reach_state(module: AnsibleModule, store: ModelStore, lock: ModelLock) -> bool:
    """Do what ``state`` says, or predict it. Returns whether something changed."""
    params = module.params
    if params["state"] == "verified":
        store.verify()
        return False
    token = read_token(params["token_file"]) if params["token_file"] and not module.check_mode else None
    if token:
        module.no_log_values.add(token)
    sources = open_sources(params["sources"], lock, token, params["stall_timeout"], store.tally)
    if module.check_mode:
        return store.check_present()
    return store.make_present(sources, Patience(params["retries"]))


def facts(store: ModelStore, lock: ModelLock, started: float) -> dict[str, t.Any]:
    """The result values that a success and a failure share."""
    tally = store.tally
    result: dict[str, t.Any] = {
        "path": store.path,
        "revision": lock.revision,
        "lock_digest": lock.digest,
        "quarantined": sorted(tally.quarantined),
        "bytes_fetched": tally.bytes_fetched,
        "bytes_resumed": tally.bytes_resumed,
        "bytes_hashed": tally.bytes_hashed,
        "requests": tally.requests,
        "retries": tally.retries,
        "source": ", ".join(tally.served_by) or None,
        "seconds": round(time.monotonic() - started, 3),
    }
    if store.found is not None:
        result["missing"] = all_paths(store.found.missing)
        result["corrupt"] = all_paths(store.found.corrupt)
        result["bytes_to_fetch"] = store.found.bytes_to_fetch
    return result


def has_written(store: ModelStore) -> bool:
    """Whether a failed run has left something new in the store."""
    return bool(store.tally.bytes_fetched or store.tally.quarantined)


def all_paths(blobs: t.Iterable[Blob]) -> list[str]:
    """Every path of some blobs, sorted."""
    return sorted(path for blob in blobs for path in blob.paths)


def summary(lock: ModelLock, result: dict[str, t.Any], changed: bool, check_mode: bool) -> str:
    """One line for the operator."""
    if not changed:
        return f"{lock.repo} is complete: {len(lock.files)} files, {lock.total_size} bytes"
    files = len(result["missing"]) + len(result["corrupt"])
    if check_mode:
        return f"{lock.repo} lacks {files} of {len(lock.files)} files, {result['bytes_to_fetch']} bytes to fetch"
    return f"{lock.repo} published: {files} files were wanted, {result['bytes_fetched']} bytes fetched"


def main() -> None:
    started = time.monotonic()
    module = make_module()
    check_ranges(module)
    try:
        lock = parse_lock(module.params["lock"])
    except StoreError as error:
        module.fail_json(msg=str(error), error_class=error.error_class, **error.facts)
    store = ModelStore(module.params["store"], lock, module.params["verify"] == "full", module.params["workers"])
    try:
        changed = reach_state(module, store, lock)
    except StoreError as error:
        module.fail_json(
            msg=str(error),
            error_class=error.error_class,
            changed=has_written(store),
            **{**error.facts, **facts(store, lock, started)},
        )
    except (OSError, ValueError) as error:
        module.fail_json(
            msg=f"{lock.repo} in {module.params['store']}: {error}",
            changed=has_written(store),
            **facts(store, lock, started),
        )
    result = facts(store, lock, started)
    result["verified"] = None if changed and module.check_mode else module.params["verify"]
    module.exit_json(
        changed=changed,
        msg=summary(lock, result, changed, module.check_mode),
        diff={
            "before_header": f"{lock.repo} in {module.params['store']}",
            "after_header": f"{lock.repo} in {module.params['store']}",
            "before": store.before,
            "after": store.after if module.params["state"] == "present" else store.before,
        },
        **result,
    )


if __name__ == "__main__":
    main()
