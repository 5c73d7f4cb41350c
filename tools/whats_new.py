# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell what a new SGLang release changed for the planner.

Usage: python tools/whats_new.py OLD.whl NEW.whl
       python tools/whats_new.py --verdicts OLD.jsonl NEW.jsonl

From two wheels, which are read and not imported: every refusal that speaks of speculation and is new, gone or changed,
with the conditions it stands under, and every server flag that changed, where the flag table has both releases. With
``--verdicts``, from what ``tools/real_server_args.py verdicts`` printed in two environments: where verdicts moved.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gzip
import json
import re
import signal
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Also run as a script, where the checkout is not on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.flag_table import TABLE, unpack

SOURCES = re.compile(r"sglang/srt/(server_args|arg_groups/.*)\.py")
WHEEL = re.compile(r"sglang-(?P<version>[^-]+)-.*\.whl")
SPECULATION = re.compile(r"specul|draft|eagle|ngram|dflash|dspark", re.IGNORECASE)
#: Names for the arguments; which one is used depends on the function and the release.
HOLDERS = ("self", "args", "server_args", "cfg", "view")
VIEWS = ("resolved_view", "resolving_view")


@dataclass(frozen=True)
class Refusal:
    """One raise or assert, and the conditions around it from the outside in."""

    statement: str
    guards: tuple[str, ...]
    function: str
    place: str

    @property
    def is_of_speculation(self) -> bool:
        return any(SPECULATION.search(text) for text in (self.statement, self.function, *self.guards))

    def __str__(self) -> str:
        conditions = [f"    if {guard}" for guard in self.guards]
        return "\n".join([f"{self.place} {self.function}", *conditions, f"        {self.statement}"])


class _Plain(ast.NodeTransformer):
    """``cfg.page_size`` and ``resolved_view(server_args).page_size`` -> ``page_size``."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        holder = node.value
        if isinstance(holder, ast.Call) and isinstance(holder.func, ast.Name) and holder.func.id in VIEWS:
            return ast.Name(node.attr)
        if isinstance(holder, ast.Name) and holder.id in HOLDERS:
            return ast.Name(node.attr)
        return self.generic_visit(node)


def refusals(sources: dict[str, str]) -> list[Refusal]:
    """Every refusal that speaks of speculation, in these files by their names."""
    found = []
    for name, text in sorted(sources.items()):
        tree = _Plain().visit(ast.parse(text))
        found += [refusal for refusal in _walk(tree.body, name, "", ()) if refusal.is_of_speculation]
    return found


def _walk(body: Iterable[ast.AST], name: str, function: str, guards: tuple[str, ...]) -> Iterator[Refusal]:
    for node in body:
        if isinstance(node, (ast.Raise, ast.Assert)):
            yield Refusal(ast.unparse(node), guards, function, f"{name}:{node.lineno}")
        elif isinstance(node, (ast.If, ast.While)):
            condition = ast.unparse(node.test)
            yield from _walk(node.body, name, function, (*guards, condition))
            yield from _walk(node.orelse, name, function, (*guards, f"not ({condition})"))
        elif isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "anything"
            yield from _walk(node.body, name, function, (*guards, f"{caught} was raised"))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _walk(node.body, name, node.name, ())
        elif isinstance(node, (ast.stmt, ast.match_case)):
            yield from _walk(ast.iter_child_nodes(node), name, function, guards)


@dataclass
class Changes:
    """Refusals of the new release only, of the old one only, and those that are the old ones in another form."""

    new: list[Refusal]
    gone: list[Refusal]
    changed: list[tuple[Refusal, Refusal]]


def compare(old: Iterable[Refusal], new: Iterable[Refusal]) -> Changes:
    """What became of each refusal. A move to another file, function or line is no change."""
    before, after = list(old), list(new)
    _pairs(before, after, lambda refusal: (refusal.statement, refusal.guards))
    changed = _pairs(before, after, lambda refusal: refusal.statement)
    changed += _pairs(before, after, lambda refusal: refusal.guards and (refusal.function, refusal.guards))
    return Changes(after, before, changed)


def _pairs(old: list[Refusal], new: list[Refusal], key: Callable[[Refusal], Any]) -> list[tuple[Refusal, Refusal]]:
    """Take refusals with the same key out of both lists, in their order. An empty key is nobody's."""
    waiting: dict[Any, list[Refusal]] = {}
    for refusal in new:
        waiting.setdefault(key(refusal), []).append(refusal)
    pairs = [(refusal, waiting[key(refusal)].pop(0)) for refusal in old if key(refusal) and waiting.get(key(refusal))]
    for before, after in pairs:
        old.remove(before)
        new.remove(after)
    return pairs


def read_wheel(wheel: Path) -> dict[str, str]:
    """The files of a wheel that judge server arguments."""
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name).decode() for name in packed.namelist() if SOURCES.fullmatch(name)}


def flag_changes(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[str]:
    """A line for each flag that is new, gone or another one."""
    lines = [f"new: {name}" for name in sorted(new.keys() - old.keys())]
    lines += [f"gone: {name}" for name in sorted(old.keys() - new.keys())]
    for name in sorted(old.keys() & new.keys()):
        lines += [
            f"changed: {name} {field}: {_change(value, new[name][field])}"
            for field, value in old[name].items()
            if value != new[name][field] and not (field == "choices" and _same_members(value, new[name][field]))
        ]
    return lines


def _same_members(old: list[Any] | None, new: list[Any] | None) -> bool:
    """Where SGLang declares choices as a set, their order is chance."""
    return bool(old and new) and sorted(map(str, old or ())) == sorted(map(str, new or ()))


def _change(old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list):
        more, less = [one for one in new if one not in old], [one for one in old if one not in new]
        return " ".join([*(f"+{one}" for one in more), *(f"-{one}" for one in less)])
    return f"{old} -> {new}"


def moved(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """What is different between two verdicts on one command line, or None."""
    if not (old["ok"] and new["ok"]):
        before, after = _brief(old), _brief(new)
        return None if before == after else f"{before} -> {after}"
    keys = [key for key, value in old["resolved"].items() if new["resolved"].get(key) != value]
    return "; ".join(f"{key} {old['resolved'][key]} -> {new['resolved'].get(key)}" for key in keys) or None


def _brief(verdict: dict[str, Any]) -> str:
    return "starts" if verdict["ok"] else f"{verdict['stage']} {verdict['exception']}"


def read_verdicts(path: Path) -> dict[str, dict[str, Any]]:
    """Recorded verdicts by what was asked."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [json.loads(line) for line in text.splitlines()]
    return {json.dumps([row["gpu"], row["argv"], row.get("env") or {}], sort_keys=True): row for row in rows}


def tell_verdicts(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[str]:
    """The report of ``--verdicts``: each kind of move with its number and one command line."""
    both = [question for question in old if question in new]
    kinds: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for question in both:
        move = moved(old[question], new[question])
        if move:
            kinds[move].append(new[question])
    lines = []
    for move, rows in sorted(kinds.items(), key=lambda kind: -len(kind[1])):
        example = rows[0]
        lines += [f"{len(rows):5} {move}", f"      {example['gpu']}: {' '.join(example['argv'])}"]
        lines += [f"      {example['message']}"] if example.get("message") else []
    count = sum(map(len, kinds.values()))
    return [*lines, f"moved {count} of {len(both)}; {len(old) + len(new) - 2 * len(both)} are in one file only"]


def tell_wheels(old: Path, new: Path) -> list[str]:
    """The report on two wheels."""
    changes = compare(refusals(read_wheel(old)), refusals(read_wheel(new)))
    lines = []
    for title, found in (("new", changes.new), ("gone", changes.gone)):
        lines += [f"{title}: {refusal}" for refusal in found]
    lines += [f"changed: {before}\n  to: {after}" for before, after in changes.changed]
    lines.append(f"refusals: {len(changes.new)} new, {len(changes.gone)} gone, {len(changes.changed)} changed")
    releases = unpack(json.loads(TABLE.read_text(encoding="utf-8")))
    versions = [match["version"] if (match := WHEEL.fullmatch(path.name)) else path.name for path in (old, new)]
    unknown = [version for version in versions if version not in releases]
    if unknown:
        return [*lines, f"flags: not compared, the table has no {' and no '.join(unknown)}"]
    flags = flag_changes(*(releases[version] for version in versions))
    return [*lines, *(f"flag {line}" for line in flags), f"flags: {len(flags)} changes"]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--verdicts", action="store_true", help="compare recorded verdicts instead of wheels")
    options = parser.parse_args(argv)
    if options.verdicts:
        lines = tell_verdicts(read_verdicts(options.old), read_verdicts(options.new))
    else:
        lines = tell_wheels(options.old, options.new)
    print("\n".join(lines))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads may have seen enough
    main()
