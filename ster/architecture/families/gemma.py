"""Gemma 1, 2 and 3 (text). Source: transformers 5.24, models/gemma, gemma2, gemma3."""

from __future__ import annotations

from dataclasses import replace

from ster.architecture.blocks import (
    GELU_TANH,
    NORMS_AROUND,
    BlockMaker,
    check_activation,
    make_model,
)
from ster.architecture.fields import Fields
from ster.architecture.sizes import Sizes, read_rotary, read_rotary_by_kind, read_sizes
from ster.architecture.spec import LayerSpec, ModelSpec
from ster.architecture.windows import FULL, SLIDING, listed_windows

EPS, HEAD_DIM = 1e-6, 256
WINDOW = 4096
# query_pre_attn_scalar and the caps, where the file does not say.
QUERY_SCALAR = 256
SCORE_CAP, LOGIT_CAP = 50.0, 30.0
GEMMA3_PATTERN = 6
GEMMA3_USUAL: dict[str, object] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
THETAS = {
    FULL: ("rope_theta", 1_000_000.0),
    SLIDING: ("rope_local_base_freq", 10_000.0),
}


def read_gemma(fields: Fields) -> ModelSpec:
    """Read a Gemma: norms store w - 1, and the embedding is scaled by its width."""
    # The first files say gelu and mean its approximation.
    activation = check_activation(fields, GELU_TANH | {"gelu": "gelu_tanh"})
    sizes = read_sizes(
        fields, head_dim=HEAD_DIM, max_position_embeddings=8192, rms_norm_eps=EPS
    )
    rotary = read_rotary(fields, sizes)
    bias = _attention_bias(fields)
    maker = BlockMaker(
        sizes=sizes,
        qkv_bias=bias,
        o_bias=bias,
        activation=activation,
        norm_offset=1.0,
    )
    layers = [maker.block(i, rotary) for i in range(sizes.num_hidden_layers)]
    return _make(fields, maker, layers)


def read_gemma2(fields: Fields) -> ModelSpec:
    """Read a Gemma 2: norms around both parts, caps, and every other layer a window."""
    maker = _maker(fields, 8192, softcap=_cap(fields, "attn_logit_softcapping", 50.0))
    sizes = maker.sizes
    rotary = read_rotary(fields, sizes)
    slides = [layer % 2 == 0 for layer in range(sizes.num_hidden_layers)]
    windows = listed_windows(fields, slides, WINDOW)
    layers = [maker.block(i, rotary, window) for i, window in enumerate(windows)]
    cap = _cap(fields, "final_logit_softcapping", LOGIT_CAP)
    return _make(fields, maker, layers, logit_softcap=cap)


def read_gemma3(fields: Fields) -> ModelSpec:
    """Read a Gemma 3: most layers have a window, and turn by a theta of their own."""
    # The config of a vision model often says only in what its text model differs.
    usual = {name: v for name, v in GEMMA3_USUAL.items() if not fields.has(name)}
    fields = replace(fields, values={**fields.values, **usual})
    if fields.has("attn_logit_softcapping"):
        # transformers reads the field and does not use it.
        found = fields.values["attn_logit_softcapping"]
        fields.refuse(
            "attn_logit_softcapping", found, "null, as this family has no cap"
        )
    maker = _maker(fields, 131_072, qk_norm="head")
    sizes = maker.sizes
    rotaries = read_rotary_by_kind(fields, sizes, THETAS)
    pattern = fields.count("sliding_window_pattern", GEMMA3_PATTERN)
    slides = [(layer + 1) % pattern != 0 for layer in range(sizes.num_hidden_layers)]
    windows = listed_windows(fields, slides, WINDOW)
    layers = [
        maker.block(i, rotaries[FULL if window is None else SLIDING], window)
        for i, window in enumerate(windows)
    ]
    cap = _cap(fields, "final_logit_softcapping", None)
    return _make(fields, maker, layers, logit_softcap=cap)


def _maker(
    fields: Fields,
    positions: int,
    *,
    softcap: float | None = None,
    qk_norm: str | None = None,
) -> BlockMaker:
    activation = check_activation(fields, GELU_TANH, "hidden_activation")
    sizes: Sizes = read_sizes(
        fields, head_dim=HEAD_DIM, max_position_embeddings=positions, rms_norm_eps=EPS
    )
    bias = _attention_bias(fields)
    return BlockMaker(
        sizes=sizes,
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=qk_norm,
        scale=fields.number("query_pre_attn_scalar", QUERY_SCALAR) ** -0.5,
        softcap=softcap,
        activation=activation,
        norms=NORMS_AROUND,
        norm_offset=1.0,
    )


def _attention_bias(fields: Fields) -> bool:
    if fields.flag("use_bidirectional_attention", default=False):
        fields.refuse(
            "use_bidirectional_attention",
            True,
            "false: Ster reads models that write from left to right",
        )
    return fields.flag("attention_bias", default=False)


def _cap(fields: Fields, name: str, usual: float | None) -> float | None:
    """Read a cap; an explicit null is none, an absent field the family's own."""
    if fields.values.get(name, usual) is None:
        return None
    return fields.number(name, usual)


def _make(
    fields: Fields,
    maker: BlockMaker,
    layers: list[LayerSpec],
    logit_softcap: float | None = None,
) -> ModelSpec:
    return make_model(
        fields,
        maker.sizes,
        layers,
        tied=True,
        final_norm=maker.norm("norm"),
        embedding_scale=maker.sizes.hidden_size**0.5,
        logit_softcap=logit_softcap,
    )
