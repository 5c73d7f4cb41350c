# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the CPU engine lock again: ``python tests/engine/make_lock.py``, with uv on the path.

To be run when sglang's release or a stand-in changes. Resolves sglang with the stand-ins in place of its CUDA
dependencies to today's releases, fetches the wheels and writes their pins and hashes to ``tests/engine/lock/``.
``--keep`` changes nothing but the stand-ins.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ENGINE = Path(__file__).resolve().parent
# Also run as a script, where the checkout is not on the path.
sys.path.insert(0, str(ENGINE.parents[1]))

from tests.engine.build_wheels import STAND_INS, build_all  # noqa: E402
from tests.engine.wheelhouse import LOCK, Pin, fetch, read_pins, sha256_of  # noqa: E402

SGLANG = "0.5.19"
TORCH = "2.13.0+cpu"
FACTS = {
    "format": 1,
    "sglang": SGLANG,
    "python": "3.11",
    "platform": "x86_64-manylinux_2_34",
    "stand_ins": True,
    "note": "Real SGLang on CPU torch with stand-ins for the CUDA distributions: for tests and the demo, not for work",
}


def resolve(stand_ins: Path) -> list[str]:
    """``name==version`` of everything that the engine needs but the stand-ins.

    :raises subprocess.CalledProcessError: uv found no solution and said why on standard error.
    """
    asked = [f"sglang=={SGLANG}", f"torch=={TORCH}", *(f"{it.name}=={it.version}" for it in STAND_INS)]
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--only-binary=:all:"]
    command += ["--python-version=3.11", "--python-platform=x86_64-manylinux_2_34", "-"]
    # uv does not read pip's variable, which is where wheelhouse.py finds torch.
    command += [f"--find-links={place}" for place in (stand_ins, *os.environ.get("PIP_FIND_LINKS", "").split())]
    done = subprocess.run(command, input="\n".join(asked), stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in done.stdout.splitlines() if not line.endswith("+standin")]


def pin_stand_ins(folder: Path) -> list[Pin]:
    """Build the stand-ins into a folder and pin them."""
    paths = build_all(folder)
    return [Pin(it.name, it.version, sha256_of(path)) for it, path in zip(STAND_INS, paths, strict=True)]


def pin_wheels(requirements: list[str], folder: Path) -> list[Pin]:
    """Download wheels into an empty folder and pin them."""
    fetch(requirements, folder, hashed=False)
    digests = {tuple(path.name.split("-")[:2]): sha256_of(path) for path in folder.glob("*.whl")}
    found = {(_normalized(name), version): digest for (name, version), digest in digests.items()}
    splits = [requirement.split("==") for requirement in requirements]
    return [Pin(name, version, found[_normalized(name), version]) for name, version in splits]


def write_lock(pins: list[Pin], lock: Path = LOCK) -> None:
    """Write both files of the lock."""
    lock.mkdir(parents=True, exist_ok=True)
    lines = [f"{pin}\n" for pin in sorted(pins, key=lambda pin: pin.name)]
    (lock / "requirements.txt").write_text("".join(lines))
    (lock / "lock.json").write_text(json.dumps(FACTS, indent=2) + "\n")


def _normalized(name: str) -> str:
    return name.replace("-", "_").replace(".", "_").lower()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="take the pins of everything but the stand-ins as they are")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as scratch:
        stand_ins = pin_stand_ins(Path(scratch, "stand-ins"))
        if keep:
            others = [pin for pin in read_pins(LOCK / "requirements.txt") if not pin.stand_in]
        else:
            others = pin_wheels(resolve(Path(scratch, "stand-ins")), Path(scratch, "wheels"))
    write_lock(stand_ins + others)
    print(f"{LOCK}: {len(others)} wheels, {len(stand_ins)} stand-ins")


if __name__ == "__main__":
    main()
