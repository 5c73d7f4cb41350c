# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tiny models with a known answer: ``python tests/engine/models.py DEST`` writes ``DEST/tiny/<name>/``.

Nothing is trained. Vocabulary and hidden size are equal, embeddings are one-hot, attention and experts contribute
next to nothing, and the output layer is the table "this word is followed by that word" over `SENTENCE`, which begins
again after its end. The architectures are those of Kimi K2 and of its EAGLE-3 drafters.

A drafter's MLP takes a word to the next one exactly, so it guesses right at any depth. Guesses after chosen words are
broken in its output layer, which sets the acceptance length.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import typing as t
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

Weights = dict[str, npt.NDArray[t.Any]]

TARGET = "tiny/k2"
DRAFTER_GOOD = "tiny/k2-eagle3-good"
DRAFTER_HALF = "tiny/k2-eagle3-half"
DRAFTER_BAD = "tiny/k2-eagle3-bad"
DRAFTER_MLA = "tiny/k2-eagle3-mla"

# No word twice, so that each has one successor.
SENTENCE = (
    "a rack of eight accelerators holds one large model while its small companion proposes several words ahead and "
    "each proposal is checked during every pass before anything leaves the machine so readers get exactly what they "
    "would have got without help only sooner ."
)
WORDS = tuple(SENTENCE.split())
# Words after which the half-good drafter is wrong: four of nine, spread so that it matters little where a text begins.
HALF_BROKEN = frozenset(word for number, word in enumerate(WORDS) if number % 9 in (2, 4, 6, 8))

_SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
_UNKNOWN, _BEGIN, _END, _PAD = range(4)
# Vocabulary size and hidden size, equal for one-hot embeddings.
_SIZE = 320
_LAYERS = 4
_DENSE_LAYERS = 1
_HEADS = 4
_CONTEXT = 2048
# A drafter knows the first tokens only, as reduced draft vocabularies do; SGLang pads to multiples of 16.
_DRAFT_VOCABULARY = math.ceil((len(_SPECIAL) + len(WORDS)) / 16) * 16
# Shares of the multi-head latent attention, in vector elements.
_QUERY_RANK, _KEY_RANK, _NO_ROPE, _ROPE, _VALUE = 64, 64, 32, 32, 32
_DENSE_WIDTH, _EXPERT_WIDTH, _EXPERTS = 128, 64, 8
# Weights by which a branch adds to the hidden state are this much smaller, so that the one-hot vector prevails.
_FAINT = 2.0**-7

_COMMON_CONFIG = {
    "hidden_size": _SIZE,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _HEADS,
    "vocab_size": _SIZE,
    "max_position_embeddings": _CONTEXT,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": _BEGIN,
    "eos_token_id": _END,
    "pad_token_id": _PAD,
    "torch_dtype": "bfloat16",
    "attention_bias": False,
}
_K2_CONFIG = {
    **_COMMON_CONFIG,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_hidden_layers": _LAYERS,
    "intermediate_size": _DENSE_WIDTH,
    "q_lora_rank": _QUERY_RANK,
    "kv_lora_rank": _KEY_RANK,
    "qk_nope_head_dim": _NO_ROPE,
    "qk_rope_head_dim": _ROPE,
    "v_head_dim": _VALUE,
    "moe_intermediate_size": _EXPERT_WIDTH,
    "n_routed_experts": _EXPERTS,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": _DENSE_LAYERS,
    "moe_layer_freq": 1,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 2.827,
    "num_nextn_predict_layers": 0,
    "rope_theta": 50000.0,
    # SGLang's CPU code for this model class asserts that there is a yarn scaling, as K2 has.
    "rope_scaling": {
        "type": "yarn",
        "factor": 32.0,
        "beta_fast": 1.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 64,
    },
}
# Three different layers: SGLang's own choice takes one twice when there are only four.
_EAGLE_CONFIG = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": True}
_LLAMA_DRAFTER_CONFIG = {
    **_COMMON_CONFIG,
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "intermediate_size": _SIZE,
    "head_dim": 64,
    "draft_vocab_size": _DRAFT_VOCABULARY,
    "rope_theta": 10000.0,
    "mlp_bias": False,
    "eagle_config": _EAGLE_CONFIG,
}
_MLA_DRAFTER_CONFIG = {
    **_K2_CONFIG,
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "num_hidden_layers": 1,
    "intermediate_size": _SIZE,
    "draft_vocab_size": _DRAFT_VOCABULARY,
    "eagle_config": _EAGLE_CONFIG,
}


def expected_continuation(prompt: str, words: int) -> str:
    """What the target answers to a prompt, greedily: the ``words`` words that follow the prompt's last one."""
    last = prompt.split()[-1]
    start = (WORDS.index(last) + 1) if last in WORDS else 0
    return " ".join(itertools.islice(itertools.cycle(WORDS), start, start + words))


def expected_accept_length(broken: Iterable[str], steps: int) -> float:
    """Tokens per verification over whole turns of the sentence: right guesses in a row, at most ``steps``, plus one."""
    wrong = set(broken)
    position = verifications = 0
    while position < len(WORDS) * 100:
        guesses = (WORDS[(position + step) % len(WORDS)] for step in range(steps))
        position += 1 + sum(1 for _right in itertools.takewhile(lambda word: word not in wrong, guesses))
        verifications += 1
    return position / verifications


def write_models(root: Path) -> list[Path]:
    """Write the target and its drafters under a hub's root, and give their folders."""
    weights = _target_weights()
    # Three files as from a Hub: the first layers and the ends, the bulk, the rest.
    shards: list[Weights] = [{}, {}, {}]
    for name, tensor in weights.items():
        shards[_shard_of(name)][name] = tensor
    drafters = {
        DRAFTER_GOOD: _llama_drafter(frozenset()),
        DRAFTER_HALF: _llama_drafter(HALF_BROKEN),
        DRAFTER_BAD: _llama_drafter(frozenset(WORDS)),
    }
    folders = [_write_model(root / TARGET, _K2_CONFIG, shards)]
    folders += [_write_model(root / name, _LLAMA_DRAFTER_CONFIG, [tensors]) for name, tensors in drafters.items()]
    folders.append(_write_model(root / DRAFTER_MLA, _MLA_DRAFTER_CONFIG, [_mla_drafter(HALF_BROKEN)]))
    return folders


def vocabulary() -> dict[str, int]:
    """Every token and its number: special tokens, the sentence's words, printable characters, fillers."""
    tokens = list(dict.fromkeys([*_SPECIAL, *WORDS, *map(chr, range(33, 127))]))
    tokens += [f"<unused{number}>" for number in range(_SIZE - len(tokens))]
    return {token: number for number, token in enumerate(tokens)}


def _target_weights() -> Weights:
    noise = _Noise(0)
    weights: Weights = {
        "model.embed_tokens.weight": np.eye(_SIZE),
        "model.norm.weight": np.ones(_SIZE),
        "lm_head.weight": _output_layer(frozenset()),
    }
    for layer in range(_LAYERS):
        prefix = f"model.layers.{layer}."
        weights |= _latent_attention(noise, f"{prefix}self_attn.", _SIZE)
        weights |= _norms(prefix, "input_layernorm", "post_attention_layernorm")
        if layer < _DENSE_LAYERS:
            weights |= _faint_mlp(noise, f"{prefix}mlp.", _DENSE_WIDTH)
            continue
        weights[f"{prefix}mlp.gate.weight"] = noise(_EXPERTS, _SIZE)
        weights[f"{prefix}mlp.gate.e_score_correction_bias"] = np.zeros(_EXPERTS, np.float32)
        weights |= _faint_mlp(noise, f"{prefix}mlp.shared_experts.", _EXPERT_WIDTH)
        for expert in range(_EXPERTS):
            weights |= _faint_mlp(noise, f"{prefix}mlp.experts.{expert}.", _EXPERT_WIDTH)
    return weights


def _llama_drafter(broken: frozenset[str]) -> Weights:
    noise = _Noise(1)
    width = _HEADS * 64
    attention = {
        "midlayer.self_attn.q_proj.weight": noise(width, 2 * _SIZE),
        "midlayer.self_attn.k_proj.weight": noise(width, 2 * _SIZE),
        "midlayer.self_attn.v_proj.weight": noise(width, 2 * _SIZE),
        "midlayer.self_attn.o_proj.weight": noise(_SIZE, width) * _FAINT,
    }
    return _drafter_ends(broken) | attention | _next_word_layer("midlayer.")


def _mla_drafter(broken: frozenset[str]) -> Weights:
    attention = _latent_attention(_Noise(1), "layers.0.self_attn.", 2 * _SIZE)
    own_embedding = {"embed_tokens.weight": np.eye(_SIZE)}
    return _drafter_ends(broken) | own_embedding | attention | _next_word_layer("layers.0.")


def _drafter_ends(broken: frozenset[str]) -> Weights:
    """What is before and after a drafter's layer: it looks at the first of the target's three hidden states."""
    known = np.arange(_SIZE) < _DRAFT_VOCABULARY
    return {
        "fc.weight": np.eye(_SIZE, 3 * _SIZE),
        "norm.weight": np.ones(_SIZE),
        "lm_head.weight": _output_layer(broken)[:_DRAFT_VOCABULARY],
        # Draft token to target token, as a difference, and whether the drafter knows a target token.
        "d2t": np.zeros(_DRAFT_VOCABULARY, np.int64),
        "t2d": known,
    }


def _next_word_layer(prefix: str) -> Weights:
    """An MLP that turns the one-hot vector of a word into that of the next: it adds the one, takes away the other."""
    # RMSNorm makes the one of a one-hot vector sqrt(size); gate and up together bring it back to one.
    peak = math.sqrt(_SIZE)
    silu = peak / (1.0 + math.exp(-peak))
    step = np.zeros((_SIZE, _SIZE))
    step[_successors(), np.arange(_SIZE)] = 1.0
    return {
        f"{prefix}mlp.gate_proj.weight": np.eye(_SIZE),
        f"{prefix}mlp.up_proj.weight": np.eye(_SIZE) / (silu * peak),
        f"{prefix}mlp.down_proj.weight": step - np.eye(_SIZE),
        **_norms(prefix, "hidden_norm", "input_layernorm", "post_attention_layernorm"),
    }


def _successors() -> npt.NDArray[np.int64]:
    """Every token's next token; whatever is no word of the sentence is followed by its first."""
    ids = vocabulary()
    successors = np.full(_SIZE, ids[WORDS[0]], np.int64)
    for word, following in itertools.pairwise([*WORDS, WORDS[0]]):
        successors[ids[word]] = ids[following]
    return successors


def _output_layer(broken: frozenset[str]) -> npt.NDArray[np.float64]:
    """Logits [vocabulary, hidden] that choose each token's successor, or the unknown token after a broken word."""
    successors = _successors()
    ids = vocabulary()
    successors[[ids[word] for word in sorted(broken)]] = _UNKNOWN
    layer = np.zeros((_SIZE, _SIZE))
    layer[successors, np.arange(_SIZE)] = 1.0
    return layer


def _latent_attention(noise: _Noise, prefix: str, inputs: int) -> Weights:
    return {
        f"{prefix}q_a_proj.weight": noise(_QUERY_RANK, inputs),
        f"{prefix}q_a_layernorm.weight": np.ones(_QUERY_RANK),
        f"{prefix}q_b_proj.weight": noise(_HEADS * (_NO_ROPE + _ROPE), _QUERY_RANK),
        f"{prefix}kv_a_proj_with_mqa.weight": noise(_KEY_RANK + _ROPE, inputs),
        f"{prefix}kv_a_layernorm.weight": np.ones(_KEY_RANK),
        f"{prefix}kv_b_proj.weight": noise(_HEADS * (_NO_ROPE + _VALUE), _KEY_RANK),
        f"{prefix}o_proj.weight": noise(_SIZE, _HEADS * _VALUE) * _FAINT,
    }


def _faint_mlp(noise: _Noise, prefix: str, width: int) -> Weights:
    return {
        f"{prefix}gate_proj.weight": noise(width, _SIZE),
        f"{prefix}up_proj.weight": noise(width, _SIZE),
        f"{prefix}down_proj.weight": noise(_SIZE, width) * _FAINT,
    }


def _norms(prefix: str, *names: str) -> Weights:
    return {f"{prefix}{name}.weight": np.ones(_SIZE) for name in names}


class _Noise:
    """Weights of about 0.02 that are the same everywhere: whole numbers over a power of two, exact in bfloat16."""

    def __init__(self, seed: int) -> None:
        # RandomState's stream is frozen; numpy's newer generators may change theirs.
        self._random = np.random.RandomState(seed)

    def __call__(self, *shape: int) -> npt.NDArray[np.float64]:
        return self._random.randint(-128, 129, shape) / 4096.0


def _shard_of(name: str) -> int:
    if ".layers." not in name or ".layers.0." in name:
        return 0
    return 2 if f".layers.{_LAYERS - 1}." in name else 1


def _write_model(folder: Path, config: Mapping[str, t.Any], shards: list[Weights]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": _BEGIN, "eos_token_id": _END})
    _write_tokenizer(folder)
    if len(shards) == 1:
        (folder / "model.safetensors").write_bytes(safetensors(shards[0]))
        return folder
    names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    index = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    for name, shard in zip(names, shards, strict=True):
        (folder / name).write_bytes(safetensors(shard))
    size = sum(len(_encode(tensor)[1]) for shard in shards for tensor in shard.values())
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": index})
    return folder


def _write_tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are whole words, in the format of the tokenizers library."""
    model = {"type": "WordLevel", "vocab": vocabulary(), "unk_token": _SPECIAL[_UNKNOWN]}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    _write_json(
        folder / "tokenizer.json",
        {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model, **parts},
    )
    roles = ("unk_token", "bos_token", "eos_token", "pad_token")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": _CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
            **dict(zip(roles, _SPECIAL, strict=True)),
        },
    )


def _write_json(path: Path, document: Mapping[str, t.Any]) -> None:
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def safetensors(weights: Weights) -> bytes:
    """Tensors in the safetensors format (https://huggingface.co/docs/safetensors): header length, header, data.

    Floats of 64 bits, which is what numpy computes with, are stored as bfloat16; other types as they are.
    """
    header: dict[str, t.Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, tensor in sorted(weights.items()):
        kind, content = _encode(tensor)
        header[name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    # Tensors are to begin at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(data)


def _encode(tensor: npt.NDArray[t.Any]) -> tuple[str, bytes]:
    kinds = {np.dtype(np.float32): "F32", np.dtype(np.int64): "I64", np.dtype(np.bool_): "BOOL"}
    if tensor.dtype != np.float64:
        return kinds[tensor.dtype], tensor.tobytes()
    # The upper half of a float32 is a bfloat16; half of the lower one added first rounds to the nearest.
    bits = tensor.astype("<f4").view("<u4")
    return "BF16", ((bits + 0x8000) >> 16).astype("<u2").tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dest", type=Path, help="folder that becomes a hub's root")
    for folder in write_models(parser.parse_args().dest):
        print(folder)


if __name__ == "__main__":
    main()
