"""Qwen 2, 2.5 and 3, dense. Source: transformers 5.24, models/qwen2 and qwen3."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import Sizes, read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import switched_windows

# Qwen2Config and Qwen3Config, where the file does not say.
POSITIONS, EPS = 32_768, 1e-6
MAX_WINDOW_LAYERS = 28
QWEN3_HEAD_DIM = 128


def read_qwen2(fields: Fields) -> ModelSpec:
    """Read a Qwen 2: its queries, keys and values always have biases."""
    sizes = read_sizes(fields, max_position_embeddings=POSITIONS, rms_norm_eps=EPS)
    return _read(fields, sizes, BlockMaker(sizes=sizes, qkv_bias=True))


def read_qwen3(fields: Fields) -> ModelSpec:
    """Read a Qwen 3: queries and keys are normalised head by head."""
    sizes = read_sizes(
        fields,
        head_dim=QWEN3_HEAD_DIM,
        max_position_embeddings=POSITIONS,
        rms_norm_eps=EPS,
    )
    bias = fields.flag("attention_bias", default=False)
    maker = BlockMaker(sizes=sizes, qkv_bias=bias, o_bias=bias, qk_norm="head")
    return _read(fields, sizes, maker)


def _read(fields: Fields, sizes: Sizes, maker: BlockMaker) -> ModelSpec:
    check_activation(fields)
    rotary = read_rotary(fields, sizes)
    first = fields.count("max_window_layers", MAX_WINDOW_LAYERS, least=0)
    slides = [layer >= first for layer in range(sizes.num_hidden_layers)]
    windows = switched_windows(fields, slides)
    layers = [maker.block(i, rotary, window) for i, window in enumerate(windows)]
    return make_model(fields, sizes, layers)
