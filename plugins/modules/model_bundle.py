#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: seal a bundle for a site without internet, or prove that one arrived whole."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_bundle
short_description: Seal or prove a bundle of models and engine wheels
version_added: 0.1.0
description:
  - A bundle is a directory with a verified store, model locks, engine locks, their wheels, a list and checksums. It
    carries a site's models and engine to where there is no internet. The playbook C(inferops.serving.bundle) fills it.
  - Every byte is read in every run. What is missing, damaged or belongs to no lock is named.
requirements:
  - Python 3.9 or newer on the host, and nothing else
attributes:
  check_mode:
    support: full
    description: Tells what a bundle lacks and whether it would be sealed. Writes nothing.
  diff_mode:
    support: none
    description: There is none.
  idempotent:
    support: full
    description: A sealed bundle stays as it is, with the date on which it was made.
options:
  path:
    description: Directory of the bundle.
    type: path
    required: true
  state:
    description:
      - V(sealed) compares the content with the locks and writes C(bundle.json) and C(SHA256SUMS).
      - V(verified) compares the content with the locks and with C(SHA256SUMS). It writes nothing.
    type: str
    choices: [sealed, verified]
    required: true
  locks:
    description:
      - The model locks that the bundle shall hold, each a mapping. They are those of the site, not of the bundle.
    type: list
    elements: dict
    required: true
  engines:
    description: Digests of the engine locks that it shall hold, 12 hex digits each, as the plan names them.
    type: list
    elements: str
    default: []
author:
  - inferops contributors (@inferops)
"""

EXAMPLES = r"""
- name: Prove the bundle that has arrived
  inferops.serving.model_bundle:
    path: /mnt/usb/bundle
    state: verified
    locks: "{{ [lookup('ansible.builtin.file', 'locks/org--name.json') | from_json] }}"
    engines: [0123456789ab]
"""

RETURN = r"""
problems:
  description: What is missing, damaged or too much, each with its path in the bundle.
  returned: always
  type: list
  elements: str
content:
  description: The list that bundle.json holds, without its date.
  returned: once the bundle was read
  type: dict
bytes_hashed:
  description: Bytes that were read.
  returned: once the bundle was read
  type: int
error_class:
  description: C(corrupt_source) for a bundle that is not whole, C(lock_invalid) for a lock.
  returned: failure
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._store import bundle
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["sealed", "verified"], "required": True},
            "locks": {"type": "list", "elements": "dict", "required": True},
            "engines": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    path, sealing = module.params["path"], module.params["state"] == "sealed"
    try:
        content = bundle.examine(path, bundle.Wanted(module.params["locks"], module.params["engines"]))
        problems = content.problems + ([] if sealing else bundle.compare_sums(path, content))
        # a bundle that check mode has not filled is no failure, only not there yet
        if problems and not (sealing and module.check_mode):
            raise bundle.refusal(path, problems)
        changed = sealing and (bool(problems) or not bundle.is_sealed(path, content))
        if changed and not module.check_mode:
            bundle.seal(path, content)
    except StoreError as error:
        module.fail_json(msg=str(error), error_class=error.error_class, **{"problems": [], **error.facts})
    except OSError as error:
        module.fail_json(msg=f"{path}: {error}", problems=[])
    module.exit_json(changed=changed, problems=problems, content=content.listing(), bytes_hashed=content.bytes_hashed)


if __name__ == "__main__":
    main()
