# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that write words for systemd: thin adapters of the private package _server."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.inferops.serving.plugins.module_utils._server import systemd


def systemd_exec(words: t.Any) -> str:
    """A list of words as the value of ExecStart."""
    if not isinstance(words, (list, tuple)):
        raise AnsibleFilterError(f"The command is a {type(words).__name__}; it is a list of words.", obj=words)
    try:
        return systemd.exec_start([str(word) for word in words])
    except ValueError as exc:
        raise AnsibleFilterError(f"{exc}.", obj=words) from None  # its text is in ours


def systemd_environment(variables: t.Any) -> str:
    """A mapping as the text of an environment file."""
    if not isinstance(variables, t.Mapping):
        raise AnsibleFilterError(
            f"The environment is a {type(variables).__name__}; it is a mapping of names to texts.", obj=variables
        )
    try:
        return systemd.environment_file({str(name): str(value) for name, value in variables.items()})
    except ValueError as exc:
        raise AnsibleFilterError(f"{exc}.", obj=variables) from None  # its text is in ours


class FilterModule:
    """Filters of inferops.serving."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters by name."""
        return {"systemd_environment": systemd_environment, "systemd_exec": systemd_exec}
