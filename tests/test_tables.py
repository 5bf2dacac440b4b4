"""Activations as tables of pandas and xarray."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ster.errors import SterError
from tests import made


def test_a_table_has_a_line_for_each_row_layer_and_point():
    acts = made.activations()
    twice = made.activations(
        points=("mlp_out", "resid_mid"),
        others={
            "resid_mid": acts.array * 2,
        },
    )
    table = twice.to_pandas()
    assert [*table.columns] == [
        "prompt_index",
        "prompt",
        "token_position",
        "token_id",
        "token_text",
        "layer",
        "point",
        "norm",
    ]
    assert len(table) == 4 * 2 * 2
    assert table["prompt_index"].tolist()[:5] == [0, 0, 0, 0, 1]
    assert table["layer"].tolist()[:4] == [1, 1, 3, 3]
    assert table["point"].tolist()[:3] == ["mlp_out", "resid_mid", "mlp_out"]
    lines: Any = table.itertuples()
    for line in lines:
        place = line.prompt_index, acts.layers.index(line.layer)
        scale = 2 if line.point == "resid_mid" else 1
        expected = scale * np.linalg.norm(acts.array[place].astype(np.float64))
        assert line.norm == pytest.approx(expected, rel=1e-6)
        assert line.prompt == f"prompt {line.prompt_index}"


def test_what_is_not_known_of_a_token_is_missing():
    assert made.activations().to_pandas()["token_id"].isna().all()
    table = made.all_tokens().to_pandas().query("layer == 3")
    assert table["prompt_index"].tolist() == [0, 0, 0, 1, 1]
    assert table["token_id"].isna().tolist() == [False] * 4 + [True]
    assert table["token_position"].tolist()[:4] == [0, 1, 2, 0]
    assert table["token_text"].tolist()[1] == " <b>sea</b>"


def test_labels_are_columns_and_take_no_other_ones_name():
    labels = {"layer": ["a", "b"], "label_layer": [1, 2], "mood": [None, "calm"]}
    table = made.all_tokens(labels=labels).to_pandas()
    assert table["layer"].tolist()[:2] == [1, 3]
    assert table["label_layer"].tolist() == ["a"] * 6 + ["b"] * 4
    assert table["label_label_layer"].tolist() == [1] * 6 + [2] * 4
    assert table["mood"].isna().tolist() == [True] * 6 + [False] * 4
    assert pd.api.types.is_integer_dtype(table["label_label_layer"])


def test_the_vectors_themselves_are_asked_for_and_not_copied():
    acts = made.activations()
    table = acts.to_pandas(values=True)
    third = table.query("layer == 3")
    np.testing.assert_array_equal(np.stack([*third["activation"]]), acts.layer(3))
    assert np.shares_memory(table["activation"][0], acts.array)
    assert "activation" not in acts.to_pandas().columns


def test_an_array_with_names_has_the_same_facts():
    acts = made.all_tokens(labels={"mood": ["calm", "loud"]}, precision="f32")
    array = acts.to_xarray()
    assert array.dims == ("row", "layer", "hidden")
    assert np.shares_memory(array.values, acts.array)
    np.testing.assert_array_equal(array.sel(layer=3), acts.layer(3))
    assert array["mood"].values.tolist() == ["calm"] * 3 + ["loud"] * 2
    assert array["token_position"].values.tolist() == [0, 1, 2, 0, -1]
    assert array["token_id"].dtype == np.int64
    assert array["prompt_index"].values.tolist() == [0, 0, 0, 1, 1]
    assert array.attrs == {"model": "toy", "read": "all", "precision": "f32"}
    assert array["point"].item() == "resid_post"


def test_several_points_are_a_dimension():
    first = made.activations()
    acts = made.activations(
        points=("mlp_out", "resid_mid"), others={"resid_mid": first.array * 2}
    )
    array = acts.to_xarray()
    assert array.dims == ("point", "row", "layer", "hidden")
    np.testing.assert_array_equal(array.sel(point="resid_mid"), first.array * 2)
    np.testing.assert_array_equal(array.sel(point="mlp_out"), first.array)


@pytest.mark.parametrize(
    ("library", "method"), [("pandas", "to_pandas"), ("xarray", "to_xarray")]
)
def test_a_missing_library_is_named_with_the_way_to_get_it(
    library, method, monkeypatch
):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SterError) as caught:
        getattr(made.activations(), method)()
    assert str(caught.value) == (
        f"this needs {library}, which is not installed: it comes with the extra "
        "`notebook`, pip install 'ster-mlx[notebook]'"
    )
