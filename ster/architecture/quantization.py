"""config.json's ``quantization`` or ``quantization_config`` -> how matrices are stored.

Read are MLX's own formats, OpenAI's mxfp4 and fp8 with a scale for each block. In the
first the config speaks of modules by their path; in the others the files alone tell
which modules have scales, and what is listed as not converted has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ster.architecture.fields import LARGEST_COUNT, Fields
from ster.architecture.foreign_quantization import foreign, guess_method
from ster.text import quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How a quantized matrix is stored.

    Args:
        mode: ``affine``, ``mxfp4``, ``mxfp8``, ``nvfp4`` or ``fp8``.
        bits: Of one value.
        group_size: Neighbouring inputs that share a scale; for fp8 those of a block.
        block_rows: Outputs that share a scale; one for all but fp8.
    """

    mode: str
    bits: int
    group_size: int
    block_rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """Which modules are stored how.

    Args:
        default: Of modules without an entry that have scales; None where there are
            none such.
        overrides: By the module's path as the file spells it, such as
            ``model.layers.0.mlp.gate``; None where it is not quantized.
        blocks_only: The default is that of weights which are stored as blocks of bytes,
            and no others are quantized.
    """

    default: Format | None
    overrides: Mapping[str, Format | None] = field(default_factory=dict)
    blocks_only: bool = False

    def of(self, path: str) -> Format | None:
        """Return the format of a module, if it has scales; None where it has none."""
        return self.overrides.get(path, self.default)


class _Choices(NamedTuple):
    """What a mode can be made of; MLX takes the first where nothing is declared."""

    bits: tuple[int, ...]
    group_sizes: tuple[int, ...]


MODES = MappingProxyType(
    {
        "affine": _Choices((4, 2, 3, 5, 6, 8), (64, 32, 128)),
        "mxfp4": _Choices((4,), (32,)),
        "mxfp8": _Choices((8,), (32,)),
        "nvfp4": _Choices((4,), (16,)),
    }
)
_PLACES = ("quantization", "quantization_config", "compression_config")
_KEYS = ("bits", "group_size", "mode", "quant_method")
_UNCONVERTED = ("modules_to_not_convert", "ignored_layers")


def read_quantization(fields: Fields) -> Quantization | None:
    """Read how the checkpoint is quantized; None where it is not.

    Args:
        fields: The whole document; what its ``text_config`` declares counts where it
            declares nothing itself, as for transformers and mlx-lm.

    Raises:
        ConfigError: It is quantized in a way that is not read, or declares it twice
            and not alike.
    """
    wraps = isinstance(fields.values.get("text_config"), dict)
    inner = fields.inner("text_config") if wraps else None
    for place in (fields, inner or fields):
        names = [name for name in _PLACES if place.values.get(name) not in (None, {})]
        if names:
            return _read_place(fields, place, names)
    return None


def _read_place(document: Fields, place: Fields, names: list[str]) -> Quantization:
    """Read the first of those that a place declares, and hold the others to it."""
    first, *others = (_read_declared(document, place, name) for name in names)
    for name, other in zip(names[1:], others, strict=True):
        if other != first:
            same = f"the same as `{place.within}{names[0]}`"
            place.refuse(name, place.values[name], same)
    return first


def _read_declared(document: Fields, place: Fields, name: str) -> Quantization:
    value = place.values[name]
    if isinstance(value, str):
        raise foreign(document, place, name, value)
    declared = place.inner(name)
    if declared is None:  # it was looked for
        raise place.error(f"missing field `{place.within}{name}`")
    method = declared.values.get("quant_method")
    if method is not None and not isinstance(method, str):
        declared.refuse("quant_method", method, "a string")
    method = method or guess_method(declared.values)
    if name == "compression_config":
        raise foreign(document, place, name, method)
    if method == "mlx":
        return _read_mlx(document, declared)
    if method == "mxfp4":
        return Quantization(
            default=Format(mode="mxfp4", bits=4, group_size=32),
            overrides=_read_unconverted(declared),
            blocks_only=True,
        )
    if method == "fp8":
        return _read_fp8(document, place, name, declared)
    raise foreign(document, place, name, method)


def _read_mlx(document: Fields, declared: Fields) -> Quantization:
    if document.flag("quantize_activations", default=False):
        document.refuse("quantize_activations", True, "false: no others are read")
    default = _read_format(declared)
    overrides: dict[str, Format | None] = {}
    for name, value in declared.values.items():
        if name in _KEYS:
            continue
        if not name.isprintable():
            raise declared.error(f"{quoted(name)} is no path of a module", name)
        if value is True:
            overrides[name] = default
        elif not value and (value is None or isinstance(value, (bool, dict))):
            overrides[name] = None
        elif isinstance(value, dict):
            overrides[name] = _read_override(declared, name)
        else:
            expected = "true, false or an object, as of a module"
            declared.refuse(name, value, expected)
    return Quantization(default=default, overrides=overrides)


def _read_override(declared: Fields, name: str) -> Format | None:
    """Read a module's own format; its mode is affine where it says nothing else."""
    entry = declared.inner(name)
    if entry is None:
        return None
    for key, value in entry.values.items():
        if key in ("quantize_input", "global_scale"):
            if entry.flag(key, default=False):
                entry.refuse(key, True, "false: no others are read")
        elif key not in ("bits", "group_size", "mode"):
            place = key if key.isprintable() else quoted(key)
            entry.refuse(place, value, "among bits, group_size and mode")
    return _read_format(entry)


def _read_format(entry: Fields) -> Format:
    mode = entry.word("mode", "affine")
    if mode not in MODES:
        entry.refuse("mode", mode, f"one of {', '.join(MODES)}")
    choices = MODES[mode]
    return Format(
        mode=mode,
        bits=_choose(entry, "bits", choices.bits, mode),
        group_size=_choose(entry, "group_size", choices.group_sizes, mode),
    )


def _choose(entry: Fields, name: str, choices: tuple[int, ...], mode: str) -> int:
    value = entry.count(name, choices[0])
    if value not in choices:
        known = ", ".join(str(each) for each in sorted(choices))
        one = "one of " if len(choices) > 1 else ""
        entry.refuse(name, value, f"{one}{known} for mode {mode}")
    return value


def _read_fp8(
    document: Fields, place: Fields, name: str, declared: Fields
) -> Quantization:
    """Read fp8 with scales for blocks of a matrix; inputs are rounded by no one."""
    if (fmt := declared.word("fmt", "e4m3")) != "e4m3":
        raise foreign(document, place, name, "fp8", "fmt", fmt)
    scheme = declared.word("activation_scheme", "dynamic")
    if scheme != "dynamic":
        raise foreign(document, place, name, "fp8", "activation_scheme", scheme)
    if not declared.has("weight_block_size"):
        raise foreign(document, place, name, "fp8", "weight_block_size", None)
    rows, inputs = _read_block(declared)
    return Quantization(
        default=Format(mode="fp8", bits=8, group_size=inputs, block_rows=rows),
        overrides=_read_unconverted(declared),
    )


def _read_block(declared: Fields) -> tuple[int, int]:
    size = declared.values["weight_block_size"]
    if isinstance(size, list) and len(size) == 2:
        rows, inputs = size
        whole = type(rows) is int and type(inputs) is int
        if whole and 0 < min(size) <= max(size) <= LARGEST_COUNT:
            return rows, inputs
    return declared.refuse("weight_block_size", size, "two whole numbers above zero")


def _read_unconverted(declared: Fields) -> dict[str, None]:
    """Read which modules are not quantized.

    Names with wildcards, and those of a module's parents, equal no path; they need not
    be understood, for what is below them has no scales.
    """
    paths: dict[str, None] = {}
    for name in _UNCONVERTED:
        listed = declared.values.get(name)
        if listed is None:
            continue
        if not isinstance(listed, list) or not all(isinstance(e, str) for e in listed):
            declared.refuse(name, listed, "a list of modules")
        paths |= dict.fromkeys(listed)
    return paths
