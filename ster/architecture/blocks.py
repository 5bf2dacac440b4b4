"""The block that most families share: attention and a gated feed-forward part.

A family says in what its blocks differ, and ``make_model`` puts the rest around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ster.architecture.fields import Fields
from ster.architecture.modules import Matrix, Norm, Part
from ster.architecture.parts import Attention, Experts, FeedForward, Rotary
from ster.architecture.sizes import Sizes
from ster.architecture.spec import LayerSpec, ModelSpec, Naming
from ster.errors import ConfigError
from ster.text import quoted

# What files call the activations, and ster's names.
SILU = {"silu": "silu", "swish": "silu"}
GELU_TANH = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}


# Which module normalises what: each role in a block, and the module's name.
NORMS_BEFORE = {
    "attention_norm": "input_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
}
NORMS_AFTER = {
    "attention_out_norm": "post_attention_layernorm",
    "feed_forward_out_norm": "post_feedforward_layernorm",
}
NORMS_AROUND = {
    "attention_norm": "input_layernorm",
    "attention_out_norm": "post_attention_layernorm",
    "feed_forward_norm": "pre_feedforward_layernorm",
    "feed_forward_out_norm": "post_feedforward_layernorm",
}


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
        softcap: Caps the scores.
        activation: As for ``FeedForward``.
        norms: The module of each role.
        norm_offset: Added to every norm's stored weight.
        centred: The norms are LayerNorms, without biases.
        residual_multiplier: Multiplies what attention and feed-forward part add.
        parallel: They read the same stream.
        fused_qkv: q_proj, k_proj and v_proj are rows of ``qkv_proj``.
        fused_gate_up: gate_proj and up_proj are rows of ``gate_up_proj``.
        paired: Channels that turn together are stored side by side.
    """

    sizes: Sizes
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: str | None = None
    scale: float | None = None
    softcap: float | None = None
    activation: str = "silu"
    norms: Mapping[str, str] = field(default_factory=lambda: NORMS_BEFORE)
    norm_offset: float = 0.0
    centred: bool = False
    residual_multiplier: float = 1.0
    parallel: bool = False
    fused_qkv: bool = False
    fused_gate_up: bool = False
    paired: bool = False

    def block(
        self,
        layer: int,
        rotary: Rotary | None,
        window: int | None = None,
        feed_forward: FeedForward | Experts | None = None,
    ) -> LayerSpec:
        """Make one block; its feed-forward part is the usual one unless given."""
        norms = {role: self.norm(name) for role, name in self.norms.items()}
        return LayerSpec(
            prefix=f"layers.{layer}.",
            attention=self._attention(rotary, window),
            feed_forward=feed_forward or self.feed_forward(),
            attention_norm=norms.get("attention_norm"),
            attention_out_norm=norms.get("attention_out_norm"),
            feed_forward_norm=norms.get("feed_forward_norm"),
            feed_forward_out_norm=norms.get("feed_forward_out_norm"),
            residual_multiplier=self.residual_multiplier,
            parallel=self.parallel,
        )

    def norm(self, name: str, size: int | None = None) -> Norm:
        """Make a norm of the family's kind."""
        return Norm(
            name=name,
            size=self.sizes.hidden_size if size is None else size,
            eps=self.sizes.norm_eps,
            offset=self.norm_offset,
            centred=self.centred,
        )

    def feed_forward(
        self, inner: int | None = None, within: str = "mlp."
    ) -> FeedForward:
        """Make a gated feed-forward part of some width, its modules within a place."""
        hidden = self.sizes.hidden_size
        inner = self.sizes.intermediate_size if inner is None else inner
        both = f"{within}gate_up_proj"

        def project(name: str, outputs: int, inputs: int, start: int = 0) -> Matrix:
            fused = self.fused_gate_up and name != "down_proj"
            return Matrix(
                name=both if fused else f"{within}{name}",
                outputs=outputs,
                inputs=inputs,
                bias=self.mlp_bias,
                part=Part(outputs=2 * inner, start=start) if fused else None,
            )

        return FeedForward(
            activation=self.activation,
            gate_proj=project("gate_proj", inner, hidden),
            up_proj=project("up_proj", inner, hidden, inner),
            down_proj=project("down_proj", hidden, inner),
        )

    def _attention(self, rotary: Rotary | None, window: int | None) -> Attention:
        sizes, hidden = self.sizes, self.sizes.hidden_size
        queries = sizes.num_attention_heads * sizes.head_dim
        keys = sizes.num_key_value_heads * sizes.head_dim
        pairs = self._pairs(rotary)

        def project(
            name: str, outputs: int, start: int, turned: tuple[int, int] | None = None
        ) -> Matrix:
            fused = Part(outputs=queries + 2 * keys, start=start)
            return Matrix(
                name=f"self_attn.{'qkv_proj' if self.fused_qkv else name}",
                outputs=outputs,
                inputs=hidden,
                bias=self.qkv_bias,
                part=fused if self.fused_qkv else None,
                pairs=turned,
            )

        return Attention(
            q_proj=project("q_proj", queries, 0, pairs),
            k_proj=project("k_proj", keys, queries, pairs),
            v_proj=project("v_proj", keys, queries + keys),
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
            softcap=self.softcap,
            window=window,
            rotary=rotary,
            q_norm=self._qk_norm("self_attn.q_norm", queries),
            k_norm=self._qk_norm("self_attn.k_norm", keys),
        )

    def _pairs(self, rotary: Rotary | None) -> tuple[int, int] | None:
        if not self.paired or rotary is None:
            return None
        return self.sizes.head_dim, rotary.dim

    def _qk_norm(self, name: str, row: int) -> Norm | None:
        if self.qk_norm is None:
            return None
        return self.norm(name, row if self.qk_norm == "row" else self.sizes.head_dim)


def make_model(
    fields: Fields,
    sizes: Sizes,
    layers: Sequence[LayerSpec],
    *,
    tied: bool = False,
    final_norm: Norm | None = None,
    embedding_scale: float = 1.0,
    logit_scale: float = 1.0,
    logit_softcap: float | None = None,
    naming: Naming | None = None,
) -> ModelSpec:
    """Put embedding, final norm and head around the blocks.

    Args:
        fields: The whole config.
        sizes: Its sizes.
        layers: The blocks.
        tied: Whether the family's head is the embedding where the file does not say.
        final_norm: An RMSNorm unless given.
        embedding_scale: Multiplies the embedding's rows.
        logit_scale: Multiplies the logits.
        logit_softcap: Caps them.
        naming: A Llama's unless given.
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
        final_norm=final_norm or Norm(name="norm", size=width, eps=sizes.norm_eps),
        head=None if tied else Matrix(name="lm_head", outputs=vocab_size, inputs=width),
        embedding_scale=embedding_scale,
        logit_scale=logit_scale,
        logit_softcap=logit_softcap,
        naming=naming or Naming(),
    )


def check_activation(
    fields: Fields, known: Mapping[str, str] = SILU, name: str = "hidden_act"
) -> str:
    """Read the activation of the feed-forward part, by ster's name.

    Args:
        fields: The whole config.
        known: The words that the family may use, and ster's names; the first is what an
            absent field means.
        name: The field.

    Raises:
        ConfigError: It names another activation.
    """
    declared = fields.word(name, next(iter(known)))
    if declared not in known:
        raise ConfigError(
            f"{fields.path} declares {name} {quoted(declared)} for its "
            f"{fields.model_type} feed-forward; Ster implements {', '.join(known)}",
            path=fields.path,
            field=name,
            found=declared,
            expected=tuple(known),
        )
    return known[declared]
