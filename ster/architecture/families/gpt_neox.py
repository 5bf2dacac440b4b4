"""GPT-NeoX and Pythia. Source: transformers 5.24, models/gpt_neox."""

from __future__ import annotations

from dataclasses import replace

from ster.architecture.blocks import GELU_TANH, check_activation
from ster.architecture.fields import Fields
from ster.architecture.modules import Matrix, Norm, Part
from ster.architecture.parts import Attention, FeedForward, Rotary
from ster.architecture.rotary_config import DEFAULT_THETA
from ster.architecture.sizes import Sizes, read_rotary, read_sizes
from ster.architecture.spec import LayerSpec, ModelSpec, Naming

NAMING = Naming(
    prefixes=("gpt_neox.", "model.", ""),
    ignored=("rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"),
    blocks={"model.": "h."},  # mlx-lm's word
)
ACTIVATIONS = {"gelu": "gelu", "gelu_fast": "gelu_tanh", **GELU_TANH}
# Older words for what is now in rope_parameters.
OLDER = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
PARTIAL = 0.25


def read_gpt_neox(fields: Fields) -> ModelSpec:
    """Read a GPT-NeoX: parallel parts; q, k and v of each head lie together."""
    fields = _renamed(fields)
    activation = check_activation(fields, ACTIVATIONS)
    sizes = read_sizes(
        fields,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        eps_field="layer_norm_eps",
    )
    rotary = read_rotary(fields, sizes, DEFAULT_THETA, partial=PARTIAL)
    width, vocab_size = sizes.hidden_size, fields.count("vocab_size")
    tied = fields.flag("tie_word_embeddings", default=False)
    head = Matrix(name="embed_out", outputs=vocab_size, inputs=width)
    return ModelSpec(
        model_type=fields.model_type,
        hidden_size=width,
        vocab_size=vocab_size,
        max_position_embeddings=sizes.max_position_embeddings,
        layers=tuple(
            _block(fields, layer, sizes, rotary, activation)
            for layer in range(sizes.num_hidden_layers)
        ),
        embedding=Matrix(name="embed_in", outputs=vocab_size, inputs=width),
        final_norm=_norm("final_layer_norm", sizes),
        head=None if tied else head,
        naming=NAMING,
    )


def _renamed(fields: Fields) -> Fields:
    """Give older words their new names; its heads are never grouped."""
    values = {**fields.values, "num_key_value_heads": None}
    for new, old in OLDER.items():
        if not fields.has(new):
            values[new] = fields.values.get(old)
    return replace(fields, values=values)


def _block(
    fields: Fields, layer: int, sizes: Sizes, rotary: Rotary, activation: str
) -> LayerSpec:
    return LayerSpec(
        prefix=f"layers.{layer}.",
        attention_norm=_norm("input_layernorm", sizes),
        attention=_attention(fields, sizes, rotary),
        feed_forward_norm=_norm("post_attention_layernorm", sizes),
        feed_forward=_feed_forward(sizes, activation),
        parallel=fields.flag("use_parallel_residual", default=True),
    )


def _attention(fields: Fields, sizes: Sizes, rotary: Rotary) -> Attention:
    width, heads = sizes.hidden_size, sizes.num_attention_heads
    bias = fields.flag("attention_bias", default=True)

    def project(part: int) -> Matrix:
        return Matrix(
            name="attention.query_key_value",
            outputs=width,
            inputs=width,
            bias=bias,
            part=Part(outputs=3 * width, start=part * sizes.head_dim, groups=heads),
        )

    return Attention(
        q_proj=project(0),
        k_proj=project(1),
        v_proj=project(2),
        o_proj=Matrix(name="attention.dense", outputs=width, inputs=width, bias=bias),
        num_heads=heads,
        num_key_value_heads=heads,
        head_dim=sizes.head_dim,
        scale=sizes.head_dim**-0.5,
        rotary=rotary,
    )


def _feed_forward(sizes: Sizes, activation: str) -> FeedForward:
    def matrix(name: str, outputs: int, inputs: int) -> Matrix:
        return Matrix(name=name, outputs=outputs, inputs=inputs, bias=True)

    width, inner = sizes.hidden_size, sizes.intermediate_size
    return FeedForward(
        activation=activation,
        gate_proj=None,
        up_proj=matrix("mlp.dense_h_to_4h", inner, width),
        down_proj=matrix("mlp.dense_4h_to_h", width, inner),
    )


def _norm(name: str, sizes: Sizes) -> Norm:
    return Norm(
        name=name, size=sizes.hidden_size, eps=sizes.norm_eps, centred=True, bias=True
    )
