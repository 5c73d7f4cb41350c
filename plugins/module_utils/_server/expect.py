# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The operator's own expectations of a server: compiled by the plan, evaluated on the controller.

An expectation is a mapping of ``name``, ``query`` and one of ``equals``, ``min`` and ``max``. The query is JMESPath
over a mapping of ``server_info``, ``models`` and ``generation``: the answers of /server_info, /v1/models and /generate.
"""

from __future__ import annotations

import json
import typing as t

_COMPARISONS = ("equals", "min", "max")


class NoJmespath(Exception):
    """The controller lacks the package jmespath."""


def problems(expectations: t.Sequence[t.Any]) -> list[str]:
    """What is wrong with a value of sglang_server_expect, in words that follow its name.

    :raises NoJmespath: there are expectations, and they cannot be compiled here.
    """
    found = []
    names: set[str] = set()
    for number, one in enumerate(expectations, 1):
        problem = _problem(one)
        name = one.get("name") if isinstance(one, t.Mapping) else None
        if problem is None and name in names:
            problem = "has the name of an earlier one"
        names.add(str(name))
        if problem:
            found.append(f"{_label(number, name)} {problem}")
    return found


def _label(number: int, name: t.Any) -> str:
    return f"item {number} ({name})" if isinstance(name, str) and name else f"item {number}"


def _problem(one: t.Any) -> str | None:
    if not isinstance(one, t.Mapping):
        return f"is {one!r}; it is a mapping of name, query and one of equals, min and max"
    unknown = sorted(set(map(str, one)) - {"name", "query", *_COMPARISONS})
    if unknown:
        return f"has no key {', '.join(unknown)}; it has name, query and one of equals, min and max"
    for key in ("name", "query"):
        if not isinstance(one.get(key), str) or not one[key].strip():
            return f"has no text as its {key}"
    given = [key for key in _COMPARISONS if key in one]
    if len(given) != 1:
        return f"has {' and '.join(given) or 'no comparison'}; it has one of equals, min and max"
    if given[0] != "equals" and not _is_number(one[given[0]]):
        return f"has {one[given[0]]!r} as its {given[0]}, which is no number"
    return _query_problem(str(one["query"]))


def _query_problem(query: str) -> str | None:
    jmespath = _jmespath()
    try:
        jmespath.compile(query)
    except jmespath.exceptions.JMESPathError as exc:
        return f"has a query that is no JMESPath: {' '.join(str(exc).split())}"
    return None


def failures(expectations: t.Sequence[t.Any], documents: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """The expectations that the documents do not meet, with name, query, found and wanted.

    :raises NoJmespath: they cannot be evaluated here.
    """
    jmespath = _jmespath()
    # Ansible's own kinds of text and number are not JMESPath's
    plain = json.loads(json.dumps(documents))
    failed = []
    for one in json.loads(json.dumps(list(expectations))):
        try:
            found = jmespath.search(one["query"], plain)
        except jmespath.exceptions.JMESPathError as exc:
            # such as a function over a value that is of another kind in this release
            found = f"no value: {' '.join(str(exc).split())}"
        comparison = next(key for key in _COMPARISONS if key in one)
        if not _holds(comparison, found, one[comparison]):
            wanted = {comparison: one[comparison]}
            failed.append({"name": one["name"], "query": one["query"], "found": found, "wanted": wanted})
    return failed


def in_words(failed: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """Failed expectations in one sentence."""
    return "; ".join(
        f"{one['name']}: {one['query']} is {json.dumps(one['found'])}, wanted {key} {json.dumps(value)}"
        for one in failed
        for key, value in one["wanted"].items()
    )


def _holds(comparison: str, found: t.Any, wanted: t.Any) -> bool:
    if comparison == "equals":
        # true is not 1, as in JSON
        return bool(found == wanted and isinstance(found, bool) == isinstance(wanted, bool))
    if not _is_number(found):
        return False
    return bool(found >= wanted) if comparison == "min" else bool(found <= wanted)


def _is_number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _jmespath() -> t.Any:
    # only who writes expectations needs the package
    try:
        import jmespath
        import jmespath.exceptions
    except ImportError:
        raise NoJmespath("sglang_server_expect needs the Python package jmespath on the controller") from None
    return jmespath
