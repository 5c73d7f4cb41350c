# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user and the directories of a service, with those of the tests' own process."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._server.account import lives_as_planned

USER = pwd.getpwuid(os.getuid())
GROUP = grp.getgrgid(USER.pw_gid).gr_name
ACCOUNT = {"name": USER.pw_name, "group": GROUP, "home": USER.pw_dir, "shell": USER.pw_shell}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"name": "nobody-has-this-name"}, False),
        ({"group": "nobody-has-this-name"}, False),
        ({"home": "/elsewhere"}, False),
        ({"shell": "/bin/another"}, False),
    ],
)
def test_a_user_is_there_with_its_group_home_and_shell(other: dict[str, str], same: bool) -> None:
    assert lives_as_planned({**ACCOUNT, **other}, []) is same


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"mode": "0755"}, False),
        ({"owner": "nobody-has-this-name"}, False),
        ({"path": "/there/is/no/such/directory"}, False),
    ],
)
def test_a_directory_is_there_with_its_owner_group_and_mode(tmp_path: Path, other: dict[str, str], same: bool) -> None:
    tmp_path.chmod(0o750)
    good = {"path": str(tmp_path), "owner": USER.pw_name, "group": GROUP, "mode": "0750"}
    assert lives_as_planned(None, [good, {**good, **other}]) is same


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o644)
    assert not lives_as_planned(None, [{"path": str(path), "owner": USER.pw_name, "group": GROUP, "mode": "0644"}])
