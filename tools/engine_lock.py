# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the engine lock of one SGLang release for one Python and one platform.

Usage: python tools/engine_lock.py 0.5.11 --python 3.12 --exclude-newer 2026-05-15 --constraint 'kernels<0.13'

uv resolves, from wheels alone and as the index was at the end of ``--exclude-newer`` (UTC), so that the same command
gives the same lock on any later day. The date and the constraints are recorded in lock.json. An index other than uv's
own is named by uv's environment variables and is not recorded.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "plugins/module_utils/_sglang/data/engines"
FORMAT = 1
# PEP 600 calls these old platform names aliases.
LEGACY_MANYLINUX = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


class LockProblem(Exception):
    """The lock cannot be made. The text says why."""


@dataclass(frozen=True)
class Pin:
    """One wheel: the package's canonical name, its version and the sha256 of the file, 64 hex digits."""

    name: str
    version: str
    sha256: str


def platform_tags(platform: str) -> list[str]:
    """Wheel platform tags that ``platform`` takes, best first, for example ``x86_64-manylinux_2_34``.

    :raises LockProblem: the platform is not of the form <machine>-manylinux_2_<minor>.
    """
    named = re.fullmatch(r"(\w+?)-manylinux_2_(\d+)", platform)
    if named is None:
        raise LockProblem(f"{platform!r} is no platform of the form x86_64-manylinux_2_34")
    machine, newest = named[1], int(named[2])
    tags = []
    for minor in range(newest, 4, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if minor in LEGACY_MANYLINUX:
            tags.append(f"{LEGACY_MANYLINUX[minor]}_{machine}")
    return [*tags, f"linux_{machine}"]


def wheel_tags(python: str, platform: str) -> dict[Tag, int]:
    """Rank of every tag that CPython ``python`` (``3.12``) takes on ``platform``; 0 is the best."""
    release = tuple(int(part) for part in python.split("."))
    interpreter = f"cp{python.replace('.', '')}"
    platforms = platform_tags(platform)
    tags = [
        *cpython_tags(release, [interpreter], platforms),
        *compatible_tags(release, interpreter, platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def best_wheel(wheels: Iterable[dict[str, Any]], ranks: dict[Tag, int]) -> dict[str, Any]:
    """The wheel that an installer takes: of the best tag, and of the highest build number among those.

    :param wheels: ``packages.wheels`` of a pylock.toml (PEP 751).
    :raises LockProblem: none fits.
    """
    fitting = []
    for wheel in wheels:
        name = wheel["url"].rsplit("/", 1)[-1]
        _name, _version, build, tags = parse_wheel_filename(name)
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None:
            fitting.append((-rank, build, name, wheel))
    if not fitting:
        raise LockProblem("no wheel fits the platform")
    return max(fitting, key=lambda entry: entry[:3])[3]


def pins(pylock: dict[str, Any], ranks: dict[Tag, int]) -> list[Pin]:
    """One pin for each package of a pylock.toml, sorted by name.

    :raises LockProblem: a package has no wheel that fits.
    """
    found = []
    for package in pylock["packages"]:
        try:
            wheel = best_wheel(package.get("wheels", []), ranks)
        except LockProblem as exc:
            raise LockProblem(f"{package['name']} {package.get('version')}: {exc}") from exc
        found.append(Pin(canonicalize_name(package["name"]), package["version"], wheel["hashes"]["sha256"]))
    return sorted(found, key=lambda pin: pin.name)


def requirements_text(locked: Iterable[Pin]) -> str:
    """requirements.txt: one line for each pin."""
    return "".join(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}\n" for pin in locked)


def facts_text(arguments: argparse.Namespace) -> str:
    """lock.json: what the pins are for and how they were made."""
    facts = {
        "format": FORMAT,
        "sglang": arguments.version,
        "python": arguments.python,
        "platform": arguments.platform,
        "stand_ins": False,
        "exclude_newer": arguments.exclude_newer,
        "constraints": sorted(arguments.constraint),
        "note": arguments.note,
    }
    return json.dumps(facts, indent=2) + "\n"


def resolve(arguments: argparse.Namespace) -> dict[str, Any]:
    """Let uv resolve, and read the pylock.toml that it writes.

    :raises LockProblem: uv found no solution; the text is uv's.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "requirements.in").write_text(f"sglang=={arguments.version}\n")
        (work / "constraints.txt").write_text("".join(f"{line}\n" for line in arguments.constraint))
        command = [
            *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config"),
            *("--generate-hashes", "--only-binary", ":all:", "--format", "pylock.toml"),
            *("--python-version", arguments.python, "--python-platform", arguments.platform),
            # A bare date would be read in the local time zone.
            *("--exclude-newer", f"{arguments.exclude_newer}T23:59:59Z"),
            *("--constraints", "constraints.txt", "--output-file", "pylock.toml", "requirements.in"),
        ]
        done = subprocess.run(command, cwd=work, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise LockProblem(f"uv finds no wheels-only set for sglang {arguments.version}:\n{done.stderr.strip()}")
        return tomllib.loads((work / "pylock.toml").read_text())


def _date(text: str) -> str:
    return datetime.date.fromisoformat(text).isoformat()


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; ``--exclude-newer`` is yesterday (UTC) unless given, the last day that is over."""
    yesterday = datetime.datetime.now(datetime.timezone.utc).date() - datetime.timedelta(days=1)
    parser = argparse.ArgumentParser(description="Make an engine lock that the collection ships.")
    parser.add_argument("version", help="SGLang release, for example 0.5.23")
    parser.add_argument("--python", default="3.12", help="Python release of the hosts (default %(default)s)")
    parser.add_argument("--platform", default="x86_64-manylinux_2_34", help="as uv names it (default %(default)s)")
    parser.add_argument("--exclude-newer", type=_date, default=yesterday.isoformat(), metavar="YYYY-MM-DD")
    parser.add_argument("--constraint", action="append", default=[], help="requirement that narrows, repeatable")
    parser.add_argument("--note", default="", help="one line for lock.json")
    parser.add_argument("--output", type=Path, default=SHIPPED, help="parent of the lock's folder")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Make the lock; 1 when it cannot be made."""
    arguments = read_arguments(argv)
    machine = arguments.platform.split("-")[0]
    folder: Path = arguments.output / f"{arguments.version}-cp{arguments.python.replace('.', '')}-{machine}"
    try:
        locked = pins(resolve(arguments), wheel_tags(arguments.python, arguments.platform))
    except LockProblem as problem:
        print(f"engine_lock: {problem}", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requirements.txt").write_text(requirements_text(locked))
    (folder / "lock.json").write_text(facts_text(arguments))
    print(f"{folder}: {len(locked)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
