# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""Which GPUs of its machine a service takes, and which it could take instead."""

from __future__ import annotations

import dataclasses
import typing as t

VISIBLE = "CUDA_VISIBLE_DEVICES"
BASE = "base_gpu_id"


@dataclasses.dataclass(frozen=True)
class Devices:
    """The GPUs of one service.

    :ivar visible: what CUDA_VISIBLE_DEVICES names, by number or UUID; None where it is not set.
    :ivar base: the first of them, counted from 0.
    :ivar step: from one rank's GPU to the next one's.
    :ivar ranks: GPUs that are needed on this machine.
    """

    visible: tuple[str, ...] | None
    base: int
    step: int
    ranks: int

    @property
    def numbers(self) -> range:
        """The places of the GPUs among those that the service sees."""
        return range(self.base, self.base + self.ranks * self.step, self.step)

    @property
    def names(self) -> frozenset[str]:
        """The GPUs as the machine counts them, and UUIDs as they were given."""
        if self.visible is None:
            return frozenset(map(str, self.numbers))
        return frozenset(self.visible[number] for number in self.numbers if number < len(self.visible))

    def moved(self, taken: t.Collection[str], count: int | None) -> Devices | None:
        """As many GPUs in one row that nobody has taken; None where the machine has no such row."""
        last = count if count is not None else len(taken) + self.base + self.ranks * self.step
        width = (self.ranks - 1) * self.step + 1
        for base in range(last - width + 1):
            row = [str(number) for number in range(base, base + width, self.step)]
            if not set(row).intersection(taken):
                if self.visible is None:
                    return dataclasses.replace(self, base=base)
                return Devices(tuple(row), 0, 1, self.ranks)
        return None


def devices(args: t.Mapping[str, t.Any], env: t.Mapping[str, t.Any]) -> Devices | None:
    """The GPUs that follow from server arguments and environment; None where these are unusable or name no GPU.

    :param args: the arguments by SGLang's own names.
    """
    numbers = {
        name: args.get(name, default)
        for name, default in (
            *((name, 1) for name in ("tp_size", "pp_size", "nnodes", "dp_size", "gpu_id_step")),
            (BASE, 0),
        )
    }
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in numbers.values()):
        return None
    ranks = -(-numbers["tp_size"] * numbers["pp_size"] // max(numbers["nnodes"], 1))
    if not args.get("enable_dp_attention"):
        ranks *= numbers["dp_size"]
    if args.get("device") == "cpu" or not ranks or not numbers["gpu_id_step"]:
        return None
    visible = None
    if env.get(VISIBLE) is not None:
        visible = tuple(word.strip() for word in str(env[VISIBLE]).split(",") if word.strip())
    return Devices(visible, numbers[BASE], numbers["gpu_id_step"], ranks)
