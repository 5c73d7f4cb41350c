#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: the torrent of a locked model, made from a verified store."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_torrent
short_description: Make the torrent of a locked model from a verified store
version_added: 0.1.0
description:
  - Writes the private torrent of a model lock, which a source of type V(torrent) of
    M(inferops.serving.model_snapshot) fetches. All but its piece hashes and two addresses follows from the lock.
  - Reads the model once, to hash its pieces. A torrent that is there already is not made again; where only an address
    has changed, its piece hashes are kept.
  - Fetch and prove the model with M(inferops.serving.model_snapshot) first. Hosts prove every file again, so a torrent
    of wrong bytes costs them time and does no harm.
attributes:
  check_mode:
    support: full
    description: Tells whether the torrent would be written. Reads nothing of the model.
  diff_mode:
    support: none
    description: A torrent is no text.
  idempotent:
    support: full
    description: The same lock and addresses make the same file.
options:
  lock:
    description: The model lock, as for M(inferops.serving.model_snapshot).
    type: dict
    required: true
  store:
    description: The store that has the model.
    type: path
    required: true
  dest:
    description: The torrent file. Its directory has to be there.
    type: path
    required: true
  announce:
    description: Address of the tracker.
    type: str
    required: true
  web_seed:
    description: Address below which the files are at C(<revision>/<path>), with a slash at its end.
    type: str
    required: true
  workers:
    description: Pieces that are read at once.
    type: int
    default: 4
author:
  - inferops contributors (@inferops)
"""

EXAMPLES = r"""
- name: Make the torrent
  inferops.serving.model_torrent:
    lock: "{{ lookup('ansible.builtin.file', 'locks/org--name.json') | from_json }}"
    store: /srv/models
    dest: /etc/sglang-mirror/torrents/org--name.torrent
    announce: http://mirror.example.org:6969/announce
    web_seed: http://mirror.example.org:8080/org/name/resolve/
"""

RETURN = r"""
info_hash:
  description: What trackers and peers call the torrent. Null where check mode has not made it.
  returned: success
  type: str
  sample: 0123456789abcdef0123456789abcdef01234567
error_class:
  description: C(lock_invalid) for a lock, C(not_found) for a store that lacks a file.
  returned: failure by one of these
  type: str
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._store import torrent
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.layout import ModelDir, replace_bytes
from ansible_collections.inferops.serving.plugins.module_utils._store.lock import ModelLock, parse_lock


def known_pieces(lock: ModelLock, data: bytes) -> bytes | None:
    """The piece hashes of the torrent that is there, None when it is not the lock's."""
    try:
        return torrent.read_metainfo(lock, data).pieces
    except ValueError:
        return None


def present_torrent(path: str) -> bytes:
    """The bytes of the torrent that is there; empty when there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""


def make(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Write the torrent where it is not right, and give the result."""
    lock = parse_lock(params["lock"])
    found = present_torrent(params["dest"])
    pieces = known_pieces(lock, found)
    if pieces is None:
        if check_mode:
            return {"changed": True, "info_hash": None}
        pieces = torrent.hash_pieces(ModelDir(params["store"], lock.repo), lock, params["workers"])
    data = torrent.metainfo(lock, torrent.Metainfo(params["announce"], params["web_seed"], pieces))
    if data != found and not check_mode:
        replace_bytes(params["dest"], data)
    return {"changed": data != found, "info_hash": torrent.info_hash(lock, pieces)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "lock": {"type": "dict", "required": True},
            "store": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "announce": {"type": "str", "required": True},
            "web_seed": {"type": "str", "required": True},
            "workers": {"type": "int", "default": 4},
        },
        supports_check_mode=True,
    )
    if module.params["workers"] < 1:
        module.fail_json(msg=f"workers is {module.params['workers']}, it has to be 1 or more")
    if not os.path.isabs(module.params["dest"]):
        module.fail_json(msg=f"dest is {module.params['dest']!r}, it has to be an absolute path")
    try:
        result = make(module.params, module.check_mode)
    except StoreError as error:
        module.fail_json(msg=str(error), error_class=error.error_class)
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
