# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Words as systemd reads them: ExecStart arguments and the lines of an environment file written, words read back.

The rules are those of systemd.service(5), "Command lines", systemd.syntax(7), "Quoting", and systemd.exec(5),
"EnvironmentFile".
"""

from __future__ import annotations

import re
import typing as t

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# In these no character means anything to systemd, but for the percent sign that is doubled everywhere.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "s": " ", "t": "\t", "v": "\v"}
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def exec_start(words: t.Sequence[str]) -> str:
    """A command line for ExecStart=. Nothing in it is expanded: % and $ reach the program as they are.

    :raises ValueError: a word holds a NUL character, or the program is none that systemd can be told exactly: it reads
        ``@ - : + !`` in front of it as orders, also within quotes, and takes ``$$`` in it for two dollar signs.
    """
    if not words:
        raise ValueError("a command line has at least one word")
    if not words[0].startswith("/") or "$" in words[0]:
        raise ValueError(f"the program is an absolute path without a dollar sign, not {words[0]!r}")
    return " ".join(_quoted(word) for word in words)


def read_words(text: str) -> list[str]:
    """The words of a setting such as ExecStart= or Environment=, without quotes and escapes.

    Specifiers and variables (``%i``, ``$NAME``) are left as they stand.

    :raises ValueError: a quote is not closed, or an escape names no character.
    """
    words: list[str] = []
    word: str | None = None
    quote = ""
    place = 0
    while place < len(text):
        char = text[place]
        if char == "\\":
            found = _ESCAPE.match(text, place)
            if found is None:
                raise ValueError("a backslash ends the line")
            word = (word or "") + _escaped(found)
            place = found.end()
            continue
        place += 1
        if quote:
            if char == quote:
                quote = ""
            else:
                word = (word or "") + char
        elif char in "\"'":
            quote, word = char, word or ""
        elif char not in " \t\n\r":
            word = (word or "") + char
        elif word is not None:
            words.append(word)
            word = None
    if quote:
        raise ValueError("a quote is not closed")
    return words if word is None else [*words, word]


def _escaped(found: re.Match[str]) -> str:
    byte, octal, short, long, char = found.groups()
    if char is not None:
        return _ESCAPED.get(char, char)
    number = int(octal, 8) if octal else int(byte or short or long, 16)
    if number == 0 or number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise ValueError("an escape names no character")
    return chr(number)


def environment_file(variables: t.Mapping[str, str]) -> str:
    """The text of an EnvironmentFile=, one variable a line, in the mapping's order.

    :raises ValueError: a value holds a NUL character, or a name is none that systemd takes.
    """
    for name in variables:
        if not _NAME.match(name):
            raise ValueError(f"a variable of the environment has letters, digits and _ for a name, not {name!r}")
    return "".join(f"{name}={_environment_value(value)}\n" for name, value in variables.items())


def read_environment(text: str) -> dict[str, str]:
    """The variables of an environment file as :func:`environment_file` writes it.

    :raises ValueError: a quote is not closed, or an escape names no character.
    """
    return _pairs(read_words(text))


def read_properties(shown: str) -> dict[str, str]:
    """The properties that ``systemctl show`` writes of a unit, one a line."""
    return _pairs(shown.splitlines())


def _pairs(texts: t.Iterable[str]) -> dict[str, str]:
    parted = (one.partition("=") for one in texts)
    return {name: value for name, _equals, value in parted if name}


def _quoted(word: str) -> str:
    if "\0" in word:
        raise ValueError(f"no program takes a NUL character: {word!r}")
    if _PLAIN.match(word):
        return word.replace("%", "%%")
    escaped = "".join(_ESCAPES.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 32 else char) for char in word)
    return '"' + escaped.replace("%", "%%").replace("$", "$$") + '"'


def _environment_value(value: str) -> str:
    if "\0" in value:
        raise ValueError("no environment takes a NUL character")
    return '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'
