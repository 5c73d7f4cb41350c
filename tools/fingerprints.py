# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write data/fingerprints.json from the wheels of all known releases, fetched by pip: ``tools/fingerprints.py FOLDER``.

FOLDER keeps the wheels; those that are there already are not fetched again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ansible_collections.inferops.serving.plugins.module_utils._sglang.fingerprint import fingerprint
from ansible_collections.inferops.serving.plugins.module_utils._sglang.flags import known_releases

DATA = Path(__file__).resolve().parents[1] / "plugins/module_utils/_sglang/data/fingerprints.json"


def wheel(release: str, folder: Path) -> Path:
    """The wheel of a release for Python 3.11.

    :raises subprocess.CalledProcessError: pip finds none.
    """
    found = sorted(folder.glob(f"sglang-{release}-*.whl"))
    if not found:
        words = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_34_x86_64"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", *words, f"--dest={folder}", f"sglang=={release}"]
        subprocess.run(command, check=True)
        found = sorted(folder.glob(f"sglang-{release}-*.whl"))
    return found[0]


def of_wheel(path: Path) -> str:
    """The fingerprint of a wheel.

    :raises ValueError: there is no speculative code in it.
    """
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("sglang/srt/")])
        digest = fingerprint(Path(folder) / "sglang")
    if digest is None:
        raise ValueError(f"no speculative code in {path.name}")
    return digest


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    known = {release: of_wheel(wheel(release, folder)) for release in known_releases()}
    DATA.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    print(f"{len(known)} releases, {len(set(known.values()))} fingerprints")


if __name__ == "__main__":
    main()
