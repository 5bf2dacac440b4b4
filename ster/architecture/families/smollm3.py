"""SmolLM 3. Source: transformers 5.24, models/smollm3."""

from __future__ import annotations

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.fields import Fields
from ster.architecture.sizes import read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import switched_windows

# SmolLM3Config, where the file does not say.
THETA = 2_000_000.0
INTERVAL = 4


def read_smollm3(fields: Fields) -> ModelSpec:
    """Read a SmolLM 3: some layers do not turn their queries and keys at all."""
    check_activation(fields)
    sizes = read_sizes(fields, max_position_embeddings=32_768, rms_norm_eps=1e-6)
    rotary = read_rotary(fields, sizes, THETA)
    turns = _turns(fields, sizes.num_hidden_layers)
    # Where no list says it, the layers that do not turn are the sliding ones.
    has_window = fields.has("sliding_window")
    windows = switched_windows(fields, [has_window and not each for each in turns])
    attention_bias = fields.flag("attention_bias", default=False)
    maker = BlockMaker(
        sizes=sizes,
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", default=False),
    )
    layers = [
        maker.block(layer, rotary if turns[layer] else None, window)
        for layer, window in enumerate(windows)
    ]
    return make_model(fields, sizes, layers, tied=True)


def _turns(fields: Fields, num_layers: int) -> list[bool]:
    """Read which layers have a rotation."""
    declared = fields.values.get("no_rope_layers")
    if declared is None:
        interval = fields.count("no_rope_layer_interval", INTERVAL)
        return [(layer + 1) % interval != 0 for layer in range(num_layers)]
    if not isinstance(declared, list) or len(declared) != num_layers:
        fields.refuse("no_rope_layers", declared, f"a list for {num_layers} layers")
    for each in declared:
        if each not in (0, 1):
            fields.refuse("no_rope_layers", each, "0 or 1 for each layer")
    return [bool(each) for each in declared]
