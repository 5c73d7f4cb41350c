# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter of the role sglang_mirror: locks as a Hub's pages. The sidecar file documents it."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.inferops.serving.plugins.module_utils._store.errors import StoreError
from ansible_collections.inferops.serving.plugins.module_utils._store.hub_pages import mirrored_models


def hub_pages(locks: t.Any) -> list[dict[str, t.Any]]:
    """Locks as the answers of a Hub, one mapping per repository."""
    if not isinstance(locks, (list, tuple)):
        raise AnsibleFilterError(f"The locks are a {type(locks).__name__}; they are a list of mappings.", obj=locks)
    try:
        return [dataclasses.asdict(model) for model in mirrored_models(locks)]
    except (StoreError, ValueError) as exc:
        raise AnsibleFilterError(str(exc), obj=locks) from None  # its text is in ours


class FilterModule:
    """Filters of inferops.serving."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """The filters by name."""
        return {"hub_pages": hub_pages}
