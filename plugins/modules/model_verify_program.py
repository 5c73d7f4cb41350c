#!/usr/bin/python
# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_verify_program
short_description: Install the program that proves models without Ansible, its locks and its timer
version_added: 0.2.0
author: inferops contributors (@inferops)
description:
  - Writes the collection's own code for the verification, as this module carries it, the locks, and a service with its
    timer, which systemd has to accept first. The timer is enabled and started.
  - Everything belongs to root. Locks of other inventories in the same directory stay.
attributes:
  check_mode:
    description: Can run in check mode and says whether anything would be written.
    support: full
  diff_mode:
    description: Shows the units. The code is no configuration, and the store has shown the locks.
    support: partial
  idempotent:
    description: Running it again changes nothing.
    support: full
options:
  lib:
    description: The directory that the program is imported from.
    type: path
    required: true
  locks:
    description: The directory of the locks of one store.
    type: path
    required: true
  reports:
    description: The directory that the program writes its reports to.
    type: path
    required: true
  lock_texts:
    description: The text of each lock, by the name of its file without the ending.
    type: dict
    required: true
  unit:
    description: The name of the service and the timer, without an ending.
    type: str
    required: true
    version_added: 0.3.0
  service_text:
    description: The text of the service. Its lines with C(@model@) stand there for each lock in O(locks), by its name.
    type: str
    required: true
    version_added: 0.3.0
  timer_text:
    description: The text of the timer.
    type: str
    required: true
    version_added: 0.3.0
  unit_dir:
    description: Where units are installed.
    type: path
    default: /etc/systemd/system
    version_added: 0.3.0
seealso:
  - module: inferops.serving.model_snapshot
"""

EXAMPLES = r"""
- name: Install the verification
  inferops.serving.model_verify_program:
    lib: /opt/sglang/verify/lib
    locks: /opt/sglang/verify/locks/srv-models
    reports: /var/lib/sglang/verify
    lock_texts:
      org--name: "{{ lookup('ansible.builtin.file', 'locks/org--name.json', rstrip=false) }}"
    unit: sglang-verify-srv-models
    service_text: "{{ lookup('ansible.builtin.template', 'verify.service.j2') }}"
    timer_text: "{{ lookup('ansible.builtin.template', 'verify.timer.j2') }}"
"""

RETURN = r"""
names:
  description: The names of all locks in the directory without their ending.
  returned: always
  type: list
  elements: str
"""

import contextlib
import fcntl
import os
import sys
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.serving.plugins.module_utils._server.service import (
    Service,
    ServiceError,
    commands_of,
)
from ansible_collections.inferops.serving.plugins.module_utils._store import verify

#: Importing verify has imported all that it needs, and this module needs no more.
_PACKAGE = verify.__name__.rpartition(".")[0]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "lib": {"type": "path", "required": True},
            "locks": {"type": "path", "required": True},
            "reports": {"type": "path", "required": True},
            "lock_texts": {"type": "dict", "required": True},
            "unit": {"type": "str", "required": True},
            "service_text": {"type": "str", "required": True},
            "timer_text": {"type": "str", "required": True},
            "unit_dir": {"type": "path", "default": "/etc/systemd/system"},
        },
        supports_check_mode=True,
    )
    lib, locks = Path(module.params["lib"]), Path(module.params["locks"])
    code = lib / _PACKAGE.replace(".", "/")
    files = {code / f"{name}.py": text for name, text in program().items()}
    files.update({locks / f"{name}.json": str(text) for name, text in module.params["lock_texts"].items()})
    timer, service = (
        Service(commands_of(module), unit, Path(module.params["unit_dir"]) / unit)
        for unit in (f"{module.params['unit']}.timer", f"{module.params['unit']}.service")
    )
    changed = False
    try:
        for folder in (code, locks, Path(module.params["reports"])):
            changed |= directory(module, folder)
        with alone(module, lib):
            for path, text in files.items():
                changed |= written(module, path, text.encode())
            there = [path.name for path in locks.glob("*.json")] if locks.is_dir() else []
            names = sorted({name.rpartition(".")[0] for name in there} | set(module.params["lock_texts"]))
            diff = installed(module, timer, service, names)
            changed |= bool(diff) | started(module, timer, service, bool(diff))
    except (OSError, ServiceError) as exc:
        module.fail_json(msg=f"The verification is not installed: {exc}")
    module.exit_json(changed=changed, names=names, diff=diff)


@contextlib.contextmanager
def alone(module: AnsibleModule, folder: Path) -> t.Iterator[None]:
    """Keep others out that install the same: a host of the inventory may be this machine too, with another model."""
    if module.check_mode:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def installed(module: AnsibleModule, timer: Service, service: Service, names: list[str]) -> list[dict[str, str]]:
    """Have both units as they shall be, once systemd has accepted them. Gives what was different."""
    texts = {service.path: for_each(names, module.params["service_text"]), timer.path: module.params["timer_text"]}
    before = {path: path.read_text(encoding="utf-8") if path.is_file() else "" for path in texts}
    if before != texts and not module.check_mode:
        timer.verify(texts[timer.path], {service.unit: texts[service.path]})
    changed = [path for path, text in texts.items() if written(module, path, text.encode())]
    return [
        {"before_header": str(path), "after_header": str(path), "before": before[path], "after": texts[path]}
        for path in changed
    ]


def for_each(names: list[str], text: str) -> str:
    """The text with a line for each name where there is one for ``@model@``."""
    lines = text.splitlines(keepends=True)
    return "".join(line.replace("@model@", name) for line in lines for name in (names if "@model@" in line else [""]))


def started(module: AnsibleModule, timer: Service, service: Service, changed: bool) -> bool:
    """Have the timer run, with the units as they are now, also where a run was cut off before systemd had read them."""
    state = timer.state()
    runs = (state.get("UnitFileState"), state.get("ActiveState")) == ("enabled", "active")
    runs &= "yes" not in (state.get("NeedDaemonReload"), service.state().get("NeedDaemonReload"))
    if (changed or not runs) and not module.check_mode:
        timer.systemctl("daemon-reload")
        timer.systemctl("enable", "--quiet", timer.unit)
        timer.systemctl("restart", timer.unit)
    return changed or not runs


def program() -> dict[str, str]:
    """The sources of the verification and of what it imports, from wherever this module is run."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        package, _dot, short = name.rpartition(".")
        loader = getattr(module, "__loader__", None)
        if package == _PACKAGE and loader is not None:
            found[short] = str(loader.get_source(name))
    return found


def directory(module: AnsibleModule, path: Path) -> bool:
    """Have a directory of root's that everybody may read."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    if not module.check_mode:
        for one in reversed(missing):
            # another host of the inventory may be this machine as well, and make it at the same moment
            one.mkdir(exist_ok=True)
            one.chmod(0o755)
    elif missing:
        return True
    return bool(missing) | attributes(module, path, 0o755)


def written(module: AnsibleModule, path: Path, content: bytes) -> bool:
    """Have a file with that content, replaced in one step."""
    same = path.is_file() and path.read_bytes() == content
    if not same and not module.check_mode:
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_bytes(content)
        new.chmod(0o644)
        os.chown(new, 0, 0)
        new.replace(path)
    return not same or attributes(module, path, 0o644)


def attributes(module: AnsibleModule, path: Path, mode: int) -> bool:
    """Have root as the owner, and that mode."""
    changed = module.set_owner_if_different(str(path), "0", False)
    changed = module.set_group_if_different(str(path), "0", changed)
    return bool(module.set_mode_if_different(str(path), mode, changed))


if __name__ == "__main__":
    main()
