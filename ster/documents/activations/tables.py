"""Activations as tables of pandas and xarray, which are imported when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ster.documents.activations.read_tokens import NO_TOKEN
from ster.documents.activations.value import Activations
from ster.extras import importing

if TYPE_CHECKING:
    import pandas
    import xarray

Objects = npt.NDArray[np.object_]

# Columns that labels must not take the place of.
_OWN = (
    "prompt_index",
    "prompt",
    "token_position",
    "token_id",
    "token_text",
    "layer",
    "point",
    "norm",
    "activation",
    "row",
    "hidden",
)


def to_pandas(activations: Activations, *, values: bool) -> pandas.DataFrame:
    """Make a tidy table; see ``Activations.to_pandas``."""
    with importing("pandas", "notebook"):
        import pandas as pd
    points, layers = activations.points, activations.layers
    at_points = [activations.at_point(point) for point in points]
    lines = len(layers) * len(points)  # of each row
    row = np.repeat(np.arange(len(activations)), lines)
    table = {name: column.take(row) for name, column in _row_columns(activations)}
    norms = np.stack([each.norms() for each in at_points], axis=-1)
    table["layer"] = np.tile(np.repeat(layers, len(points)), len(activations))
    table["point"] = np.tile(points, len(activations) * len(layers))
    table["norm"] = norms.ravel()
    if values:
        table["activation"] = _vectors(at_points)
    return pd.DataFrame(table)


def to_xarray(activations: Activations) -> xarray.DataArray:
    """Make an array with named dimensions; see ``Activations.to_xarray``."""
    with importing("xarray", "notebook"):
        import xarray as xr
    coords: dict[str, Any] = {
        name: ("row", _plain(column)) for name, column in _row_columns(activations)
    }
    coords["layer"] = list(activations.layers)
    dims = ["row", "layer", "hidden"]
    array = activations.array
    coords["point"] = activations.points[0]
    if len(activations.points) > 1:
        coords["point"] = list(activations.points)
        dims = ["point", *dims]
        array = np.stack([array, *activations.others.values()])
    names = ("model", "model_revision", "read", "precision", "chat_template")
    attrs = {name: getattr(activations, name) for name in names}
    attrs["steered"] = ", ".join(activations.steered)
    return xr.DataArray(
        array,
        dims=dims,
        coords=coords,
        name="activation",
        attrs={name: word for name, word in attrs.items() if word},
    )


def _row_columns(activations: Activations) -> list[tuple[str, Any]]:
    """List what is known of each row, (num_rows,) each, as arrays of pandas."""
    import pandas as pd

    index = activations.prompt_index
    columns: list[tuple[str, Any]] = [("prompt_index", index)]
    columns.append(("prompt", _objects(activations.prompts).take(index)))
    taken = {*_OWN}
    for name, label in activations.labels.items():
        while name in taken:
            name = f"label_{name}"
        taken.add(name)
        # As pandas would read the list, so numbers stay numbers.
        columns.append((name, pd.Series([*label]).array.take(index)))
    tokens = activations.tokens
    for name in ("position", "token_id"):
        numbers = np.full(len(index), NO_TOKEN)
        if tokens is not None:
            numbers = getattr(tokens, name)
        column = pd.array(numbers, dtype="Int64")
        column[numbers == NO_TOKEN] = pd.NA
        columns.append((f"token_{name.removeprefix('token_')}", column))
    texts: Sequence[object] = [None] * len(index) if tokens is None else tokens.text
    columns.append(("token_text", _objects(texts)))
    return columns


def _plain(column: object) -> npt.NDArray[Any]:
    """Make a column of pandas one of numpy, which xarray can write to any file."""
    given: Any = column
    if given.dtype == "Int64":
        filled: npt.NDArray[Any] = given.to_numpy(dtype=np.int64, na_value=NO_TOKEN)
        return filled
    return np.asarray(column)


def _objects(texts: Sequence[object]) -> Objects:
    column = np.empty(len(texts), dtype=object)
    column[:] = texts
    return column


def _vectors(at_points: list[Activations]) -> Objects:
    """Hold each vector as an object, in the order of the table; none is copied."""
    rows, layers, _ = at_points[0].shape
    column = np.empty((rows, layers, len(at_points)), dtype=object)
    for row in range(rows):
        for layer in range(layers):
            for point, each in enumerate(at_points):
                column[row, layer, point] = each.array[row, layer]
    return column.ravel()
