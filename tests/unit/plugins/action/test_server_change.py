# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the server_change action makes of a connection that is lost, of an error of its own, and of another run."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.inferops.serving.plugins.action import server_change


class Broken(server_change.ActionModule):
    """The action on a host where every module ends in an error."""

    def __init__(self, error: Exception, **args: Any) -> None:
        self.error = error
        self._task = types.SimpleNamespace(
            args={"home": "/h", "unit": "a.service", **args}, check_mode=False, async_val=0, diff=False
        )
        self._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/nowhere"))
        self._supports_async = False

    def _execute_module(self, *_words: Any, **_given: Any) -> dict[str, Any]:
        raise self.error


@pytest.mark.parametrize(("hold", "more"), [(True, ""), (False, "\nThe change of a.service is not finished.")])
def test_a_lost_connection_leaves_a_change_unfinished_but_not_a_look(hold: bool, more: str) -> None:
    with pytest.raises(AnsibleConnectionFailure) as caught:
        Broken(AnsibleConnectionFailure("no route"), hold=hold).run(task_vars={})
    assert str(caught.value).startswith(f"no route{more}")
    assert ("not finished" in str(caught.value)) is not hold


def test_an_error_of_its_own_is_a_failed_change_and_not_one_that_never_began() -> None:
    with pytest.raises(AnsibleActionFail, match=r"a\.service: 'action'") as caught:
        Broken(KeyError("action")).run(task_vars={})
    assert caught.value.result["outcome"] == "failed"


def _gone() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


@pytest.mark.parametrize("without", [None, "_BOOT", "_NAMESPACE"])
def test_a_run_is_dead_where_its_process_is_no_more(
    without: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on a machine without /proc, where a living run was once taken for dead."""
    if without:
        monkeypatch.setattr(server_change, without, tmp_path / "none")
    steps = server_change._Steps(Broken(KeyError()), {})
    mine = server_change._who()
    assert not steps.is_dead(mine)
    assert not steps.is_dead({**mine, "pid": 1})
    assert steps.is_dead({**mine, "pid": _gone()})


@pytest.mark.parametrize("other", [{"controller": "c2"}, {"boot": "b2"}, {"namespace": "pid:[1]"}, {"pid": None}])
def test_of_a_run_elsewhere_nothing_is_known(other: dict[str, Any]) -> None:
    """In another container the numbers of processes are others, though it has the name and the boot of this one."""
    steps = server_change._Steps(Broken(KeyError()), {})
    gone = {**server_change._who(), "pid": _gone()}
    assert steps.is_dead(gone)
    assert not steps.is_dead({**gone, **other})
    assert not steps.is_dead({key: value for key, value in gone.items() if key not in other})


def test_another_users_run_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(pid: int, signal: int) -> None:
        assert signal == 0
        raise PermissionError(pid)

    monkeypatch.setattr(os, "kill", forbidden)
    assert not server_change._Steps(Broken(KeyError()), {}).is_dead(server_change._who())
