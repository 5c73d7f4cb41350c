# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: nothing outside inferops.serving may rely on it.
"""What the planner knows of a model: from the catalogue (data/models.yml), the inventory, or the model's lock."""

from __future__ import annotations

import dataclasses
import typing as t

from .data_files import load_yaml

TARGETS = "targets"
DRAFTERS = "drafters"

_CONTEXT_LENGTHS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
_DSPARK_KEYS = ("dspark_block_size", "dspark_markov_rank", "dspark_noise_token_id", "dspark_target_layer_ids")


@dataclasses.dataclass(frozen=True)
class Model:
    """A target or a drafter. ``config`` holds what is known of its config.json, perhaps nothing.

    ``is_missing`` is true where it is known that there is no such model, which is not the same as knowing nothing.
    ``total_size`` is in bytes; ``tensors`` holds dtype and shape by name, from the headers of the safetensors files.
    """

    repo: str | None = None
    config: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    revision: str | None = None
    minimum_release: str | None = None
    algorithm: str | None = None
    args: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    is_missing: bool = False
    total_size: int | None = None
    tensors: t.Mapping[str, t.Mapping[str, t.Any]] = dataclasses.field(default_factory=dict)

    @property
    def architecture(self) -> str | None:
        """The first entry of architectures in config.json."""
        names = self.config.get("architectures")
        return names[0] if isinstance(names, (list, tuple)) and names and isinstance(names[0], str) else None

    @property
    def text_config(self) -> t.Mapping[str, t.Any]:
        """The part of config.json that describes the language model."""
        text = self.config.get("text_config")
        return text if isinstance(text, t.Mapping) else self.config

    @property
    def context_length(self) -> int | None:
        """The context length in tokens that SGLang derives from config.json (model_config.get_context_length)."""
        scaling = self.text_config.get("rope_scaling")
        factor: float = 1
        if isinstance(scaling, t.Mapping):
            kind = scaling.get("rope_type", scaling.get("type"))
            if "original_max_position_embeddings" not in scaling and kind != "llama3":
                factor = scaling.get("factor") or 1
        for key in _CONTEXT_LENGTHS:
            length = self.text_config.get(key)
            if isinstance(length, int) and not isinstance(length, bool):
                return int(length * factor)
        return None

    @property
    def weight_bits(self) -> int | None:
        """Bits of a quantized weight in the checkpoint (compressed-tensors), None where it is not known."""
        quantization = self.text_config.get("quantization_config") or self.config.get("quantization_config")
        groups = quantization.get("config_groups") if isinstance(quantization, t.Mapping) else None
        for group in groups.values() if isinstance(groups, t.Mapping) else ():
            bits = group.get("weights", {}).get("num_bits") if isinstance(group, t.Mapping) else None
            if isinstance(bits, int):
                return bits
        return None

    @property
    def is_whole(self) -> bool:
        """Whether config.json itself is known, not only facts of it: it says at least which transformers wrote it."""
        return "transformers_version" in self.config or "torch_dtype" in self.config or "dtype" in self.config

    @property
    def dflash_block_size(self) -> int | None:
        """Draft tokens per block of a DFLASH drafter: dflash_config.block_size, else block_size."""
        own = self.config.get("dflash_config")
        size = own.get("block_size") if isinstance(own, t.Mapping) else None
        size = self.config.get("block_size") if size is None else size
        return size if isinstance(size, int) else None

    @property
    def dspark_gamma(self) -> int | None:
        """Guesses per block of a DSPARK drafter."""
        size = self.config.get("dspark_block_size", self.config.get("block_size"))
        return size if isinstance(size, int) else None

    @property
    def bundles_dspark(self) -> bool:
        """Whether the checkpoint carries a DSPARK drafter of its own."""
        return any(self.config.get(key) is not None for key in _DSPARK_KEYS)


def catalogue(kind: str, extra: t.Mapping[str, t.Any] | None = None) -> dict[str, t.Any]:
    """The catalogue's entries of one kind, the operator's own on top."""
    entries = dict(load_yaml("models.yml")[kind])
    own = (extra or {}).get(kind)
    if isinstance(own, t.Mapping):
        entries.update(own)
    return entries


def from_catalogue(kind: str, repo: str, extra: t.Mapping[str, t.Any] | None = None) -> Model | None:
    """The model of that repository, if the catalogue has it."""
    entry = catalogue(kind, extra).get(repo)
    if not isinstance(entry, t.Mapping):
        return None
    fields = {field.name for field in dataclasses.fields(Model)} - {"repo"}
    return Model(repo=repo, **{key: value for key, value in entry.items() if key in fields})


def drafters_of(target: str | None, extra: t.Mapping[str, t.Any] | None = None) -> list[str]:
    """Catalogue drafters trained for that target."""
    return [repo for repo, entry in catalogue(DRAFTERS, extra).items() if entry.get("target") == target]
