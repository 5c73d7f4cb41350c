# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The beginning of a safetensors file: which tensors it holds, and how long the whole file has to be.

The file begins with the length of a JSON header in 8 bytes, little-endian. The header gives every tensor's dtype, shape
and place in the data after it.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.inferops.serving.plugins.module_utils._store.lock import is_number

SUFFIX = ".safetensors"
#: Bytes before the header.
PREFIX = 8
# The format's own limit for a header.
_LONGEST_HEADER = 100_000_000

#: Tensor name -> ``{dtype, shape}``.
Tensors = dict[str, dict[str, t.Any]]


def header_length(prefix: bytes, size: int) -> int:
    """Bytes of the header of a file of ``size`` bytes that begins with ``prefix``.

    :raises ValueError: no such file begins like that.
    """
    if len(prefix) < PREFIX:
        raise ValueError(f"has {size} bytes, too few for a safetensors file")
    length = int.from_bytes(prefix[:PREFIX], "little")
    if length > min(_LONGEST_HEADER, size - PREFIX):
        raise ValueError(f"announces a header of {length} bytes and has {size} bytes")
    return length


def read_header(header: bytes, size: int) -> Tensors:
    """The tensors of a file of ``size`` bytes by its header.

    :raises ValueError: the header is none, or the tensors do not fill the file exactly.
    """
    try:
        document = json.loads(header)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ValueError("has a header that is no JSON mapping")
    document.pop("__metadata__", None)
    extents = []
    tensors: Tensors = {}
    for name, entry in sorted(document.items()):
        if not _is_tensor(entry):
            raise ValueError(f"has a header without dtype, shape and place of {name!r}")
        extents.append(tuple(entry["data_offsets"]))
        tensors[name] = {"dtype": entry["dtype"], "shape": entry["shape"]}
    end = 0
    for first, last in sorted(extents):
        if first != end or last < first:
            raise ValueError(f"has tensors that overlap or leave a gap at byte {end} of its data")
        end = last
    whole = PREFIX + len(header) + end
    if whole != size:
        raise ValueError(f"has {size} bytes; its header describes a file of {whole} bytes")
    return tensors


def _is_tensor(entry: t.Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("dtype"), str)
        and _are_numbers(entry.get("shape"))
        and _are_numbers(entry.get("data_offsets"))
        and len(entry["data_offsets"]) == 2
    )


def _are_numbers(values: t.Any) -> bool:
    return isinstance(values, list) and all(is_number(value) and value >= 0 for value in values)
