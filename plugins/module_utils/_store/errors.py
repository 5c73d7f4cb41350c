# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The one exception of the store: what went wrong, in which class, and what to do about it."""

from __future__ import annotations

import typing as t

ErrorClass = t.Literal[
    "auth",
    "not_found",
    "rate_limited",
    "no_space",
    "corrupt_source",
    "network",
    "locked",
    "lock_invalid",
]


class StoreError(Exception):
    """A failure that the operator has to act on.

    :param error_class: stable name that automation may branch on.
    :param problem: what happened, with the file and the source it concerns; never holds a secret.
    :param remedy: the next step for the operator.
    :param facts: the same facts by name (``file``, ``source``, ``expected_sha256`` ...) for the module's result.
    """

    def __init__(self, error_class: ErrorClass, problem: str, remedy: str, **facts: t.Any) -> None:
        super().__init__(f"{problem} {remedy}")
        self.error_class: ErrorClass = error_class
        self.problem = problem
        self.remedy = remedy
        self.facts = facts
