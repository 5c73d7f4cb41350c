# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.systemd import (
    environment_file,
    exec_start,
    read_words,
)
from ansible_collections.inferops.serving.plugins.module_utils._server.systemd import (
    read_environment as environment_read,
)
from hypothesis import given
from hypothesis import strategies as st

PROGRAM = "/opt/sglang/bin/python"
TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=30)


def read_command(line: str) -> list[str]:
    """A command line as systemd.service(5) and systemd.syntax(7) say that systemd reads it."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    place = 0
    while place < len(line):
        char = line[place]
        if not quote and char in " \t\n":
            if word is not None:
                words.append(word)
                word = None
        elif not quote and char in "\"'":
            quote, word = char, word or ""
        elif quote and char == quote:
            quote = ""
        elif char == "\\":
            place += 1
            code = line[place]
            if code == "x":
                word = (word or "") + chr(int(line[place + 1 : place + 3], 16))
                place += 2
            else:
                word = (word or "") + {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)
        elif char in "%$":
            assert line[place + 1] == char, "a single one would be expanded"
            word = (word or "") + char
            place += 1
        else:
            word = (word or "") + char
        place += 1
    assert not quote
    return words if word is None else [*words, word]


def read_environment(text: str) -> dict[str, str]:
    """An environment file whose values are all in double quotes, as systemd.exec(5) says that systemd reads it."""
    found = re.findall(r'([A-Za-z0-9_]+)="((?:[^"\\]|\\.)*)"\n', text, re.DOTALL)
    assert "".join(f'{name}="{value}"\n' for name, value in found) == text, "something besides variables"
    # any other backslash stays in the value
    return {name: re.sub(r'\\(["\\`$])', r"\1", value) for name, value in found}


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/srv/kimi-k2.6", "/srv/kimi-k2.6"),
        ("--tp-size", "--tp-size"),
        ("100%", "100%%"),
        ("$HOME", '"$$HOME"'),
        ("a b", '"a b"'),
        ("", '""'),
        ("it's", '"it\'s"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("two\nlines", '"two\\nlines"'),
        (";", '";"'),
        ("Grüße", '"Grüße"'),
        ('{"a": 1}', '"{\\"a\\": 1}"'),
    ],
)
def test_words_as_systemd_wants_them(word: str, written: str) -> None:
    assert exec_start([PROGRAM, word]) == f"{PROGRAM} {written}"
    assert read_command(written) == [word]


@given(st.lists(TEXT, max_size=5))
def test_every_word_comes_back(words: list[str]) -> None:
    line = exec_start([PROGRAM, *words])
    assert "\n" not in line
    assert read_command(line) == [PROGRAM, *words]


@pytest.mark.parametrize(
    "program", ["python", "-/bin/python", "@/bin/python", "+/bin/python", "!/bin/python", "/a$b", ""]
)
def test_a_program_that_systemd_would_take_for_something_else(program: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        exec_start([program, "--tp-size", "8"])


def test_a_nul_character_and_an_empty_command_are_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        exec_start([PROGRAM, "a\0b"])
    with pytest.raises(ValueError, match="at least one word"):
        exec_start([])
    with pytest.raises(ValueError, match="NUL"):
        environment_file({"A": "a\0b"})


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "A-B", "A\n"])
def test_a_name_that_systemd_would_drop(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        environment_file({name: "b"})


def test_an_environment_file() -> None:
    assert environment_file({}) == ""
    assert environment_file({"A": "b", "C": 'd "e" $f \\ `g` 100%'}) == (
        'A="b"\nC="d \\"e\\" \\$f \\\\ \\`g\\` 100%"\n'
    )


@given(st.dictionaries(st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,9}\Z"), TEXT, max_size=4))
def test_every_variable_comes_back(variables: dict[str, str]) -> None:
    assert read_environment(environment_file(variables)) == variables


PLAIN = st.text(st.characters(blacklist_characters="\0%$", blacklist_categories=["Cs"]), max_size=30)


@given(st.lists(PLAIN, max_size=4))
def test_words_written_are_read_back(words: list[str]) -> None:
    assert read_words(exec_start([PROGRAM, *words])) == [PROGRAM, *words]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("a  'b c'\t\"d 'e\" f\"g h\"i ''", ["a", "b c", "d 'e", "fg hi", ""]),
        ("\\x41\\102\\u00e9\\U0001f600\\s\\n\\\\ \\'", ["AB\u00e9\U0001f600 \n\\", "'"]),
    ],
)
def test_words_read(line: str, words: list[str]) -> None:
    assert read_words(line) == words


@pytest.mark.parametrize("line", ["'a", 'a "b', "a\\", "\\x00", "\\ud800", "\\U00110000"])
def test_words_that_systemd_cannot_read(line: str) -> None:
    with pytest.raises(ValueError, match=r"quote|backslash|escape"):
        read_words(line)


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), TEXT, max_size=4))
def test_an_environment_file_is_read_as_it_was_meant(variables: dict[str, str]) -> None:
    assert environment_read(environment_file(variables)) == variables
