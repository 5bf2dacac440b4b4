"""What config.json says of a decoder's sizes and of its rotation, for any family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ster.architecture.fields import Fields
from ster.architecture.parts import Rotary
from ster.architecture.rotary import DefaultRope, LongRope, ReadRope
from ster.architecture.rotary_config import DEFAULT_THETA, kind_of_rope, read_rope

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
    norm_eps: float


def read_sizes(
    fields: Fields,
    *,
    head_dim: int | None = None,
    num_key_value_heads: int | None = None,
    max_position_embeddings: int | None = None,
    rms_norm_eps: float | None = None,
    eps_field: str = "rms_norm_eps",
) -> Sizes:
    """Read the sizes.

    Args:
        fields: The whole config.
        head_dim: The family's own where the file names none; None divides the width by
            the heads.
        num_key_value_heads: The same for key heads; None takes as many as query heads.
        max_position_embeddings: The same for the trained length; None requires it.
        rms_norm_eps: The same for what norms add; None requires it.
        eps_field: What the file calls that.

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
        num_key_value_heads=_num_key_value_heads(
            fields, heads, num_key_value_heads or heads
        ),
        head_dim=_head_dim(fields, heads, head_dim),
        max_position_embeddings=positions,
        norm_eps=fields.number(eps_field, rms_norm_eps),
    )


def read_rotary(
    fields: Fields,
    sizes: Sizes,
    theta: float = DEFAULT_THETA,
    *,
    partial: float | None = None,
) -> Rotary:
    """Read the rotary scaling that all layers share.

    Args:
        fields: The whole config.
        sizes: Its sizes.
        theta: The family's own where the file names none.
        partial: The share of a head's channels that turns, where the file names none;
            None refuses any but all of them.
    """
    rope = read_rope(fields, sizes.max_position_embeddings, theta, partial=partial)
    return make_rotary(fields, sizes, rope)


def read_rotary_by_kind(
    fields: Fields, sizes: Sizes, thetas: Mapping[str, tuple[str, float]]
) -> dict[str, Rotary]:
    """Read a rotary scaling for each kind of layer.

    In the older spelling ``rope_scaling`` is that of layers with full attention.

    Args:
        fields: The whole config.
        sizes: Its sizes.
        thetas: For each kind, the older spelling's field and the family's own theta.
    """
    rotaries: dict[str, Rotary] = {}
    for kind, (older, theta) in thetas.items():
        of_kind = kind_of_rope(fields, kind, older)
        rope = read_rope(of_kind, sizes.max_position_embeddings, theta)
        rotaries[kind] = make_rotary(of_kind, sizes, rope)
    return rotaries


def make_rotary(fields: Fields, sizes: Sizes, rope: ReadRope) -> Rotary:
    """Give a scaling its channels."""
    dim, scaling = int(sizes.head_dim * rope.partial), rope.scaling
    # Of an odd number one channel more turns, as it does in transformers.
    odd = dim % 2 and not isinstance(scaling, DefaultRope)
    if dim < 2 or dim + dim % 2 > sizes.head_dim or odd:
        fields.refuse("partial_rotary_factor", rope.partial, "an even share of a head")
    if isinstance(scaling, LongRope) and len(scaling.short_factor) != dim // 2:
        found = len(scaling.short_factor)
        fields.refuse("rope_scaling", found, f"{dim // 2} factors, one a channel pair")
    return Rotary(scaling=scaling, dim=dim, query_scaling=rope.query_scaling)


def _num_key_value_heads(fields: Fields, heads: int, usual: int) -> int:
    key_value_heads = fields.count("num_key_value_heads", usual)
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
