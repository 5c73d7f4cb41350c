# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a running SGLang answers, cut to what a client may rely on: the fixtures in ``tests/fixtures/engine/``."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Callable
from pathlib import Path

# (path, JSON to POST or None) -> (status, body); status 0 when nobody listens.
Ask = Callable[[str, dict[str, t.Any] | None], tuple[int, bytes]]

PROMPT = "a rack of"
# More verifications than a decode log interval has, after which the average acceptance length shows.
LONG = 60
_ADDRESSES = {
    "models": "/v1/models",
    "model_info": "/model_info",
    "server_info": "/server_info",
    "not_found": "/nowhere",
}
# Of the hundreds of keys in these answers, those that matter, wherever they are nested.
_KEPT = {
    "model_info": ("model_path", "served_model_name", "is_generation", "model_type"),
    "server_info": (
        "status",
        "version",
        "model_path",
        "served_model_name",
        "host",
        "port",
        "decode_log_interval",
        "speculative_algorithm",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_draft_model_path",
        "internal_states",
        "avg_spec_accept_length",
    ),
    "generate": (
        "text",
        "output_ids",
        "meta_info",
        "id",
        "finish_reason",
        "type",
        "length",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "e2e_latency",
        "spec_accept_length",
        "spec_accept_rate",
        "spec_verify_ct",
    ),
}
_KEPT_METRICS = (
    "sglang:spec_accept_length",
    "sglang:spec_accept_rate",
    "sglang:spec_num_steps",
    "sglang:spec_num_draft_tokens",
    "sglang:spec_verify_calls_total",
    "sglang:num_running_reqs",
    "sglang:prompt_tokens_total",
    "sglang:generation_tokens_total",
    "sglang:num_requests_total",
)


def answers(ask: Ask, name: str) -> dict[str, t.Any]:
    """Every address of a server that has generated little yet, then again what a long generation changes.

    :param name: the served model name.
    :returns: ``{"<answer>": {"status": ..., "body": ...}}``; the body of metrics is ``{"<metric>": value}``.
    """
    short = {"model": name, "max_tokens": 5, "temperature": 0}
    found = {answer: _answer(answer, *ask(path, None)) for answer, path in _ADDRESSES.items()}
    found["metrics"] = _metrics(*ask("/metrics", None))
    found["generate"] = _answer("generate", *ask("/generate", generation(5)))
    found["completions"] = _answer("completions", *ask("/v1/completions", {"prompt": PROMPT, **short}))
    chat = {"messages": [{"role": "user", "content": PROMPT}], **short}
    found["chat_completions"] = _answer("chat_completions", *ask("/v1/chat/completions", chat))
    found["generate_long"] = _answer("generate", *ask("/generate", generation(LONG)))
    found["server_info_measured"] = _answer("server_info", *ask("/server_info", None))
    found["metrics_measured"] = _metrics(*ask("/metrics", None))
    return found


def generation(tokens: int) -> dict[str, t.Any]:
    """The request for a greedy continuation of `PROMPT`."""
    return {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": tokens}}


def write(recorded: dict[str, t.Any], dest: Path) -> None:
    """One JSON file per answer."""
    dest.mkdir(parents=True, exist_ok=True)
    for name, answer in recorded.items():
        (dest / f"{name}.json").write_text(json.dumps(answer, indent=2, sort_keys=True) + "\n")


def _answer(name: str, status: int, body: bytes) -> dict[str, t.Any]:
    document = json.loads(body)
    return {"status": status, "body": _cut(document, _KEPT[name]) if name in _KEPT else document}


def _cut(document: t.Any, keys: tuple[str, ...]) -> t.Any:
    if isinstance(document, list):
        return [_cut(item, keys) for item in document]
    if isinstance(document, dict):
        return {key: _cut(document[key], keys) for key in keys if key in document}
    return document


def _metrics(status: int, body: bytes) -> dict[str, t.Any]:
    values = {}
    for line in body.decode().splitlines():
        name = line.partition("{")[0]
        if name in _KEPT_METRICS:
            values[name] = float(line.rpartition(" ")[2])
    return {"status": status, "body": values}
