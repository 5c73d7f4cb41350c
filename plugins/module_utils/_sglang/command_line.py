# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Between an inventory's ``sglang_server_args`` and a command line, both ways."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import re
import shlex
import typing as t

from .flags import Flag, FlagTable, ValueProblem, flag_table, inventory_key, parse_word, render, spelling

_LAUNCH_MODULE = re.compile(r"(sglang\.launch_server|launch_server\.py)\Z")
_LAUNCH_COMMAND = re.compile(r"(.*/)?sglang\Z")
_NUMBER = re.compile(r"-\d+\Z|-\d*\.\d+\Z")


class CommandLineProblem(ValueError):
    """The real parser would end with exit status 2. The text is in its terms."""


def server_argv(args: t.Mapping[str, t.Any], table: FlagTable) -> list[str]:
    """The arguments after ``python -m sglang.launch_server``, in the mapping's order.

    :raises CommandLineProblem: an unknown flag, or a value that the flag does not take.
    """
    words: list[str] = []
    for key, value in args.items():
        flag = table.find(key)
        if flag is None:
            raise CommandLineProblem(f"SGLang {table.release} has no flag {key}")
        try:
            words += render(flag, value)
        except ValueProblem as exc:
            raise CommandLineProblem(f"{key} {exc}") from exc
    return words


def config_text(args: t.Mapping[str, str]) -> str:
    """A file for ``--config``, empty where there are no arguments.

    SGLang puts ``--`` before a key as it stands, so a key has the flag's dashes. The text is JSON, which is YAML as
    well as long as the values are ASCII.
    """
    return json.dumps({spelling(key).lstrip("-"): value for key, value in args.items()}) + "\n" if args else ""


def split_command(command: str) -> list[str]:
    """The server's arguments in a shell command line or an ExecStart: what follows the launcher.

    Continuation lines are joined. Words before the launcher (interpreter, wrappers, assignments) are dropped; a
    command that starts with a flag is taken whole.

    :raises CommandLineProblem: unbalanced quotes, or neither a launcher nor flags are there.
    """
    text = re.sub(r"\\\s*\n", " ", command).strip()
    text = re.sub(r"\AExecStart\s*=\s*[@:+!-]*", "", text)
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise CommandLineProblem(f"the command line cannot be split into words: {exc}") from exc
    launcher = find_launcher(words)
    if launcher is not None:
        return words[launcher[1] :]
    if words and words[0].startswith("-"):
        return words
    raise CommandLineProblem("no sglang.launch_server or sglang serve in the command line")


def find_launcher(words: t.Sequence[str]) -> tuple[int, int] | None:
    """Where the launcher stands in a command, and where the server's arguments begin; None if there is none."""
    for place, word in enumerate(words):
        if _LAUNCH_MODULE.search(word):
            return place, place + 1
    for place, word in enumerate(words):
        # a user, a folder or an image may have the launcher's name as well
        if _LAUNCH_COMMAND.match(word) and list(words[place + 1 : place + 2]) == ["serve"]:
            return place, place + 2
    return None


def parse_argv(argv: t.Sequence[str], table: FlagTable) -> dict[str, t.Any]:
    """Server arguments as an inventory mapping, read as this release's own argparse reads them.

    Prefixes, ``--flag=value`` and aliases are understood. Keys are the flags' own long names with underscores,
    in the order given; a flag given twice keeps its last value.

    :raises CommandLineProblem: what argparse refuses with exit status 2.
    """
    found: dict[str, t.Any] = {}
    namespace, unknown = _parser(table.release).parse_known_args(list(argv), argparse.Namespace(given=found))
    del namespace
    if unknown:
        raise CommandLineProblem(f"unrecognized arguments: {' '.join(unknown)}")
    return found


@dataclasses.dataclass(frozen=True)
class Reading:
    """What can be read of a command line, whether argparse would take it or not.

    ``strays`` counts the words that belong to no flag, by the flag that they stand behind ("" before the first one).
    """

    args: t.Mapping[str, t.Any]
    strays: t.Mapping[str, int]


def read_argv(argv: t.Sequence[str], table: FlagTable) -> Reading:
    """Server arguments as :func:`parse_argv` reads them, but nothing is refused.

    A flag that the release does not have, and a value that a flag does not take, are kept as they were written, for
    the judge to find fault with.
    """
    args: dict[str, t.Any] = {}
    strays: dict[str, int] = {}
    for group in _by_flag(argv):
        found: dict[str, t.Any] = {}
        try:
            unknown = _parser(table.release).parse_known_args(group, argparse.Namespace(given=found))[1]
        except CommandLineProblem:
            found.clear()
        if not found:
            key, value, unknown = _as_written(group, table)
            found = {key: value} if key else {}
        behind = next(iter(found), "")
        if unknown:
            strays[behind] = strays.get(behind, 0) + len(unknown)
        for key, value in found.items():
            args.pop(key, None)
            args[key] = value
    return Reading(args, strays)


def _by_flag(argv: t.Sequence[str]) -> list[list[str]]:
    """Each flag with the words that follow it; words before the first flag are a group of their own."""
    groups: list[list[str]] = []
    for word in argv:
        # argparse takes a negative number, a lone dash, and a word with a space, for values
        begins = word[:1] == "-" and word != "-" and not _NUMBER.match(word) and " " not in word.partition("=")[0]
        if begins or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def _as_written(group: t.Sequence[str], table: FlagTable) -> tuple[str, t.Any, list[str]]:
    """A flag's key, its value and the words left over, where argparse refuses them. The key is "" for no flag."""
    name, equals, word = group[0].partition("=")
    key = inventory_key(name) if name.startswith("-") else ""
    if not key:
        return "", None, list(group)
    meant = table.find(name) or _abbreviated(name, table)
    words = [word, *group[1:]] if equals else list(group[1:])
    values = [_plain(one) for one in words]
    if meant is not None:
        key = inventory_key(meant.name)
        if not meant.takes_many:
            return key, (values[0] if values else True), words[1:]
    return key, (values if len(values) > 1 else values[0] if values else True), []


def _abbreviated(name: str, table: FlagTable) -> Flag | None:
    meant = {flag.name: flag for flag in table.flags.values() if any(one.startswith(name) for one in flag.names)}
    return next(iter(meant.values())) if len(meant) == 1 else None


def _plain(word: str) -> t.Any:
    """A word as the YAML value that is written the same way."""
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        if str(value) == word:
            return value
    return word


class _Parser(argparse.ArgumentParser):
    """An argparse parser that raises instead of leaving the program."""

    def error(self, message: str) -> t.NoReturn:
        raise CommandLineProblem(message)


class _Record(argparse.Action):
    """Note which flag was given with which value, instead of setting a destination."""

    def __init__(self, flag: Flag, **options: t.Any) -> None:
        super().__init__(**options)
        self._flag = flag

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: t.Any,
        option_string: str | None = None,
    ) -> None:
        if self._flag.is_switch:
            values = option_string is None or not _is_negative(self._flag, option_string)
        key = inventory_key(self._flag.name)
        namespace.given.pop(key, None)
        namespace.given[key] = values


def _is_negative(flag: Flag, option: str) -> bool:
    # argparse hands over the full option string even where a prefix was written
    return flag.negative is not None and option == flag.negative


@functools.cache
def _parser(release: str) -> _Parser:
    parser = _Parser(prog="sglang", add_help=False)
    for flag in flag_table(release).flags.values():
        options: dict[str, t.Any] = {} if flag.is_switch else {"type": functools.partial(_typed, flag)}
        parser.add_argument(
            *flag.names,
            action=_Record,
            flag=flag,
            dest=flag.dest,
            default=argparse.SUPPRESS,
            nargs=flag.nargs,
            **options,
        )
    return parser


def _typed(flag: Flag, word: str) -> t.Any:
    try:
        return parse_word(flag, word)
    except ValueProblem as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc
