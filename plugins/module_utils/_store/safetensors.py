# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Whether a weight file is one: a file can be what its lock says and still have been broken when it was uploaded."""

from __future__ import annotations

import json
import os
import typing as t

SUFFIX = ".safetensors"
# The format's own limit for the header.
_LONGEST_HEADER = 100_000_000
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
_LONGEST_POINTER = 1024


def content_problem(name: str, path: str) -> str | None:
    """What is wrong with a file's content, to follow the file's name in a sentence; None when nothing is.

    :param name: the file's name in the repository.
    :param path: where its bytes are.
    """
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size <= _LONGEST_POINTER and stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
            return "is a Git LFS pointer, a note of a few lines that stands for the file, not the file"
        if not name.endswith(SUFFIX):
            return None
        stream.seek(0)
        return _safetensors_problem(stream, size)


def _safetensors_problem(stream: t.BinaryIO, size: int) -> str | None:
    """The format: 8 bytes with the header's length, the header in JSON, then the tensors up to the end of the file."""
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > min(size - 8, _LONGEST_HEADER):
        return f"is no safetensors file: its header would be {length} bytes long, the file has {size}"
    try:
        header = json.loads(stream.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        data = max(ends, default=0)
        expected = 8 + length + data
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return "is no safetensors file: its header is not a table of tensors in JSON"
    if expected != size:
        return f"is a broken safetensors file: by its header it has {expected} bytes, in fact {size}"
    return None
