# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fill a wheelhouse from the CPU engine lock: ``python tests/engine/wheelhouse.py DEST``.

A wheelhouse holds the very wheels of the lock. Those already there are known by their sha256 and not fetched again;
a wheel that is not the lock's is removed. The stand-ins are built, everything else comes through pip from the indexes
that it is configured for. ``torch==...+cpu`` is on PyTorch's own CPU index: name that in ``PIP_EXTRA_INDEX_URL``, or
a folder that holds the wheel in ``PIP_FIND_LINKS``.
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import hashlib
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENGINE = Path(__file__).resolve().parent
# Also run as a script, where the checkout is not on the path.
sys.path.insert(0, str(ENGINE.parents[1]))

from tests.engine.build_wheels import LOCAL_VERSION, STAND_INS  # noqa: E402

LOCK = ENGINE / "lock"
# The role sglang_engine installs uv from its own lock, so that wheel belongs to the wheelhouse too.
UV_LOCK = ENGINE.parents[1] / "roles/sglang_engine/files/uv.txt"
# Wheels fetched by one pip run. What a run has fetched is kept when a later one is interrupted.
BATCH = 24
# What pip takes for CPython 3.11 on x86-64 with glibc 2.34 or newer, whatever Python pip itself runs on.
_GLIBC = range(34, 4, -1)
_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in _GLIBC),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
    "linux_x86_64",
)
_TARGET = (
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    *(f"--abi={abi}" for abi in ("cp311", "abi3", "none")),
    *(f"--platform={platform}" for platform in _PLATFORMS),
)
_PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})")


@dataclasses.dataclass(frozen=True)
class Pin:
    """One line of the lock's requirements.txt."""

    name: str
    version: str
    sha256: str

    @property
    def stand_in(self) -> bool:
        return self.version.endswith(f"+{LOCAL_VERSION}")

    def __str__(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@dataclasses.dataclass(frozen=True)
class Report:
    """What filling a wheelhouse came to; sizes in bytes."""

    wheels: int
    size: int
    fetched: int
    fetched_size: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.wheels} wheels, {self.size / 1e6:.0f} MB; "
            f"fetched {self.fetched}, {self.fetched_size / 1e6:.0f} MB, in {self.seconds:.1f} s"
        )


def read_pins(requirements: Path) -> list[Pin]:
    """The pins of a lock.

    :raises ValueError: a line is no ``name==version --hash=sha256:...``.
    """
    pins = []
    for line in requirements.read_text().splitlines():
        match = _PIN.fullmatch(line)
        if match is None:
            raise ValueError(f"{requirements}: no pin with one hash: {line!r}")
        pins.append(Pin(match["name"], match["version"], match["sha256"]))
    return pins


def fetch(requirements: list[str], dest: Path, hashed: bool = True) -> None:
    """Download wheels for the lock's platform with pip, without their dependencies.

    :raises subprocess.CalledProcessError: pip failed; its own words are on standard error.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listing:
        listing.write("".join(f"{line}\n" for line in requirements))
        listing.flush()
        command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes"] if hashed else []
        subprocess.run([*command, *_TARGET, "--dest", str(dest), "-r", listing.name], check=True)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fill(dest: Path, lock: Path = LOCK) -> Report:
    """Make ``dest`` hold the wheels of a lock and no others. Concurrent calls wait for each other.

    :raises ValueError: the lock is malformed, or a built stand-in is not the one in the lock.
    :raises subprocess.CalledProcessError: pip failed. What was fetched before stays.
    """
    begin = time.monotonic()
    pins = read_pins(lock / "requirements.txt")
    dest.mkdir(parents=True, exist_ok=True)
    with (dest / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        return _fill(dest, pins, begin)


def _fill(dest: Path, pins: list[Pin], begin: float) -> Report:
    uv = set(re.findall(r"sha256:([0-9a-f]{64})", UV_LOCK.read_text()))
    present = _keep_only({pin.sha256 for pin in pins} | uv, dest)
    if not uv.intersection(present):
        fetch(UV_LOCK.read_text().splitlines(), dest)
    missing = [pin for pin in pins if pin.sha256 not in present]
    _build([pin for pin in missing if pin.stand_in], dest)
    wanted = [str(pin) for pin in missing if not pin.stand_in]
    for first in range(0, len(wanted), BATCH):
        print(f"wheelhouse: fetching {first + 1} to {min(first + BATCH, len(wanted))} of {len(wanted)}", flush=True)
        fetch(wanted[first : first + BATCH], dest)
    wheels = {path: path.stat().st_size for path in dest.glob("*.whl")}
    fetched = [size for path, size in wheels.items() if path not in present.values()]
    return Report(len(wheels), sum(wheels.values()), len(fetched), sum(fetched), time.monotonic() - begin)


def _keep_only(digests: set[str], dest: Path) -> dict[str, Path]:
    """Remove every wheel with another digest; give those that stay."""
    kept = {}
    for path in sorted(dest.glob("*.whl")):
        digest = sha256_of(path)
        if digest in digests:
            kept[digest] = path
        else:
            path.unlink()
    return kept


def _build(pins: list[Pin], dest: Path) -> None:
    by_name = {stand_in.name: stand_in for stand_in in STAND_INS}
    for pin in pins:
        stand_in = by_name[pin.name]
        wheel = stand_in.build()
        if hashlib.sha256(wheel).hexdigest() != pin.sha256:
            raise ValueError(f"the stand-in {pin.name} is not the one in the lock: run tests/engine/make_lock.py")
        (dest / stand_in.filename).write_bytes(wheel)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dest", type=Path, help="the wheelhouse")
    parser.add_argument("--lock", type=Path, default=LOCK, help="folder of the lock (default: the CPU engine's)")
    arguments = parser.parse_args()
    print(f"wheelhouse: {arguments.dest}: {fill(arguments.dest, arguments.lock)}")


if __name__ == "__main__":
    main()
