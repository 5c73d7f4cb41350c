# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Where a value was written, in words for people."""

from __future__ import annotations

import os
import typing as t

#: Asks for the place of a variable, or of one key of a mapping variable: "file:line:column" or None.
Locate = t.Callable[[str, t.Optional[str]], t.Optional[str]]


def nowhere(_variable: str, _key: str | None) -> str | None:
    """The answer where nothing is known of places (filters)."""
    return None


def shown(place: str, folder: str | None = None) -> str:
    """A place with its path relative to ``folder`` (default: the current one) where it lies below it."""
    if not os.path.isabs(place):
        return place
    relative = os.path.relpath(place, folder or os.getcwd())
    return place if relative.startswith("..") else relative
