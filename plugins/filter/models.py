# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The models that an inventory names: a thin adapter of the private package _plan."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.inferops.serving.plugins.module_utils._plan import model_locks


def models_to_lock(hosts: t.Any) -> list[dict[str, t.Any]]:
    """The variables of hosts as a list of locks to make."""
    try:
        return [model.as_dict() for model in model_locks.models_to_lock(hosts)]
    except model_locks.ModelsToLockProblem as exc:
        raise AnsibleFilterError(f"{exc}.") from None  # its text is in ours


class FilterModule:
    """Filters of inferops.serving."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters by name."""
        return {"models_to_lock": models_to_lock}
