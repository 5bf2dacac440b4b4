"""GPT-2. Source: transformers 5.24, models/gpt2."""

from __future__ import annotations

from ster.architecture.blocks import GELU_TANH, check_activation
from ster.architecture.fields import Fields
from ster.architecture.modules import Matrix, Norm, Part
from ster.architecture.parts import Attention, FeedForward
from ster.architecture.sizes import MOST_LAYERS
from ster.architecture.spec import LayerSpec, ModelSpec, Naming

# Masks are stored along in old files.
NAMING = Naming(
    prefixes=("transformer.", "model.", ""),  # the second is mlx-lm's
    ignored=(".attn.bias", ".attn.masked_bias"),
)
ACTIVATIONS = {"gelu_new": "gelu_tanh", **GELU_TANH, "gelu": "gelu"}


def read_gpt2(fields: Fields) -> ModelSpec:
    """Read a GPT-2: learned positions, LayerNorms, matrices stored on their side."""
    activation = check_activation(fields, ACTIVATIONS, "activation_function")
    hidden, heads = fields.count("n_embd"), fields.count("n_head")
    if hidden % heads:
        fields.refuse("n_embd", hidden, f"a multiple of n_head, {heads}")
    if fields.flag("add_cross_attention", default=False):
        fields.refuse("add_cross_attention", True, "false")
    num_layers = fields.count("n_layer", least=0, most=MOST_LAYERS)
    vocab_size = fields.count("vocab_size")
    positions = fields.count("n_positions", 1024)
    eps = fields.number("layer_norm_epsilon", 1e-5)
    inner = fields.count("n_inner", 4 * hidden)
    layers = [
        _block(fields, layer, hidden=hidden, inner=inner, eps=eps, act=activation)
        for layer in range(num_layers)
    ]
    tied = fields.flag("tie_word_embeddings", default=True)
    return ModelSpec(
        model_type=fields.model_type,
        hidden_size=hidden,
        vocab_size=vocab_size,
        max_position_embeddings=positions,
        layers=tuple(layers),
        embedding=Matrix(name="wte", outputs=vocab_size, inputs=hidden),
        positions=Matrix(name="wpe", outputs=positions, inputs=hidden),
        final_norm=_norm("ln_f", hidden, eps),
        head=None
        if tied
        else Matrix(name="lm_head", outputs=vocab_size, inputs=hidden),
        naming=NAMING,
    )


def _block(
    fields: Fields, layer: int, *, hidden: int, inner: int, eps: float, act: str
) -> LayerSpec:
    def project(part: int) -> Matrix:
        return Matrix(
            name="attn.c_attn",
            outputs=hidden,
            inputs=hidden,
            bias=True,
            part=Part(outputs=3 * hidden, start=part * hidden),
            transposed=True,
        )

    def matrix(name: str, outputs: int, inputs: int) -> Matrix:
        return Matrix(
            name=name, outputs=outputs, inputs=inputs, bias=True, transposed=True
        )

    heads = fields.count("n_head")
    return LayerSpec(
        prefix=f"h.{layer}.",
        attention_norm=_norm("ln_1", hidden, eps),
        attention=Attention(
            q_proj=project(0),
            k_proj=project(1),
            v_proj=project(2),
            o_proj=matrix("attn.c_proj", hidden, hidden),
            num_heads=heads,
            num_key_value_heads=heads,
            head_dim=hidden // heads,
            scale=_scale(fields, layer, hidden // heads),
        ),
        feed_forward_norm=_norm("ln_2", hidden, eps),
        feed_forward=FeedForward(
            activation=act,
            gate_proj=None,
            up_proj=matrix("mlp.c_fc", inner, hidden),
            down_proj=matrix("mlp.c_proj", hidden, inner),
        ),
    )


def _scale(fields: Fields, layer: int, head_dim: int) -> float:
    weighted = fields.flag("scale_attn_weights", default=True)
    scale = head_dim**-0.5 if weighted else 1.0
    by_layer = fields.flag("scale_attn_by_inverse_layer_idx", default=False)
    return scale / (layer + 1) if by_layer else scale


def _norm(name: str, size: int, eps: float) -> Norm:
    return Norm(name=name, size=size, eps=eps, centred=True, bias=True)
