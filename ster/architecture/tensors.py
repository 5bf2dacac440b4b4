"""The tensors that a checkpoint must hold, by name and shape, for a given config.

Names are the checkpoint's own; both decoders use them, so there is no rename table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

from ster.architecture.config import DecoderConfig

Tensor = TypeVar("Tensor")
Shapes = dict[str, tuple[int, ...]]

# A model saved with its head has this in front of every name but the head's; one saved
# without it (the bare decoder) has not.
PREFIX = "model."
EMBEDDING = "embed_tokens.weight"
NORM = "norm.weight"
HEAD = "lm_head.weight"


def extraction_shapes(config: DecoderConfig, layers: Iterable[int]) -> Shapes:
    """List what extraction of some blocks reads: no final norm and no head."""
    shapes: Shapes = {EMBEDDING: (config.vocab_size, config.hidden_size)}
    for layer in layers:
        for name, shape in block_shapes(config).items():
            shapes[f"{layer_prefix(layer)}{name}"] = shape
    return shapes


def generation_shapes(config: DecoderConfig) -> Shapes:
    """List what generation reads: every block, final norm and head."""
    shapes = extraction_shapes(config, range(config.num_hidden_layers))
    shapes[NORM] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes[HEAD] = (config.vocab_size, config.hidden_size)
    return shapes


def layer_prefix(layer: int) -> str:
    """Return what the names of one block's tensors begin with."""
    return f"layers.{layer}."


def group_by_layer(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Collect each block's tensors by their names within the block."""
    groups: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("layers."):
            _, layer, bare = name.split(".", 2)
            groups.setdefault(int(layer), {})[bare] = tensor
    return groups


def block_shapes(config: DecoderConfig) -> Shapes:
    """List one block's tensors; a projection is stored as (outputs, inputs)."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.query_size, config.key_value_size
    projections = {
        "self_attn.q_proj": (queries, hidden, config.qkv_bias),
        "self_attn.k_proj": (keys, hidden, config.qkv_bias),
        "self_attn.v_proj": (keys, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, queries, config.o_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    shapes: Shapes = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if config.qk_norm:
        shapes["self_attn.q_norm.weight"] = (config.head_dim,)
        shapes["self_attn.k_norm.weight"] = (config.head_dim,)
    for name, (outputs, inputs, bias) in projections.items():
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)
    return shapes


def block_values(config: DecoderConfig) -> int:
    """Count the values of one block's tensors."""
    return sum(math.prod(shape) for shape in block_shapes(config).values())
