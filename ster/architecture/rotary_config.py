"""The rotary part of config.json, in both spellings, resolved to one scaling.

Transformers 4 writes ``rope_theta`` and ``rope_scaling``, Transformers 5 writes
``rope_parameters``. A file may hold both as long as they agree.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ster.architecture.fields import LARGEST_NUMBER, Fields, shown
from ster.architecture.rotary import (
    DefaultRope,
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    QueryScaling,
    ReadRope,
    RopeConfig,
    YarnRope,
)
from ster.errors import ConfigError
from ster.text import quoted

SCALINGS = ("default", "llama3", "linear", "dynamic", "yarn", "longrope")
# Older words for longrope.
_LONGROPE = ("su",)
# What transformers assumes for nearly every family (5.24, default_theta of
# RotaryEmbeddingConfigMixin): the first Llama files name no theta.
DEFAULT_THETA = 10_000.0


def read_rope(
    fields: Fields,
    max_position_embeddings: int,
    default_theta: float = DEFAULT_THETA,
    *,
    partial: float | None = None,
) -> ReadRope:
    """Resolve the rotation of a config.

    Args:
        fields: The whole config.
        max_position_embeddings: The trained length, in tokens.
        default_theta: The family's own, where the file names none.
        partial: The share of channels that turns where the file names none; None
            refuses any but all.

    Returns:
        The one that every layer uses.

    Raises:
        ConfigError: The scaling is unknown or incomplete, or the two spellings differ.

    Source: transformers 5.24, modeling_rope_utils.py.
    """
    scaling = _one_spelling(fields)
    kind = _known_kind(scaling)
    if partial is None:
        _refuse_partial(scaling)
        _refuse_partial(fields)
    theta = scaling.number("rope_theta", default_theta)
    if theta <= 1.0:
        # At one every channel would turn alike, and yarn would divide by zero.
        place = fields if fields.has("rope_theta") else scaling
        place.refuse("rope_theta", theta, "above one")
    share = 1.0 if partial is None else _partial(fields, scaling, partial)
    # Phi-style files keep the original length beside the scaling; it then wins.
    place = fields if fields.has("original_max_position_embeddings") else scaling
    length = place.count("original_max_position_embeddings", max_position_embeddings)
    return ReadRope(
        scaling=_resolve(fields, scaling, kind, theta, max_position_embeddings, length),
        partial=share,
        query_scaling=_query_scaling(scaling, length),
    )


def kind_of_rope(fields: Fields, kind: str, older_theta: str) -> Fields:
    """Look at a config as layers of one kind see it.

    Args:
        fields: The whole config.
        kind: ``full_attention`` or ``sliding_attention``.
        older_theta: What the older spelling calls this kind's theta.
    """
    values = dict(fields.values)
    nested = fields.inner("rope_parameters")
    if nested is not None:
        by_kind = nested.inner(kind)
        values["rope_parameters"] = {} if by_kind is None else dict(by_kind.values)
        values.pop("rope_theta", None)
    else:
        values["rope_theta"] = values.get(older_theta)
    if kind != "full_attention":
        values.pop("rope_scaling", None)
    return replace(fields, values=values)


def _resolve(
    fields: Fields,
    scaling: Fields,
    kind: str,
    theta: float,
    max_positions: int,
    original: int,
) -> RopeConfig:
    if kind == "default":
        _refuse_idle_factor(scaling)
        return DefaultRope(theta=theta)
    if kind == "longrope":
        return _longrope(scaling, theta, max_positions, original)
    if kind in ("linear", "yarn") and not scaling.has("factor"):
        raise ConfigError(
            f"{fields.path} declares {kind} rope_scaling with no factor",
            path=fields.path,
            field=f"{scaling.within}factor",
        )
    factor = scaling.number("factor")
    if kind == "linear":
        return LinearRope(theta=theta, factor=factor)
    if kind == "dynamic":
        return DynamicRope(
            theta=theta, factor=factor, max_position_embeddings=max_positions
        )
    return (_llama3 if kind == "llama3" else _yarn)(scaling, theta, factor, original)


def _partial(fields: Fields, scaling: Fields, usual: float) -> float:
    """Read the share of a head's channels that turns, in either spelling."""
    place = scaling if scaling.has("partial_rotary_factor") else fields
    share = place.number("partial_rotary_factor", usual)
    if share > 1.0:
        place.refuse("partial_rotary_factor", share, "at most one")
    return share


def _query_scaling(scaling: Fields, length: int) -> QueryScaling | None:
    if not scaling.has("llama_4_scaling_beta"):
        return None
    beta = scaling.number("llama_4_scaling_beta")
    return QueryScaling(beta=beta, length=length)


def _known_kind(scaling: Fields) -> str:
    kind = _kind(scaling)
    kind = "longrope" if kind in _LONGROPE else kind
    if kind not in SCALINGS:
        known = ", ".join(SCALINGS)
        raise ConfigError(
            f"{scaling.path} declares rope_scaling {quoted(kind)}; "
            f"Ster implements {known} rotary scaling",
            path=scaling.path,
            field=f"{scaling.within}rope_type",
            found=kind,
            expected=SCALINGS,
        )
    return kind


def _refuse_idle_factor(scaling: Fields) -> None:
    """Refuse a factor that nothing would use: the type beside it was forgotten."""
    if scaling.number("factor", 1.0) != 1.0:
        raise scaling.error(
            f"`{scaling.within}factor` is {shown(scaling.values['factor'])}, but "
            "there is no `rope_type` that would use it"
        )


def _refuse_partial(place: Fields) -> None:
    """Refuse partial rotation: other families have it, and ster would rotate all."""
    factor = place.number("partial_rotary_factor", 1.0)
    if factor != 1.0:
        place.refuse("partial_rotary_factor", factor, "1.0")


def _llama3(scaling: Fields, theta: float, factor: float, original: int) -> Llama3Rope:
    low = scaling.number("low_freq_factor")
    high = scaling.number("high_freq_factor")
    if low == high:
        scaling.refuse("high_freq_factor", high, "different from low_freq_factor")
    return Llama3Rope(
        theta=theta,
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=original,
    )


def _longrope(
    scaling: Fields, theta: float, max_positions: int, original: int
) -> LongRope:
    factor = scaling.number("factor", max(max_positions / original, 1e-6))
    usual = 1.0
    if factor > 1 and original > 1:
        usual = math.sqrt(1 + math.log(factor) / math.log(original))
    short, long = (_factors(scaling, f"{which}_factor") for which in ("short", "long"))
    if len(short) != len(long):
        scaling.refuse(
            "long_factor", len(long), f"as long as short_factor, {len(short)}"
        )
    return LongRope(
        theta=theta,
        short_factor=short,
        long_factor=long,
        attention_factor=scaling.number("attention_factor", usual),
        original_max_position_embeddings=original,
    )


def _factors(scaling: Fields, name: str) -> tuple[float, ...]:
    """Read a list of numbers above zero."""
    values = scaling.values.get(name)
    if not isinstance(values, list) or not values:
        scaling.refuse(name, values, "a list of numbers")
    for value in values:
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not 0 < value < LARGEST_NUMBER:
            scaling.refuse(name, value, "numbers above zero")
    return tuple(map(float, values))


def _yarn(scaling: Fields, theta: float, factor: float, original: int) -> YarnRope:
    return YarnRope(
        theta=theta,
        factor=factor,
        attention_factor=_yarn_attention_factor(scaling, factor),
        beta_fast=scaling.number("beta_fast", 32.0),
        beta_slow=scaling.number("beta_slow", 1.0),
        truncate=scaling.flag("truncate", default=True),
        original_max_position_embeddings=original,
    )


def _yarn_attention_factor(scaling: Fields, factor: float) -> float:
    """Read or derive the scale of cosines and sines (Peng et al. 2023, section 3.4)."""
    if scaling.has("attention_factor"):
        return scaling.number("attention_factor")

    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    # A zero counts as absent, as it does in transformers.
    if scaling.values.get("mscale") and scaling.values.get("mscale_all_dim"):
        numerator = mscale(scaling.number("mscale"))
        return numerator / mscale(scaling.number("mscale_all_dim"))
    return mscale(1.0)


def _one_spelling(fields: Fields) -> Fields:
    """Merge both spellings into one object that holds theta and scaling."""
    old, new = fields.inner("rope_scaling"), fields.inner("rope_parameters")
    for place in (old, new):
        _refuse_nested(place)
    if old is not None and new is not None and old.values and new.values:
        _check_agreement(fields, old, new)
    merged: dict[str, object] = {}
    within = "rope_scaling."
    for place in (new, old):
        if place is not None and place.values:
            merged.update({k: v for k, v in place.values.items() if v is not None})
            within = place.within
    if fields.has("rope_theta"):
        theta = fields.number("rope_theta")
        if merged.setdefault("rope_theta", theta) != theta:
            raise fields.error(
                f"`rope_theta` is {shown(theta)}, but `{within}rope_theta` "
                f"is {shown(merged['rope_theta'])}"
            )
    return Fields(
        values=merged, path=fields.path, model_type=fields.model_type, within=within
    )


def _refuse_nested(place: Fields | None) -> None:
    """Refuse a scaling per kind of layer, which these families do not have."""
    for name, value in (place.values if place else {}).items():
        if place is not None and isinstance(value, dict):
            place.refuse(name, value, "one scaling for all layers")


def _check_agreement(fields: Fields, old: Fields, new: Fields) -> None:
    kinds = _kind(old), _kind(new)
    if kinds[0] != kinds[1]:
        raise fields.error(
            f"`rope_scaling` is {quoted(kinds[0])}, but "
            f"`rope_parameters` is {quoted(kinds[1])}"
        )
    for name in sorted(old.values.keys() & new.values.keys() - {"type", "rope_type"}):
        both = old.has(name) and new.has(name)
        if both and not _same(old.values[name], new.values[name]):
            raise fields.error(
                f"`rope_scaling.{name}` is {shown(old.values[name])}, but "
                f"`rope_parameters.{name}` is {shown(new.values[name])}"
            )


def _kind(scaling: Fields) -> str:
    """Name the scaling; ``type`` is the older word for ``rope_type``."""
    if scaling.has("type") and scaling.has("rope_type"):
        older, newer = scaling.word("type"), scaling.word("rope_type")
        if older != newer:
            scaling.refuse("type", older, f"{quoted(newer)}, as `rope_type` is")
    return scaling.word("rope_type", scaling.word("type", "default"))


def _same(one: object, other: object) -> bool:
    """Compare two values; such as are too deep to be compared are not the same."""
    try:
        return one == other
    except RecursionError:
        return False
