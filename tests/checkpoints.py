"""Small random checkpoints on disk, of every shape that ster reads.

``write_checkpoint`` makes a real folder: config.json, tokenizer.json and safetensors in
one file or in shards. Weights come from a seed alone, tensor by tensor and by name, so
they are the same on every machine and do not depend on which other tensors there are.

Prompts are written as token ids: ``text([3, 4])`` is a prompt that encodes to 3 and 4.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from tests.expert_families import EXPERT_DIFFERENCES, byte_range, loudness
from tests.families import DIFFERENCES, GEMMAS, family_shapes
from tests.packed_draws import as_mlx_names, is_packed, packed_tensors

F32 = NDArray[np.float32]
Config = dict[str, Any]
# Numbers as f32, and packed bits as unsigned integers, which are stored as they are.
Tensors = dict[str, NDArray[Any]]

# Those like a Llama, those that the oracle knows, and all.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "granite", "smollm3", "olmo2")
ORACLE_FAMILIES = (*FAMILIES, *EXPERT_DIFFERENCES)
ALL_FAMILIES = (*FAMILIES, *DIFFERENCES)
STORED = ("f32", "f16", "bf16")
SPECIAL_TOKENS = ("[UNK]", "<s>", "</s>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A folder and what is in it; ``tensors`` hold the values as they are stored."""

    directory: Path
    config: Config
    tensors: Tensors

    def __str__(self) -> str:
        return str(self.directory)


def make_config(family: str = "llama", **changes: Any) -> Config:
    """Return the config of a small model; a change to ``...`` removes the field."""
    config: Config = {
        "model_type": family,
        "vocab_size": 60,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    if family == "qwen3":
        config["head_dim"] = 12  # its default is 128, not hidden_size / heads
    if family == "mistral":
        config["sliding_window"] = None
    if family == "qwen2":
        config |= {"use_sliding_window": False, "sliding_window": 16}
    if family == "granite":
        config |= {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.6,
            "logits_scaling": 2.5,
        }
    if family == "smollm3":
        # Their defaults are 4, more than there are layers, and past the vocabulary.
        config |= {"no_rope_layer_interval": 2, "pad_token_id": 0}
    config |= DIFFERENCES.get(family, {})
    config |= changes
    return {name: value for name, value in config.items() if value is not ...}


def tensor_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """List every tensor that the family's files hold, head and final norm too."""
    if config["model_type"] in DIFFERENCES:
        return family_shapes(config)
    family, hidden = config["model_type"], config["hidden_size"]
    inner, heads = config["intermediate_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    qkv_bias = family == "qwen2" or config.get("attention_bias", False)
    o_bias = family != "qwen2" and config.get("attention_bias", False)
    mlp_bias = config.get("mlp_bias", False)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.get("tie_word_embeddings", family == "smollm3"):
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes[at + "post_attention_layernorm.weight"] = (hidden,)
        if family == "olmo2":
            shapes[at + "post_feedforward_layernorm.weight"] = (hidden,)
            shapes[at + "self_attn.q_norm.weight"] = (heads * head_dim,)
            shapes[at + "self_attn.k_norm.weight"] = (kv_heads * head_dim,)
        else:
            shapes[at + "input_layernorm.weight"] = (hidden,)
        if family == "qwen3":
            shapes[at + "self_attn.q_norm.weight"] = (head_dim,)
            shapes[at + "self_attn.k_norm.weight"] = (head_dim,)
        for name, outputs, inputs, bias in (
            ("self_attn.q_proj", heads * head_dim, hidden, qkv_bias),
            ("self_attn.k_proj", kv_heads * head_dim, hidden, qkv_bias),
            ("self_attn.v_proj", kv_heads * head_dim, hidden, qkv_bias),
            ("self_attn.o_proj", hidden, heads * head_dim, o_bias),
            ("mlp.gate_proj", inner, hidden, mlp_bias),
            ("mlp.up_proj", inner, hidden, mlp_bias),
            ("mlp.down_proj", hidden, inner, mlp_bias),
        ):
            shapes[f"{at}{name}.weight"] = (outputs, inputs)
            if bias:
                shapes[f"{at}{name}.bias"] = (outputs,)
    return shapes


def make_tensors(config: Mapping[str, Any], seed: int = 0) -> Tensors:
    """Draw every tensor from the seed and its own name."""
    shapes = tensor_shapes(config)
    if "quantization" in config:
        shapes = as_mlx_names(shapes)
    packed = dict(packed_tensors(config, shapes, seed)) if is_packed(config) else {}
    tensors: Tensors = {}
    for name, shape in shapes.items():
        tensors |= packed.get(name) or {name: _draw(name, shape, seed)}
    if config["model_type"] in GEMMAS:  # their norms store w - 1
        norms = {name: each for name, each in tensors.items() if _is_norm(name)}
        tensors |= {name: each - np.float32(1) for name, each in norms.items()}
    return tensors


# Of files that put no model. in front.
_OWN_NAMES = ("transformer.", "gpt_neox.", "embed_out.")
_EMBEDDINGS = ("embed_tokens", "embed_in", "wte", "wpe")


def _is_norm(name: str) -> bool:
    return name.endswith("norm.weight") or ".ln_" in name


# Of files that store a matrix as (inputs, outputs).
_TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
_TRANSPOSED_EXPERTS = (".experts.gate_up_proj", ".experts.down_proj")


def _draw(name: str, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    # random() is the part of Python's generator that is promised never to change.
    draw = random.Random(f"{seed} {name}").random
    drawn = byte_range(name)
    if drawn is not None:
        low, count = drawn[0], drawn[1] - drawn[0] + 1
        made = [low + int(draw() * count) for _ in range(int(np.prod(shape)))]
        return np.array(made, np.uint8).reshape(shape)
    values = np.array([2 * draw() - 1 for _ in range(int(np.prod(shape)))])
    if name.endswith((".bias", "_bias")):
        values = 0.5 * values
    elif name.endswith(".sinks"):
        values = 2 * values
    elif _is_norm(name):
        values = 1 + 0.4 * values
    elif not any(each in name for each in _EMBEDDINGS):
        # Keeps a row's size, and some more.
        transposed = name.endswith((*_TRANSPOSED, *_TRANSPOSED_EXPERTS))
        inputs = shape[-2] if transposed else shape[-1]
        values = 2.2 * values / np.sqrt(inputs) * loudness(name)
    return values.reshape(shape).astype(np.float32)


def write_checkpoint(
    directory: Path,
    config: Config | None = None,
    *,
    tensors: Tensors | None = None,
    dtype: str = "f32",
    shards: int = 1,
    seed: int = 0,
    prefix: str = "model.",
    adds_bos: bool = False,
    chat_template: str | None = None,
    tokenizer: str = "words",
) -> Checkpoint:
    """Write a checkpoint folder.

    Args:
        directory: Made where it is missing.
        config: As of ``make_config``.
        tensors: Drawn from ``seed`` where not given.
        dtype: How weights are stored: f32, f16 or bf16.
        shards: Files to spread the tensors over; more than one have an index.
        seed: For the weights.
        prefix: Stands before all names but the head's; "" as saved without a head.
        adds_bos: The tokenizer puts ``<s>`` in front.
        chat_template: For tokenizer_config.json.
        tokenizer: ``words`` (one a token id, see ``text``) or ``bytes`` (any text;
            needs a vocabulary of 259).
    """
    config = make_config() if config is None else config
    tensors = make_tensors(config, seed) if tensors is None else tensors
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    make = word_tokenizer if tokenizer == "words" else byte_tokenizer
    made = make(config["vocab_size"], adds_bos=adds_bos)
    made.save(str(directory / "tokenizer.json"))
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    template = {} if chat_template is None else {"chat_template": chat_template}
    (directory / "tokenizer_config.json").write_text(json.dumps(tokens | template))
    named = {_named(name, prefix): values for name, values in tensors.items()}
    write_weights(directory, named, dtype=dtype, shards=shards)
    stored = {name: as_stored(values, dtype) for name, values in tensors.items()}
    return Checkpoint(directory=directory, config=config, tensors=stored)


def _named(name: str, prefix: str) -> str:
    if name.startswith((*_OWN_NAMES, "lm_head.")):
        return name
    return prefix + name.removeprefix("model.")


def write_weights(
    directory: Path,
    tensors: Mapping[str, NDArray[Any]],
    *,
    dtype: str = "f32",
    shards: int = 1,
) -> None:
    """Write tensors as safetensors; several shards get an index."""
    names = list(tensors)
    if shards == 1:
        write_safetensors(directory / "model.safetensors", tensors, dtype)
        return
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        write_safetensors(directory / file, part, dtype)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


# Bits that are stored as they are. numpy has no float8: int8 holds its bits.
PACKED = {"uint32": "U32", "uint8": "U8", "int8": "F8_E4M3"}


def write_safetensors(
    path: Path, tensors: Mapping[str, NDArray[Any]], dtype: str
) -> None:
    """Write one file: a header's length, the header, the bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in tensors.items():
        packed = PACKED.get(str(values.dtype))
        width = values.itemsize if packed else {"f32": 4}.get(dtype, 2)
        begin, end = end, end + width * values.size
        header[name] = {
            "dtype": packed or dtype.upper(),
            "shape": list(values.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(_bits(values, dtype).tobytes())


def as_stored(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Round to a stored width and back."""
    if str(values.dtype) in PACKED:
        return values
    if dtype == "bf16":
        return (_bits(values, dtype).astype(np.uint32) << 16).view(np.float32)
    return _bits(values, dtype).astype(np.float32)


def _bits(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    if str(values.dtype) in PACKED:
        return values
    if dtype == "bf16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values.astype(np.float16 if dtype == "f16" else np.float32)


def word_tokenizer(vocab_size: int, *, adds_bos: bool = False) -> Tokenizer:
    """Make a tokenizer of words: id 7 is the word ``w7``."""
    words = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(3, vocab_size))]
    vocab = {word: token for token, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _with_specials(tokenizer, adds_bos)


def byte_tokenizer(vocab_size: int, *, adds_bos: bool = False) -> Tokenizer:
    """Make a tokenizer of bytes, which reads any text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*SPECIAL_TOKENS, *letters]
    if vocab_size < len(words):
        raise ValueError(f"bytes need a vocabulary of {len(words)}")
    vocab = {word: token for token, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_specials(tokenizer, adds_bos)


def _with_specials(tokenizer: Tokenizer, adds_bos: bool) -> Tokenizer:
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    return tokenizer


def text(token_ids: Iterable[int]) -> str:
    """Write the prompt that the tokenizer of words encodes to these ids (3 and up)."""
    return " ".join(f"w{token}" for token in token_ids)


def random_ids(length: int, seed: int = 0, vocab_size: int = 60) -> list[int]:
    """Draw token ids that ``text`` can write."""
    draw = random.Random(f"{seed} ids").random
    return [3 + int(draw() * (vocab_size - 3)) for _ in range(length)]
