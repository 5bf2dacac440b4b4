"""Which layers see a sliding window only, as config.json may say it."""

from __future__ import annotations

from collections.abc import Sequence

from ster.architecture.fields import Fields
from ster.errors import ConfigError

FULL, SLIDING = "full_attention", "sliding_attention"


def read_layer_types(fields: Fields, num_layers: int) -> list[str] | None:
    """Read which layers have a sliding window, where the file lists it.

    Raises:
        ConfigError: It is no list of the two kinds, one for each layer.
    """
    types = fields.values.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list):
        fields.refuse("layer_types", types, "a list")
    if len(types) != num_layers:
        raise ConfigError(
            f"{fields.path} lists {len(types)} layer_types for {num_layers} layers",
            path=fields.path,
            field="layer_types",
            found=len(types),
            expected=num_layers,
        )
    for kind in types:
        if kind not in (FULL, SLIDING):
            fields.refuse("layer_types", kind, f"{FULL} or {SLIDING}")
    return types


def require_full_attention(fields: Fields, num_layers: int) -> None:
    """Refuse sliding windows, which the family does not have.

    Raises:
        ConfigError: Some layer is listed as sliding.
    """
    for kind in read_layer_types(fields, num_layers) or ():
        if kind == FULL:
            continue
        if not fields.has("sliding_window"):
            raise no_window(fields)
        fields.refuse("layer_types", kind, f"{FULL} in every layer")


def listed_windows(
    fields: Fields, slides: Sequence[bool], usual: int | None
) -> tuple[int | None, ...]:
    """Read windows that stand in some layers only.

    Args:
        fields: The whole config.
        slides: Which layers have one where ``layer_types`` does not say it.
        usual: The family's own window where the file has no such field.

    Raises:
        ConfigError: Windows are used and their size is not given.
    """
    return _windows(fields, _kinds(fields, slides), usual)


def _kinds(fields: Fields, slides: Sequence[bool]) -> list[str]:
    """Tell each layer's kind, as listed or else by ``slides``."""
    types = read_layer_types(fields, len(slides))
    return types or [SLIDING if each else FULL for each in slides]


def _windows(
    fields: Fields, kinds: Sequence[str], usual: int | None
) -> tuple[int | None, ...]:
    if SLIDING not in kinds:
        return (None,) * len(kinds)
    if fields.values.get("sliding_window", usual) is None:
        raise no_window(fields)
    window = fields.count("sliding_window", usual)
    return tuple(window if kind == SLIDING else None for kind in kinds)


def no_window(fields: Fields) -> ConfigError:
    """Make the refusal of windows whose size is not given."""
    return ConfigError(
        f"{fields.path} makes some layers sliding-window but declares no "
        "sliding_window",
        path=fields.path,
        field="sliding_window",
    )


def switched_windows(
    fields: Fields, slides: Sequence[bool], usual: int | None = None
) -> tuple[int | None, ...]:
    """Read windows that stand in some layers only, and only when switched on.

    Args:
        fields: The whole config.
        slides: Which layers have one where ``layer_types`` does not say it.
        usual: The family's own window where the file has no such field.

    Raises:
        ConfigError: Windows are used and their size is not given, or not switched on.
    """
    enabled = fields.flag("use_sliding_window", default=False)
    kinds = _kinds(fields, [enabled and each for each in slides])
    if SLIDING in kinds and not enabled:
        raise no_window(fields)
    return _windows(fields, kinds, usual)
