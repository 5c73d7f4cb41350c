# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the stand-in wheels: ``python tests/engine/build_wheels.py DEST``.

SGLang requires a dozen distributions that hold CUDA code. On a machine without a GPU their place is taken by wheels
made here. Three carry code (``standins/``), the rest only metadata, so that ``pip check`` is satisfied and an import
still fails. All have ``+standin`` in their version. The same sources give the same bytes on every machine, which is
why the engine lock can name their sha256.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import hashlib
import io
import zipfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "standins"
LOCAL_VERSION = "standin"
# The oldest time that a zip archive can hold.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_SHARED = "inferops-cpu-standin"


@dataclasses.dataclass(frozen=True)
class StandIn:
    """One stand-in distribution; ``release`` is the version that it stands in for."""

    name: str
    release: str
    sources: str | None = None
    requires: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    entry_points: str | None = None

    @property
    def version(self) -> str:
        return f"{self.release}+{LOCAL_VERSION}"

    @property
    def filename(self) -> str:
        return f"{self._stem}-py3-none-any.whl"

    @property
    def _stem(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}"

    def build(self) -> bytes:
        """The wheel's bytes (https://packaging.python.org/en/latest/specifications/binary-distribution-format/)."""
        entries = dict(self._modules())
        info = f"{self._stem}.dist-info"
        entries[f"{info}/METADATA"] = self._metadata()
        entries[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: inferops\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        if self.entry_points:
            entries[f"{info}/entry_points.txt"] = self.entry_points
        record = "".join(f"{path},{_record(text)}\n" for path, text in sorted(entries.items()))
        entries[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
        return _archive(entries)

    def _modules(self) -> list[tuple[str, str]]:
        if self.sources is None:
            return []
        root = SOURCES / self.sources
        return [(path.relative_to(root).as_posix(), path.read_text()) for path in sorted(root.rglob("*.py"))]

    def _metadata(self) -> str:
        lines = [
            "Metadata-Version: 2.1",
            f"Name: {self.name}",
            f"Version: {self.version}",
            f"Summary: Stand-in for {self.name} on machines without a GPU",
            "License: GPL-3.0-or-later",
            *(f"Provides-Extra: {extra}" for extra in self.extras),
            *(f"Requires-Dist: {requirement}" for requirement in self.requires),
        ]
        return "\n".join(lines) + "\n"


# Releases are those that sglang 0.5.19 requires, or the oldest that it accepts; 0 where it accepts any.
STAND_INS = (
    StandIn(
        _SHARED,
        "1",
        sources="cpu_standin",
        entry_points="[sglang.srt.plugins]\ninferops_cpu_standin = inferops_cpu_standin.plugin:activate\n",
    ),
    StandIn("sglang-kernel", "0.4.6.post1", sources="sglang_kernel", requires=(_SHARED,)),
    StandIn("torchvision", "0", sources="torchvision", requires=(_SHARED,)),
    StandIn("blobfile", "3.0.0"),
    StandIn("cuda-python", "13.0"),
    StandIn("cuda-tile", "1.6.0rc5"),
    StandIn("flash-attn-4", "4.0.0b18"),
    StandIn("flashinfer-python", "0.6.18", extras=("cu13",)),
    StandIn("humming-kernels", "0.1.12", extras=("cu13",)),
    StandIn("modelscope", "0"),
    StandIn("nvidia-cutlass-dsl", "4.6.2", extras=("cu13",)),
    StandIn("nvidia-mathdx", "25.6.0"),
    StandIn("quack-kernels", "0.6.4"),
    StandIn("sgl-deep-ep", "0.1.2"),
    StandIn("sgl-deep-gemm", "0.1.7"),
    StandIn("smg-grpc-servicer", "0.5.0"),
    StandIn("tilelang", "0.1.12"),
    StandIn("timm", "1.0.16"),
    StandIn("tokenspeed-mla", "0.1.8"),
    StandIn("torch-memory-saver", "0.0.9.post1"),
    StandIn("torchaudio", "2.11.0"),
    StandIn("torchcodec", "0.15.0"),
)


def build_all(dest: Path) -> list[Path]:
    """Write every stand-in wheel into a folder and give their paths."""
    dest.mkdir(parents=True, exist_ok=True)
    paths = []
    for stand_in in STAND_INS:
        path = dest / stand_in.filename
        path.write_bytes(stand_in.build())
        paths.append(path)
    return paths


def _record(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(text.encode())}"


def _archive(entries: dict[str, str]) -> bytes:
    """A zip archive whose bytes depend on the entries alone: fixed times, fixed order, nothing compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(entries, key=lambda path: (path.endswith("/RECORD"), path)):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, entries[path])
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dest", type=Path, help="folder for the wheels")
    for path in build_all(parser.parse_args().dest):
        print(path)


if __name__ == "__main__":
    main()
