#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_diagnosis
short_description: What runs as an SGLang service, since when, and what went wrong last
version_added: 0.2.0
author: inferops contributors (@inferops)
description:
  - Reads the unit's state, the releases, the command line of the running process, and the evidence of the last start
    that failed. Changes nothing and shows no environment.
attributes:
  check_mode:
    description: Can run in check mode and does the same as in a real run.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Changes nothing.
    support: full
extends_documentation_fragment:
  - inferops.serving.service
options:
  argv:
    description: The server arguments that are planned, to compare with those of the current release.
    type: list
    elements: str
seealso:
  - module: inferops.serving.server_ready
"""

EXAMPLES = r"""
- name: See what runs
  inferops.serving.server_diagnosis:
    home: /var/lib/sglang/kimi
    unit: sglang-kimi.service
"""

RETURN = r"""
report:
  description: All of it in words.
  returned: always
  type: list
  elements: str
unit_state:
  description: Properties of the unit.
  returned: always
  type: dict
current:
  description: The number of the current release, V(null) where there is none.
  returned: always
  type: int
previous:
  description: The number of the release that was accepted before it, V(null) where there is none.
  returned: always
  type: int
plan:
  description: The plan of the current release, V(null) where there is none.
  returned: always
  type: dict
releases:
  description: All releases, each with its number, its plan, and when it was started and accepted.
  returned: always
  type: list
  elements: dict
argv:
  description: The server arguments of the running process, V(null) where none runs.
  returned: always
  type: list
  elements: str
evidence:
  description: The last failure that evidence was kept of, with its cause and path, V(null) where there is none.
  returned: always
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._server.diagnosis import diagnose
from ansible_collections.inferops.serving.plugins.module_utils._server.release import Releases


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "unit": {"type": "str", "required": True},
            "argv": {"type": "list", "elements": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params

    def run(command: list[str]) -> tuple[int, str, str]:
        status, out, err = module.run_command(command, check_rc=False)
        return status, str(out), str(err)

    found = diagnose(run, Releases(Path(params["home"])), params["unit"], params["argv"], Path("/proc"))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
