# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the planner's verdicts with recorded verdicts of the real ServerArgs.

Usage: python tools/verdicts.py RECORDED.jsonl.gz MODELS_DIR [--show N]

A recorded line holds version, gpu, argv, perhaps env, and either ``ok: true`` with resolved, or ``ok: false``
with stage, exception and message. MODELS/x in argv is MODELS_DIR/x with its config.json. Prints one line
``agree N of M`` and exits with 1 on any mismatch.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.inferops.serving.plugins.module_utils._sglang.command_line import (  # noqa: E402
    CommandLineProblem,
    parse_argv,
)
from ansible_collections.inferops.serving.plugins.module_utils._sglang.findings import REFUSED  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import flag_table  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.hardware import read_gpu  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.judge import judge  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.models import Model  # noqa: E402
from ansible_collections.inferops.serving.plugins.module_utils._sglang.versions import Release  # noqa: E402

PREFIX = "MODELS/"


def verdict(row: dict[str, Any], models: Path) -> dict[str, Any]:
    """The planner's answer to one recorded command line, in the recorded form."""
    try:
        args = parse_argv(row["argv"], flag_table(row["version"]))
    except CommandLineProblem as exc:
        return {"ok": False, "stage": "argparse", "exception": "SystemExit", "message": str(exc)}
    report = judge(
        args,
        Release.parse(row["version"]),
        read_gpu(row["gpu"]),
        read_model(args.get("model_path"), models),
        read_model(args.get("speculative_draft_model_path"), models),
        row.get("env"),
    )
    refused = [finding for finding in report.findings if finding.outcome == REFUSED and finding.exception]
    if refused:
        return {"ok": False, "stage": refused[0].stage, "exception": refused[0].exception, "rule": refused[0].rule}
    return {"ok": True, "resolved": {key: report.resolved.get(key) for key in row.get("resolved", {})}}


def read_model(path: Any, models: Path) -> Model | None:
    """The model that a recorded path names; None where no path is given."""
    if path is None:
        return None
    config = models / str(path).removeprefix(PREFIX) / "config.json"
    return Model(config=json.loads(config.read_text())) if config.is_file() else Model(is_missing=True)


def differs(row: dict[str, Any], answer: dict[str, Any]) -> str | None:
    """What is different between a recorded verdict and the planner's, or None."""
    if row["ok"] != answer["ok"]:
        return f"recorded {_brief(row)}, planned {_brief(answer)}"
    if not row["ok"]:
        same = (row["stage"], row["exception"]) == (answer["stage"], answer["exception"])
        return None if same else f"recorded {_brief(row)}, planned {_brief(answer)}"
    wrong = [key for key, value in row["resolved"].items() if answer["resolved"][key] != value]
    return "; ".join(f"{key} {row['resolved'][key]}, planned {answer['resolved'][key]}" for key in wrong) or None


def _brief(verdict: dict[str, Any]) -> str:
    return "starts" if verdict["ok"] else f"{verdict['stage']} {verdict['exception']} {verdict.get('message', '')[:80]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recorded")
    parser.add_argument("models", type=Path)
    parser.add_argument("--show", type=int, default=20)
    options = parser.parse_args()
    total = 0
    wrong: collections.Counter[str] = collections.Counter()
    examples: dict[str, str] = {}
    with gzip.open(options.recorded, "rt", encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            total += 1
            found = differs(row, verdict(row, options.models))
            if found:
                wrong[found] += 1
                examples.setdefault(found, f"{row['version']} {row['gpu']} {row['id']}: {' '.join(row['argv'])}")
    for found, count in wrong.most_common(options.show):
        print(f"{count:5} {found}\n      {examples[found]}")
    print(f"agree {total - wrong.total()} of {total}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
