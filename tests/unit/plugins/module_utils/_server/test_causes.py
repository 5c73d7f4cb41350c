# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known causes, told from tracebacks in the form of the real ones and from the recorded ends of the real parser."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.causes import exceptions, explain, in_words

ROOT = Path(__file__).resolve().parents[5]
RECORDED = ROOT / "tests/fixtures/verdicts/recorded.jsonl.gz"


def traceback(file: str, function: str, raised: str) -> str:
    return (
        "Traceback (most recent call last):\n"
        '  File "/opt/sglang/launch_server.py", line 50, in <module>\n'
        "    server_args = prepare_server_args(sys.argv[1:])\n"
        f'  File "/opt/sglang/srt/{file}", line 3598, in {function}\n'
        "    assert (\n"
        f"{raised}\n"
    )


EMPTY = traceback("server_args.py", "_handle_speculative_decoding", "AssertionError")
NONE = "TypeError: '>' not supported between instances of 'NoneType' and 'int'"
HOOK = "arg_groups/speculative_hook.py"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (EMPTY, "spec-steps-missing"),
        (traceback(HOOK, "_handle_eagle_family", "AssertionError"), "spec-steps-missing"),
        (traceback("server_args.py", "_handle_speculative_decoding", NONE), "spec-topk-missing"),
        (traceback(HOOK, "_handle_eagle_family", NONE), "spec-topk-missing"),
        ("launch_server.py: error: unrecognized arguments: --spec-steps 3", "flag-unknown"),
        (traceback("pool.py", "alloc", "torch.OutOfMemoryError: CUDA out of memory. Tried"), "cuda-out-of-memory"),
        (traceback("loader.py", "prepare", "RuntimeError: Cannot find any model weights with `/m`"), "weights-missing"),
        (
            "[Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
            "port-in-use",
        ),
        ("[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8)", "collective-timeout"),
        (traceback("a.py", "f", "ImportError: libcuda.so.1: cannot open shared object file"), "cuda-driver-missing"),
        (traceback("hub.py", "v", "OSError: Repo id must be in the form 'a/b': '/srv/gone'."), "model-path-gone"),
        (traceback("cache.py", "put", "OSError: [Errno 28] No space left on device"), "disk-full"),
        ("sglang-a.service: A process of this unit has been killed by the OOM killer.", "memory-killed"),
    ],
)
def test_what_is_known(text: str, cause: str) -> None:
    assert [one.id for one in explain(text)] == [cause]


@pytest.mark.parametrize(
    "text",
    [
        traceback("scheduler.py", "run", "AssertionError"),
        traceback("scheduler.py", "run", NONE),
        "AssertionError",
        "INFO: loading",
        "",
    ],
)
def test_nothing_is_said_of_what_is_not_known(text: str) -> None:
    assert explain(text) == []


def test_all_exceptions_of_a_chain_are_looked_at() -> None:
    inner = traceback("cache.py", "put", "OSError: [Errno 28] No space left on device")
    chain = f"{inner}\nDuring handling of the above exception, another exception occurred:\n\n{EMPTY}"
    assert exceptions(chain) == [
        "cache.py:put: OSError: [Errno 28] No space left on device",
        "server_args.py:_handle_speculative_decoding: AssertionError:",
    ]
    assert [one.id for one in explain(chain)] == ["disk-full", "spec-steps-missing"]


def test_the_words_name_the_rule_and_its_page() -> None:
    words = in_words(explain(EMPTY))
    place = "[spec-steps-missing, docs/rules.md#spec-steps-missing]"
    assert words == f"Known cause: Topk or draft tokens are given, steps are not. {place}"


def test_every_page_that_is_named_has_that_place() -> None:
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("docs/rules.md", "docs/gate.md")}
    for cause in _all():
        page, _hash, place = cause.partition("#")
        assert f"### {place}\n" in pages[page]


def _all() -> list[str]:
    from ansible_collections.inferops.serving.plugins.module_utils._server import causes

    return [cause.page for _pattern, cause in causes._known()]


def test_a_recorded_end_of_the_real_parser_has_one_cause_at_most_and_of_its_exception() -> None:
    from ansible_collections.inferops.serving.plugins.module_utils._sglang.findings import rules

    seen: set[tuple[str, str]] = set()
    explained = 0
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        for line in lines:
            end = json.loads(line)
            if end["ok"] or (end["exception"], end["message"]) in seen:
                continue
            seen.add((end["exception"], end["message"]))
            text = end["message"]
            if end["exception"] != "SystemExit":
                text = traceback(HOOK, "_handle_eagle_family", f"{end['exception']}: {text}".rstrip(": "))
            causes = explain(text)
            assert len(causes) <= 1, text
            explained += len(causes)
            for cause in causes:
                if cause.id in rules():
                    assert rules()[cause.id].exception == end["exception"], text
    assert explained > 0.9 * len(seen), f"{explained} of {len(seen)}"
