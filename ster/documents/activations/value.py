"""Activations as a notebook holds them: an array that knows what its rows are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard, overload

import numpy as np
import numpy.typing as npt

from ster.documents.activations.description import Description
from ster.documents.cards import activation_card
from ster.errors import (
    DocumentError,
    LayerError,
    NumericsError,
    UsageError,
    require_string,
    require_whole_number,
)
from ster.html import cut, to_html
from ster.layers import abridge, name_layers
from ster.text import counted, quoted

if TYPE_CHECKING:
    import pandas
    import xarray

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Activations(Description):
    """The residual stream at some tokens of every prompt, after chosen blocks.

    ``numpy.asarray(activations)`` is the array. ``activations[3]`` is its row 3,
    (num_layers, hidden_size); a slice, a mask or a list of rows makes activations of
    those rows alone.

    Args:
        array: The activations, f32, (num_rows, num_layers, hidden_size): at the last
            token unless others were asked for, so one row for each prompt. If several
            points were read, those at the first.
        others: Those at the other points, by name.

    Raises:
        DocumentError: The parts do not fit together.
        NumericsError: A value is infinite or not a number.
    """

    array: F32
    others: Mapping[str, F32] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check once that the parts fit together."""
        arrays = {self.points[0] if self.points else "": self.array, **self.others}
        if tuple(arrays) != tuple(self.points):
            raise DocumentError("activations need an array for each point")
        for array in arrays.values():
            if array.dtype != np.float32 or array.shape != self.shape:
                found = f"{array.dtype} {array.shape}"
                raise DocumentError(
                    f"activations must be float32 {self.shape}, not {found}",
                    field="array",
                    found=found,
                    expected=f"float32 {self.shape}",
                )
        Description.__post_init__(self)
        for array in arrays.values():
            if not np.isfinite(array).all():
                raise NumericsError("activations hold a value that is not finite")

    def __len__(self) -> int:
        """Count the rows; one for each prompt unless more tokens were read."""
        return len(self.array)

    def __repr__(self) -> str:
        """Show what there is, not the numbers."""
        parts = [
            f"model={self.model!r}",
            counted(len(self.prompts), "prompt"),
            f"{counted(len(self.layers), 'layer')} {abridge(self.layers)}",
            f"hidden_size={self.hidden_size}",
        ]
        if self.read not in ("last", None):
            parts.insert(2, f"{counted(len(self), 'row')} at tokens {self.read}")
        if self.points != ("resid_post",):
            parts.append(f"points={','.join(self.points)}")
        if self.steered:
            parts.append(f"steered by {', '.join(self.steered)}")
        return f"Activations({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return to_html(activation_card(self))

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Let numpy use this as ``array``, without a copy unless one is needed."""
        return np.array(self.array, dtype=dtype, copy=copy)

    def __iter__(self) -> Iterator[F32]:
        """Go through the rows, each (num_layers, hidden_size)."""
        return iter(self.array)

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> F32: ...
    @overload
    def __getitem__(
        self, rows: slice | Sequence[int] | npt.NDArray[Any]
    ) -> Activations: ...
    def __getitem__(
        self, rows: int | np.integer[Any] | slice | Sequence[int] | npt.NDArray[Any]
    ) -> F32 | Activations:
        """Take one row as an array, or several as activations.

        Raises:
            IndexError: There is no such row, or none is taken.
            UsageError: It is something else, such as a row and a layer.
        """
        if isinstance(rows, int | np.integer) and not isinstance(rows, bool):
            row: F32 = self.array[rows]
            return row
        chosen = np.arange(len(self))[
            rows if isinstance(rows, slice) else _as_rows(rows)
        ]
        if not len(chosen):
            raise IndexError("no rows of these activations are taken")
        return self._take(chosen)

    def at_point(self, point: str) -> Activations:
        """Take the rows of one point, such as ``attn_out``.

        Raises:
            DocumentError: This point was not read.
            UsageError: It is no string.
        """
        require_string(point, "point")
        if point not in self.points:
            there = ", ".join(self.points)
            raise DocumentError(
                f"point {quoted(point)} was not read; there are {there}",
                field="points",
                found=point,
                expected=self.points,
            )
        array = self.array if point == self.points[0] else self.others[point]
        return self._replace(array=array, others={}, points=(point,))

    def layer(self, layer: int) -> F32:
        """Look at one layer's activations without copying them.

        Args:
            layer: A block index of the model, as in ``layers``.

        Returns:
            A view, (num_rows, hidden_size).

        Raises:
            LayerError: This layer was not read.
            UsageError: It is no whole number.
        """
        layer = require_whole_number(layer, "layer")
        if layer not in self.layers:
            raise LayerError(
                f"layer {layer} was not read, only {name_layers(self.layers)}",
                layer=layer,
                expected=self.layers,
            )
        view: F32 = self.array[:, self.layers.index(layer)]
        return view

    def norms(self) -> F32:
        """Return the length of every row, (num_rows, num_layers)."""
        lengths: F32 = np.linalg.norm(self.array.astype(np.float64), axis=-1).astype(
            np.float32
        )
        return lengths

    def to_pandas(self, *, values: bool = False) -> pandas.DataFrame:
        """Make a tidy table: one line for each row, layer and point, in this order.

        Its columns are ``prompt_index``, ``prompt``, one for each label,
        ``token_position``, ``token_id`` and ``token_text`` (missing where the document
        does not say; a mean has no position and no id, and its text says over how many
        tokens it is), ``layer``, ``point`` and ``norm``, the length of the activation.
        A label that has the name of one of these is called ``label_<name>``.

        Args:
            values: Add a column ``activation`` that holds the vectors themselves, each
                (hidden_size,) f32, not copied. ``numpy.stack(table["activation"])``
                makes a matrix of those that were chosen.

        Raises:
            SterError: pandas is not installed.
        """
        from ster.documents.activations.tables import to_pandas

        return to_pandas(self, values=values)

    def to_xarray(self) -> xarray.DataArray:
        """Make an array with named dimensions: ``row``, ``layer`` and ``hidden``.

        Of several points there is a dimension ``point`` before them. What is known of
        each row are coordinates along ``row``, named as the columns of ``to_pandas``,
        with -1 where a token's position or id is missing; the model and how it was read
        are attributes. One point is not copied.

        Raises:
            SterError: xarray is not installed.
        """
        from ster.documents.activations.tables import to_xarray

        return to_xarray(self)

    def save(self, path: str | os.PathLike[str], *, store: str = "f32") -> None:
        """Write a document, whole or not at all: its suffix says which.

        Args:
            path: ``.json``, ``.safetensors`` or ``.npz``.
            store: ``f32``, or ``f16`` for half the bytes; not for JSON.

        Raises:
            OutputError: It cannot be written, or the suffix is another.
        """
        # Late: the documents are made of this.
        from ster.documents.activations.files import save_activations

        save_activations(self, path, store=store)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Activations:
        """Read a document of activations, every value as it was written.

        Raises:
            DocumentError: It cannot be read or holds no activations.
        """
        from ster.documents.activations.files import load_activations

        return load_activations(path)

    def _take(self, rows: npt.NDArray[np.int64]) -> Activations:
        index = self.prompt_index[rows]
        prompts = [*dict.fromkeys(index.tolist())]
        labels = {
            name: tuple(values[each] for each in prompts)
            for name, values in self.labels.items()
        }
        tokens = self.tokens
        if tokens is None and len(prompts) < len(index):
            raise IndexError("a row of these activations is taken twice")
        return self._replace(
            array=self.array[rows],
            others={name: array[rows] for name, array in self.others.items()},
            prompts=tuple(self.prompts[each] for each in prompts),
            tokens=None if tokens is None else tokens.take(rows, prompts),
            labels=MappingProxyType(labels),
        )

    def _replace(self, **changes: Any) -> Activations:
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return Activations(**(parts | changes))


def _as_rows(rows: object) -> npt.NDArray[Any]:
    """Take indices or a mask, which numpy checks against the rows.

    Raises:
        UsageError: They are neither.
    """
    if isinstance(rows, tuple):
        raise UsageError(
            f"activations take rows alone, not {cut(repr(rows))}",
            "activations[[0, 1]] takes two rows, and activations.array[...] indexes "
            "rows, layers and values",
            field="rows",
            found=rows,
        )
    index = np.array([*rows] if _is_list(rows) else rows)
    if _is_list(rows) and not index.size:
        return index.astype(np.int64)
    if index.ndim != 1 or index.dtype.kind not in "iub":
        raise UsageError(
            "rows must be an index, a slice, a mask or a list of indices, not "
            f"{cut(repr(rows))}",
            field="rows",
            found=rows,
        )
    return index


def _is_list(rows: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(rows, Iterable) and not isinstance(rows, str | bytes)
