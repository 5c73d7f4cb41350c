# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""GPU profiles: what the planner must know of the accelerator (data/gpus.yml, or the operator's own mapping)."""

from __future__ import annotations

import dataclasses
import typing as t

from .data_files import load_yaml

#: Beyond this it is a typing error, or infinite.
_MOST_GIB = 100_000


class GpuProblem(ValueError):
    """``sglang_plan_gpu`` is not a known name and not a usable mapping."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """The accelerator of one host. Memory in MiB per device."""

    name: str
    vendor: str
    compute_capability: tuple[int, int] | None
    memory_mib: int | None
    count: int | None

    @property
    def is_hopper(self) -> bool:
        return self.compute_capability == (9, 0)

    @property
    def is_sm100(self) -> bool:
        return self.compute_capability is not None and self.compute_capability[0] == 10

    @property
    def is_sm120(self) -> bool:
        return self.compute_capability is not None and self.compute_capability[0] == 12

    def as_dict(self) -> dict[str, t.Any]:
        return {
            "name": self.name,
            "vendor": self.vendor,
            "compute_capability": ".".join(map(str, self.compute_capability)) if self.compute_capability else None,
            "memory_mib": self.memory_mib,
            "count": self.count,
        }


def gpu_names() -> list[str]:
    return list(load_yaml("gpus.yml"))


def read_gpu(value: t.Any) -> Gpu | None:
    """A profile's name, or a mapping with compute_capability, memory_gib and count.

    :raises GpuProblem: neither of these.
    """
    if value is None:
        return None
    if isinstance(value, str):
        profile = load_yaml("gpus.yml").get(value)
        if profile is None:
            raise GpuProblem(f"{value!r} is not a GPU profile; known are {', '.join(gpu_names())}")
        return _gpu(value, profile)
    if isinstance(value, t.Mapping):
        unknown = set(value) - {"name", "vendor", "compute_capability", "memory_gib", "count"}
        if unknown:
            raise GpuProblem(f"a GPU mapping has no {', '.join(sorted(map(str, unknown)))}")
        profile = dict(value)
        memory = profile.pop("memory_gib", None)
        if memory is not None:
            if isinstance(memory, bool) or not isinstance(memory, (int, float)) or not 0 < memory < _MOST_GIB:
                raise GpuProblem(f"memory_gib is {memory!r}; it is a number of GiB per device")
            profile["memory_mib"] = int(memory * 1024)
        return _gpu(str(profile.get("name", "custom")), {"vendor": "nvidia", **profile})
    raise GpuProblem(f"{value!r} is neither a profile's name nor a mapping")


def _gpu(name: str, profile: t.Mapping[str, t.Any]) -> Gpu:
    capability = profile.get("compute_capability")
    count = profile.get("count")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise GpuProblem(f"count is {count!r}; it is the number of devices in the host")
    pair: tuple[int, int] | None = None
    if capability is not None:
        try:
            major, _dot, minor = str(capability).partition(".")
            pair = (int(major), int(minor or 0))
        except ValueError as exc:
            raise GpuProblem(f'compute_capability is {capability!r}; it looks like "9.0"') from exc
    return Gpu(name, str(profile["vendor"]), pair, profile.get("memory_mib"), count)
