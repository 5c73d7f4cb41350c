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
  - aria2 for a source of type V(torrent)
attributes:
  check_mode:
    support: full
    description:
      - Tells what is missing, how many bytes are to come, whether there is room for them and what would be removed.
        Asks no source, writes nothing and takes no lock.
      - Files that no stamp vouches for are only named (C(suspect)) and count as a change, since only reading tells
        whether they are good. With O(verify=full) and with O(state=verified) files are read in check mode too.
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
  store_owner:
    description:
      - With O(state=present) the owner of the store's directory, also of one that is there. With it everybody may read
        the directory.
      - Unset, the owner stays as it is.
    type: str
    version_added: 0.3.0
  store_group:
    description: Group of the store's directory, in the same way.
    type: str
    version_added: 0.3.0
  state:
    description:
      - V(present) fetches what is missing, replaces what is corrupt and publishes the revision.
      - V(verified) only proves the published revision. It asks no source, writes nothing, and fails when a file is
        missing or is not what the lock says. What it has proved is remembered.
      - V(absent) removes the revision, first its name and then its files. Files that another revision has stay. It
        fails while a process has one of the files open.
    type: str
    choices: [present, verified, absent]
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
          - V(torrent) is a mirror that the role P(inferops.serving.sglang_mirror#role) has made with
            C(sglang_mirror_torrent). All missing files come at once, from the mirror and from the other hosts that
            fetch them. The host needs the Debian package aria2.
        type: str
        choices: [hub, path, torrent]
        required: true
      url:
        description: Address of a V(hub) source or of the mirror of a V(torrent) source, without credentials.
        type: str
      path:
        description:
          - Directory of a V(path) source, which is another store, a directory with a directory C(org/name) for each
            repository, or one repository's files.
        type: path
      ports:
        description:
          - TCP port of a V(torrent) source on which the other hosts reach this one, or a range of ports of which a free
            one is taken.
        type: str
        default: 6881-6889
      upload_limit:
        description: Bytes per second that a V(torrent) source sends to other hosts. V(0) is no limit.
        type: int
        default: 0
      seed_seconds:
        description:
          - Seconds for which the host serves a model to the others once a V(torrent) source has brought it, and at most
            until it has sent as many bytes as the model has. A transient unit C(sglang-seed-...) does that, reads the
            published files, and is gone then. V(0) is not at all. Without systemd a host serves while it fetches.
        type: int
        default: 300
  verify:
    description:
      - V(stamp) trusts a file that was proved before when its size, times, inode and device are those of then. Any
        program that changes a file changes its ctime.
      - V(sample) also reads one in fifty of these files, and one at least, those proved longest ago first.
      - V(full) reads every file from the disk, not from the page cache, which also finds what the disk itself has
        damaged.
    type: str
    choices: [stamp, sample, full]
    default: stamp
  verify_age_max:
    description: Days after which a file is read again whatever its stamp says. Unset, stamps do not grow old.
    type: float
  token:
    description:
      - The access token of O(token_file) itself, from a lookup on the controller. It is shown nowhere. While a transfer
        begins it stands in a file for root alone.
    type: str
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
    description:
      - Seconds without a byte after which a connection counts as dead, and without a further good piece after which a
        torrent does.
    type: int
    default: 60
  min_rate:
    description:
      - Bytes per second below which a connection counts as dead, on average over O(stall_timeout) seconds. It is tried
        again like one that was reset. V(0) is no limit.
    type: int
    default: 10000
  reserve_bytes:
    description: Bytes to leave free on the store's file system.
    type: int
    default: 0
  keep_revisions:
    description:
      - Revisions to keep besides the one that is published, those published last. Once a publication is complete, the
        others are removed, with the files that no remaining revision has and what interrupted transfers of other
        revisions have left.
      - What a process has open stays. The module sees the processes of all users only as root.
    type: int
    default: 1
  wait_lock:
    description: Seconds to wait for another run that writes to the store.
    type: int
    default: 0
  detach:
    description:
      - Transfers in a transient systemd unit, C(model-snapshot-<key>.service), which goes on when the connection is
        lost. Running the task again follows the unit that is at it.
      - The play shows a line for each host while it waits.
      - Without systemd, without root, and where nothing is to be done, the module does the work itself.
    type: bool
    default: true
  slice:
    description: Seconds that one call waits for the unit. Set by the action plugin.
    type: float
  follow:
    description: Whether this run started the unit before. Set by the action plugin.
    type: bool
    default: false
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

- name: Fetch it on many hosts at once, and from the mirror alone where that fails
  inferops.serving.model_snapshot:
    lock: "{{ lookup('ansible.builtin.file', 'locks/kimi-k2.6.json') | from_json }}"
    store: /srv/models
    sources:
      - type: torrent
        url: http://mirror.example.com:8080
      - type: hub
        url: http://mirror.example.com:8080

- name: Read every byte again
  inferops.serving.model_snapshot:
    lock: "{{ lookup('ansible.builtin.file', 'locks/kimi-k2.6.json') | from_json }}"
    store: /srv/models
    state: verified
    verify: full

- name: Read a few files per run, and each at least once in 30 days
  inferops.serving.model_snapshot:
    lock: "{{ lookup('ansible.builtin.file', 'locks/kimi-k2.6.json') | from_json }}"
    store: /srv/models
    sources: "{{ model_sources }}"
    verify: sample
    verify_age_max: 30

- name: Remove a revision
  inferops.serving.model_snapshot:
    lock: "{{ lookup('ansible.builtin.file', 'locks/kimi-k2.5.json') | from_json }}"
    store: /srv/models
    state: absent
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
previous_revision:
  description: The commit that readers got when the run began. Null when nothing was published.
  returned: unless the lock is invalid
  type: str
missing:
  description: Paths that were not there when the run began, also those of which an interrupted run had left a part.
  returned: once the store was looked at
  type: list
  elements: str
partial:
  description: Those of C(missing) and C(corrupt) that an interrupted run had begun to fetch.
  returned: once the store was looked at
  type: list
  elements: dict
  contains:
    path:
      description: The file.
      type: str
    have:
      description: Bytes of it that are there.
      type: int
    size:
      description: Bytes that it has by the lock.
      type: int
suspect:
  description: Paths that no stamp vouches for and that were not read. Only check mode leaves files unread.
  returned: once the store was looked at
  type: list
  elements: str
files_state:
  description: How many paths were C(present), C(missing), C(partial), C(corrupt) and C(suspect); each counts once.
  returned: once the store was looked at
  type: dict
  sample: {"present": 90, "missing": 4, "partial": 2, "corrupt": 0, "suspect": 0}
corrupt:
  description: Paths whose bytes were not what the lock says when the run began.
  returned: once the store was looked at
  type: list
  elements: str
bytes_to_fetch:
  description: Bytes that were to come when the run began, less what an interrupted run had left.
  returned: once the store was looked at
  type: int
space:
  description: Room on the store's file system for what was to come.
  returned: once it was measured, which a complete store needs not
  type: dict
  contains:
    needed:
      description: Bytes, O(reserve_bytes) included.
      type: int
    free:
      description: Bytes.
      type: int
    inodes_needed:
      description: Files, directories and links.
      type: int
    inodes_free:
      description: Null when the file system has no fixed number.
      type: int
    enough:
      description: Whether there is room.
      type: bool
resumed:
  description: Paths of which an interrupted run had left a part that was kept.
  returned: unless the lock is invalid
  type: list
  elements: str
removed:
  description: What was removed, or would be in check mode, relative to the model's directory in the store.
  returned: unless the lock is invalid
  type: list
  elements: str
bytes_freed:
  description: Bytes of the files that were removed.
  returned: unless the lock is invalid
  type: int
taken_over:
  description:
    - Whose lease on a network file system had not been refreshed for a minute and was taken over, as C(pid), C(host)
      and C(started). Null when nobody's was.
  returned: unless the lock is invalid
  type: dict
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
oldest_verification:
  description: When the file that was proved longest ago was last read and proved (RFC 3339). Null like C(verified).
  returned: success
  type: str
  sample: "2026-01-31T12:00:00Z"
unit:
  description: The transient unit that did the work. Not set where the module did it itself.
  returned: when a unit was started or followed
  type: str
  sample: model-snapshot-0123456789ab.service
seconds:
  description: Duration of the run.
  returned: unless the lock is invalid
  type: float
error_class:
  description:
    - One of C(auth), C(not_found), C(rate_limited), C(no_space), C(corrupt_source), C(network), C(locked) and
      C(lock_invalid). With O(state=verified) the store itself is the source. C(lock_invalid) also stands for a file
      that is what the lock says and yet is no weights.
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
pids:
  description: Processes that have files of the revision open.
  returned: failure by O(state=absent) because of them
  type: list
  elements: int
problems:
  description: Every problem of the lock.
  returned: failure by an invalid lock
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.job import Job, JobFailed, is_possible
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import DIRECTORY_MODE, make_directory
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import ModelLock, parse_lock
from ansible_collections.inferops.serving.plugins.module_utils._store.task import Result, Task

LEAST = {
    "workers": 1,
    "retries": 0,
    "stall_timeout": 1,
    "min_rate": 0,
    "reserve_bytes": 0,
    "keep_revisions": 0,
    "wait_lock": 0,
    "verify_age_max": 0,
}


def make_module() -> AnsibleModule:
    """The module with its argument spec."""
    return AnsibleModule(
        argument_spec={
            "lock": {"type": "dict", "required": True},
            "store": {"type": "path", "required": True},
            "store_owner": {"type": "str"},
            "store_group": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "verified", "absent"], "default": "present"},
            "sources": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "type": {"type": "str", "choices": ["hub", "path", "torrent"], "required": True},
                    "url": {"type": "str"},
                    "path": {"type": "path"},
                    "ports": {"type": "str", "default": "6881-6889"},
                    "upload_limit": {"type": "int", "default": 0},
                    "seed_seconds": {"type": "int", "default": 300},
                },
                "required_if": [("type", "hub", ["url"]), ("type", "path", ["path"]), ("type", "torrent", ["url"])],
            },
            "verify": {"type": "str", "choices": ["stamp", "sample", "full"], "default": "stamp"},
            "verify_age_max": {"type": "float"},
            "token": {"type": "str", "no_log": True},
            "token_file": {"type": "path", "no_log": False},
            "workers": {"type": "int", "default": 4},
            "retries": {"type": "int", "default": 5},
            "stall_timeout": {"type": "int", "default": 60},
            "min_rate": {"type": "int", "default": 10_000},
            "reserve_bytes": {"type": "int", "default": 0},
            "keep_revisions": {"type": "int", "default": 1},
            "wait_lock": {"type": "int", "default": 0},
            "detach": {"type": "bool", "default": True},
            "slice": {"type": "float"},
            "follow": {"type": "bool", "default": False},
        },
        required_if=[("state", "present", ["sources"])],
        mutually_exclusive=[("token", "token_file")],
        supports_check_mode=True,
    )


def check_ranges(module: AnsibleModule) -> None:
    """Refuse values that the argument spec cannot."""
    for name, least in LEAST.items():
        value = module.params[name]
        # written so that a value that is no number (nan) is refused too
        if value is not None and not value >= least:
            module.fail_json(msg=f"{name} is {value}, it has to be {least} or more")
    if not os.path.isabs(module.params["store"]):
        module.fail_json(msg=f"store is {module.params['store']!r}, it has to be an absolute path")
    if module.params["state"] == "present" and not module.params["sources"]:
        module.fail_json(msg="sources is empty, state=present needs at least one")


def own_store(module: AnsibleModule) -> bool:
    """Have the store's directory belong to whom it shall. Returns whether it did not."""
    owner, group = module.params["store_owner"], module.params["store_group"]
    if module.params["state"] != "present" or (owner is None and group is None):
        return False
    # a link to the store has an owner of its own, which says nothing
    path = os.path.realpath(module.params["store"])
    missing = not os.path.isdir(path)
    if missing and module.check_mode:
        return True
    make_directory(path)
    changed = bool(module.set_owner_if_different(path, owner, missing))
    changed = bool(module.set_group_if_different(path, group, changed))
    return bool(module.set_mode_if_different(path, DIRECTORY_MODE, changed))


def is_for_unit(module: AnsibleModule, task: Task) -> bool:
    """Whether the work is to be done in a unit."""
    params = module.params
    if params["slice"] is None or not params["detach"] or module.check_mode or not is_possible():
        return False
    return params["follow"] or not task.is_done()


def run_in_unit(module: AnsibleModule, lock: ModelLock) -> Result:
    """Start the transfer or find it at work, and wait for a slice. A result with ``progress`` says that it goes on.

    :raises JobFailed: there is no result.
    """
    params = module.params
    job = Job(module.run_command, params["store"], lock.digest)
    if not params["follow"]:
        job.start(params, f"Model {lock.repo} for {params['store']}")
    if job.wait(params["slice"]):
        return {**job.result(), "unit": job.unit}
    return {"failed": False, "changed": False, "unit": job.unit, "progress": job.progress(), "msg": "It goes on."}


def main() -> None:
    module = make_module()
    check_ranges(module)
    try:
        lock = parse_lock(module.params["lock"])
    except StoreError as error:
        module.fail_json(msg=str(error), error_class=error.error_class, **error.facts)
    task = Task(module.params, lock, module.check_mode, module.no_log_values.add)
    try:
        changed = own_store(module)
        result = run_in_unit(module, lock) if is_for_unit(module, task) else task.run()
    except (JobFailed, OSError) as problem:
        module.fail_json(msg=f"{lock.repo} in {module.params['store']}: {problem}")
    result["changed"] = result["changed"] or changed
    for warning in result.pop("warnings", []):
        module.warn(warning)
    if result.pop("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
