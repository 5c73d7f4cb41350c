#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_release
short_description: Keep each deployed state of a service as a numbered release, and switch between them
version_added: 0.2.0
author: inferops contributors (@inferops)
description:
  - A release is a directory C(releases/NUMBER) below O(home) with the unit, the environment and the plan of a service.
    C(current) and C(previous) are symbolic links that are replaced in one step.
  - A release is made only when its content differs from the current one, so a second run changes nothing.
  - The installed unit is that of the current release and names the environment of that release. It is replaced in one
    step, so that a boot at any moment finds a unit and an environment that belong together.
attributes:
  check_mode:
    description: Says what would change and writes nothing.
    support: full
  diff_mode:
    description: Shows the unit, the command line word by word, and which names of the environment and of the
      secret arguments changed, no value.
    support: full
  idempotent:
    description: Running it again changes nothing.
    support: full
options:
  state:
    description:
      - V(staged) has systemd verify the unit and writes a release if it differs from the current one. The service is
        not touched.
      - V(switched) makes O(release) the current one, installs its unit and does RV(action).
      - V(accepted) notes that O(release) passed the health gate, and removes old releases.
    type: str
    choices: [staged, switched, accepted]
    required: true
  home:
    description: The directory of the service. It and its releases belong to root.
    type: path
    required: true
  unit:
    description: The systemd unit.
    type: str
    required: true
  unit_dir:
    description: Where units are installed.
    type: path
    default: /etc/systemd/system
  unit_text:
    description: The text of the unit, with C(@release@) for the directory of the release. Needed for V(staged).
    type: str
  environment:
    description:
      - The text of the environment file, which only root may read. It may hold secrets. Needed for V(staged); it may be
        empty.
    type: str
  secret_args:
    description:
      - Server arguments that are secrets, as the JSON text of a configuration file of SGLang. Only root may read it.
        It is C(secret_args.yaml) in the release. Empty where there are none.
    type: str
    default: ""
  plan:
    description: What is served, kept beside the unit, with the command line in C(argv). Needed for V(staged).
    type: dict
  release:
    description: The number of the release, for V(switched) and V(accepted).
    type: int
  action:
    description: What V(switched) does, as V(staged) returned it.
    type: str
    choices: [restart, start, enable]
    default: restart
  accept_length:
    description: The accept length that V(accepted) notes, in tokens per verification.
    type: float
  keep_releases:
    description: Releases that V(accepted) keeps. The current and the previous one always stay.
    type: int
    default: 5
"""

EXAMPLES = r"""
- name: Stage the release
  inferops.serving.server_release:
    state: staged
    home: /var/lib/sglang/kimi
    unit: sglang-kimi.service
    unit_text: "{{ lookup('ansible.builtin.template', 'kimi.service.j2') }}"
    environment: "{{ {'OMP_NUM_THREADS': '1'} | inferops.serving.systemd_environment }}"
    plan: {argv: [--tp-size, "8"]}
  register: staged

- name: Switch to it
  inferops.serving.server_release:
    state: switched
    home: /var/lib/sglang/kimi
    unit: sglang-kimi.service
    release: "{{ staged.release }}"
    action: "{{ staged.action }}"
  when: staged.action != ''
"""

RETURN = r"""
release:
  description: The number of the release. In check mode that which it would get.
  returned: always
  type: int
current:
  description: The number of the current release, V(null) where there is none.
  returned: always
  type: int
previous:
  description: The number of the release that was accepted before the current one, V(null) where there is none.
  returned: always
  type: int
accepted:
  description: Whether the release has passed the health gate.
  returned: when O(state=staged)
  type: bool
action:
  description: What has to be done for the release to run, V(restart), V(start) or V(enable); empty where it runs.
  returned: when O(state=staged)
  type: str
why:
  description: The reason of RV(action).
  returned: when O(state=staged)
  type: str
removed:
  description: The numbers of the releases that were removed.
  returned: when O(state=accepted)
  type: list
  elements: int
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._server.release import Content, Releases, differences
from ansible_collections.inferops.serving.plugins.module_utils._server.service import Service, ServiceError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["staged", "switched", "accepted"], "required": True},
            "home": {"type": "path", "required": True},
            "unit": {"type": "str", "required": True},
            "unit_dir": {"type": "path", "default": "/etc/systemd/system"},
            "unit_text": {"type": "str"},
            # as one text: Ansible blanks out every occurrence of such a parameter, also of a value like "1"
            "environment": {"type": "str", "no_log": True},
            "secret_args": {"type": "str", "default": "", "no_log": True},
            "plan": {"type": "dict"},
            "release": {"type": "int"},
            "action": {"type": "str", "choices": ["restart", "start", "enable"], "default": "restart"},
            "accept_length": {"type": "float"},
            "keep_releases": {"type": "int", "default": 5},
        },
        required_if=[
            ("state", "staged", ("unit_text", "environment", "plan")),
            ("state", "switched", ("release",)),
            ("state", "accepted", ("release",)),
        ],
        supports_check_mode=True,
    )
    params = module.params

    def run(command: list[str]) -> tuple[int, str, str]:
        status, out, err = module.run_command(command, check_rc=False)
        return status, str(out), str(err)

    releases = Releases(Path(params["home"]))
    service = Service(run, params["unit"], Path(params["unit_dir"]) / params["unit"])
    try:
        result = {"staged": stage, "switched": switch, "accepted": accept}[params["state"]](module, releases, service)
    except (OSError, ValueError, ServiceError) as exc:
        module.fail_json(msg=f"{params['unit']}: {exc}")
    module.exit_json(**{"current": releases.current, "previous": releases.previous, **result})


def stage(module: AnsibleModule, releases: Releases, service: Service) -> dict[str, t.Any]:
    """Make a release if there is something new."""
    params = module.params
    content = Content(params["unit_text"], params["environment"], params["plan"], params["secret_args"])
    current = releases.current
    before = releases.content(current) if current is not None else None
    same = before == content
    action, why = service.due(releases, current if same else None, service.state())
    if same and current is not None:
        accepted = releases.note(current, "accepted") is not None
        return {"changed": False, "release": current, "accepted": accepted, "action": action, "why": why}
    number = releases.next_number()
    if not module.check_mode:
        service.verify(releases.rendered(number, content))
        releases.stage(content)
    return {
        "changed": True,
        "release": number,
        "accepted": False,
        "action": action,
        "why": why,
        "diff": differences(before, content, str(service.path)),
    }


def switch(module: AnsibleModule, releases: Releases, service: Service) -> dict[str, t.Any]:
    """Have a release run. The caller knows from staging that there is something to do."""
    number = module.params["release"]
    if not module.check_mode:
        service.switch(releases, number, module.params["action"])
    return {"changed": True, "release": number}


def accept(module: AnsibleModule, releases: Releases, _service: Service) -> dict[str, t.Any]:
    """Note that a release passed the gate."""
    number = module.params["release"]
    changed = releases.note(number, "accepted") is None
    removed: list[int] = []
    if changed and not module.check_mode:
        releases.write_note(number, "accepted", accept_length=module.params["accept_length"])
        removed = releases.prune(module.params["keep_releases"])
    return {"changed": changed, "release": number, "removed": removed}


if __name__ == "__main__":
    main()
