# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.systemd import environment_file, exec_start
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/opt/sglang/bin/python", "/opt/sglang/bin/python"),
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
    assert exec_start([word]) == written
    assert read_command(written) == [word]


@given(st.lists(TEXT, min_size=1, max_size=5))
def test_every_word_comes_back(words: list[str]) -> None:
    line = exec_start(words)
    assert "\n" not in line
    assert read_command(line) == words


def test_a_nul_character_and_an_empty_command_are_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        exec_start(["a\0b"])
    with pytest.raises(ValueError, match="at least one word"):
        exec_start([])
    with pytest.raises(ValueError, match="NUL"):
        environment_file({"A": "a\0b"})


def test_an_environment_file() -> None:
    assert environment_file({}) == ""
    assert environment_file({"A": "b", "C": 'd "e" $f \\ `g` 100%'}) == (
        'A="b"\nC="d \\"e\\" \\$f \\\\ \\`g\\` 100%"\n'
    )
