# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The last plan that was not refused, kept in a file on the controller, for people and programs to compare with."""

from __future__ import annotations

import json
import os
import tempfile
import typing as t

FORMAT = 1


def saved_text(path: str) -> str:
    """What the file holds, nothing if there is none.

    :raises OSError: it cannot be read.
    :raises ValueError: it is not text.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""


def plan_text(plans: t.Mapping[str, t.Mapping[str, t.Any]], saved: str, inventory: t.Container[str]) -> str:
    """The file's new content: these plans, and the saved ones of hosts that this run was not about.

    :param plans: host -> its plan as the action returns it.
    :param saved: the file's content so far; one that is no plan of this format counts as empty.
    :param inventory: all hosts there are. A host that has left takes its saved plan with it.
    """
    others = {host: plan for host, plan in _hosts(saved).items() if host in inventory}
    hosts = {**others, **{host: _portable(plan) for host, plan in plans.items()}}
    return json.dumps({"format": FORMAT, "hosts": dict(sorted(hosts.items()))}, indent=2) + "\n"


def write_plan(path: str, text: str) -> None:
    """Replace the file in one step.

    :raises OSError: the folder is not there or not writable.
    """
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".plan-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        # mkstemp's mode is for secrets, of which a plan has none
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _hosts(saved: str) -> dict[str, t.Any]:
    try:
        document = json.loads(saved)
    except ValueError:
        return {}
    if (
        not isinstance(document, dict)
        or document.get("format") != FORMAT
        or not isinstance(document.get("hosts"), dict)
    ):
        return {}
    return dict(document["hosts"])


def _portable(plan: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The plan without paths of this controller: the locks' digests and revisions say what was locked."""
    engine, model = plan["engine"], plan["model"]
    return {
        **plan,
        "engine": {key: value for key, value in engine.items() if key != "lock"} if engine else None,
        "model": {
            **model,
            "models": [{key: value for key, value in one.items() if key != "lock"} for one in model["models"]],
        },
    }
