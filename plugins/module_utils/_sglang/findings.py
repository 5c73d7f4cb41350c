# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What the plan says of a configuration: findings, and the rules they come from (data/rules.yml)."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from .data_files import load_yaml
from .versions import Release, ReleaseRange

REFUSED = "refused"
BROKEN_LATER = "broken_later"
HARMFUL = "harmful"
REWRITTEN = "rewritten"
IGNORED = "ignored"
UNCHECKED = "unchecked"
#: Worst first: the order in which a report lists them.
OUTCOMES = (REFUSED, BROKEN_LATER, HARMFUL, REWRITTEN, IGNORED, UNCHECKED)


#: The ``variable`` of a remedy whose keys are variables themselves.
INVENTORY = "the inventory"


@dataclasses.dataclass(frozen=True)
class Rule:
    """One row of data/rules.yml."""

    id: str
    outcome: str
    condition: str
    message: str
    releases: ReleaseRange
    source: str
    advice: str
    exception: str | None
    stage: str | None
    core: bool
    traceback: str | None


@dataclasses.dataclass(frozen=True)
class Remedy:
    """The exact change: keys to set and keys to take out of one mapping variable, or of the inventory."""

    set: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    remove: tuple[str, ...] = ()
    variable: str = "sglang_server_args"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that the plan says of one configuration."""

    rule: str
    outcome: str
    keys: tuple[str, ...]
    message: str
    advice: str
    remedy: Remedy
    source: str
    exception: str | None = None
    stage: str | None = None

    def unless_core(self) -> Finding:
        """The same finding of a release that the tables do not hold: unchecked, unless its rule never changed."""
        if rules()[self.rule].core:
            return self
        return dataclasses.replace(self, outcome=UNCHECKED, exception=None, stage=None)

    def as_dict(self) -> dict[str, t.Any]:
        """The form that filters and the action return."""
        return {
            "rule": self.rule,
            "outcome": self.outcome,
            # not "keys": in a template problem.keys is the method of the mapping
            "concerns": list(self.keys),
            "message": self.message,
            "advice": self.advice,
            "remedy": {
                "variable": self.remedy.variable,
                "set": dict(self.remedy.set),
                "remove": list(self.remedy.remove),
            },
            "source": self.source,
            "exception": self.exception,
            "stage": self.stage,
        }


@functools.cache
def rules() -> dict[str, Rule]:
    """Every rule by its id, in the order of the data file.

    :raises KeyError, ValueError: the data file is wrong.
    """
    table = {}
    for row in load_yaml("rules.yml"):
        if row["outcome"] not in OUTCOMES or row["id"] in table:
            raise ValueError(f"rules.yml: {row['id']}")
        table[row["id"]] = Rule(
            id=row["id"],
            outcome=row["outcome"],
            condition=row["condition"],
            message=row["message"].strip(),
            releases=ReleaseRange.parse(row.get("releases", "all")),
            source=row["source"],
            advice=row.get("advice", "").strip(),
            exception=row.get("exception"),
            stage=row.get("stage"),
            core=row.get("core", False),
            traceback=row.get("traceback"),
        )
    return table


def find(
    rule_id: str,
    release: Release,
    keys: t.Sequence[str],
    remedy: Remedy | None = None,
    **words: t.Any,
) -> Finding:
    """A finding of one rule, its sentences filled with ``words``."""
    rule = rules()[rule_id]
    words = {"release": release, **words}
    return Finding(
        rule=rule.id,
        outcome=rule.outcome,
        keys=tuple(keys),
        message=" ".join(rule.message.format(**words).split()),
        advice=" ".join(rule.advice.format(**words).split()),
        remedy=remedy or Remedy(),
        source=rule.source,
        exception=rule.exception,
        stage=rule.stage,
    )
