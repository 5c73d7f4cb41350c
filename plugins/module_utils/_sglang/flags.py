# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The server flags of every known SGLang release, and how one value is written for one flag.

The facts are data/flags.json: what each release's own argparse declares, kept once per run of releases.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import typing as t

from .data_files import load_json
from .versions import Release

#: Up to 0.5.13 argparse had other destinations for these, which SGLang renamed when it read them (from_cli_args).
_RENAMED = {
    "attention_context_parallel_size": "attn_cp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
    "moe_data_parallel_size": "moe_dp_size",
    "pipeline_parallel_size": "pp_size",
    "tensor_parallel_size": "tp_size",
}
_SIZES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True)
class Flag:
    """One server flag of one release, in argparse's terms."""

    name: str
    names: tuple[str, ...]
    dest: str
    action: str
    type: str | None
    choices: tuple[t.Any, ...] | None
    default: t.Any
    nargs: t.Any

    @property
    def is_switch(self) -> bool:
        """Takes no value: it is there or not."""
        return self.nargs == 0

    @property
    def negative(self) -> str | None:
        """The ``--no-...`` spelling, where there is one."""
        if self.action != "BooleanOptionalAction":
            return None
        return next((name for name in self.names if name.startswith("--no-")), None)

    @property
    def takes_many(self) -> bool:
        return self.nargs in ("+", "*")

    @property
    def is_deprecated(self) -> bool:
        return self.action.startswith("Deprecated")


class FlagTable:
    """The flags of one release."""

    def __init__(self, release: str, flags: t.Iterable[Flag]) -> None:
        self.release = release
        self.flags: dict[str, Flag] = {flag.name: flag for flag in flags}
        self._spellings: dict[str, Flag] = {name: flag for flag in self.flags.values() for name in flag.names}
        self._defaults: dict[str, t.Any] = {}
        for flag in self.flags.values():
            if flag.default != "==SUPPRESS==" and (flag.dest not in self._defaults or not flag.is_deprecated):
                self._defaults[flag.dest] = flag.default

    def find(self, key: str) -> Flag | None:
        """The flag that an inventory key names: ``tp_size``, ``tp-size`` or ``--tp-size``; aliases count.

        As in argparse an abbreviation names a flag where it is the beginning of one spelling only, so ``tp`` does.
        """
        word = spelling(key)
        if word in self._spellings:
            return self._spellings[word]
        begun = self.begun_with(word)
        return self._spellings[begun[0]] if len(begun) == 1 else None

    def begun_with(self, word: str) -> list[str]:
        """The spellings that begin so."""
        return [name for name in self._spellings if name.startswith(word)] if word.strip("-") else []

    def nearest(self, key: str) -> str | None:
        """The real flag whose spelling is closest to an unknown one, as an inventory key."""
        close = difflib.get_close_matches(spelling(key), self._spellings, n=1, cutoff=0.7)
        return inventory_key(close[0]) if close else None

    def by_dest(self, dest: str) -> Flag | None:
        """The flag that sets a destination; where several do, the one that is not deprecated."""
        found = [flag for flag in self.flags.values() if flag.dest == dest]
        return min(found, key=lambda flag: flag.is_deprecated, default=None)

    def defaults(self) -> dict[str, t.Any]:
        """Destination -> the value that argparse gives when the flag is absent."""
        return dict(self._defaults)


def spelling(key: str) -> str:
    """An inventory key as SGLang spells its flag."""
    return "--" + str(key).strip().lstrip("-").replace("_", "-")


def inventory_key(name: str) -> str:
    """A flag as the inventory spells it."""
    return name.lstrip("-").replace("-", "_")


def known_releases() -> tuple[str, ...]:
    """Releases whose flags are in the table, oldest first."""
    return tuple(load_json("flags.json")["releases"])


@functools.cache
def nearest_known(release: Release) -> str:
    """The newest known release that is not newer than this one (the oldest known one if all are newer)."""
    older = [known for known in known_releases() if Release.parse(known) <= release]
    return older[-1] if older else known_releases()[0]


@functools.cache
def flag_table(known: str) -> FlagTable:
    """The table of one known release.

    :raises KeyError: the release is not in :func:`known_releases`.
    """
    data = load_json("flags.json")
    order = {version: place for place, version in enumerate(data["releases"])}
    place = order[known]
    flags = []
    for name, runs in data["flags"].items():
        for run in runs:
            if order[run["first"]] <= place <= order[run["last"]]:
                flags.append(_flag(name, run["spec"]))
    return FlagTable(known, flags)


def releases_with(key: str) -> list[str]:
    """The known releases that have a flag of this spelling, oldest first."""
    wanted = spelling(key)
    data = load_json("flags.json")
    order = {version: place for place, version in enumerate(data["releases"])}
    found: set[str] = set()
    for runs in data["flags"].values():
        for run in runs:
            if wanted in run["spec"]["names"]:
                found.update(data["releases"][order[run["first"]] : order[run["last"]] + 1])
    return sorted(found, key=Release.parse)


def _flag(name: str, spec: t.Mapping[str, t.Any]) -> Flag:
    choices = spec.get("choices")
    dest = _RENAMED.get(spec["dest"], spec["dest"])
    own = spelling(dest)
    return Flag(
        # --tp-size rather than --tensor-parallel-size: the name that SGLang itself uses inside, where it may be given
        name=own if own in spec["names"] else name,
        names=tuple(spec["names"]),
        dest=dest,
        action=spec["action"],
        type=spec.get("type"),
        choices=None if choices is None else tuple(choices),
        default=spec.get("default"),
        nargs=spec.get("nargs"),
    )


class ValueProblem(ValueError):
    """A value that the flag does not take. The text says what it takes."""


def render(flag: Flag, value: t.Any) -> list[str]:
    """One inventory value as command line words; no words where the flag is left out.

    :raises ValueProblem: the flag does not take such a value.
    """
    if value is None:
        return []
    if flag.is_switch:
        if not isinstance(value, bool):
            raise ValueProblem(f"takes true or false, not {_shown(value)}")
        if value:
            return [flag.name]
        return [flag.negative] if flag.negative else []
    name = flag.name
    if flag.takes_many:
        words = [_word(flag, one) for one in (value if isinstance(value, (list, tuple)) else [value])]
        if flag.nargs == "+" and not words:
            raise ValueProblem("takes at least one value")
        return [name, *words]
    if flag.nargs == "?" and value is True:
        return [name]
    word = _word(flag, value)
    return [f"{name}={word}"] if word.startswith("-") else [name, word]


def convert(flag: Flag, value: t.Any) -> t.Any:
    """One inventory value as SGLang will hold it after parsing.

    :raises ValueProblem: the flag does not take such a value.
    """
    words = render(flag, value)
    if not words:
        return flag.default if value is None else False
    if flag.is_switch:
        return words[0] != flag.negative
    if flag.takes_many:
        return [parse_word(flag, word) for word in words[1:]]
    if len(words) == 2:
        return parse_word(flag, words[1])
    _name, equals, word = words[0].partition("=")
    return parse_word(flag, word) if equals else True


def parse_word(flag: Flag, word: str) -> t.Any:
    """One command line word as this flag's value.

    :raises ValueProblem: wrong type, or not one of the flag's choices.
    """
    try:
        value = _TYPES[flag.type or "str"](word)
    except (ValueError, OverflowError, RecursionError) as exc:
        raise ValueProblem(f"takes {_TYPE_NAMES.get(flag.type or 'str', 'a value')}, not {_shown(word)}") from exc
    if flag.choices is not None and value not in flag.choices:
        near = difflib.get_close_matches(str(value), [str(one) for one in flag.choices], n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueProblem(f"takes one of {', '.join(str(one) for one in flag.choices)}, not {_shown(value)}{hint}")
    return value


def _word(flag: Flag, value: t.Any) -> str:
    if isinstance(value, (dict, list, tuple)):
        if flag.type in ("loads", "json_list_type", "parse_cuda_graph_config_arg") or flag.takes_many:
            return json.dumps(value)
        raise ValueProblem(f"takes one value, not {_shown(value)}")
    if isinstance(value, bool):
        if flag.type in ("loads", "parse_cuda_graph_config_arg"):
            return json.dumps(value)
        raise ValueProblem(f"takes a value, not {_shown(value)}")
    word = str(value)
    if "\0" in word:
        raise ValueProblem("takes no text with a NUL character")
    parse_word(flag, word)
    return word


def _shown(value: t.Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _human_readable_int(word: str) -> int:
    text = word.strip()
    if text and text[-1] in _SIZES:
        return int(float(text[:-1]) * _SIZES[text[-1]])
    return int(text)


def _json_list(word: str) -> t.Any:
    value = json.loads(word)
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _nullable(word: str) -> str | None:
    return None if word in ("", "None") else word


_TYPES: dict[str, t.Callable[[str], t.Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "loads": json.loads,
    "json_list_type": _json_list,
    "human_readable_int": _human_readable_int,
    "nullable_str": _nullable,
    "parse_cuda_graph_backend_arg": str,
    "parse_cuda_graph_config_arg": json.loads,
}
_TYPE_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "loads": "JSON",
    "json_list_type": "a JSON list",
    "human_readable_int": "a whole number, or one such as 128k",
    "parse_cuda_graph_config_arg": "JSON",
}
