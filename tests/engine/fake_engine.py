# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine that installs and starts in seconds: ``python tests/engine/fake_engine.py DEST``.

Writes DEST/wheels, a wheelhouse with uv and one distribution named sglang whose launch_server is fake_server.py, and
DEST/lock, its engine lock. The roles treat it like any other engine.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

# Also run as a script, where the checkout is not on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.engine import fake_server, wheelhouse
from tests.engine.build_wheels import StandIn
from tests.hosts.hosts import SUITE, SUITES

#: The argument handling by itself, with one fault: FAKE_REFUSE is what it says to every command line.
_SERVER_ARGS = """\
import os

from sglang.launch_server import read_flags


class ServerArgs:
    def check_server_args(self):
        assert "FAKE_REFUSE" not in os.environ, os.environ["FAKE_REFUSE"]


def prepare_server_args(argv):
    read_flags(argv)
    return ServerArgs()
"""


@dataclasses.dataclass(frozen=True)
class FakeEngine(StandIn):
    """The distribution: a few modules instead of a folder of sources, and the version that the plan asks for."""

    @property
    def version(self) -> str:
        return self.release

    def _modules(self) -> list[tuple[str, str]]:
        return [
            ("sglang/__init__.py", f'__version__ = "{self.release}"\n'),
            ("sglang/launch_server.py", Path(fake_server.__file__).read_text()),
            ("sglang/srt/__init__.py", ""),
            ("sglang/srt/server_args.py", _SERVER_ARGS),
        ]


ENGINE = FakeEngine("sglang", fake_server.VERSION)


def make(dest: Path) -> None:
    """Write the wheelhouse and the lock.

    :raises subprocess.CalledProcessError: pip could not fetch uv.
    """
    wheels, lock = dest / "wheels", dest / "lock"
    for folder in (wheels, lock):
        folder.mkdir(parents=True, exist_ok=True)
    wheel = ENGINE.build()
    (wheels / ENGINE.filename).write_bytes(wheel)
    wheelhouse.fetch(wheelhouse.UV_LOCK.read_text().splitlines(), wheels)
    digest = hashlib.sha256(wheel).hexdigest()
    (lock / "requirements.txt").write_text(f"{ENGINE.name}=={ENGINE.version} --hash=sha256:{digest}\n")
    facts = {
        "format": 1,
        "sglang": ENGINE.release,
        "python": SUITES[SUITE],
        "platform": "x86_64-manylinux_2_34",
        "stand_ins": True,
        "note": "An HTTP server with the shapes of SGLang's answers, for tests of the roles",
    }
    (lock / "lock.json").write_text(json.dumps(facts, indent=2) + "\n")


def variables(dest: Path) -> dict[str, Any]:
    """Those of molecule's hosts, for an inventory whose engine :func:`make` wrote to ``dest``, without an API key."""
    root = Path(__file__).resolve().parents[2]
    found = yaml.safe_load((root / "molecule/default/inventory/group_vars/all.yml").read_text(encoding="utf-8"))
    del found["state"], found["sglang_server_secret_args"]
    locks = {"sglang_engine_lock": str(dest / "lock"), "sglang_model_lock_dir": str(root / "inventories/locks")}
    return {**found, **locks}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dest", type=Path)
    make(parser.parse_args().dest)


if __name__ == "__main__":
    main()
