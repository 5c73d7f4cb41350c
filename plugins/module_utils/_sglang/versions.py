# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""SGLang release numbers (``0.5.12``, ``0.5.12.post1``, ``0.5.10rc0``) and ranges of them."""

from __future__ import annotations

import functools
import re
import typing as t

_RELEASE = re.compile(r"(\d+(?:\.\d+)*)(?:rc(\d+))?(?:\.post(\d+))?(?:\+[a-z0-9.]+)?\Z")
_BOUND = re.compile(r"(>=|<=|==|<|>)\s*(\S+)\Z")


@functools.total_ordering
class Release:
    """One release. Orders as PEP 440 does for the forms that SGLang uses; a local label (``+cu130``) is ignored."""

    def __init__(self, text: str, key: tuple[t.Any, ...]) -> None:
        self.text = text
        self._key = key

    @classmethod
    @functools.cache
    def parse(cls, text: str) -> Release:
        """Read a release number.

        :raises ValueError: the text is not one.
        """
        found = _RELEASE.match(text.strip())
        if not found:
            raise ValueError(f"{text!r} is not an SGLang release number such as 0.5.23 or 0.5.12.post1")
        numbers, candidate, post = found.groups()
        parts = [int(part) for part in numbers.split(".")]
        while parts and parts[-1] == 0:
            parts.pop()
        return cls(
            text.strip(),
            (
                tuple(parts),
                float("inf") if candidate is None else int(candidate),
                -1 if post is None else int(post),
            ),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Release) and self._key == other._key

    def __lt__(self, other: Release) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Release({self.text!r})"


class ReleaseRange:
    """Releases between bounds, written ``>=0.5.13,<0.5.19``; ``all`` is every release."""

    def __init__(self, text: str, bounds: tuple[tuple[str, Release], ...]) -> None:
        self.text = text
        self._bounds = bounds

    @classmethod
    @functools.cache
    def parse(cls, text: str) -> ReleaseRange:
        """Read a range.

        :raises ValueError: a bound has no operator or no release number.
        """
        if text == "all":
            return cls(text, ())
        bounds = []
        for bound in text.split(","):
            found = _BOUND.match(bound.strip())
            if not found:
                raise ValueError(f"{bound!r} in {text!r} is not a bound such as >=0.5.13")
            bounds.append((found.group(1), Release.parse(found.group(2))))
        return cls(text, tuple(bounds))

    def __contains__(self, release: Release) -> bool:
        return all(_holds(release, operator, bound) for operator, bound in self._bounds)

    def __str__(self) -> str:
        return self.text


def _holds(release: Release, operator: str, bound: Release) -> bool:
    if operator == ">=":
        return release >= bound
    if operator == "<=":
        return release <= bound
    if operator == "<":
        return release < bound
    if operator == ">":
        return release > bound
    return release == bound
