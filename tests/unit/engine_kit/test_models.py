# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tiny models: the same bytes everywhere, readable, and weights that say what is known of them."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import safetensors
import yaml

from tests.engine import hub, models, server_flags

ROOT = Path(__file__).resolve().parents[3]
Tensor = npt.NDArray[t.Any]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    models.write_models(root)
    return root


def tensors(path: Path) -> dict[str, Tensor]:
    """A file as the safetensors library reads it, bfloat16 widened to float32."""
    read = {}
    for name, entry in safetensors.deserialize(path.read_bytes()):
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(entry["data"], "<u2").astype("<u4") << 16).view("<f4")
        else:
            values = np.frombuffer(entry["data"], {"F32": "<f4", "I64": "<i8", "BOOL": "?"}[entry["dtype"]])
        read[name] = values.reshape(entry["shape"])
    return read


def target(root: Path) -> dict[str, Tensor]:
    parts = sorted((root / models.TARGET).glob("*.safetensors"))
    return {name: tensor for part in parts for name, tensor in tensors(part).items()}


def normed(state: Tensor, scale: Tensor) -> Tensor:
    normed: Tensor = state / np.sqrt(np.mean(state * state) + 1e-5) * scale
    return normed


def following(drafter: dict[str, Tensor], word: str) -> tuple[str, Tensor]:
    """A drafter's guess after a word, and its hidden state, without attention, which adds next to nothing."""
    tokens = list(models.vocabulary())
    prefix = "layers.0." if "layers.0.mlp.up_proj.weight" in drafter else "midlayer."
    three_states = np.tile(np.eye(len(tokens), dtype=np.float32)[tokens.index(word)], 3)
    state = drafter["fc.weight"] @ three_states
    inner = normed(state, drafter[f"{prefix}post_attention_layernorm.weight"])
    gate = drafter[f"{prefix}mlp.gate_proj.weight"] @ inner
    lifted = gate / (1 + np.exp(-gate)) * (drafter[f"{prefix}mlp.up_proj.weight"] @ inner)
    state = state + drafter[f"{prefix}mlp.down_proj.weight"] @ lifted
    number = int(np.argmax(drafter["lm_head.weight"] @ normed(state, drafter["norm.weight"])))
    return tokens[number + int(drafter["d2t"][number])], state


def test_locks_of_the_demo_are_those_of_these_models(root: Path) -> None:
    committed = {path.name: path.read_text() for path in (ROOT / "inventories/locks").glob("tiny--*.json")}
    for name, lock in committed.items():
        repo = json.loads(lock)["repo"]
        assert hub.lock_text(hub.make_lock(root / repo, repo)) == lock, name
    assert committed


def test_sentence_has_one_successor_for_each_word() -> None:
    assert len(set(models.WORDS)) == len(models.WORDS)
    assert models.expected_continuation("it was a rack of", 3) == "eight accelerators holds"
    assert models.expected_continuation("only sooner", 3) == ". a rack"
    assert models.expected_continuation("something else", 2) == "a rack"
    assert models.expected_continuation("a", len(models.WORDS)).split()[-1] == "a"


def test_target_follows_each_word_with_the_next(root: Path) -> None:
    weights = target(root)
    tokens = list(models.vocabulary())
    for word in models.WORDS:
        state = weights["model.embed_tokens.weight"][tokens.index(word)]
        chosen = np.argmax(weights["lm_head.weight"] @ normed(state, weights["model.norm.weight"]))
        assert tokens[chosen] == models.expected_continuation(word, 1)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        (models.DRAFTER_GOOD, frozenset()),
        (models.DRAFTER_HALF, models.HALF_BROKEN),
        (models.DRAFTER_MLA, models.HALF_BROKEN),
        (models.DRAFTER_BAD, frozenset(models.WORDS)),
    ],
)
def test_drafter_is_right_except_after_broken_words(root: Path, name: str, broken: frozenset[str]) -> None:
    weights = tensors(root / name / "model.safetensors")
    tokens = list(models.vocabulary())
    for word, next_word in zip(models.WORDS, [*models.WORDS[1:], models.WORDS[0]], strict=True):
        # its output layer sees the next word's state and names the word after it
        guess, state = following(weights, word)
        assert tokens[int(np.argmax(state))] == next_word
        assert guess == ("<unk>" if next_word in broken else models.expected_continuation(next_word, 1))


def test_accept_lengths_are_the_announced_ones() -> None:
    assert models.expected_accept_length((), 1) == 2.0
    assert models.expected_accept_length((), 3) == 4.0
    assert models.expected_accept_length(models.WORDS, 3) == 1.0
    assert models.expected_accept_length(models.HALF_BROKEN, 3) == pytest.approx(2.3, abs=0.05)


def test_target_is_split_as_its_index_says(root: Path) -> None:
    folder = root / models.TARGET
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shards = sorted(folder.glob("*.safetensors"))
    assert [shard.name for shard in shards] == [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert index["weight_map"] == {name: shard.name for shard in shards for name in tensors(shard)}
    assert max(shard.stat().st_size for shard in shards) > 2_000_000


def test_every_model_has_what_a_hub_repository_has(root: Path) -> None:
    for folder in sorted(root.glob("*/*")):
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        config = json.loads((folder / "config.json").read_text())
        assert len(tokenizer["model"]["vocab"]) == config["vocab_size"] == config["hidden_size"]
        assert {"generation_config.json", "tokenizer_config.json"} <= {path.name for path in folder.iterdir()}


def test_demo_inventory_has_the_proven_flags() -> None:
    demo = yaml.safe_load((ROOT / "inventories/demo/group_vars/all.yml").read_text())
    assert server_flags.SERVER_ARGS.items() <= demo["sglang_server_args"].items()
    assert demo["sglang_server_env"].items() <= server_flags.SERVER_ENV.items()
    drafter = demo["sglang_plan_models"]["drafters"][models.DRAFTER_GOOD]
    assert {"speculative_algorithm": drafter["algorithm"], **drafter["args"]} == server_flags.ONE_GUESS
