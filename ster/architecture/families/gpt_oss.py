"""gpt-oss. Source: transformers 5.24, models/gpt_oss."""

from __future__ import annotations

from dataclasses import replace

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.experts import BARE, read_num_experts
from ster.architecture.fields import Fields
from ster.architecture.modules import Matrix, Part, Suffixes, Values
from ster.architecture.parts import ClampedSwiglu, Experts, FeedForward
from ster.architecture.sizes import Sizes, read_rotary, read_sizes
from ster.architecture.spec import LayerSpec, ModelSpec
from ster.architecture.windows import listed_windows

# GptOssConfig, where the file does not say.
THETA, WINDOW = 150_000.0, 128
ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
BLOCKS = Suffixes(weight="_blocks", bias="_bias", scales="_scales")


def read_gpt_oss(fields: Fields) -> ModelSpec:
    """Read a gpt-oss: sinks, windows in every other layer, experts with a bound."""
    check_activation(fields)
    sizes = read_sizes(
        fields,
        head_dim=64,
        num_key_value_heads=8,
        max_position_embeddings=131_072,
        rms_norm_eps=1e-5,
    )
    if not (fields.has("rope_parameters") or fields.has("rope_scaling")):
        fields = replace(fields, values={**fields.values, "rope_scaling": ROPE})
    rotary = read_rotary(fields, sizes, THETA)
    bias = fields.flag("attention_bias", default=True)
    maker = BlockMaker(sizes=sizes, qkv_bias=bias, o_bias=bias)
    experts = _read_experts(fields, sizes)
    slides = [layer % 2 == 0 for layer in range(sizes.num_hidden_layers)]
    windows = listed_windows(fields, slides, WINDOW)
    layers = [
        _with_sinks(maker.block(i, rotary, window, experts))
        for i, window in enumerate(windows)
    ]
    return make_model(fields, sizes, layers)


def _with_sinks(block: LayerSpec) -> LayerSpec:
    attention = block.attention
    sinks = Values(name="self_attn.sinks", shape=(attention.num_heads,))
    return replace(block, attention=replace(attention, sinks=sinks))


def _read_experts(fields: Fields, sizes: Sizes) -> Experts:
    count = read_num_experts(fields, 128)
    activation = ClampedSwiglu(
        alpha=fields.number("swiglu_alpha", 1.702),
        limit=fields.number("swiglu_limit", 7.0),
    )
    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    return Experts(
        router=Matrix(name="mlp.router", outputs=count, inputs=hidden, bias=True),
        experts=tuple(
            FeedForward(
                activation=activation,
                gate_proj=_matrix("gate_proj", (i, count), inner, hidden),
                up_proj=_matrix("up_proj", (i, count), inner, hidden),
                down_proj=_matrix("down_proj", (i, count), hidden, inner),
            )
            for i in range(count)
        ),
        num_chosen=fields.count("num_experts_per_tok", 4),
        normalized=True,
    )


def _matrix(name: str, stack: tuple[int, int], outputs: int, inputs: int) -> Matrix:
    """Say where a matrix lies: as transformers writes it, as OpenAI does, or mlx-lm.

    In the first two, gate and up stand row by row in one tensor.
    """
    fused, part = "down_proj", None
    if name != "down_proj":
        start = 0 if name == "gate_proj" else 1
        fused, part = (
            "gate_up_proj",
            Part(outputs=2 * outputs, start=start, groups=outputs),
        )
    alone = Matrix(
        name=f"mlp.experts.{name}",
        outputs=outputs,
        inputs=inputs,
        bias=True,
        stack=stack,
    )
    blocks = replace(alone, name=f"mlp.experts.{fused}", part=part, suffixes=BLOCKS)
    return replace(blocks, suffixes=BARE, transposed=True, others=(blocks, alone))
