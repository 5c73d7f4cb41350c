# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""How SGLang would judge one set of server arguments, in SGLang's own order.

The order is that of the real server: the command line, then the resolution of defaults, then the last checks. Each
function asks one question; what is said of an answer stands in data/rules.yml, the facts that change by release in
data/speculative.yml.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .accepted import judge_accepted
from .arguments import read_arguments
from .backends import resolve_backends
from .case import ALGORITHM, DRAFT_PATH, NUMBERS, Case
from .checks import check_models, check_resolved, resolve_parallel
from .command_line import CommandLineProblem, server_argv
from .findings import BROKEN_LATER, HARMFUL, OUTCOMES, REFUSED, Finding
from .flags import flag_table, known_releases, nearest_known
from .hardware import Gpu
from .memory import Memory, memory_of
from .models import Model
from .speculative import resolve_speculation
from .versions import Release

#: What a report shows as resolved.
RESOLVED = (
    "attention_backend",
    "page_size",
    "max_running_requests",
    "disable_overlap_schedule",
    "enable_mixed_chunk",
    ALGORITHM,
    DRAFT_PATH,
    *NUMBERS,
)


@dataclasses.dataclass(frozen=True)
class Report:
    """The judgement of one set of server arguments."""

    findings: tuple[Finding, ...]
    resolved: t.Mapping[str, t.Any]
    argv: tuple[str, ...]
    confidence: str
    memory: Memory | None = None

    @property
    def ok(self) -> bool:
        """Nothing is refused or broken later."""
        return not any(finding.outcome in (REFUSED, BROKEN_LATER) for finding in self.findings)

    def stopping(self, accepted: t.Container[str] = ()) -> list[Finding]:
        """The findings that stop a run: refused, broken later, and harmful unless its rule is accepted."""
        return [finding for finding in self.findings if stops(finding, accepted)]


def stops(finding: Finding, accepted: t.Container[str] = ()) -> bool:
    """Whether a finding stops a run. ``accepted`` holds the rule ids of sglang_plan_accept."""
    if finding.outcome == HARMFUL:
        return finding.rule not in accepted
    return finding.outcome in (REFUSED, BROKEN_LATER)


def judge(
    args: t.Mapping[str, t.Any],
    release: Release,
    gpu: Gpu | None = None,
    target: Model | None = None,
    drafter: Model | None = None,
    env: t.Mapping[str, str] | None = None,
) -> Report:
    """Judge server arguments as that release would on that accelerator. Never raises for a bad combination.

    :param args: flag names (- or _, aliases too) to YAML values.
    :param target: what is known of the model that model_path names.
    :param drafter: what is known of the model that speculative_draft_model_path names.
    :param env: the environment of the service.
    """
    known = nearest_known(release)
    case = Case(release, flag_table(known), gpu, target or Model(), drafter or Model(), env or {})
    read_arguments(case, args)
    check_models(case)
    resolve_backends(case)
    resolve_parallel(case)
    resolve_speculation(case)
    check_resolved(case)
    judge_accepted(case)
    memory = memory_of(case)

    is_known = str(release) in known_releases()
    findings = case.findings
    if not is_known:
        unknown = case.note(
            "release-unknown",
            ["sglang_engine_version"],
            known=known,
            oldest=known_releases()[0],
            newest=known_releases()[-1],
        )
        findings = [unknown, *(finding.unless_core() for finding in findings)]
    return Report(
        findings=tuple(sorted(findings, key=lambda finding: OUTCOMES.index(finding.outcome))),
        resolved={key: case.values.get(key) for key in RESOLVED},
        argv=tuple(_argv(case)),
        confidence="verified" if is_known else "unchecked",
        memory=memory,
    )


def _argv(case: Case) -> list[str]:
    try:
        return server_argv(case.usable_args, case.table)
    except CommandLineProblem:
        # only an unknown algorithm name gets here, and then there is no command line
        return []
