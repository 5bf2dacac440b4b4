"""The toy checkpoint: a small random Llama whose numbers are published.

It holds the same numbers wherever it is made, so what is published about it can be
checked without a download. Its answers are random words.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from ster.documents.whole_directories import whole_directory
from ster.documents.whole_files import AtomicFile
from ster.errors import OutputError, name_path

TOY_PROMPTS = (
    "the sea is calm and quiet tonight .",
    "thunder rolls loud over the harbor tonight .",
)

_SPECIAL_TOKENS = ("[UNK]", "<s>", "</s>")
_WORD_LIST = (
    "the sea is calm and quiet tonight storm waves crash loud against rocks wind howls "
    "water lies still air gentle harbor boat rests at anchor night sky clear dark "
    "thunder rolls over hills morning light soft warm cold rain falls hard fast slow "
    "breeze drifts a in on answer question describe evening lake surface mirror like "
    "broken churns white foam . , : ?"
)
_WORDS = _WORD_LIST.split()
_SEED = 7
_HIDDEN_SIZE = 64
_INTERMEDIATE_SIZE = 128
_NUM_LAYERS = 4
_NUM_HEADS = 4
_NUM_KEY_VALUE_HEADS = 2
_VOCAB_SIZE = len(_SPECIAL_TOKENS) + len(_WORDS)
_KEY_VALUE_SIZE = _HIDDEN_SIZE // _NUM_HEADS * _NUM_KEY_VALUE_HEADS
# In the order in which they are drawn.
_PROJECTIONS = {
    "self_attn.q_proj": (_HIDDEN_SIZE, _HIDDEN_SIZE),
    "self_attn.k_proj": (_KEY_VALUE_SIZE, _HIDDEN_SIZE),
    "self_attn.v_proj": (_KEY_VALUE_SIZE, _HIDDEN_SIZE),
    "self_attn.o_proj": (_HIDDEN_SIZE, _HIDDEN_SIZE),
    "mlp.gate_proj": (_INTERMEDIATE_SIZE, _HIDDEN_SIZE),
    "mlp.up_proj": (_INTERMEDIATE_SIZE, _HIDDEN_SIZE),
    "mlp.down_proj": (_HIDDEN_SIZE, _INTERMEDIATE_SIZE),
}

Float32Array = npt.NDArray[np.float32]


def write_toy_checkpoint(directory: str | os.PathLike[str]) -> None:
    """Write the toy checkpoint, the whole of it or nothing.

    Args:
        directory: Made with its parents if it is missing. Other files in it stay.

    Raises:
        OutputError: A file or a directory cannot be written.
    """
    files = {
        "config.json": _json_bytes(_config()),
        "tokenizer.json": _json_bytes(_tokenizer()),
        "tokenizer_config.json": _json_bytes(_tokenizer_config()),
        "model.safetensors": save(_weights(), metadata={"format": "pt"}),
    }
    path = name_path(directory)
    _refuse_other_checkpoint(path, files)
    if path and os.path.isdir(path):
        _write_files(path, files)
    else:
        with whole_directory(path) as staging:
            _write_files(staging, files)


def _refuse_other_checkpoint(directory: str, files: Mapping[str, bytes]) -> None:
    """Refuse to write over files of these names that are not the toy's own."""
    for name, data in files.items():
        try:
            found = Path(directory, name).read_bytes()
        except (OSError, ValueError):
            continue
        if found != data:
            sentence = f"failed to write {directory}"
            raise OutputError(sentence, f"it holds another {name}")


def _write_files(directory: str, files: Mapping[str, bytes]) -> None:
    with ExitStack() as stack:
        for name, data in files.items():
            file = stack.enter_context(AtomicFile(os.path.join(directory, name)))
            file.write(data)


def _weights() -> dict[str, Float32Array]:
    draws = random.Random(_SEED)

    def draw(shape: tuple[int, int], sigma: float) -> Float32Array:
        rows, columns = shape
        values = [draws.gauss(0.0, sigma) for _ in range(rows * columns)]
        return np.array(values, dtype=np.float32).reshape(shape)

    ones = np.ones(_HIDDEN_SIZE, dtype=np.float32)
    tensors = {
        "model.embed_tokens.weight": draw((_VOCAB_SIZE, _HIDDEN_SIZE), 0.02),
        "lm_head.weight": draw((_VOCAB_SIZE, _HIDDEN_SIZE), 0.02),
        "model.norm.weight": ones,
    }
    for layer in range(_NUM_LAYERS):
        prefix = f"model.layers.{layer}"
        tensors[f"{prefix}.input_layernorm.weight"] = ones
        tensors[f"{prefix}.post_attention_layernorm.weight"] = ones
        for name, shape in _PROJECTIONS.items():
            tensors[f"{prefix}.{name}.weight"] = draw(shape, 0.05)
    return tensors


def _config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": _HIDDEN_SIZE,
        "intermediate_size": _INTERMEDIATE_SIZE,
        "max_position_embeddings": 256,
        "mlp_bias": False,
        "num_attention_heads": _NUM_HEADS,
        "num_hidden_layers": _NUM_LAYERS,
        "num_key_value_heads": _NUM_KEY_VALUE_HEADS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "vocab_size": _VOCAB_SIZE,
    }


def _tokenizer() -> dict[str, object]:
    vocabulary = [*_SPECIAL_TOKENS, *_WORDS]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _special_token(token_id, content)
            for token_id, content in enumerate(_SPECIAL_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: token_id for token_id, word in enumerate(vocabulary)},
            "unk_token": "[UNK]",
        },
    }


def _special_token(token_id: int, content: str) -> dict[str, object]:
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _tokenizer_config() -> dict[str, object]:
    unknown, bos, eos = _SPECIAL_TOKENS
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": unknown,
        "bos_token": bos,
        "eos_token": eos,
        "model_max_length": 256,
    }


def _json_bytes(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
