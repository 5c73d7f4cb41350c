#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_change
short_description: Change an SGLang service so that it is never lost
version_added: 0.2.0
author: inferops contributors (@inferops)
description:
  - Stages a release, has the installed engine judge its command line, switches to it and waits until it has passed the
    health gate of M(inferops.serving.server_ready).
  - A release that fails is replaced by the one that was accepted last, which has to pass the gate as well. The evidence
    is kept on the host, and the task fails with the cause.
  - A run that was cut off at any point is finished by the next one. With O(confirm_timeout) the host goes back by
    itself where no next run comes.
  - A run that changes nothing also ends with the gate.
attributes:
  action:
    description: Has a corresponding action plugin, which has the steps done by M(inferops.serving.server_release).
    support: full
  check_mode:
    description: Says what would be switched, and whether that interrupts the service. Writes nothing.
    support: full
  diff_mode:
    description: Shows the unit, the command line word by word, and which names of the environment changed, no value.
    support: full
  idempotent:
    description: Running it again changes nothing.
    support: full
extends_documentation_fragment:
  - inferops.serving.service
  - inferops.serving.service.release
options:
  unit_text:
    description:
      - The text of the unit, with C(@release@) for the directory of the release.
      - Needs O(environment) and O(plan) beside it. Either this or O(release).
    type: str
  gate:
    description: The arguments of M(inferops.serving.server_ready), kept beside the unit for a return to this release.
    type: dict
    default: {}
  release:
    description:
      - The number of an existing release to go back to, or V(previous) for the one that was accepted before.
      - V(current) restarts that which runs.
    type: str
  restart:
    description:
      - Whether a service that runs may be restarted. V(needs_consent) needs O(consent), V(never) is refused also with
        it.
    type: str
    choices: [allowed, needs_consent, never]
    default: allowed
  hold:
    description:
      - Only have a service pass its gate that is as it shall be, and leave every other one alone. The outcome is then
        V(unchanged), V(due) for a change, or V(not ready) where the service is as it shall be and does not pass its
        gate at once. The task does not fail, for the change waits and says why.
    type: bool
    default: false
    version_added: 0.3.0
  confirm_timeout:
    description:
      - Seconds after the switch in which the gate has to be passed. Else the host itself goes back to the last accepted
        release, also after a boot, for the case that the controller is lost. 0 is no limit.
    type: int
    default: 0
seealso:
  - module: inferops.serving.server_release
  - module: inferops.serving.server_ready
"""

EXAMPLES = r"""
- name: Run the previous release again
  inferops.serving.server_change:
    home: /var/lib/sglang/kimi
    unit: sglang-kimi.service
    release: previous
"""

RETURN = r"""
outcome:
  description:
    - V(unchanged), V(changed), in check mode V(would change), or with O(hold) V(due) and V(not ready).
    - V(refused) where the service was not touched, V(restored) where the release before runs again, else V(failed).
  returned: always
  type: str
release:
  description: The number of the release that was to run, V(null) where none was made.
  returned: always
  type: int
before:
  description: The number of the release that ran before, V(null) where there was none.
  returned: always
  type: int
restored:
  description: The number of the release that was restored.
  returned: when one was restored
  type: int
action:
  description: What was done for the release to run, V(restart), V(start) or V(enable); empty where it ran.
  returned: when not refused
  type: str
why:
  description: The reason of RV(action).
  returned: when not refused
  type: str
interrupts:
  description: Whether RV(action) interrupts a service that runs.
  returned: when not refused
  type: bool
accept_length:
  description: Tokens per verification of the release that runs in the end.
  returned: always
  type: float
seconds:
  description: How long all of it took.
  returned: always
  type: float
gate:
  description: The result of M(inferops.serving.server_ready) for RV(release).
  returned: when the gate was asked
  type: dict
cause:
  description: One line that says why the release failed.
  returned: on failure
  type: str
explained:
  description: What is known of the cause, with the id of the planner's rule, a sentence, a remedy and a page.
  returned: when a known cause was recognised
  type: list
  elements: dict
evidence:
  description: Directories on the host with the evidence of what failed.
  returned: on failure
  type: list
  elements: str
"""
