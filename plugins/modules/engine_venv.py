#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: build the virtual environment of one engine lock, completely or not at all."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_venv
short_description: Build the immutable virtual environment of one engine lock
version_added: 0.1.0
description:
  - Makes a virtual environment, installs exactly the wheels whose hashes the lock names, lets uv check that they fit
    together, imports SGLang, and only then writes the marker C(.complete).
  - A directory without the marker is what an interrupted build left. It is removed and built again, never used.
  - A complete environment is never changed. Another lock has another digest and with it another directory.
  - One build at a time runs below one directory; a second one waits, also for what a killed build left running.
requirements:
  - Python 3.9 or newer on the host, with the module venv
attributes:
  check_mode:
    support: full
    description: Tells whether the environment is there. Nothing of it has to be on the host yet.
  diff_mode:
    support: full
    description: The digest of the environment, before and after.
  idempotent:
    support: full
    description: A complete environment is left alone.
options:
  path:
    description: Absolute path of the environment. Its name ends in C(-<digest>).
    type: path
    required: true
  lock:
    description: Directory on the host with the lock's C(requirements.txt) and C(lock.json).
    type: path
    required: true
  digest:
    description: Digest of the lock, 12 hex digits. A lock with another digest is refused.
    type: str
    required: true
  uv_venv:
    description: Directory of uv's own virtual environment. It is made when the locked uv does not answer there.
    type: path
    required: true
  uv_lock:
    description: Requirements file on the host with uv's exact version and hashes.
    type: path
    required: true
  python:
    description: Interpreter of the environment, a path or a name that is found on the C(PATH).
    type: str
    required: true
  cache:
    description:
      - Directory of uv's cache. On the file system of O(path) the environments share the cache's files.
    type: path
    required: true
  index_url:
    description:
      - Package index. By default uv's own.
      - It may hold a user and a password. uv and pip get it by their environment, and no output holds it.
    type: str
  wheelhouse:
    description:
      - Directory or URL of wheels, uv's own among them, that is used in place of any index. Without credentials.
    type: str
  devices:
    description: Paths that are only looked for.
    type: list
    elements: path
    default: []
    version_added: 0.3.0
  timeout:
    description: Seconds for the whole build. When they are over, uv is ended.
    type: int
    default: 3600
author:
  - inferops contributors (@inferops)
"""

EXAMPLES = r"""
- name: Build the engine
  inferops.serving.engine_venv:
    path: /opt/sglang/engines/0.5.23-0123456789ab
    lock: /opt/sglang/locks/0.5.23-0123456789ab
    digest: 0123456789ab
    uv_venv: /opt/sglang/tools/uv-0.13.9
    uv_lock: /opt/sglang/tools/uv-0.13.9.txt
    python: python3.12
    cache: /opt/sglang/cache/uv
"""

RETURN = r"""
path:
  description: The environment.
  returned: always
  type: str
complete:
  description: Whether the environment was complete before the run.
  returned: success
  type: bool
devices:
  description: Those of O(devices) that the host has.
  returned: success
  type: list
  elements: str
step:
  description: What the build was doing, such as C(installing the locked wheels).
  returned: failure of the build
  type: str
seconds:
  description: Duration of the run.
  returned: always
  type: float
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._engine.build import (
    BuildProblem,
    Recipe,
    build,
    is_complete,
    passwords,
)
from ansible_collections.inferops.serving.plugins.module_utils._plan.engine_lock import EngineLockProblem


def make_module() -> AnsibleModule:
    """The module with its argument spec."""
    return AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "lock": {"type": "path", "required": True},
            "digest": {"type": "str", "required": True},
            "uv_venv": {"type": "path", "required": True},
            "uv_lock": {"type": "path", "required": True},
            "python": {"type": "str", "required": True},
            "cache": {"type": "path", "required": True},
            "index_url": {"type": "str", "no_log": True},
            "wheelhouse": {"type": "str"},
            "devices": {"type": "list", "elements": "path", "default": []},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )


def main() -> None:
    started = time.monotonic()
    module = make_module()
    module.no_log_values.update(passwords(module.params["index_url"]))
    devices = [path for path in module.params.pop("devices") if os.path.exists(path)]
    try:
        recipe = Recipe(**module.params)
    except ValueError as error:
        module.fail_json(msg=str(error))
    complete = is_complete(recipe.path, recipe.digest)
    changed = not complete
    try:
        if changed and not module.check_mode:
            changed = build(recipe)
    except BuildProblem as problem:
        module.fail_json(
            msg=f"{recipe.path} was not built. It {problem}",
            step=problem.step,
            path=recipe.path,
            seconds=round(time.monotonic() - started, 3),
        )
    except (EngineLockProblem, OSError) as error:
        module.fail_json(
            msg=f"{recipe.path} was not built: {error}",
            path=recipe.path,
            seconds=round(time.monotonic() - started, 3),
        )
    module.exit_json(
        changed=changed,
        complete=complete,
        devices=devices,
        path=recipe.path,
        seconds=round(time.monotonic() - started, 3),
        diff={
            "before_header": recipe.path,
            "after_header": recipe.path,
            "before": f"{recipe.digest}\n" if complete else "",
            "after": f"{recipe.digest}\n",
        },
    )


if __name__ == "__main__":
    main()
