"""EXAONE 4. Source: transformers 5.24, models/exaone4."""

from __future__ import annotations

from ster.architecture.blocks import (
    NORMS_AFTER,
    BlockMaker,
    check_activation,
    make_model,
)
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import listed_windows

WINDOW, PATTERN = 4096, 4


def read_exaone4(fields: Fields) -> ModelSpec:
    """Read an EXAONE 4: norms after each part; with windows, only those layers turn."""
    check_activation(fields)
    sizes = read_sizes(fields, max_position_embeddings=2048, rms_norm_eps=1e-5)
    rotary = read_rotary(fields, sizes)
    has_windows = fields.values.get("sliding_window", WINDOW) is not None
    windows = listed_windows(fields, _slides(fields, sizes.num_hidden_layers), WINDOW)
    maker = BlockMaker(sizes=sizes, qk_norm="head", norms=NORMS_AFTER)
    layers = [
        maker.block(i, None if has_windows and window is None else rotary, window)
        for i, window in enumerate(windows)
    ]
    return make_model(fields, sizes, layers)


def _slides(fields: Fields, num_layers: int) -> list[bool]:
    """Tell which layers have a window where no list says it."""
    if fields.values.get("sliding_window", WINDOW) is None:
        return [False] * num_layers
    pattern = fields.values.get("sliding_window_pattern", PATTERN)
    if isinstance(pattern, str):  # such as LLLG: local and global layers
        return [pattern[i % len(pattern)] == "L" for i in range(num_layers)]
    every = fields.count("sliding_window_pattern", PATTERN)
    return [(layer + 1) % every != 0 for layer in range(num_layers)]
