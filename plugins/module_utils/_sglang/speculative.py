# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Speculative decoding as the server resolves it: the algorithm, its drafter, its numbers."""

from __future__ import annotations

import typing as t

from .backends import BACKENDS, MAIN, prefill_and_decode
from .case import ALGORITHM, DRAFT_PATH, NUMBERS, STEPS, TOKENS, TOPK, Case, facts
from .findings import Remedy
from .models import drafters_of

_WINDOW = "speculative_draft_window_size"
_OLD_WINDOW = "speculative_dflash_draft_window_size"
_SINK = "speculative_draft_sink_size"
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
_NO_SPECULATION = Remedy(remove=(ALGORITHM,))


def resolve_speculation(case: Case) -> None:
    """Resolve everything speculative, in the server's order, and find fault with it."""
    _draft_moe_runner(case)
    _algorithm(case)
    _draft_config(case)
    _disaggregated_radix_cache(case)
    _block_verification(case)
    _draft_window(case)
    _adaptive(case, late=False)
    handler = _HANDLERS.get(case.algorithm or "")
    if handler:
        handler(case)
    elif not case.given(ALGORITHM):
        _without_algorithm(case)
    _adaptive(case, late=True)


# ---- the algorithm --------------------------------------------------------------------------------


def _draft_moe_runner(case: Case) -> None:
    runner = case.get("speculative_moe_runner_backend")
    if case.applies("draft-moe-runner") and runner == "flashinfer_trtllm":
        case.find(
            "draft-moe-runner", ["speculative_moe_runner_backend"], Remedy({"speculative_moe_runner_backend": "auto"})
        )


def _algorithm(case: Case) -> None:
    name = case.values.get(ALGORITHM)
    if name is None:
        return
    algorithms = facts()["algorithms"]
    known = [one for one, releases in algorithms.items() if case.holds(releases)]
    # up to 0.5.11 the parser had a list of choices; later any text is put in capitals and looked up
    free_text = case.applies("algorithm-unknown")
    wanted = str(name).upper() if free_text else str(name)
    if wanted in known:
        case.values[ALGORITHM] = "EAGLE" if wanted == "NEXTN" else wanted
        return
    since = algorithms.get(str(name).upper())
    near = _nearest_algorithm(str(name), known)
    # what else is wrong is judged for the algorithm that was meant
    case.values[ALGORITHM] = near
    case.find(
        "algorithm-unknown" if free_text else "algorithm-no-choice",
        [ALGORITHM],
        Remedy({ALGORITHM: near}) if near else _NO_SPECULATION,
        algorithm=name,
        since="" if since is None or str(name).upper() in known else f" (it is one in {since})",
        known=", ".join(known),
    )


def _nearest_algorithm(name: str, known: t.Sequence[str]) -> str | None:
    plain = name.upper().replace("-", "").replace("_", "").replace(" ", "")
    return next((one for one in known if one.replace("_", "") == plain), None)


def _without_algorithm(case: Case) -> None:
    given = case.given_of((*NUMBERS, DRAFT_PATH))
    if given:
        case.find("spec-without-algorithm", given, Remedy({ALGORITHM: "EAGLE3"}), given=case.shown(given))


def _draft_config(case: Case) -> None:
    """From 0.5.12 the drafter's config.json is read before anything else is asked of it."""
    if case.applies("drafter-config-missing") and case.drafter.is_missing:
        case.find("drafter-config-missing", [DRAFT_PATH], Remedy(remove=(DRAFT_PATH,)), path=case.values[DRAFT_PATH])


def _disaggregated_radix_cache(case: Case) -> None:
    flag = "disaggregation_decode_enable_radix_cache"
    if not case.get(flag) or case.get("disaggregation_mode") != "decode":
        return
    if case.applies("pd-radix-cache-backend") and case.get("disaggregation_transfer_backend") != "nixl":
        case.find("pd-radix-cache-backend", [flag], Remedy(remove=(flag,)))
        return
    rule = "pd-radix-cache" if case.applies("pd-radix-cache") else "pd-radix-cache-some"
    allowed: tuple[str | None, ...] = (None,) if rule == "pd-radix-cache" else (None, "DSPARK", "EAGLE", "EAGLE3")
    if case.algorithm not in allowed and case.applies(rule):
        case.find(rule, [flag, ALGORITHM], Remedy(remove=(flag,)), algorithm=case.algorithm)


def _block_verification(case: Case) -> None:
    flag = "speculative_use_block_verification"
    if not case.get(flag):
        return
    if case.algorithm not in ("EAGLE", "EAGLE3", "DFLASH", "DSPARK"):
        case.find("block-verification-algorithm", [flag], Remedy(remove=(flag,)))
    elif _device(case) != "cuda":
        case.find("block-verification-device", [flag], Remedy(remove=(flag,)))
    elif case.algorithm in ("EAGLE", "EAGLE3"):
        case.values["speculative_use_rejection_sampling"] = True


def _draft_window(case: Case) -> None:
    window, sink = case.get(_WINDOW), case.get(_SINK)
    if case.applies("draft-window-range") and window is not None and window <= 0:
        case.find("draft-window-range", [_WINDOW], Remedy(remove=(_WINDOW, _SINK)), value=window)
    if sink is not None and sink < 0:
        case.find("draft-sink-range", [_SINK], Remedy(remove=(_SINK,)), value=sink)
    elif sink is not None and window is None:
        case.find("draft-sink-alone", [_SINK], Remedy(remove=(_SINK,)))


def _device(case: Case) -> str:
    """The device as resolved: what was named, else that of the accelerator."""
    return str(case.get("device") or ("cpu" if case.gpu and case.gpu.vendor == "none" else "cuda"))


# ---- adaptive speculation ---------------------------------------------------------------------------


def _adaptive(case: Case, late: bool) -> None:
    """From 0.5.14 it fills missing numbers before the algorithm is handled; earlier it is judged afterwards."""
    if not case.get("speculative_adaptive") or late != case.holds(facts()["adaptive_judged_late"]):
        return
    topk = case.values[TOPK]
    unsupported = (
        case.algorithm not in ("EAGLE", "EAGLE3")
        or (topk != 1 and (late or topk is not None))
        or case.attention_dp
        or (case.holds("<0.5.13") and not case.values["disable_overlap_schedule"])
        or case.get("enable_multi_layer_eagle")
        or case.get("enable_two_batch_overlap")
        or case.get("enable_pdmux")
    )
    if unsupported:
        case.values["speculative_adaptive"] = False
        case.find("adaptive-off", ["speculative_adaptive"], Remedy(remove=("speculative_adaptive",)))
        return
    if case.get("speculative_adaptive_config"):
        return
    candidates = _candidates(case)
    if not late:
        case.values[TOPK] = 1
        if case.values[STEPS] is None:
            case.values[STEPS] = candidates[len(candidates) // 2]
    steps = case.values[STEPS]
    if steps not in candidates and (not late or case.holds(">=0.5.13")):
        case.find(
            "adaptive-steps",
            [STEPS, "speculative_adaptive"],
            Remedy(_chain_of(_nearest_candidate(case, steps or 0))),
            steps=steps,
            candidates=", ".join(map(str, candidates)),
        )
    if not late and steps is not None:
        case.values[TOKENS] = steps + 1


def _candidates(case: Case) -> list[int]:
    """The steps that the built-in adaptive configuration may choose."""
    return next(row["steps"] for row in facts()["adaptive_steps"] if case.holds(row["releases"]))


def _nearest_candidate(case: Case, steps: int) -> int:
    return max(min(_candidates(case), key=lambda one: abs(one - steps)), 1)


# ---- EAGLE, EAGLE3, STANDALONE ----------------------------------------------------------------------


def _eagle_family(case: Case) -> None:
    if case.algorithm == "STANDALONE" and case.attention_dp:
        case.find("standalone-dp-attention", [ALGORITHM], _without_attention_dp(case))
    _default_running_requests(case)
    _eagle_overlap(case)
    if case.values["enable_mixed_chunk"] and (case.holds("<0.5.19") or case.algorithm == "STANDALONE"):
        _no_mixed_chunk(case)
    _eagle_drafter(case)
    _numbers(case)
    topk = case.values[TOPK]
    if topk is not None:
        _trtllm_mha(case, topk)
        _rejection_sampling(case, topk)
        _tree_on_pages(case, topk)


def _default_running_requests(case: Case) -> None:
    if case.values["max_running_requests"] is None:
        case.values["max_running_requests"] = 48
        case.find("spec-max-running-requests", [ALGORITHM])


def _no_mixed_chunk(case: Case) -> None:
    case.values["enable_mixed_chunk"] = False
    if case.given("enable_mixed_chunk"):
        case.find(
            "spec-mixed-chunk", ["enable_mixed_chunk"], Remedy(remove=("enable_mixed_chunk",)), algorithm=case.algorithm
        )


def _eagle_overlap(case: Case) -> None:
    """Whether the overlap scheduler stays on, by release and SGLANG_ENABLE_SPEC_V2."""
    values, topk = case.values, case.values[TOPK]
    if case.holds("<0.5.11"):
        v2 = case.env_flag("SGLANG_ENABLE_SPEC_V2", False)
        values["disable_overlap_schedule"] = not v2
        if v2 and topk is not None and topk > 1 and case.applies("spec-v2-topk"):
            case.find("spec-v2-topk", [TOPK], Remedy({TOPK: 1, TOKENS: _chain_tokens(case)}), topk=topk)
    elif case.holds("<0.5.13"):
        if (topk is not None and topk > 1) or not case.env_flag("SGLANG_ENABLE_SPEC_V2", True):
            values["disable_overlap_schedule"] = True
    elif case.holds("<0.5.14") and not case.env_flag("SGLANG_ENABLE_SPEC_V2", True):
        values["disable_overlap_schedule"] = True
    _no_overlap_on_cpu(case)


def _no_overlap_on_cpu(case: Case) -> None:
    if case.holds(">=0.5.16") and _device(case) == "cpu":
        case.values["disable_overlap_schedule"] = True


def _eagle_drafter(case: Case) -> None:
    algorithm, architecture = case.algorithm, case.target.architecture
    if case.values[DRAFT_PATH] is None:
        own = facts()["own_drafter"].get(architecture)
        if own is None or not case.holds(own):
            known = drafters_of(case.target.repo)
            hint = f" ({', '.join(known)})" if known else ""
            case.find("drafter-missing", [ALGORITHM], _NO_SPECULATION, algorithm=algorithm, known=hint)
            return
        case.values[DRAFT_PATH] = case.values["model_path"]
        if algorithm == "EAGLE3":
            case.find("drafter-is-target", [ALGORITHM], _NO_SPECULATION, architecture=architecture)
        return
    drafter = case.drafter.architecture
    if algorithm == "EAGLE" and drafter in facts()["eagle3_architectures"]:
        case.find(
            "eagle-named-for-eagle3",
            [ALGORITHM],
            Remedy({ALGORITHM: "EAGLE3"}),
            architecture=drafter,
            algorithm=case.usable_args[case.written[ALGORITHM]],
        )


def _numbers(case: Case) -> None:
    values = case.values
    steps, topk, tokens = (values[key] for key in NUMBERS)
    for key in case.given_of(NUMBERS):
        # adaptive speculation may choose no steps at all; there 0 is a number like any other
        least = 0 if key == STEPS and case.get("speculative_adaptive") else 1
        if values[key] < least:
            case.find("spec-number-range", [key], Remedy({key: 1}), key=case.spelt(key), value=values[key])
    if steps is None and topk is None and tokens is None:
        values[STEPS], values[TOPK], values[TOKENS] = _automatic_numbers(case)
        case.find("spec-numbers-automatic", [ALGORITHM], steps=values[STEPS], topk=values[TOPK], tokens=values[TOKENS])
    elif steps is None:
        _steps_missing(case)
    elif topk is None:
        # SGLang compares topk for trtllm_mha first, for rejection sampling next and for all others last
        if not _trtllm_mha_flags(case):
            _rejection_sampling(case, None)
        chain = _nearest_candidate(case, max(steps, 1)) if case.get("speculative_adaptive") else max(steps, 1)
        case.find("spec-topk-missing", case.given_of(NUMBERS), Remedy(_chain_of(chain)), steps=steps)
    elif topk == 1:
        _chain(case)
    elif topk > 1:
        _tree(case)


def _chain_of(steps: int) -> dict[str, int]:
    """Numbers that go together: a chain of that many steps."""
    return {STEPS: steps, TOPK: 1, TOKENS: steps + 1}


def _chain_tokens(case: Case) -> int:
    return max(int(case.values[STEPS] or 0), 1) + 1


def _steps_missing(case: Case) -> None:
    topk, tokens = case.values[TOPK], case.values[TOKENS]
    given = case.given_of((TOPK, TOKENS))
    missing = [key for key in (TOPK, TOKENS) if key not in given]
    automatic = _automatic_numbers(case)
    steps = max(tokens - 1, 1) if tokens is not None else automatic[0]
    if case.get("speculative_adaptive"):
        steps = _nearest_candidate(case, steps)
    remedy = _chain_of(steps)
    if topk is not None and topk > 1:
        remedy.update({TOPK: topk, TOKENS: max(tokens, 2) if tokens is not None else steps + 1})
    case.find(
        "spec-steps-missing",
        given,
        Remedy(remedy),
        given=case.shown(given),
        also=f" and without {' and '.join(missing)}" if missing else "",
        steps=automatic[0],
        topk=automatic[1],
        tokens=automatic[2],
    )


def _chain(case: Case) -> None:
    steps, tokens = case.values[STEPS], case.values[TOKENS]
    if tokens == steps + 1:
        return
    case.values[TOKENS] = steps + 1
    if case.given(TOPK):
        case.find(
            "spec-draft-tokens-rewritten",
            case.given_of(NUMBERS),
            Remedy({TOKENS: steps + 1}),
            was="nothing" if tokens is None else tokens,
            tokens=steps + 1,
        )


def _tree(case: Case) -> None:
    steps, topk, tokens = (case.values[key] for key in NUMBERS)
    if steps < 1:
        return
    nodes = topk + (steps - 1) * topk * topk
    words = {"steps": steps, "topk": topk, "tokens": tokens, "nodes": nodes}
    if tokens is None:
        remedy = Remedy({TOKENS: min(nodes + 1, 2 * steps + 2)})
        case.find("spec-draft-tokens-missing", [TOPK, STEPS], remedy, **words)
    elif tokens - 1 > nodes:
        case.find("spec-tree-too-small", NUMBERS, Remedy({TOKENS: nodes + 1}), **words)
    elif 1 <= tokens < steps + 1:
        case.find("spec-tree-unused", NUMBERS, Remedy({TOKENS: steps + 1}), **words)


def _automatic_numbers(case: Case) -> tuple[int, int, int]:
    """Steps, topk and draft tokens that SGLang chooses when none is given."""
    for row in facts()["automatic_numbers"]:
        if (
            case.holds(row["releases"])
            and case.algorithm in row.get("algorithms", [case.algorithm])
            and case.target.architecture in row.get("architectures", [case.target.architecture])
        ):
            steps, topk, tokens = row["numbers"]
            return steps, topk, tokens
    raise LookupError("speculative.yml: no row of automatic_numbers holds")


def _trtllm_mha(case: Case, topk: int) -> None:
    if topk <= 1:
        return
    named = _trtllm_mha_flags(case)
    if named:
        case.find(
            "spec-topk-trtllm-mha",
            [*named, TOPK],
            Remedy({TOPK: 1, TOKENS: _chain_tokens(case)}),
            key=case.spelt(named[0]),
            topk=topk,
        )


def _trtllm_mha_flags(case: Case) -> list[str]:
    """The backend flags by which SGLang takes the target for one on trtllm_mha."""
    keys = BACKENDS if case.holds("<0.5.15") else [key for key in BACKENDS if _serves_a_phase(case, key)]
    return [key for key in keys if case.values[key] == "trtllm_mha"]


def _serves_a_phase(case: Case, key: str) -> bool:
    """Whether a backend flag decides a phase: the main one does so only where a phase has none of its own."""
    return key != MAIN or case.values[MAIN] in prefill_and_decode(case)


def _rejection_sampling(case: Case, topk: int | None) -> None:
    flag = "speculative_use_rejection_sampling"
    if not case.get(flag):
        return
    away = Remedy(remove=(flag,))
    if case.algorithm not in ("EAGLE", "EAGLE3"):
        case.find("rejection-sampling-algorithm", [flag, ALGORITHM], away, algorithm=case.algorithm)
    elif topk is None:
        # what the numbers lack has its own finding
        case.find("rejection-sampling-topk", [flag], Remedy({TOPK: 1}), topk="not given")
    elif topk != 1:
        case.find("rejection-sampling-topk", [flag, TOPK], Remedy({TOPK: 1, TOKENS: _chain_tokens(case)}), topk=topk)
    elif case.get("enable_deterministic_inference") and case.applies("rejection-sampling-deterministic"):
        case.find("rejection-sampling-deterministic", [flag, "enable_deterministic_inference"], away)
    elif any(case.values[threshold] != 1.0 for threshold in _THRESHOLDS):
        given = case.given_of(_THRESHOLDS)
        case.find("rejection-sampling-thresholds", [flag, *given], Remedy(remove=tuple(given)), given=case.shown(given))
    elif case.get("enable_multi_layer_eagle") and case.applies("rejection-sampling-multi-layer"):
        case.find("rejection-sampling-multi-layer", [flag, "enable_multi_layer_eagle"], away)


def _tree_on_pages(case: Case, topk: int) -> None:
    values = case.values
    page, backend = values["page_size"], values[MAIN]
    if topk <= 1 or backend is None:
        return
    able = next(row["backends"] for row in facts()["topk_page_backends"] if case.holds(row["releases"]))
    if page > 1 and backend not in able:
        asked = case.given("page_size") and case.usable_args[case.written["page_size"]] == page
        case.find(
            "spec-topk-page-backend",
            case.given_of((TOPK, "page_size", MAIN)) or [ALGORITHM],
            Remedy(_chain_of(max(values[STEPS] or 0, 1))),
            topk=topk,
            page=page,
            why="" if asked else f" (what {backend} makes of it)",
            backend=backend,
            able=", ".join(able),
        )
    else:
        _draft_backend(case, topk)


def _draft_backend(case: Case, topk: int) -> None:
    """A backend that can only draft chains, met when the draft worker is built."""
    values = case.values
    backend = case.get("speculative_draft_attention_backend") or prefill_and_decode(case)[1]
    one_chain = list(facts()["topk_one_draft_backends"])
    if case.is_mla:
        one_chain += facts()["topk_one_draft_backends_mla"]
    if backend in one_chain:
        remedy = Remedy(_chain_of(max(values[STEPS] or 0, 1)))
        case.find("spec-topk-draft-backend", case.given_of([TOPK]) or [ALGORITHM], remedy, backend=backend, topk=topk)


def _without_attention_dp(case: Case) -> Remedy:
    return Remedy(remove=tuple(case.given_of(("enable_dp_attention", "attn_dp_size"))))


# ---- NGRAM ------------------------------------------------------------------------------------------


def _ngram(case: Case) -> None:
    values = case.values
    devices = next(row["devices"] for row in facts()["ngram_devices"] if case.holds(row["releases"]))
    if _device(case) not in devices:
        case.find("ngram-device", [ALGORITHM], _NO_SPECULATION, devices=", ".join(devices))
    _default_running_requests(case)
    if case.holds("<0.5.14"):
        values["disable_overlap_schedule"] = True
    _no_overlap_on_cpu(case)
    _no_mixed_chunk(case)
    if case.given(TOPK) and values[TOPK] != values["speculative_ngram_max_bfs_breadth"]:
        case.find("ngram-topk", [TOPK], Remedy(remove=(TOPK,)), breadth=values["speculative_ngram_max_bfs_breadth"])
    values[TOPK] = values["speculative_ngram_max_bfs_breadth"]
    if values[TOKENS] is None:
        values[TOKENS] = case.get("speculative_ngram_max_match_window_size") or 12
    if values[STEPS] is None and case.holds(">=0.5.14") and values[TOPK]:
        values[STEPS] = values[TOKENS] // values[TOPK]
    _ngram_corpus(case)
    topk, page, backend = values[TOPK], values["page_size"], values[MAIN]
    if topk > 1 and page > 1 and backend is not None and backend != "flashinfer":
        case.find(
            "ngram-page-backend",
            case.given_of(("speculative_ngram_max_bfs_breadth", "page_size", MAIN)) or [ALGORITHM],
            Remedy({"speculative_ngram_max_bfs_breadth": 1}),
            topk=topk,
            page=page,
            backend=backend,
        )
    if case.attention_dp:
        case.find("ngram-dp-attention", [ALGORITHM], _without_attention_dp(case))


def _ngram_corpus(case: Case) -> None:
    path = "speculative_ngram_external_corpus_path"
    budget = "speculative_ngram_external_sam_budget"
    most = "speculative_ngram_external_corpus_max_tokens"
    if case.get(path) is None:
        return
    room = case.values[TOKENS] - 1
    if case.values[budget] <= 0:
        case.find("ngram-corpus-budget", [path, budget], Remedy({budget: max(room, 1)}), value=case.values[budget])
    elif case.values[most] <= 0:
        case.find("ngram-corpus-tokens", [path, most], Remedy(remove=(most,)), value=case.values[most])
    elif case.values[budget] > room:
        remedy = Remedy({budget: room}) if room > 0 else Remedy(remove=(path, budget))
        case.find("ngram-corpus-room", [path, budget], remedy, value=case.values[budget], room=room)


# ---- DFLASH, DSPARK, UNO ------------------------------------------------------------------------------


def _dflash(case: Case) -> None:
    values = case.values
    if case.attention_dp:
        if case.applies("dflash-dp-attention"):
            case.find("dflash-dp-attention", [ALGORITHM], _without_attention_dp(case))
        elif not case.get("enable_dp_lm_head"):
            case.find("dflash-dp-lm-head", [ALGORITHM], Remedy({"enable_dp_lm_head": True}))
    if values["pp_size"] != 1:
        case.find("dflash-pp", [ALGORITHM, "pp_size"], Remedy({"pp_size": 1}))
    if values[DRAFT_PATH] is None:
        case.find("dflash-drafter", [ALGORITHM], _NO_SPECULATION)
    _one_step_one_path(case)
    block = case.get("speculative_dflash_block_size")
    if block is not None:
        if block <= 0:
            case.find(
                "dflash-block-range",
                ["speculative_dflash_block_size"],
                Remedy({"speculative_dflash_block_size": 16}),
                value=block,
            )
        elif values[TOKENS] is not None and values[TOKENS] != block:
            case.find(
                "dflash-block-tokens",
                ["speculative_dflash_block_size", TOKENS],
                Remedy({TOKENS: block}),
                block=block,
                tokens=values[TOKENS],
            )
        values[TOKENS] = block
    old_window = case.get(_OLD_WINDOW)
    if old_window is not None and old_window <= 0:
        case.find("dflash-window-range", [_OLD_WINDOW], Remedy(remove=(_OLD_WINDOW,)), value=old_window)
    if values[TOKENS] is None:
        values[TOKENS] = case.drafter.dflash_block_size or 16
    key = _WINDOW if case.get(_WINDOW) is not None else _OLD_WINDOW
    window = case.get(key)
    if window is not None and 0 < window < values[TOKENS]:
        case.find("dflash-window-block", [key], Remedy({key: values[TOKENS]}), window=window, block=values[TOKENS])
    _default_running_requests(case)
    if case.holds("<0.5.14"):
        values["disable_overlap_schedule"] = True
    if values["enable_mixed_chunk"] and case.holds("<0.5.19"):
        _no_mixed_chunk(case)


def _one_step_one_path(case: Case) -> None:
    """DFLASH and DSPARK draft a block at once: steps and topk are 1, whatever was asked."""
    changed = [key for key in (STEPS, TOPK) if case.given(key) and case.values[key] != 1]
    if changed:
        case.find(
            "block-drafter-numbers",
            changed,
            Remedy(remove=tuple(changed)),
            given=case.shown(changed),
            algorithm=case.algorithm,
        )
    case.values[STEPS] = case.values[TOPK] = 1


def _dspark(case: Case) -> None:
    values = case.values
    if not _device(case).startswith(("cuda", "npu", "xpu")):
        case.find("dspark-device", [ALGORITHM], _NO_SPECULATION)
    if case.attention_dp and not case.get("enable_dp_lm_head"):
        case.find("dspark-dp-lm-head", [ALGORITHM], Remedy({"enable_dp_lm_head": True}))
    if values["pp_size"] != 1 and (case.applies("dspark-pp") or case.get("disaggregation_mode") != "prefill"):
        rule = "dspark-pp" if case.applies("dspark-pp") else "dspark-pp-prefill"
        case.find(rule, [ALGORITHM, "pp_size"], Remedy({"pp_size": 1}))
    if values[DRAFT_PATH] is None:
        if case.target.bundles_dspark:
            values[DRAFT_PATH] = values["model_path"]
        else:
            case.find("dspark-drafter", [ALGORITHM], _NO_SPECULATION)
    _one_step_one_path(case)
    _dspark_tokens(case)
    _default_running_requests(case)


def _dspark_tokens(case: Case) -> None:
    values, block = case.values, case.get("speculative_dspark_block_size")
    if block is not None and block <= 0:
        case.find(
            "dspark-block-range",
            ["speculative_dspark_block_size"],
            Remedy(remove=("speculative_dspark_block_size",)),
            value=block,
        )
        return
    gamma = block if block is not None else case.drafter.dspark_gamma
    if gamma is None and values[TOKENS] is None:
        gamma = 7
    if gamma is not None:
        if values[TOKENS] is not None and values[TOKENS] != gamma + 1:
            case.find("dspark-tokens", [TOKENS], Remedy({TOKENS: gamma + 1}), tokens=values[TOKENS], gamma=gamma)
        values[TOKENS] = gamma + 1
    if values[TOKENS] < 2:
        case.find("dspark-tokens-range", [TOKENS], Remedy({TOKENS: 8}), tokens=values[TOKENS])


def _uno(case: Case) -> None:
    """The first checks of UNO, in order; the server stops at the first, and each one is enough not to start."""
    values = case.values
    if values[DRAFT_PATH] is not None:
        case.find("uno-drafter", [DRAFT_PATH], Remedy(remove=(DRAFT_PATH,)))
    if case.get("uno_lora_path") is None:
        case.find("uno-lora", [ALGORITHM], _NO_SPECULATION)
    for flag in ("enable_deterministic_inference", "enable_strict_thinking"):
        if case.get(flag):
            case.find("uno-incompatible", [flag], Remedy(remove=(flag,)), flag=case.spelt(flag))
    if values[TOKENS] is None or values[TOKENS] < 1:
        case.find("uno-tokens", [TOKENS], Remedy({TOKENS: 4}), tokens=values[TOKENS])
    if values["tp_size"] != 1 or values["pp_size"] != 1:
        case.find("uno-parallel", ["tp_size", "pp_size"], Remedy({"tp_size": 1, "pp_size": 1}))
    if case.attention_dp:
        case.find("uno-dp-attention", [ALGORITHM], _without_attention_dp(case))
    if prefill_and_decode(case) != ("fa3", "fa3") and values[MAIN] is not None:
        case.find("uno-backend", case.given_of(BACKENDS) or [ALGORITHM], Remedy({MAIN: "fa3"}))
    values["enable_mixed_chunk"] = False


def _frozen_kv_mtp(case: Case) -> None:
    _default_running_requests(case)
    if case.holds("<0.5.14"):
        case.values["disable_overlap_schedule"] = True
    _no_mixed_chunk(case)


_HANDLERS: dict[str, t.Callable[[Case], None]] = {
    "EAGLE": _eagle_family,
    "EAGLE3": _eagle_family,
    "STANDALONE": _eagle_family,
    "NGRAM": _ngram,
    "DFLASH": _dflash,
    "DSPARK": _dspark,
    "UNO": _uno,
    "FROZEN_KV_MTP": _frozen_kv_mtp,
}
