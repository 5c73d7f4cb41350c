#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: adopt
short_description: Turn the command of a running SGLang server into an inventory
version_added: 0.2.0
author: inferops contributors (@inferops)
description:
  - Reads a shell command, a script, a systemd unit file, a C(docker run) or C(podman run) command, a compose file or a
    process's C(/proc/PID/cmdline) on the controller.
  - Shows the variables of an inventory that would run the same server, what they do not hold, and every finding of the
    plan for them.
  - Never repeats the value of a secret. A variable or flag whose name or value tells of one is listed without it.
  - Makes no connection and writes nothing, in check mode or not.
  - The playbook C(inferops.serving.adopt) runs it.
attributes:
  action:
    description: Has a corresponding action plugin, so some parts of the options can be executed on the controller.
    support: full
  check_mode:
    description: Can run in check mode and returns the same as in a real run.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Running it again gives the same result.
    support: full
options:
  file:
    description:
      - The file with the text, on the controller. A relative path starts where ansible-playbook was called.
      - By default the standard input of ansible-playbook, which can be read on Linux.
    type: path
  version:
    description:
      - The SGLang release to plan for.
      - By default the one that the text names, in an image's tag or in the path of an environment.
    type: str
  name:
    description:
      - The name of the service. By default the container's, or V(main).
    type: str
  gpu:
    description:
      - The accelerator of the host, as the C(sglang_plan_gpu) of P(inferops.serving.sglang_plan#role).
    type: raw
seealso:
  - module: inferops.serving.plan
  - plugin: inferops.serving.parse_server_command
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Adopt a unit file
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Show the inventory
      inferops.serving.adopt:
        file: running.service
        version: 0.5.23
        gpu: h200
"""

RETURN = r"""
refused:
  description: Whether a finding would stop the plan.
  returned: always
  type: bool
inventory:
  description: The variables as YAML.
  returned: always
  type: str
notes:
  description: What the inventory does not hold, and what is to be looked at before it is used.
  returned: always
  type: list
  elements: str
problems:
  description: Every finding, in the form of P(inferops.serving.plan#module).
  returned: always
  type: list
  elements: dict
"""
