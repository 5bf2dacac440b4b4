"""What config.json says of a decoder's sizes and of its rotation, for any family."""

from __future__ import annotations

from dataclasses import dataclass

from ster.architecture.fields import Fields
from ster.architecture.rotary_config import DEFAULT_THETA, read_rope
from ster.architecture.spec import Rotary

# Far above any model, and low enough that a list of all layers is small.
MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A decoder's sizes, in the words of config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float


def read_sizes(
    fields: Fields,
    *,
    head_dim: int | None = None,
    max_position_embeddings: int | None = None,
    rms_norm_eps: float | None = None,
) -> Sizes:
    """Read the sizes.

    Args:
        fields: The whole config.
        head_dim: The family's own where the file names none; None divides the width by
            the heads.
        max_position_embeddings: The same for the trained length; None requires it.
        rms_norm_eps: The same for what norms add; None requires it.

    Raises:
        ConfigError: A size is missing or does not fit the others.
    """
    num_layers = fields.count("num_hidden_layers", least=0, most=MOST_LAYERS)
    positions = fields.count("max_position_embeddings", max_position_embeddings)
    heads = fields.count("num_attention_heads")
    return Sizes(
        hidden_size=fields.count("hidden_size"),
        intermediate_size=fields.count("intermediate_size"),
        num_hidden_layers=num_layers,
        num_attention_heads=heads,
        num_key_value_heads=_num_key_value_heads(fields, heads),
        head_dim=_head_dim(fields, heads, head_dim),
        max_position_embeddings=positions,
        rms_norm_eps=fields.number("rms_norm_eps", rms_norm_eps),
    )


def read_rotary(fields: Fields, sizes: Sizes, theta: float = DEFAULT_THETA) -> Rotary:
    """Read the rotary scaling that all layers share.

    Args:
        fields: The whole config.
        sizes: Its sizes.
        theta: The family's own where the file names none.
    """
    positions = sizes.max_position_embeddings
    scaling = read_rope(fields, positions, theta)
    return Rotary(scaling=scaling, dim=sizes.head_dim)


def _num_key_value_heads(fields: Fields, heads: int) -> int:
    key_value_heads = fields.count("num_key_value_heads", heads)
    if heads % key_value_heads:
        fields.refuse(
            "num_key_value_heads",
            key_value_heads,
            f"a divisor of num_attention_heads, which is {heads}",
        )
    return key_value_heads


def _head_dim(fields: Fields, heads: int, usual: int | None) -> int:
    hidden_size = fields.count("hidden_size")
    if fields.has("head_dim"):
        head_dim = fields.count("head_dim")
    elif usual is not None:
        head_dim = usual
    elif hidden_size % heads:
        fields.refuse(
            "hidden_size", hidden_size, f"a multiple of num_attention_heads, {heads}"
        )
    else:
        head_dim = hidden_size // heads
    # Dynamic scaling divides by head_dim - 2 on top.
    if head_dim % 2 or head_dim == 2:
        fields.refuse("head_dim", head_dim, "even and above two, as the rotation needs")
    return head_dim
