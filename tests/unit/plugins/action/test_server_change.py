# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the server_change action makes of a connection that is lost, and of an error of its own."""

from __future__ import annotations

import types
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
