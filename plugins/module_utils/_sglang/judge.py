# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""How SGLang would judge one set of server arguments, in SGLang's own order.

The order is that of the real server: the command line, then the resolution of defaults, then what is met only
after the weights are loaded. Each function asks one question; what is said of an answer stands in data/rules.yml,
the facts that change by release in data/speculative.yml.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .command_line import CommandLineProblem, server_argv
from .data_files import load_yaml
from .findings import BROKEN_LATER, HARMFUL, OUTCOMES, REFUSED, Finding, Remedy, find, rules
from .flags import (
    Flag,
    FlagTable,
    ValueProblem,
    convert,
    flag_table,
    inventory_key,
    known_releases,
    nearest_known,
    releases_with,
)
from .hardware import Gpu
from .models import Model, drafters_of
from .versions import Release, ReleaseRange

STEPS = "speculative_num_steps"
TOPK = "speculative_eagle_topk"
TOKENS = "speculative_num_draft_tokens"
ALGORITHM = "speculative_algorithm"
DRAFT_PATH = "speculative_draft_model_path"
NUMBERS = (STEPS, TOPK, TOKENS)
BACKENDS = ("attention_backend", "decode_attention_backend", "prefill_attention_backend")
SECRET_FLAGS = ("api_key", "admin_api_key", "ssl_keyfile_password")

#: What a report shows as resolved.
RESOLVED = (
    "attention_backend",
    "page_size",
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
) -> Report:
    """Judge server arguments as that release would on that accelerator. Never raises for a bad combination.

    :param args: flag names (- or _, aliases too) to YAML values.
    :param target: what is known of the model that model_path names.
    :param drafter: what is known of the model that speculative_draft_model_path names.
    """
    known = nearest_known(release)
    case = _Case(release, flag_table(known), gpu, target or Model(), drafter or Model())
    _command_line(case, args)
    _defaults(case)
    _algorithm(case)
    if case.values.get(ALGORITHM):
        if case.values[ALGORITHM] in _facts()["eagle_family"]:
            _drafter(case)
            _numbers(case)
            _topk_and_pages(case)
    else:
        _without_algorithm(case)
    _models(case)

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
    )


class _Case:
    """One judgement under way: the values as far as they are resolved, and what was found."""

    def __init__(self, release: Release, table: FlagTable, gpu: Gpu | None, target: Model, drafter: Model) -> None:
        self.release = release
        self.table = table
        self.gpu = gpu
        self.target = target
        self.drafter = drafter
        self.values: dict[str, t.Any] = table.defaults()
        self.usable_args: dict[str, t.Any] = {}
        self.written: dict[str, str] = {}
        self.findings: list[Finding] = []

    def note(self, rule: str, keys: t.Sequence[str], remedy: Remedy | None = None, **words: t.Any) -> Finding:
        return find(
            rule,
            self.release,
            [self.written.get(key, key) for key in keys],
            self._as_written(remedy),
            **words,
        )

    def find(self, rule: str, keys: t.Sequence[str], remedy: Remedy | None = None, **words: t.Any) -> None:
        """Add a finding. Keys are destinations; they are reported as the operator spelt them."""
        self.findings.append(self.note(rule, keys, remedy, **words))

    def _as_written(self, remedy: Remedy | None) -> Remedy | None:
        if remedy is None:
            return None
        return Remedy(
            {self.written.get(key, key): value for key, value in remedy.set.items()},
            tuple(self.written.get(key, key) for key in remedy.remove),
            remedy.variable,
        )

    def given(self, dest: str) -> bool:
        return dest in self.written

    def holds(self, releases: str) -> bool:
        return self.release in ReleaseRange.parse(releases)

    def applies(self, rule: str) -> bool:
        """Whether this release is in the rule's range."""
        return self.release in rules()[rule].releases


def _facts() -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", load_yaml("speculative.yml"))


# ---- the command line -----------------------------------------------------------------------------


def _command_line(case: _Case, args: t.Mapping[str, t.Any]) -> None:
    seen: dict[str, str] = {}
    for written_key, value in args.items():
        key = str(written_key)
        flag = case.table.find(key)
        if flag is None:
            _unknown_flag(case, key, value)
        elif flag.name in seen:
            case.find("flag-given-twice", [key], Remedy(remove=(key,)), first=seen[flag.name], second=key)
        else:
            seen[flag.name] = key
            _known_flag(case, key, flag, value)


def _unknown_flag(case: _Case, key: str, value: t.Any) -> None:
    near = case.table.nearest(key)
    elsewhere = releases_with(key)
    if elsewhere:
        where = f" (it is a flag of {elsewhere[0]} to {elsewhere[-1]})"
    else:
        where = f"; the nearest is {near}" if near else ""
    remedy = (
        Remedy({near: value}, (key,)) if near and not elsewhere and near not in case.written else Remedy(remove=(key,))
    )
    case.find("flag-unknown", [key], remedy, flag=key, elsewhere=where)


def _known_flag(case: _Case, key: str, flag: Flag, value: t.Any) -> None:
    if inventory_key(flag.name) in SECRET_FLAGS and value is not None:
        case.find("flag-holds-secret", [key], Remedy(remove=(key,)), key=key)
        return
    try:
        converted = convert(flag, value)
    except ValueProblem as exc:
        if flag.dest != ALGORITHM:
            case.find("flag-value", [key], Remedy(remove=(key,)), key=key, problem=exc)
            return
        converted = value  # a name that is no choice is judged as an algorithm
    if value is not None:
        case.written[flag.dest] = key
        case.usable_args[key] = value
    case.values[flag.dest] = converted


def _argv(case: _Case) -> list[str]:
    try:
        return server_argv(case.usable_args, case.table)
    except CommandLineProblem:
        # only an unknown algorithm name gets here, and then there is no command line
        return []


# ---- defaults that hang on the accelerator and the model ------------------------------------------


def _defaults(case: _Case) -> None:
    """Attention backend and page size as the server resolves them, None where the tables do not know."""
    values = case.values
    if values["attention_backend"] is None:
        values["attention_backend"] = _default_backend(case)
    named = [values.get(key) for key in BACKENDS if values.get(key)]
    forced = _facts()["forced_page_sizes"]
    if values["page_size"] is None:
        values["page_size"] = 1
    for backend in named:
        if backend in forced:
            values["page_size"] = forced[backend]
        elif backend == "trtllm_mha" and values["page_size"] not in (16, 32, 64):
            values["page_size"] = 64


def _default_backend(case: _Case) -> str | None:
    """The backend that the server picks when none is named (all of 0.5.5-0.5.23, recorded)."""
    gpu, architecture = case.gpu, case.target.architecture
    if gpu is None or architecture is None or gpu.vendor != "nvidia" or gpu.compute_capability is None:
        return None
    topk, page = case.values[TOPK], case.values["page_size"]
    if architecture in _facts()["mla_architectures"]:
        if gpu.is_hopper:
            return "fa3"
        return "trtllm_mla" if gpu.is_sm100 else "triton"
    one_chain = topk == 1 and page in (None, 1)
    if gpu.is_hopper and (topk is None or one_chain):
        return "fa3"
    if gpu.is_sm100 and (one_chain or (topk is None and not case.values[ALGORITHM])):
        return "trtllm_mha"
    return "flashinfer"


# ---- the algorithm --------------------------------------------------------------------------------


def _algorithm(case: _Case) -> None:
    name = case.values.get(ALGORITHM)
    if name is None:
        return
    algorithms = _facts()["algorithms"]
    known = [one for one, releases in algorithms.items() if case.holds(releases)]
    # up to 0.5.11 the parser had a list of choices; later any text is put in capitals and looked up
    free_text = case.applies("algorithm-unknown")
    wanted = str(name).upper() if free_text else str(name)
    if wanted in known:
        case.values[ALGORITHM] = "EAGLE" if wanted == "NEXTN" else wanted
        return
    case.values[ALGORITHM] = None
    since = algorithms.get(str(name).upper())
    near = _nearest_algorithm(str(name), known)
    case.find(
        "algorithm-unknown" if free_text else "algorithm-no-choice",
        [ALGORITHM],
        Remedy({ALGORITHM: near}) if near else Remedy(remove=(ALGORITHM,)),
        algorithm=name,
        since="" if since is None or str(name).upper() in known else f" (it is one in {since})",
        known=", ".join(known),
    )


def _nearest_algorithm(name: str, known: t.Sequence[str]) -> str | None:
    plain = name.upper().replace("-", "").replace("_", "").replace(" ", "")
    return next((one for one in known if one.replace("_", "") == plain), None)


def _without_algorithm(case: _Case) -> None:
    given = [key for key in (*NUMBERS, DRAFT_PATH) if case.given(key)]
    if given and not case.given(ALGORITHM):
        case.find("spec-without-algorithm", given, Remedy({ALGORITHM: "EAGLE3"}), given=_listed(case, given))


# ---- the drafter ----------------------------------------------------------------------------------


def _drafter(case: _Case) -> None:
    algorithm, architecture = case.values[ALGORITHM], case.target.architecture
    if case.values[DRAFT_PATH] is None:
        own = _facts()["own_drafter"].get(architecture)
        if own is None or not case.holds(own):
            known = drafters_of(case.target.repo)
            hint = f" ({', '.join(known)})" if known else ""
            case.find("drafter-missing", [ALGORITHM], Remedy(remove=(ALGORITHM,)), algorithm=algorithm, known=hint)
            return
        case.values[DRAFT_PATH] = case.values["model_path"]
        if algorithm == "EAGLE3":
            case.find("drafter-is-target", [ALGORITHM], Remedy(remove=(ALGORITHM,)), architecture=architecture)
        return
    drafter = case.drafter.architecture
    if algorithm == "EAGLE" and drafter in _facts()["eagle3_architectures"]:
        written = case.usable_args.get(case.written.get(ALGORITHM, ALGORITHM))
        case.find(
            "eagle-named-for-eagle3",
            [ALGORITHM],
            Remedy({ALGORITHM: "EAGLE3"}),
            architecture=drafter,
            algorithm=written,
        )


# ---- steps, topk, draft tokens --------------------------------------------------------------------


def _numbers(case: _Case) -> None:
    values = case.values
    steps, topk, tokens = (values[key] for key in NUMBERS)
    for key in NUMBERS:
        if values[key] is not None and values[key] < 1:
            case.find("spec-number-range", [key], Remedy({key: 1}), key=case.written[key], value=values[key])
    if steps is None and topk is None and tokens is None:
        values[STEPS], values[TOPK], values[TOKENS] = _automatic_numbers(case)
        case.find(
            "spec-numbers-automatic",
            [ALGORITHM],
            steps=values[STEPS],
            topk=values[TOPK],
            tokens=values[TOKENS],
        )
    elif steps is None:
        _steps_missing(case)
    elif topk is None:
        case.find(
            "spec-topk-missing",
            [key for key in NUMBERS if case.given(key)],
            Remedy({STEPS: max(steps, 1), TOPK: 1, TOKENS: max(steps, 1) + 1}),
            steps=steps,
        )
    elif topk == 1:
        _chain(case)
    elif topk > 1:
        _tree(case)


def _steps_missing(case: _Case) -> None:
    topk, tokens = case.values[TOPK], case.values[TOKENS]
    automatic = _automatic_numbers(case)
    missing = [key for key in (TOPK, TOKENS) if not case.given(key)]
    steps = max(tokens - 1, 1) if tokens is not None else automatic[0]
    topk = max(topk, 1) if topk is not None else 1
    case.find(
        "spec-steps-missing",
        [key for key in (TOPK, TOKENS) if case.given(key)],
        Remedy({STEPS: steps, TOPK: topk, TOKENS: steps + 1 if topk == 1 or tokens is None else max(tokens, 2)}),
        given=_listed(case, [key for key in (TOPK, TOKENS) if case.given(key)]),
        also=f" and without {' and '.join(missing)}" if missing else "",
        steps=automatic[0],
        topk=automatic[1],
        tokens=automatic[2],
    )


def _chain(case: _Case) -> None:
    steps, tokens = case.values[STEPS], case.values[TOKENS]
    if tokens != steps + 1:
        case.values[TOKENS] = steps + 1
        case.find(
            "spec-draft-tokens-rewritten",
            [key for key in NUMBERS if case.given(key)],
            Remedy({TOKENS: steps + 1}),
            was="nothing" if tokens is None else tokens,
            tokens=steps + 1,
        )


def _tree(case: _Case) -> None:
    steps, topk, tokens = (case.values[key] for key in NUMBERS)
    if steps < 1:
        return
    nodes = topk + (steps - 1) * topk * topk
    if tokens is None:
        case.find(
            "spec-draft-tokens-missing",
            [TOPK, STEPS],
            Remedy({TOKENS: min(nodes + 1, steps * 2 + 2)}),
            topk=topk,
        )
    elif tokens - 1 > nodes:
        case.find(
            "spec-tree-too-small",
            NUMBERS,
            Remedy({TOKENS: nodes + 1}),
            steps=steps,
            topk=topk,
            tokens=tokens,
            nodes=nodes,
        )
    elif 1 <= tokens < steps + 1:
        case.find("spec-tree-unused", NUMBERS, Remedy({TOKENS: steps + 1}), steps=steps, tokens=tokens)


def _automatic_numbers(case: _Case) -> tuple[int, int, int]:
    """Steps, topk and draft tokens that SGLang chooses when none is given."""
    for row in _facts()["automatic_numbers"]:
        if (
            case.holds(row["releases"])
            and case.values[ALGORITHM] in row.get("algorithms", [case.values[ALGORITHM]])
            and case.target.architecture in row.get("architectures", [case.target.architecture])
        ):
            steps, topk, tokens = row["numbers"]
            return steps, topk, tokens
    raise LookupError("speculative.yml: no row of automatic_numbers holds")


# ---- topk, pages and attention backends -----------------------------------------------------------


def _topk_and_pages(case: _Case) -> None:
    values = case.values
    topk, page, backend = values[TOPK], values["page_size"], values["attention_backend"]
    if topk is None or topk <= 1:
        return
    for key in BACKENDS:
        if values.get(key) == "trtllm_mha":
            case.find(
                "spec-topk-trtllm-mha",
                [key, TOPK],
                Remedy({TOPK: 1, TOKENS: _chain_tokens(case)}),
                key=case.written.get(key, f"the default {key}"),
                topk=topk,
            )
    if backend is None:
        return
    able = next(row["backends"] for row in _facts()["topk_page_backends"] if case.holds(row["releases"]))
    if page > 1 and backend not in able:
        asked = case.written.get("page_size")
        case.find(
            "spec-topk-page-backend",
            [key for key in (TOPK, "page_size", "attention_backend") if case.given(key)] or [ALGORITHM],
            Remedy({TOPK: 1, STEPS: values[STEPS], TOKENS: _chain_tokens(case)}),
            topk=topk,
            page=page,
            why="" if asked and case.usable_args[asked] == page else f" (what {backend} makes of it)",
            backend=backend,
            able=", ".join(able),
        )
    else:
        _draft_backend(case, topk)


def _draft_backend(case: _Case, topk: int) -> None:
    """A backend that can only draft chains, met when the draft worker is built."""
    values = case.values
    backend = (
        values.get("speculative_draft_attention_backend")
        or values.get("decode_attention_backend")
        or values["attention_backend"]
    )
    one_chain = list(_facts()["topk_one_draft_backends"])
    if case.target.architecture in _facts()["mla_architectures"]:
        one_chain += _facts()["topk_one_draft_backends_mla"]
    if backend in one_chain:
        case.find(
            "spec-topk-draft-backend",
            [TOPK],
            Remedy({TOPK: 1, STEPS: values[STEPS], TOKENS: _chain_tokens(case)}),
            backend=backend,
            topk=topk,
        )


def _chain_tokens(case: _Case) -> int:
    return int(case.values[STEPS] or 0) + 1


# ---- what the catalogue knows ---------------------------------------------------------------------


def _models(case: _Case) -> None:
    for model, rule, variable in (
        (case.target, "target-release", "sglang_model_target"),
        (case.drafter, "drafter-release", "sglang_model_drafter"),
    ):
        if model.minimum_release and case.release < Release.parse(model.minimum_release):
            case.find(rule, [variable], repo=model.repo, minimum=model.minimum_release)


def _listed(case: _Case, keys: t.Sequence[str]) -> str:
    return " and ".join(f"{case.written[key]} {case.values[key]}" for key in keys)
