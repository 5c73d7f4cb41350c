# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Which processes have files open or mapped, as /proc tells."""

from __future__ import annotations

import contextlib
import os
import typing as t


def openers(paths: t.Iterable[str]) -> dict[str, list[int]]:
    """The ids of the processes that have one of these files open or mapped, by path.

    A file is known by its name and its inode, since a process in another mount namespace (a container) has it under
    another path. Without root's rights only the processes of the same user can be seen.
    """
    files: dict[tuple[str, int], str] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            files[os.path.basename(path), os.stat(path).st_ino] = path
    names = {name for name, _inode in files}
    found: dict[str, set[int]] = {}
    if files:
        for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
            for seen in {*_descriptors(pid, names), *_mappings(pid, names)}:
                if seen in files:
                    found.setdefault(files[seen], set()).add(pid)
    return {path: sorted(pids) for path, pids in found.items()}


def _descriptors(pid: int, names: t.Container[str]) -> t.Iterator[tuple[str, int]]:
    folder = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(folder)
    except OSError:
        # it has ended, or is another user's
        return
    for number in numbers:
        with contextlib.suppress(OSError):
            name = os.path.basename(os.readlink(f"{folder}/{number}"))
            if name in names:
                yield name, os.stat(f"{folder}/{number}").st_ino


def _mappings(pid: int, names: t.Container[str]) -> t.Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            # address perms offset dev inode path
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and os.path.basename(fields[5]) in names:
                yield os.path.basename(fields[5]), int(fields[4])
