# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""The user and the directories of a service, looked at. Ansible's own modules make them where this says no."""

from __future__ import annotations

import grp
import pwd
import stat
import typing as t
from pathlib import Path


def lives_as_planned(account: t.Mapping[str, str] | None, directories: t.Iterable[t.Mapping[str, str]]) -> bool:
    """Whether a user is there as it shall be, and each directory.

    :param account: name, group, home and shell of the user; None where nothing is wanted of it.
    :param directories: path, owner, group and mode (an octal number) of each.
    """
    return (account is None or _is_user(**account)) and all(_is_directory(**one) for one in directories)


def _is_user(name: str, group: str, home: str, shell: str) -> bool:
    try:
        found, gid = pwd.getpwnam(name), grp.getgrnam(group).gr_gid
    except KeyError:
        return False
    return (found.pw_gid, found.pw_dir, found.pw_shell) == (gid, home, shell)


def _is_directory(path: str, owner: str, group: str, mode: str) -> bool:
    try:
        found = Path(path).stat()
        wanted = (pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid, int(mode, 8))
    except (OSError, KeyError):
        return False
    return stat.S_ISDIR(found.st_mode) and (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == wanted
