# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The first stage: every key is a flag of the release, and takes its value (argparse, exit status 2)."""

from __future__ import annotations

import typing as t

from .case import ALGORITHM, Case
from .findings import Remedy
from .flags import Flag, ValueProblem, convert, inventory_key, releases_with, spelling

#: Flags whose value is a secret. On a command line every user of a host would see it.
SECRET_FLAGS = ("api_key", "admin_api_key", "ssl_keyfile_password")

#: So many of the flags that an ambiguous key could mean are named.
_NAMED = 4


def read_arguments(case: Case, args: t.Mapping[str, t.Any]) -> None:
    """Put every usable argument into the case, and find fault with the others."""
    seen: dict[str, str] = {}
    for written_key, value in args.items():
        key = str(written_key)
        flag = case.table.find(key)
        if flag is None:
            _unknown_flag(case, key, value, args)
        elif flag.name in seen:
            case.find("flag-given-twice", [key], Remedy(remove=(key,)), first=seen[flag.name], second=key)
        else:
            seen[flag.name] = key
            _known_flag(case, key, flag, value)


def _unknown_flag(case: Case, key: str, value: t.Any, args: t.Mapping[str, t.Any]) -> None:
    begun = case.table.begun_with(spelling(key))
    if begun:
        could = ", ".join([*map(inventory_key, begun[:_NAMED]), *(["..."] if len(begun) > _NAMED else [])])
        case.find("flag-ambiguous", [key], Remedy(remove=(key,)), flag=key, count=len(begun), could=could)
        return
    elsewhere = releases_with(key)
    if elsewhere:
        where = f" (it is a flag of {elsewhere[0]} to {elsewhere[-1]})"
        case.find("flag-unknown", [key], Remedy(remove=(key,)), flag=key, elsewhere=where)
        return
    near = case.table.nearest(key)
    where = f"; the nearest is {near}" if near else ""
    flag = case.table.find(near) if near else None
    remedy = Remedy(remove=(key,))
    if flag is not None and near is not None and not any(case.table.find(str(other)) is flag for other in args):
        try:
            convert(flag, value)
            remedy = Remedy({near: value}, (key,))
        except ValueProblem:
            pass
        else:
            # what else is wrong is judged with the flag that was meant
            _known_flag(case, near, flag, value)
    case.find("flag-unknown", [key], remedy, flag=key, elsewhere=where)


def _known_flag(case: Case, key: str, flag: Flag, value: t.Any) -> None:
    if inventory_key(flag.name) in SECRET_FLAGS and value is not None:
        case.find("flag-holds-secret", [key], Remedy(remove=(key,)), key=key)
        return
    try:
        converted = convert(flag, value)
    except ValueProblem as exc:
        if flag.dest != ALGORITHM:
            case.unusable.add(flag.dest)
            case.find("flag-value", [key], Remedy(remove=(key,)), key=key, problem=exc)
            return
        converted = value  # a name that is no choice is judged as an algorithm
    if value is not None:
        case.written[flag.dest] = key
        case.usable_args[key] = value
    case.values[flag.dest] = converted
