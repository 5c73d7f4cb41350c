# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""One judgement under way: the values as far as they are resolved, and what was found."""

from __future__ import annotations

import dataclasses
import typing as t

from .data_files import load_yaml
from .findings import Finding, Remedy, find, rules
from .flags import FlagTable
from .hardware import Gpu
from .models import Model
from .versions import Release, ReleaseRange

STEPS = "speculative_num_steps"
TOPK = "speculative_eagle_topk"
TOKENS = "speculative_num_draft_tokens"
NUMBERS = (STEPS, TOPK, TOKENS)
ALGORITHM = "speculative_algorithm"
DRAFT_PATH = "speculative_draft_model_path"


def facts() -> dict[str, t.Any]:
    """The facts that change by release (data/speculative.yml)."""
    return t.cast("dict[str, t.Any]", load_yaml("speculative.yml"))


class Case:
    """Server arguments before one release, on one accelerator, with what is known of the models.

    ``values`` holds every destination's value as the real server would hold it at this point; the functions of this
    package change it as the server does. ``written`` says how the operator spelt a destination that was given,
    ``unusable`` which ones were given with a value that the flag does not take.
    """

    def __init__(
        self,
        release: Release,
        table: FlagTable,
        gpu: Gpu | None,
        target: Model,
        drafter: Model,
        env: t.Mapping[str, str],
    ) -> None:
        self.release = release
        self.table = table
        self.gpu = gpu
        self.target = target
        self.drafter = drafter
        self.env = env
        self.values: dict[str, t.Any] = table.defaults()
        self.usable_args: dict[str, t.Any] = {}
        self.written: dict[str, str] = {}
        self.unusable: set[str] = set()
        self.findings: list[Finding] = []

    def note(self, rule: str, keys: t.Sequence[str], remedy: Remedy | None = None, **words: t.Any) -> Finding:
        """A finding whose keys are destinations; they are reported as the operator spelt them.

        Flags that the rule's own sentence does not name stand before it with their values.
        """
        spelt = [self.spelt(key) for key in keys]
        finding = find(rule, self.release, spelt, self._as_written(remedy), **words)
        unnamed = [key for key in keys if key in self.values and self.spelt(key) not in finding.message]
        if not unnamed:
            return finding
        return dataclasses.replace(finding, message=f"{self.shown(unnamed)}: {finding.message}")

    def find(self, rule: str, keys: t.Sequence[str], remedy: Remedy | None = None, **words: t.Any) -> None:
        """Add a finding."""
        self.findings.append(self.note(rule, keys, remedy, **words))

    def _as_written(self, remedy: Remedy | None) -> Remedy | None:
        if remedy is None:
            return None
        return Remedy(
            {self.written.get(key, key): value for key, value in remedy.set.items()},
            tuple(self.written.get(key, key) for key in remedy.remove),
            remedy.variable,
        )

    def get(self, dest: str) -> t.Any:
        """A destination's value, None where this release has no such flag."""
        return self.values.get(dest)

    def given(self, dest: str) -> bool:
        """Whether the operator gave a usable value for it."""
        return dest in self.written

    def given_of(self, dests: t.Sequence[str]) -> list[str]:
        """Those of the destinations that were given."""
        return [dest for dest in dests if self.given(dest)]

    def spelt(self, dest: str) -> str:
        """A destination as the operator spelt it."""
        return self.written.get(dest, dest)

    def shown(self, dests: t.Sequence[str]) -> str:
        """Destinations and their values in words: ``tp_size 8 and pp_size 2``."""
        return " and ".join(f"{self.spelt(dest)} {_word(self.values[dest])}" for dest in dests)

    def holds(self, releases: str) -> bool:
        """Whether this release is in a range."""
        return self.release in ReleaseRange.parse(releases)

    def applies(self, rule: str) -> bool:
        """Whether this release is in a rule's range."""
        return self.release in rules()[rule].releases

    def env_flag(self, name: str, default: bool) -> bool:
        """An on/off environment variable as SGLang reads it."""
        value = self.env.get(name)
        return default if value is None else value.lower() in ("1", "true", "yes", "y")

    @property
    def algorithm(self) -> str | None:
        """The speculative algorithm as far as it is resolved."""
        return t.cast("str | None", self.values.get(ALGORITHM))

    @property
    def is_mla(self) -> bool:
        return self.target.architecture in facts()["mla_architectures"]

    @property
    def attention_dp(self) -> bool:
        """Whether attention runs data-parallel: --attn-dp-size, or --enable-dp-attention with --dp-size."""
        if (self.get("attn_dp_size") or 1) > 1:
            return True
        return bool(self.get("enable_dp_attention")) and (self.get("dp_size") or 1) > 1


def _word(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
