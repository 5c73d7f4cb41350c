# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Reading the facts that stand as data files beside this package."""

from __future__ import annotations

import functools
import json
import os
import typing as t

_FOLDER = os.path.join(os.path.dirname(__file__), "data")


def data_path(*parts: str) -> str:
    """The path of a data file or folder."""
    return os.path.join(_FOLDER, *parts)


@functools.cache
def load_json(name: str) -> t.Any:
    """Read data/<name>, once. The caller must not change what it gets."""
    with open(data_path(name), encoding="utf-8") as stream:
        return json.load(stream)


@functools.cache
def load_yaml(name: str) -> t.Any:
    """Read data/<name>, once. The caller must not change what it gets."""
    # Imported here: hosts import this package for nothing, and need no PyYAML.
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with open(data_path(name), encoding="utf-8") as stream:
        return yaml.load(stream, Loader=loader)
