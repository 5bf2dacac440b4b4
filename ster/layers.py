"""The ``--layers`` grammar, and the same rules for lists of layers in the library.

A selection is a sorted tuple of 0-based block indices without repetition.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from numbers import Integral
from typing import Any

from ster.errors import LayerError
from ster.text import quoted, trim

Layers = str | int | Iterable[int]

_LARGEST_INDEX = 2**64 - 1
_MAX_DIGITS = len(str(_LARGEST_INDEX))


def select_layers(layers: Layers, num_hidden_layers: int) -> tuple[int, ...]:
    """Read a selection of layers: a ``--layers`` value, an index, or indices.

    Raises:
        LayerError: As for ``parse_layers`` and ``check_layers``.
    """
    if isinstance(layers, str):
        return parse_layers(layers, num_hidden_layers)
    return check_layers(list_layers(layers), num_hidden_layers)


def list_layers(layers: int | Iterable[int]) -> tuple[int, ...]:
    """List an index, or indices, as they are at hand; ``check_layers`` refuses others.

    Those of numpy become Python's, and one of its arrays without dimensions is one.
    """
    given: Any = layers
    if getattr(given, "ndim", 1) == 0:
        given = given[()]
    several = isinstance(given, Iterable) and not isinstance(given, bytes)
    return tuple(
        int(each) if type(each) is not bool and isinstance(each, Integral) else each
        for each in (given if several else [given])
    )


def parse_layers(spec: str, num_hidden_layers: int) -> tuple[int, ...]:
    """Read a ``--layers`` value: ``all``, or indices and half-open ranges.

    Args:
        spec: ``all``, or a comma list such as ``0, 8..16``. White space around a
            segment and empty segments are ignored.
        num_hidden_layers: How many blocks the model has.

    Returns:
        The layers in ascending order, each once.

    Raises:
        LayerError: A segment does not parse, nothing is selected, or the model lacks
            a selected layer (checked last; the smallest such layer is named).
    """
    _require_layers(num_hidden_layers)
    if spec == "all":
        return tuple(range(num_hidden_layers))
    segments = [segment for part in spec.split(",") if (segment := trim(part))]
    spans = [_parse_segment(segment) for segment in segments]
    if not spans:
        raise LayerError("no layers selected", field="layers", found=spec)
    # Ends are checked before any layer is listed: 0..10000000000 is a span too.
    too_long = [span for span in spans if span.stop > num_hidden_layers]
    if too_long:
        smallest = min(max(span.start, num_hidden_layers) for span in too_long)
        raise _outside(smallest, num_hidden_layers)
    return tuple(sorted(set().union(*spans)))


def check_layers(layers: Iterable[int], num_hidden_layers: int) -> tuple[int, ...]:
    """Sort a library caller's layers and refuse what the model lacks.

    Raises:
        LayerError: There is none, one is no integer, or one is outside the model.
    """
    _require_layers(num_hidden_layers)
    selected = sorted({_as_index(layer) for layer in layers})
    if not selected:
        raise LayerError("at least one layer is required", field="layers")
    for layer in selected:
        if not 0 <= layer < num_hidden_layers:
            raise _outside(layer, num_hidden_layers)
    return tuple(selected)


def abridge(layers: tuple[int, ...]) -> str:
    """Write ascending layers briefly: ``3``, ``0, 2, 5`` or ``0 to 29``.

    Their number is compared, no range is built: a document may name layer 1000000000.
    """
    first, last = layers[0], layers[-1]
    if 2 < len(layers) == last - first + 1:
        return f"{first} to {last}"
    return ", ".join(map(str, layers))


def name_layers(layers: tuple[int, ...]) -> str:
    """Name ascending layers briefly: ``layer 3`` or ``layers 0 to 29``."""
    return f"layer{'s' * (len(layers) > 1)} {abridge(layers)}"


def _require_layers(num_hidden_layers: int) -> None:
    if num_hidden_layers < 1:
        raise LayerError("model has no layers", found=num_hidden_layers)


def _parse_segment(segment: str) -> range:
    first, dots, last = segment.partition("..")
    start = _parse_index(first)
    if not dots:
        if start is None:
            sentence = f"invalid layer {quoted(segment)}"
            raise LayerError(sentence, *_hint(segment), field="layers", found=segment)
        return range(start, start + 1)
    end = _parse_index(last)
    if start is None or end is None:
        sentence = f"invalid layer range {quoted(segment)}"
        raise LayerError(sentence, field="layers", found=segment)
    if start >= end:
        sentence = f"layer range {quoted(segment)} must have start < end"
        raise LayerError(sentence, field="layers", found=segment)
    return range(start, end)


def _hint(segment: str) -> list[str]:
    """Say how a range is written, where somebody wrote a dash or a colon."""
    for sign in "-:":
        ends = segment.split(sign)
        if len(ends) == 2 and None not in map(_parse_index, ends):
            return [f"a range is written {ends[0]}..{ends[1]}, its end not included"]
    return []


def _parse_index(text: str) -> int | None:
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    significant = digits.lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS or int(significant) > _LARGEST_INDEX:
        return None
    return int(significant)


def _as_index(layer: object) -> int:
    try:
        if not isinstance(layer, bool):
            return operator.index(layer)  # type: ignore[arg-type]
    except TypeError:
        pass
    sentence = f"invalid layer {quoted(str(layer))}"
    raise LayerError(sentence, field="layers", found=layer)


def _outside(layer: int, num_hidden_layers: int) -> LayerError:
    last = num_hidden_layers - 1
    return LayerError(
        f"layer {layer} is outside the model's 0..{last} range",
        field="layers",
        layer=layer,
        expected=range(num_hidden_layers),
    )
