# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Which SGLang an installed one is, by its speculative code: what the rules judge is that of a release, not of a fork.

The digest is made of the syntax trees, so comments, docstrings and layout do not count, and Python 3.9 to 3.13 agree on
it. The known ones are data/fingerprints.json, written by tools/fingerprints.py from the wheels of the releases.
"""

from __future__ import annotations

import ast
import hashlib
import typing as t
from pathlib import Path

from .data_files import load_json

#: Below the package's folder: where speculation is done, and where its arguments are judged since 0.5.13.
_FILES = ("srt/speculative/**/*.py", "srt/arg_groups/speculative_hook.py")
#: Where they were judged before; of this file only the functions with the word in their names count.
_ARGUMENTS = "srt/server_args.py"
_WORD = "speculative"


def fingerprint(package: Path) -> str | None:
    """The digest of an installed package's speculative code, None where there is none or this Python cannot read it.

    :param package: the folder ``sglang`` of an environment.
    """
    digest = hashlib.sha256()
    files = sorted({file for pattern in _FILES for file in package.glob(pattern)})
    try:
        for file in files:
            digest.update(f"{file.relative_to(package).as_posix()} {normalised(_parsed(file))}\n".encode())
        if files and (package / _ARGUMENTS).exists():
            for node in ast.walk(_parsed(package / _ARGUMENTS)):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _WORD in node.name:
                    digest.update(f"{normalised(node)}\n".encode())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return digest.hexdigest()[:16] if files else None


def releases_of(digest: str) -> list[str]:
    """The known releases with that fingerprint, oldest first."""
    known: dict[str, str] = load_json("fingerprints.json")
    return [release for release, one in known.items() if one == digest]


def normalised(node: ast.AST) -> str:
    """A syntax tree as text, without positions, docstrings, and fields that are empty or that some Pythons lack."""
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and _has_docstring(node):
        node.body = node.body[1:]
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in ("kind", "type_comment"))
    return (
        f"{type(node).__name__}({','.join(f'{name}={_text(value)}' for name, value in fields if value or value == 0)})"
    )


def _text(value: t.Any) -> str:
    if isinstance(value, ast.AST):
        return normalised(value)
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return repr(value)


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))
