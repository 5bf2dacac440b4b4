"""The block that most families share: attention and a gated feed-forward part.

A family says in what its blocks differ, and ``make_model`` puts the rest around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ster.architecture.fields import Fields
from ster.architecture.sizes import Sizes
from ster.architecture.spec import (
    Attention,
    FeedForward,
    LayerSpec,
    Matrix,
    ModelSpec,
    Norm,
    Rotary,
)
from ster.errors import ConfigError
from ster.text import quoted

ACTIVATIONS = ("silu", "swish")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMaker:
    """Makes the blocks of one model: what is the same in all of them.

    Args:
        sizes: The model's sizes.
        qkv_bias: q_proj, k_proj and v_proj have biases.
        o_bias: o_proj has one.
        mlp_bias: gate_proj, up_proj and down_proj have them.
        qk_norm: ``head`` normalises queries and keys head by head, ``row`` all heads of
            a token as one.
        scale: Multiplies the scores; None is one over the square root of ``head_dim``.
        norms_after: Attention and feed-forward part are normalised after and not
            before.
        residual_multiplier: Multiplies what each of them adds to the stream.
    """

    sizes: Sizes
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: str | None = None
    scale: float | None = None
    norms_after: bool = False
    residual_multiplier: float = 1.0
    activation: str = "silu"

    def block(
        self, layer: int, rotary: Rotary | None, window: int | None = None
    ) -> LayerSpec:
        """Make one block."""
        attention = self._attention(rotary, window)
        norms = self._norms_after() if self.norms_after else self._norms_before()
        return LayerSpec(
            prefix=f"layers.{layer}.",
            attention=attention,
            feed_forward=self._feed_forward(),
            residual_multiplier=self.residual_multiplier,
            attention_norm=norms.get("attention_norm"),
            attention_out_norm=norms.get("attention_out_norm"),
            feed_forward_norm=norms.get("feed_forward_norm"),
            feed_forward_out_norm=norms.get("feed_forward_out_norm"),
        )

    def _attention(self, rotary: Rotary | None, window: int | None) -> Attention:
        sizes, hidden = self.sizes, self.sizes.hidden_size
        queries = sizes.num_attention_heads * sizes.head_dim
        keys = sizes.num_key_value_heads * sizes.head_dim

        def project(name: str, outputs: int) -> Matrix:
            return Matrix(
                name=f"self_attn.{name}",
                outputs=outputs,
                inputs=hidden,
                bias=self.qkv_bias,
            )

        return Attention(
            q_proj=project("q_proj", queries),
            k_proj=project("k_proj", keys),
            v_proj=project("v_proj", keys),
            o_proj=Matrix(
                name="self_attn.o_proj",
                outputs=hidden,
                inputs=queries,
                bias=self.o_bias,
            ),
            num_heads=sizes.num_attention_heads,
            num_key_value_heads=sizes.num_key_value_heads,
            head_dim=sizes.head_dim,
            scale=sizes.head_dim**-0.5 if self.scale is None else self.scale,
            window=window,
            rotary=rotary,
            q_norm=self._qk_norm("self_attn.q_norm", queries),
            k_norm=self._qk_norm("self_attn.k_norm", keys),
        )

    def _qk_norm(self, name: str, row: int) -> Norm | None:
        if self.qk_norm is None:
            return None
        return self._norm(name, row if self.qk_norm == "row" else self.sizes.head_dim)

    def _feed_forward(self) -> FeedForward:
        hidden, inner = self.sizes.hidden_size, self.sizes.intermediate_size

        def project(name: str, outputs: int, inputs: int) -> Matrix:
            return Matrix(
                name=f"mlp.{name}", outputs=outputs, inputs=inputs, bias=self.mlp_bias
            )

        return FeedForward(
            activation=self.activation,
            gate_proj=project("gate_proj", inner, hidden),
            up_proj=project("up_proj", inner, hidden),
            down_proj=project("down_proj", hidden, inner),
        )

    def _norms_before(self) -> dict[str, Norm]:
        return {
            "attention_norm": self._norm("input_layernorm"),
            "feed_forward_norm": self._norm("post_attention_layernorm"),
        }

    def _norms_after(self) -> dict[str, Norm]:
        return {
            "attention_out_norm": self._norm("post_attention_layernorm"),
            "feed_forward_out_norm": self._norm("post_feedforward_layernorm"),
        }

    def _norm(self, name: str, size: int | None = None) -> Norm:
        return Norm(
            name=name,
            size=self.sizes.hidden_size if size is None else size,
            eps=self.sizes.rms_norm_eps,
        )


def make_model(
    fields: Fields,
    sizes: Sizes,
    layers: Sequence[LayerSpec],
    *,
    tied: bool = False,
    embedding_scale: float = 1.0,
    logit_scale: float = 1.0,
) -> ModelSpec:
    """Put embedding, final norm and head around the blocks.

    Args:
        fields: The whole config.
        sizes: Its sizes.
        layers: The blocks.
        tied: Whether the family's head is the embedding where the file does not say.
        embedding_scale: Multiplies the embedding's rows.
        logit_scale: Multiplies the logits.
    """
    width, vocab_size = sizes.hidden_size, fields.count("vocab_size")
    tied = fields.flag("tie_word_embeddings", default=tied)
    return ModelSpec(
        model_type=fields.model_type,
        hidden_size=width,
        vocab_size=vocab_size,
        max_position_embeddings=sizes.max_position_embeddings,
        layers=tuple(layers),
        embedding=Matrix(name="embed_tokens", outputs=vocab_size, inputs=width),
        final_norm=Norm(name="norm", size=width, eps=sizes.rms_norm_eps),
        head=None if tied else Matrix(name="lm_head", outputs=vocab_size, inputs=width),
        embedding_scale=embedding_scale,
        logit_scale=logit_scale,
    )


def check_activation(fields: Fields) -> None:
    """Refuse a feed-forward part that is not silu's.

    Raises:
        ConfigError: It names another activation.
    """
    declared = fields.word("hidden_act", "silu")
    if declared not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ConfigError(
            f"{fields.path} declares hidden_act {quoted(declared)} for its "
            f"{fields.model_type} feed-forward; Ster implements {known}",
            path=fields.path,
            field="hidden_act",
            found=declared,
            expected=ACTIVATIONS,
        )
