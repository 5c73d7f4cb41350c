# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Where Ansible says that a value was written."""

from __future__ import annotations

import typing as t

# ansible-core has no public way to ask this; the tag is what its own error messages print (2.19 to 2.21).
from ansible._internal._datatag._tags import Origin


def origin(value: t.Any) -> str | None:
    """``file:line:column`` of a value as it came from variables, or None for one that has no origin."""
    tag = Origin.get_tag(value)
    return str(tag) if tag is not None else None
