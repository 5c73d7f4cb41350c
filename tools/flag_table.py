# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack the server flags of many SGLang releases into the collection's one flag table.

Usage: python tools/flag_table.py FLAGS.jsonl.gz

The input has one JSON line per release, ``{"version": ..., "flags": {"--name": {...argparse fields...}}}``,
as read from that release's own argparse. The output, plugins/module_utils/_sglang/data/flags.json, holds every
flag once for each run of consecutive releases in which nothing about it changed.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.inferops.serving.plugins.module_utils._sglang.versions import Release  # noqa: E402

TABLE = ROOT / "plugins/module_utils/_sglang/data/flags.json"
FIELDS = ("names", "dest", "action", "type", "choices", "default", "nargs")


def pack(releases: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """``{version: {flag: argparse fields}}`` -> the table that :mod:`_sglang.flags` reads."""
    versions = sorted(releases, key=Release.parse)
    flags: dict[str, list[dict[str, Any]]] = {}
    for version in versions:
        for name, fields in releases[version].items():
            spec = {key: fields[key] for key in FIELDS if fields[key] is not None}
            runs = flags.setdefault(name, [])
            previous = versions[versions.index(version) - 1]
            if runs and runs[-1]["spec"] == spec and runs[-1]["last"] == previous:
                runs[-1]["last"] = version
            else:
                runs.append({"first": version, "last": version, "spec": spec})
    return {"releases": versions, "flags": dict(sorted(flags.items()))}


def dump(table: dict[str, Any]) -> str:
    """One line per run, so that a new release shows as a short diff."""
    lines = ["{", f'"releases": {json.dumps(table["releases"])},', '"flags": {']
    for name, runs in table["flags"].items():
        lines.append(f"{json.dumps(name)}: [")
        lines.append(",\n".join(json.dumps(run, sort_keys=True) for run in runs))
        lines.append("],")
    lines[-1] = "]"
    return "\n".join([*lines, "}", "}", ""])


def main(source: str) -> None:
    with gzip.open(source, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    TABLE.write_text(dump(pack({row["version"]: row["flags"] for row in rows})), encoding="utf-8")
    print(f"{TABLE.relative_to(ROOT)}: {len(rows)} releases, {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
