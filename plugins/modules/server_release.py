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
  - These are the steps of M(inferops.serving.server_change), which carries out a whole change.
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
extends_documentation_fragment:
  - inferops.serving.service
  - inferops.serving.service.release
options:
  state:
    description:
      - V(staged) takes the lock of the service, has systemd verify the unit, writes a release if it differs from the
        current one, and has the installed engine judge its command line. The service is not touched. Where nothing is
        to be done the lock is given back at once.
      - V(switched) makes O(release) the current one, installs its unit and does RV(action).
      - V(accepted) notes that O(release) passed the health gate, removes old releases and gives the lock back.
      - V(failed) keeps the evidence of O(release) and says which release to go back to.
      - V(unlocked) gives the lock back.
    type: str
    choices: [staged, switched, accepted, failed, unlocked]
    required: true
  hold:
    description:
      - With V(staged), only say what there is to do. Takes no lock, but fails where another run holds it.
    type: bool
    default: false
    version_added: 0.3.0
  runtime_unit_dir:
    description: Where units are that are gone after a boot. The rehearsal has one there.
    type: path
    default: /run/systemd/system
  run:
    description: The id of the run, which holds the lock of the service.
    type: str
    required: true
  about:
    description: Who the run is, for others that find the lock held. Kept beside the lock.
    type: dict
    default: {}
  over:
    description: The id of a run that is known to be dead, whose lock is taken over.
    type: str
  unit_text:
    description:
      - The text of the unit, with C(@release@) for the directory of the release.
      - V(staged) needs this and O(environment) and O(plan), or O(release).
    type: str
  gate:
    description:
      - The arguments of M(inferops.serving.server_ready), kept beside the unit for a return to this release.
      - V(accepted) replaces those of before.
    type: dict
    default: {}
  release:
    description:
      - The number of the release.
      - With V(staged) an existing release is to run, or with V(previous) the one that was accepted before, or with
        V(current) that which runs is to be restarted.
    type: str
  action:
    description: What V(switched) does, as V(staged) returned it.
    type: str
    choices: [restart, start, enable]
    default: restart
  restart:
    description:
      - Whether V(staged) may prepare a restart of a service that runs. V(needs_consent) needs O(consent), V(never) is
        refused also with it.
    type: str
    choices: [allowed, needs_consent, never]
    default: allowed
  confirm_timeout:
    description:
      - Seconds after V(switched) in which V(accepted) or another V(switched) must follow. Else the host itself goes
        back to the last accepted release, also after a boot. 0 is no limit.
    type: int
    default: 0
  cause:
    description: Why the release failed, for V(failed).
    type: str
  more:
    description: Further texts of the evidence by the names of their files, for V(failed).
    type: dict
    default: {}
  accept_length:
    description: The accept length that V(accepted) notes, in tokens per verification.
    type: float
"""

EXAMPLES = r"""
- name: Stage the release
  inferops.serving.server_release:
    state: staged
    run: "{{ run }}"
    home: /var/lib/sglang/kimi
    unit: sglang-kimi.service
    unit_text: "{{ lookup('ansible.builtin.template', 'kimi.service.j2') }}"
    environment: "{{ {'OMP_NUM_THREADS': '1'} | inferops.serving.systemd_environment }}"
    plan: {argv: [--tp-size, "8"]}
  register: staged

- name: Switch to it
  inferops.serving.server_release:
    state: switched
    run: "{{ run }}"
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
  description: Whether the release has passed the health gate since its last start.
  returned: when O(state=staged)
  type: bool
was_accepted:
  description: Whether the release has ever passed the health gate.
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
interrupts:
  description: Whether RV(action) interrupts a service that runs.
  returned: when O(state=staged)
  type: bool
refusal:
  description: Why a real run would not restart the service, by O(restart) and O(consent); empty where it would.
  returned: when O(state=staged)
  type: str
due:
  description: Whether the service, its user or its directories are not as they shall be.
  returned: when O(state=staged) and O(hold)
  type: bool
  version_added: 0.3.0
locked:
  description: Whether this run holds the lock of the service now.
  returned: when O(state=staged), but for check mode and O(hold)
  type: bool
fingerprint:
  description: The fingerprint of the installed engine's speculative code, V(null) where there is none.
  returned: when O(state=staged) has written a release
  type: str
fallback:
  description: The release to go back to if this one fails, V(null) where there is none.
  returned: when O(state=staged) or O(state=failed)
  type: int
gate:
  description:
    - The arguments of M(inferops.serving.server_ready) for RV(release), or for RV(fallback) with O(state=failed).
  returned: when O(state=staged) or O(state=failed)
  type: dict
invocation_id:
  description: The start of the unit that the switch made.
  returned: when O(state=switched)
  type: str
evidence:
  description: The directory of the evidence.
  returned: when O(state=failed), and when the engine refuses the command line
  type: str
traceback:
  description: The engine's traceback.
  returned: when the engine refuses the command line
  type: str
held_by:
  description: What the run that holds the lock says of itself.
  returned: when another run holds the lock
  type: dict
removed:
  description: The numbers of the releases that were removed.
  returned: when O(state=accepted)
  type: list
  elements: int
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._server.account import lives_as_planned
from ansible_collections.inferops.serving.plugins.module_utils._server.confirmation import Confirmation
from ansible_collections.inferops.serving.plugins.module_utils._server.evidence import collect
from ansible_collections.inferops.serving.plugins.module_utils._server.rehearsal import Refused, rehearse
from ansible_collections.inferops.serving.plugins.module_utils._server.release import (
    Content,
    Releases,
    differences,
    missing,
)
from ansible_collections.inferops.serving.plugins.module_utils._server.run_lock import Held, RunLock
from ansible_collections.inferops.serving.plugins.module_utils._server.service import (
    RESTART,
    Service,
    ServiceError,
    commands_of,
)
from ansible_collections.inferops.serving.plugins.module_utils._sglang.fingerprint import fingerprint

#: Seconds that a start or stop by systemd may take besides what the unit itself says.
_SWITCH = 600


class Step:
    """One step of a change of one service."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params: dict[str, t.Any] = module.params
        self.run = commands_of(module)
        self.releases = Releases(Path(self.params["home"]))
        self.service = Service(self.run, self.params["unit"], Path(self.params["unit_dir"]) / self.params["unit"])
        self.confirmation = Confirmation(self.run, self.releases, self.service)
        self.lock = RunLock(self.releases.home / "run.lock", self.params["run"])

    def staged(self) -> dict[str, t.Any]:
        """Make a release if there is something new, and say what it takes to have it run."""
        if not self.module.check_mode:
            self.lock.look(self.params["over"])
        result, content = self._decide()
        due = bool(result["changed"] or result["action"] or not result["accepted"])
        if self.params["hold"]:
            return {**result, "due": due or not lives_as_planned(self.params["account"], self.params["directories"])}
        if self.module.check_mode:
            return result
        result["locked"] = due
        if result["locked"]:
            self.lock.take(self.params["rehearsal_timeout"], self.params["over"], **self.params["about"])
            try:
                # once more: another run may have come in between
                again, content = self._decide()
                result.update(again)
                if result["refusal"]:
                    raise ValueError(result["refusal"])
                self._stage(result, content)
            except BaseException:
                self.lock.give_back()
                raise
        return result

    def _decide(self) -> tuple[dict[str, t.Any], Content | None]:
        """What there is to do, and the content that has to be staged for it."""
        current = self.releases.current
        before = self.releases.content(current) if current is not None else None
        chosen = self._chosen()
        if isinstance(chosen, int):
            content, number = self.releases.content(chosen), chosen
            same = number == current
        else:
            content, same = chosen, before == chosen
            number = current if same and current is not None else self.releases.number_for(content)
        state = self.service.state()
        action, why = self.service.due(self.releases, number if same else None, state)
        if self.params["release"] == "current":
            action, why = RESTART, "a restart was asked for"
        interrupts = action == RESTART and state.get("SubState") == "running"
        staged = isinstance(chosen, int) or (same and before is not None and before.gate == content.gate)
        result = {
            "changed": not staged,
            "release": number,
            "accepted": same and self.releases.is_accepted(number),
            "was_accepted": self.releases.note(number, "accepted") is not None,
            "action": action,
            "why": why,
            "interrupts": interrupts,
            "refusal": self._refusal(interrupts, why),
            "fallback": self.releases.fallback(number),
            "gate": self.releases.gate(number, content),
            "diff": differences(before, content, str(self.service.path)),
        }
        return result, None if staged else content

    def _stage(self, result: dict[str, t.Any], content: Content | None) -> None:
        number = result["release"]
        # other terms of the gate are kept once they are met
        if content is None or number == self.releases.current:
            return
        lacks = missing(content.plan)
        if lacks:
            raise ValueError(f"it needs what is not here: {', '.join(lacks)}. Nothing was changed")
        self.service.verify(self.releases.rendered(number, content))
        self.releases.stage(content)
        self._rehearse(number)
        result["fingerprint"] = _fingerprint(content.plan.get("engine_path"))

    def _chosen(self) -> Content | int:
        """The content of a release to be, or the number of one that is there."""
        wanted = self.params["release"]
        if wanted is None:
            return Content(*(self.params[key] for key in ("unit_text", "environment", "plan", "secret_args", "gate")))
        if wanted == "current":
            number = self.releases.current
            if number is None:
                raise ValueError("no release is deployed, so there is nothing to restart")
        elif wanted == "previous":
            number = self.releases.fallback(self.releases.current)
            if number is None:
                raise ValueError("no other release was ever accepted here")
        else:
            number = int(wanted)
            if number not in self.releases.numbers():
                known = ", ".join(map(str, self.releases.numbers())) or "none"
                raise ValueError(f"there is no release {number}; there are {known}")
        lacks = self.releases.lacks(number)
        if lacks:
            raise ValueError(f"release {number} needs what is no longer here: {', '.join(lacks)}")
        return number

    def _refusal(self, interrupts: bool, why: str) -> str:
        """Why a restart may not be; empty where it may."""
        policy = self.params["restart"]
        if not interrupts or policy == "allowed" or (policy == "needs_consent" and self.params["consent"]):
            return ""
        due = f"a restart is due ({why}) and would interrupt the service"
        if policy == "never":
            return f"{due}, and sglang_server_restart is never: nothing was changed"
        return f"{due}: nothing was changed. Consent with -e sglang_server_consent=true"

    def _rehearse(self, number: int) -> None:
        """Have the engine judge a release. One that it refuses is removed; its evidence stays."""
        name = self.params["unit"].replace(".service", "-rehearsal.service")
        path = Path(self.params["runtime_unit_dir"]) / name
        try:
            rehearse(self.run, self.releases.unit(number), path, self.params["rehearsal_timeout"])
        except Refused as exc:
            words = f"the installed engine refuses the command line: {exc}"
            more = {"rehearsal.txt": exc.traceback}
            folder = collect(self.releases, number, self.params["unit"], words, more)
            self.releases.remove(number)
            self.module.fail_json(
                msg=f"{self.params['unit']}: {words}. The service was not touched. Evidence: {folder}",
                cause=words,
                traceback=exc.traceback,
                evidence=str(folder),
            )

    def switched(self) -> dict[str, t.Any]:
        """Have a release run. The caller knows from staging that there is something to do."""
        number = int(self.params["release"])
        if self.module.check_mode:
            return {"changed": True, "release": number}
        self.lock.take(_SWITCH)
        self.confirmation.disarm()
        fallback, limit = self.releases.fallback(number), self.params["confirm_timeout"]
        if limit and fallback is not None and not self.releases.note(number, "accepted"):
            self.confirmation.arm(number, fallback, limit)
        self.service.switch(self.releases, number, self.params["action"])
        return {"changed": True, "release": number, "invocation_id": self.service.state().get("InvocationID")}

    def accepted(self) -> dict[str, t.Any]:
        """Note that a release passed the gate."""
        number = int(self.params["release"])
        changed = not self.releases.is_accepted(number)
        removed: list[int] = []
        if not self.module.check_mode:
            self.confirmation.disarm()
            if self.params["gate"]:
                self.releases.write_gate(number, self.params["gate"])
            if changed:
                self.releases.write_note(number, "accepted", accept_length=self.params["accept_length"])
                removed = self.releases.prune(self.params["keep_releases"])
            self.lock.give_back()
        return {"changed": changed, "release": number, "removed": removed}

    def failed(self) -> dict[str, t.Any]:
        """Keep the evidence, as far as there is room for it, and name the way back."""
        number = int(self.params["release"])
        fallback = self.releases.fallback(number)
        result: dict[str, t.Any] = {"changed": True, "release": number, "fallback": fallback, "evidence": None}
        if fallback is not None:
            result["gate"] = self.releases.gate(fallback)
        if self.module.check_mode:
            return result
        try:
            cause, more = self.params["cause"] or "", self.params["more"]
            result["evidence"] = str(collect(self.releases, number, self.params["unit"], cause, more))
        except (OSError, ValueError) as exc:
            self.module.warn(f"The evidence cannot be kept: {exc}")
        return result

    def unlocked(self) -> dict[str, t.Any]:
        """Hold the lock no longer."""
        self.lock.give_back()
        return {"changed": False}


def _fingerprint(engine: str | None) -> str | None:
    """That of the installed engine's speculative code."""
    packages = sorted(Path(engine).glob("lib/python3*/site-packages/sglang")) if engine else []
    return fingerprint(packages[0]) if packages else None


def main() -> None:
    states = ["staged", "switched", "accepted", "failed", "unlocked"]
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": states, "required": True},
            "home": {"type": "path", "required": True},
            "unit": {"type": "str", "required": True},
            "unit_dir": {"type": "path", "default": "/etc/systemd/system"},
            "runtime_unit_dir": {"type": "path", "default": "/run/systemd/system"},
            "run": {"type": "str", "required": True},
            "about": {"type": "dict", "default": {}},
            "over": {"type": "str"},
            "unit_text": {"type": "str"},
            # as one text: Ansible blanks out every occurrence of such a parameter, also of a value like "1"
            "environment": {"type": "str", "no_log": True},
            "secret_args": {"type": "str", "default": "", "no_log": True},
            "plan": {"type": "dict"},
            "gate": {"type": "dict", "default": {}},
            "release": {"type": "str"},
            "account": {
                "type": "dict",
                "options": {
                    "name": {"type": "str", "required": True},
                    "group": {"type": "str", "required": True},
                    "home": {"type": "path", "required": True},
                    "shell": {"type": "path", "required": True},
                },
            },
            "directories": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "owner": {"type": "str", "required": True},
                    "group": {"type": "str", "required": True},
                    "mode": {"type": "str", "required": True},
                },
            },
            "hold": {"type": "bool", "default": False},
            "action": {"type": "str", "choices": ["restart", "start", "enable"], "default": "restart"},
            "restart": {"type": "str", "choices": ["allowed", "needs_consent", "never"], "default": "allowed"},
            "consent": {"type": "bool", "default": False},
            "rehearsal_timeout": {"type": "int", "default": 180},
            "confirm_timeout": {"type": "int", "default": 0},
            "cause": {"type": "str"},
            "more": {"type": "dict", "default": {}},
            "accept_length": {"type": "float"},
            "keep_releases": {"type": "int", "default": 5},
        },
        required_if=[
            ("state", "staged", ("unit_text", "release"), True),
            ("state", "switched", ("release",)),
            ("state", "accepted", ("release",)),
            ("state", "failed", ("release",)),
        ],
        required_together=[("unit_text", "environment", "plan")],
        mutually_exclusive=[("unit_text", "release")],
        supports_check_mode=True,
    )
    step = Step(module)
    try:
        result = getattr(step, module.params["state"])()
    except Held as exc:
        module.fail_json(msg=f"{module.params['unit']}: {exc}", held_by=dict(exc.owner))
    except (OSError, ValueError, ServiceError) as exc:
        module.fail_json(msg=f"{module.params['unit']}: {exc}")
    module.exit_json(**{"current": step.releases.current, "previous": step.releases.previous, **result})


if __name__ == "__main__":
    main()
