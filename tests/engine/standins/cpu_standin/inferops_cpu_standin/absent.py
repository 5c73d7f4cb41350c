# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names that can be imported and subclassed, and refuse to work.

SGLang imports hundreds of kernels and image functions by name, whatever it runs on. An import has to succeed; a call
would mean that the stand-in lacks something, and says what.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
import typing as t
from collections.abc import Callable, Sequence


class Absent(type):
    """Class of every absent name: attributes are absent too, a call raises NotImplementedError."""

    def __getattr__(cls, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{cls.__name__}.{name}", (), {})

    def __call__(cls, *_arguments: object, **_keywords: object) -> t.NoReturn:
        raise NotImplementedError(f"{cls.__name__} is not part of the CPU stand-in")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every submodule of a package that has no file."""

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith(self._prefix):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, _spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__getattr__"] = _names_of(module.__name__)


def _names_of(module: str) -> Callable[[str], Absent]:
    def lookup(name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return Absent(f"{module}.{name}", (), {})

    return lookup


def absent_names(package: str) -> Callable[[str], Absent]:
    """A module ``__getattr__`` for a package, whose absent submodules can be imported from now on."""
    # Last, so that submodules which do have a file come first.
    sys.meta_path.append(_Finder(package))
    return _names_of(package)
