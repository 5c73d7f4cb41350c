# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Whether a file is what its name says. It can be what its lock says, and have been broken when it was uploaded."""

from __future__ import annotations

import os

from ansible_collections.inferops.serving.plugins.module_utils._store.safetensors import (
    PREFIX,
    SUFFIX,
    header_length,
    read_header,
)

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
        try:
            read_header(stream.read(header_length(stream.read(PREFIX), size)), size)
        except ValueError as error:
            return f"is no whole safetensors file: it {error}"
    return None
