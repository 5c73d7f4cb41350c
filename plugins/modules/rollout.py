#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: Batches for a change of many hosts, and one table of what became of them
version_added: 0.2.0
author: inferops contributors (@inferops)
description:
  - With O(state=planned) puts the hosts of the play into batches that have not failed, and whose service was not found
    to be as it shall be and to pass its gate by M(inferops.serving.server_change) with C(hold), in
    C(sglang_server_result). The hosts of one replica over several nodes, as the plan knows it, are in one batch.
  - Hosts whose service is only to be waited for come last.
  - With O(state=shown) prints one table of all hosts of the play, with what the roles C(sglang_rollout) and
    C(sglang_server) noted of each.
  - Runs on the controller. The role P(inferops.serving.sglang_rollout#role) uses both.
attributes:
  action:
    description: Has a corresponding action plugin, so some parts of the options can be executed on the controller.
    support: full
  check_mode:
    description: Can run in check mode and does the same as in a real run.
    support: full
  diff_mode:
    description: Changes nothing, so there is nothing to show.
    support: none
  idempotent:
    description: Changes nothing.
    support: full
options:
  state:
    description: What to do, see above.
    type: str
    choices: [planned, shown]
    required: true
  batches:
    description:
      - With O(state=planned) the sizes of the batches, as numbers or percentages of their hosts. The last is repeated.
    type: list
    elements: raw
  hosts:
    description: With O(state=shown) the hosts that could be prepared, RV(prepared) of the first call.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Plan the batches
  inferops.serving.rollout:
    state: planned
    batches: [1, 25%, 100%]
  run_once: true
  register: planned

- name: Show what became of every host
  inferops.serving.rollout:
    state: shown
    hosts: "{{ planned.prepared }}"
  run_once: true
"""

RETURN = r"""
hosts:
  description:
    - With O(state=planned) the hosts in the order of their batches.
    - With O(state=shown) a mapping from each host to its C(outcome), C(before), C(release), C(accept_length),
      C(seconds) and C(problem).
  returned: always
  type: raw
prepared:
  description: All hosts of the play that have not failed, also those in no batch.
  returned: when O(state=planned)
  type: list
  elements: str
  version_added: 0.3.0
interrupted:
  description: Those of RV(hosts) whose service a change may interrupt, and not only wait for.
  returned: when O(state=planned)
  type: list
  elements: str
  version_added: 0.3.0
sizes:
  description: How many hosts each batch has.
  returned: when O(state=planned)
  type: list
  elements: int
"""
