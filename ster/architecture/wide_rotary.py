"""The rotary part of a wide family's config, brought into mlx-lm's spellings."""

from __future__ import annotations

from typing import Any

from ster.architecture.wide_fields import SCALINGS_OF
from ster.architecture.wide_refusals import refuse_field, refuse_unread
from ster.errors import ConfigError
from ster.text import quoted

Values = dict[str, Any]
# What mlx-lm's rotary code computes as transformers does. Of longrope it has only the
# half for long prompts.
SCALINGS = ("default", "linear", "llama3", "dynamic", "yarn", "proportional", "mrope")
# Rotary fields that stand beside the scaling or in it.
_ROTARY = ("rope_theta", "partial_rotary_factor")


def normalise_rotary(values: Values, path: str, family: str) -> None:
    """Spell the rotary fields in every way in which mlx-lm's families read them.

    Raises:
        ConfigError: Spellings disagree, or a scaling is not computed as it should be.
    """
    parameters = values.get("rope_parameters")
    if isinstance(parameters, dict) and _is_nested(parameters):
        _require_agreement(values, path, {})
        for inner in parameters.values():
            _check_scaling(inner, path, family)
        return
    merged = _merge_rotary(values, path)
    if not merged:
        return
    kind = _check_scaling(merged, path, family)
    merged |= {"type": kind, "rope_type": kind}
    if kind in ("llama3", "yarn") and "max_position_embeddings" in values:
        length = values["max_position_embeddings"]
        merged.setdefault("original_max_position_embeddings", length)
    for name in _ROTARY:
        if name in merged:
            values[name] = merged[name]
    values["rope_parameters"] = merged
    # There, theta is a field of its own; and no scaling is no object.
    values["rope_scaling"] = None if kind == "default" else dict(merged)


def _merge_rotary(values: Values, path: str) -> Values:
    parameters = values.get("rope_parameters")
    merged: Values = {}
    if isinstance(parameters, dict):
        merged |= {name: v for name, v in parameters.items() if v is not None}
        _require_agreement(values, path, merged)
    scaling = values.get("rope_scaling")
    if isinstance(scaling, dict):
        merged |= {name: v for name, v in scaling.items() if v is not None}
    for name in _ROTARY:
        outer = values.get(name)
        if outer is not None and merged.setdefault(name, outer) != outer:
            refuse_field(
                path, values, name, outer, f"{merged[name]}, as it is elsewhere"
            )
    return merged


def _require_agreement(values: Values, path: str, parameters: Values) -> None:
    """Refuse an older ``rope_scaling`` that says something else than the newer one.

    transformers takes the older one then, whole; mlx-lm takes now one, now the other.
    """
    scaling = values.get("rope_scaling")
    if not isinstance(scaling, dict):
        return
    told = {name: value for name, value in scaling.items() if value is not None}
    kinds = _kind_of(told) != _kind_of(parameters)
    if kinds or any(
        parameters.get(name, value) != value
        for name, value in told.items()
        if name not in ("type", "rope_type")
    ):
        expected = "left out, or the same as the `rope_parameters` beside it"
        refuse_field(path, values, "rope_scaling", scaling, expected)


def _kind_of(scaling: Values) -> object:
    return scaling.get("rope_type") or scaling.get("type") or "default"


def _is_nested(parameters: Values) -> bool:
    return bool(parameters) and all(isinstance(v, dict) for v in parameters.values())


def _check_scaling(scaling: Values, path: str, family: str) -> str:
    kind, known = _kind_of(scaling), SCALINGS_OF.get(family, SCALINGS)
    if kind not in known:
        raise ConfigError(
            f"{path} declares rope_scaling {quoted(str(kind))}; Ster implements "
            f"{', '.join(known)} rotary scaling",
            f"mlx-lm's {family} computes no other; use a checkpoint of another family",
            path=path,
            field="rope_scaling",
            found=kind,
            expected=known,
        )
    unread = {"attention_factor": None, "truncate": True}
    for name, neutral in unread.items():
        value = scaling.get(name, neutral)
        if kind == "yarn" and value is not None and value != neutral:
            refuse_unread(path, f"rope_scaling.{name}", value, "yarn")
    return str(kind)
