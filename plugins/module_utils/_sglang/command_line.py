# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Between an inventory's ``sglang_server_args`` and a command line, both ways."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
import typing as t

from .flags import Flag, FlagTable, ValueProblem, flag_table, inventory_key, parse_word, render

_LAUNCHER = re.compile(r"(sglang\.launch_server|launch_server\.py|sglang)\Z")


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
    for place, word in enumerate(words):
        if _LAUNCHER.search(word):
            rest = words[place + 1 :]
            return rest[1:] if rest[:1] == ["serve"] else rest
    if words and words[0].startswith("-"):
        return words
    raise CommandLineProblem("no sglang.launch_server or sglang serve in the command line")


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
