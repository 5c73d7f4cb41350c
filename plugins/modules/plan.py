#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Judge the SGLang configuration of every host before any connection
version_added: 0.1.0
author: inferops contributors (@inferops)
description:
  - Reads the variables of every host of the play on the controller and judges them as the named SGLang release would.
  - Reports all problems of all hosts together, each with the file and line where its values were written and the
    change that mends it.
  - Makes no connection. Writes nothing but the file O(save_to) on the controller, and that not in check mode.
  - Run it once in a play of its own with C(gather_facts=false), see the role P(inferops.serving.sglang_plan#role).
attributes:
  action:
    description: Has a corresponding action plugin, so some parts of the options can be executed on the controller.
    support: full
  check_mode:
    description: Can run in check mode and returns the same as in a real run.
    support: full
  diff_mode:
    description: Shows what differs from the plan that O(save_to) holds.
    support: full
  idempotent:
    description: Running it again gives the same result.
    support: full
options:
  hosts:
    description:
      - The hosts to plan for. All hosts of the play by default.
    type: list
    elements: str
  refuse:
    description:
      - Whether to fail where a configuration is refused.
      - With V(false) the task succeeds and says so in RV(refused), so that a later task can fail with RV(report) alone.
    type: bool
    default: true
  save_to:
    description:
      - A file on the controller that keeps the plans as JSON. Of every host it holds the last one that was not refused.
      - A relative path starts at the inventory's folder. Nothing is kept by default.
      - A file that cannot be written is a warning.
    type: str
seealso:
  - plugin: inferops.serving.server_report
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Plan all hosts
  hosts: gpu_hosts
  gather_facts: false
  tags: always
  tasks:
    - name: Judge every host's configuration
      inferops.serving.plan:
      run_once: true
      register: sglang_plan_result
"""

RETURN = r"""
refused:
  description: Whether a finding stops the run.
  returned: always
  type: bool
report:
  description: The report for people. What stops the run if anything does, else what will run on each host.
  returned: always
  type: str
problems:
  description: Every finding once, with the hosts that have it.
  returned: always
  type: list
  elements: dict
  contains:
    rule:
      description: The stable id of the rule.
      type: str
    outcome:
      description: One of refused, broken_later, harmful, rewritten, ignored, unchecked.
      type: str
    hosts:
      description: The hosts that have this problem.
      type: list
      elements: str
    places:
      description: Where the values were written, as C(file:line:column).
      type: list
      elements: str
    concerns:
      description: The flags or variables concerned.
      type: list
      elements: str
    message:
      description: What happens, in SGLang's terms.
      type: str
    remedy:
      description: The exact change, with the variable, the keys to set and the keys to remove.
      type: dict
    stops:
      description: Whether it stops the run.
      type: bool
plans:
  description: Host name to its plan, with the parts C(engine), C(model) and C(server) that the roles carry out.
  returned: always
  type: dict
"""
