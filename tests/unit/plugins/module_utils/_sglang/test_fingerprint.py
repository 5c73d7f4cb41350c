# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts in a fingerprint and what does not. The digest is fixed, so every Python that runs this must agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.inferops.serving.plugins.module_utils._sglang.data_files import load_json
from ansible_collections.inferops.serving.plugins.module_utils._sglang.fingerprint import fingerprint, releases_of
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import known_releases

WORKER = '''
"""A worker."""
import torch


class Worker(Base):
    """Does it."""

    steps: int = 3

    async def draft(self, x, *, topk=1, **rest):
        """Guess."""
        with torch.no_grad(), lock as held:
            return [f"{y:>{topk}} of {x!r}" for y in x if y not in rest] or None
'''
ARGUMENTS = """
class ServerArgs:
    def _handle_speculative_decoding(self):
        if self.speculative_num_steps is None:
            assert self.speculative_eagle_topk is None

    def _handle_cache(self):
        self.cache = True
"""


def package(folder: Path, worker: str = WORKER, arguments: str = ARGUMENTS) -> str | None:
    (folder / "srt/speculative").mkdir(parents=True, exist_ok=True)
    (folder / "srt/speculative/worker.py").write_text(worker)
    (folder / "srt/server_args.py").write_text(arguments)
    return fingerprint(folder)


def test_every_python_computes_the_same_digest(tmp_path: Path) -> None:
    assert package(tmp_path) == "f35cb9d7b701cb6d"


@pytest.mark.parametrize(
    "worker",
    [
        WORKER.replace('"""A worker."""', "# another comment"),
        WORKER.replace("Guess.", "Draft."),
        WORKER.replace("import torch\n\n\n", "import torch\n"),
    ],
)
def test_words_and_layout_do_not_count(tmp_path: Path, worker: str) -> None:
    assert worker != WORKER
    assert package(tmp_path, worker) == package(tmp_path)


@pytest.mark.parametrize(
    ("was", "is_now"), [("steps: int = 3", "steps: int = 0"), ("not in", "in"), (">{topk}", "<{topk}")]
)
def test_code_counts(tmp_path: Path, was: str, is_now: str) -> None:
    assert package(tmp_path, WORKER.replace(was, is_now)) != package(tmp_path)


def test_of_the_arguments_only_those_of_speculation_count(tmp_path: Path) -> None:
    same = package(tmp_path)
    assert package(tmp_path, arguments=ARGUMENTS.replace("cache = True", "cache = False")) == same
    assert package(tmp_path, arguments=ARGUMENTS.replace("eagle_topk is None", "eagle_topk")) != same


def test_what_is_not_there_or_cannot_be_read_has_no_fingerprint(tmp_path: Path) -> None:
    assert fingerprint(tmp_path) is None
    assert package(tmp_path, "def (") is None


def test_every_known_release_has_one() -> None:
    known = load_json("fingerprints.json")
    assert list(known) == list(known_releases())
    assert releases_of(known["0.5.10"]) == ["0.5.10", "0.5.10.post1"]
    assert releases_of("0") == []
