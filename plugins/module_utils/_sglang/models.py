# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What the planner knows of a model: from the catalogue (data/models.yml), the inventory, or the model's lock."""

from __future__ import annotations

import dataclasses
import typing as t

from .data_files import load_yaml

TARGETS = "targets"
DRAFTERS = "drafters"


@dataclasses.dataclass(frozen=True)
class Model:
    """A target or a drafter. ``config`` holds what is known of its config.json, perhaps nothing."""

    repo: str | None = None
    config: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    revision: str | None = None
    minimum_release: str | None = None
    algorithm: str | None = None
    args: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    @property
    def architecture(self) -> str | None:
        """The first entry of architectures in config.json."""
        names = self.config.get("architectures")
        return names[0] if isinstance(names, (list, tuple)) and names and isinstance(names[0], str) else None


def catalogue(kind: str, extra: t.Mapping[str, t.Any] | None = None) -> dict[str, t.Any]:
    """The catalogue's entries of one kind, the operator's own on top."""
    entries = dict(load_yaml("models.yml")[kind])
    own = (extra or {}).get(kind)
    if isinstance(own, t.Mapping):
        entries.update(own)
    return entries


def from_catalogue(kind: str, repo: str, extra: t.Mapping[str, t.Any] | None = None) -> Model | None:
    """The model of that repository, if the catalogue has it."""
    entry = catalogue(kind, extra).get(repo)
    if not isinstance(entry, t.Mapping):
        return None
    fields = {field.name for field in dataclasses.fields(Model)} - {"repo"}
    return Model(repo=repo, **{key: value for key, value in entry.items() if key in fields})


def drafters_of(target: str | None, extra: t.Mapping[str, t.Any] | None = None) -> list[str]:
    """Catalogue drafters trained for that target."""
    return [repo for repo, entry in catalogue(DRAFTERS, extra).items() if entry.get("target") == target]
