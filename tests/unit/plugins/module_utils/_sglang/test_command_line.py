# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._sglang.command_line import (
    CommandLineProblem,
    parse_argv,
    read_argv,
    server_argv,
    split_command,
)
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import Flag, flag_table, inventory_key
from hypothesis import given
from hypothesis import strategies as st

TABLE = flag_table("0.5.23")
TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


def test_prefixes_aliases_and_equals_are_understood() -> None:
    argv = ["--model", "/m", "--tp=8", "--speculative-algo", "EAGLE3", "--trust-remote-code", "--tp-size", "4"]
    assert parse_argv(argv, TABLE) == {
        "model_path": "/m",
        "speculative_algorithm": "EAGLE3",
        "trust_remote_code": True,
        "tp_size": 4,
    }


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--speculative-draft", "/d"], "ambiguous option"),
        (["--tp", "eight"], "whole number"),
        (["--model-path"], "expected one argument"),
        (["--kv-cache-dtype", "fp8"], "takes one of"),
    ],
)
def test_what_argparse_refuses(argv: list[str], words: str) -> None:
    with pytest.raises(CommandLineProblem, match=words):
        parse_argv(argv, TABLE)


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m sglang.launch_server --tp 8 --model-path '/a b'",
        "sglang serve --tp 8 --model-path '/a b'",
        "ExecStart=/opt/venv/bin/python -m sglang.launch_server --tp 8 \\\n  --model-path '/a b'",
        "CUDA_VISIBLE_DEVICES=0 numactl -N 0 python -m sglang.launch_server --tp 8 --model-path '/a b'",
        "--tp 8 --model-path '/a b'",
        "sudo -u sglang python -m sglang.launch_server --tp 8 --model-path '/a b'",
    ],
)
def test_the_servers_words_in_a_command(command: str) -> None:
    assert split_command(command) == ["--tp", "8", "--model-path", "/a b"]


@pytest.mark.parametrize("command", ["", "ls -l", "python -m sglang.launch_server 'open"])
def test_no_server_in_a_command(command: str) -> None:
    with pytest.raises(CommandLineProblem):
        split_command(command)


def test_an_unknown_flag_is_not_written() -> None:
    with pytest.raises(CommandLineProblem, match="has no flag no_such"):
        server_argv({"no_such": 1}, TABLE)


def _values(flag: Flag) -> st.SearchStrategy[Any]:
    if flag.is_switch:
        return st.booleans() if flag.negative else st.just(True)
    one: st.SearchStrategy[Any]
    if flag.choices is not None:
        one = st.sampled_from(flag.choices)
    elif flag.type in ("int", "human_readable_int"):
        one = st.integers(-(2**40), 2**40)
    elif flag.type == "float":
        one = st.floats(allow_nan=False, allow_infinity=False)
    elif flag.type in ("loads", "parse_cuda_graph_config_arg"):
        one = st.dictionaries(TEXT, st.integers() | TEXT | st.none())
    elif flag.type == "json_list_type":
        one = st.lists(st.integers() | TEXT)
    elif flag.type == "nullable_str":
        one = TEXT.filter(lambda text: text not in ("", "None"))
    else:
        one = TEXT
    if flag.takes_many:
        # a word that looks like a flag ends the list in argparse, whatever was meant
        return st.lists(one.filter(lambda word: not str(word).startswith("-")), min_size=1, max_size=3)
    return one


@given(st.data())
def test_writing_and_reading_are_inverse(data: st.DataObject) -> None:
    flags = data.draw(
        st.lists(st.sampled_from(list(TABLE.flags.values())), unique_by=lambda flag: flag.name, max_size=6)
    )
    args = {inventory_key(flag.name): data.draw(_values(flag), label=flag.name) for flag in flags}
    assert parse_argv(server_argv(args, TABLE), TABLE) == args


FLAGS = st.sampled_from([name for flag in TABLE.flags.values() for name in flag.names])
ARGV = st.lists(FLAGS | st.sampled_from(["8", "-1", "-", "--", "a b", "- a", "--x y", "{}", "--tp=4", "--tp"]) | TEXT)


@given(ARGV)
def test_reading_refuses_nothing_and_else_agrees_with_argparse(argv: list[str]) -> None:
    reading = read_argv(argv, TABLE)
    try:
        expected = parse_argv(argv, TABLE)
    except CommandLineProblem:
        return
    assert list(reading.args.items()) == list(expected.items())
    assert not reading.strays


def test_reading_keeps_what_argparse_refuses() -> None:
    argv = ["stray", "--no-such", "1", "--tp", "eight", "--trust-remote-code", "true", "--port", "--model-path", "/m"]
    reading = read_argv(argv, TABLE)
    assert reading.args == {
        "no_such": 1,
        "tp_size": "eight",
        "trust_remote_code": True,
        "port": True,
        "model_path": "/m",
    }
    assert reading.strays == {"": 1, "trust_remote_code": 1}
