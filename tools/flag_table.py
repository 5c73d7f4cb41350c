# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack the server flags of many SGLang releases into the collection's one flag table.

Usage: python tools/flag_table.py pack FLAGS.jsonl.gz
       python tools/flag_table.py add FLAGS.json

The input has one JSON line per release, ``{"version": ..., "flags": {"--name": {...argparse fields...}}}``, as
``tools/real_server_args.py flags`` prints it. ``pack`` makes the table of these releases alone, ``add`` adds them to
the stored one; a release that is in it already is replaced. The output, plugins/module_utils/_sglang/data/flags.json,
holds every flag once for each run of consecutive releases in which nothing about it changed.
"""

from __future__ import annotations

import argparse
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


def unpack(table: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """The table -> ``{version: {flag: argparse fields}}``, what :func:`pack` was given."""
    versions = table["releases"]
    releases: dict[str, dict[str, dict[str, Any]]] = {version: {} for version in versions}
    for name, runs in table["flags"].items():
        for run in runs:
            for version in versions[versions.index(run["first"]) : versions.index(run["last"]) + 1]:
                releases[version][name] = {key: run["spec"].get(key) for key in FIELDS}
    return releases


def dump(table: dict[str, Any]) -> str:
    """One line per run, so that a new release shows as a short diff."""
    lines = ["{", f'"releases": {json.dumps(table["releases"])},', '"flags": {']
    for name, runs in table["flags"].items():
        lines.append(f"{json.dumps(name)}: [")
        lines.append(",\n".join(json.dumps(run, sort_keys=True) for run in runs))
        lines.append("],")
    lines[-1] = "]"
    return "\n".join([*lines, "}", "}", ""])


def read(source: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """The releases of a file, packed by gzip or not."""
    text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    return {row["version"]: row["flags"] for row in map(json.loads, text.splitlines())}


def main(job: str, source: str, stored: Path = TABLE) -> None:
    releases = read(Path(source))
    if job == "add":
        releases = {**unpack(json.loads(stored.read_text(encoding="utf-8"))), **releases}
    stored.write_text(dump(pack(releases)), encoding="utf-8")
    print(f"{stored.name}: {len(releases)} releases, {stored.stat().st_size} bytes")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("job", choices=("pack", "add"))
    options.add_argument("source", help="JSON lines, one per release")
    main(**vars(options.parse_args()))
