"""What a notebook does with activations and vectors: numpy, names of files, layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster.documents.activations.value import Activations
from ster.documents.answers import AnswerWriter
from ster.errors import LayerError, OutputError
from ster.layers import abridge
from ster.vectors.steering import SteeringVector

FAR = (0, 1, 2, 10**9)


def activations(layers: tuple[int, ...] = (0, 2)) -> Activations:
    shape = (3, len(layers), 4)
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return Activations(
        array=array, layers=layers, prompts=("a", "b", "c"), model="m", hidden_size=4
    )


def vector(layers: tuple[int, ...] = (0, 2)) -> SteeringVector:
    return SteeringVector(
        layers=layers,
        array=np.ones((len(layers), 4), np.float32),
        model="m",
        trait_name="t",
        method="caa",
    )


def test_numpy_takes_activations_for_their_array():
    read = activations()
    seen = np.asarray(read)
    assert np.shares_memory(seen, read.array)
    assert seen.dtype == np.float32
    assert np.array_equal(seen, read.array)


def test_numpy_copies_and_converts_when_asked():
    read = activations()
    copied = np.array(read)
    assert not np.shares_memory(copied, read.array)
    assert np.array_equal(copied, read.array)
    wide: Any = np.asarray(read, dtype=np.float64)
    assert wide.dtype == np.float64
    assert np.array_equal(wide, read.array)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(read, dtype=np.float64, copy=False)


def test_functions_of_numpy_work_on_activations():
    read: Any = activations()
    assert np.mean(read, axis=0).shape == (2, 4)
    assert np.stack([read, read]).shape == (2, 3, 2, 4)


@pytest.mark.parametrize(
    "name",
    [
        *("a.npy", "a.pt", "a.bin", "a.h5", "a.parquet", "a.csv", "a.txt", "a.JSON5"),
        *("rows", "npz", "a.npz/rows", ".npz", "a.json "),
    ],
)
@pytest.mark.parametrize("made", [activations(), vector()])
def test_a_name_that_does_not_say_the_format_is_refused(
    tmp_path: Path, made: Activations | SteeringVector, name: str
):
    path = tmp_path / name
    with pytest.raises(OutputError) as refusal:
        made.save(path)
    assert refusal.value.sentence == f"failed to write {path}"
    assert (refusal.value.path, refusal.value.found) == (str(path), path.suffix)
    formats = refusal.value.expected
    assert isinstance(formats, tuple)
    assert set(formats) - {".gguf"} == {".json", ".safetensors", ".npz"}
    assert all(suffix in refusal.value.causes[0] for suffix in formats)
    assert list(tmp_path.iterdir()) == []


def test_activations_have_no_gguf(tmp_path: Path):
    with pytest.raises(OutputError, match=r"\.npz; the suffix \"\.gguf\" is none$"):
        activations().save(tmp_path / "a.gguf")


@pytest.mark.parametrize("suffix", ["npz", "csv", "NPZ", "gguf"])
def test_answers_are_not_written_under_the_name_of_another_format(
    tmp_path: Path, suffix: str
):
    with pytest.raises(OutputError) as refusal:
        AnswerWriter(tmp_path / f"x.{suffix}", model="m", model_revision=None)
    assert f"{tmp_path}/x.json" in refusal.value.causes[0]
    assert refusal.value.expected == ".json"


@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors", "JSON", "Npz"])
@pytest.mark.parametrize("made", [activations((1, 2)), vector((1, 2))])
def test_a_suffix_says_the_format(
    tmp_path: Path, made: Activations | SteeringVector, suffix: str
):
    made.save(tmp_path / f"rows.{suffix}")
    begin = (tmp_path / f"rows.{suffix}").read_bytes()[:9]
    shown = {"json": b'{"schema_', "npz": b"PK\x03\x04"}.get(suffix.lower(), begin)
    assert begin.startswith(shown)
    assert (begin[8:] == b"{") == (suffix == "safetensors")
    assert type(made).load(tmp_path / f"rows.{suffix}").layers == made.layers


def test_a_far_layer_costs_nothing_to_show_or_take(tmp_path: Path):
    """Counting out the layers to the highest one would take all memory."""
    for made in (vector(FAR), activations(FAR)):
        assert "0, 1, 2, 1000000000" in repr(made)
        for name in ("far.json", "far.npz", "far.safetensors"):
            made.save(tmp_path / name)
            assert type(made).load(tmp_path / name).layers == FAR
    assert vector(FAR).direction(10**9).shape == (4,)
    assert activations(FAR).layer(10**9).shape == (3, 4)
    with pytest.raises(LayerError) as caught:
        vector(FAR).direction(3)
    assert (caught.value.layer, caught.value.expected) == (3, FAR)
    with pytest.raises(LayerError, match="only layers 0, 1, 2, 1000000000$"):
        activations(FAR).layer(3)
    assert (vector(FAR) + vector((5,))).layers == (0, 1, 2, 5, 10**9)
    assert len(vector(FAR).summary["layers"]) == 4  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layers", "shown"),
    [
        ((3,), "3"),
        ((3, 4), "3, 4"),
        ((3, 4, 5), "3 to 5"),
        ((0, 2, 3), "0, 2, 3"),
        ((0, 10**18), "0, 1000000000000000000"),
        ((5, 7, 7 + 10**9), "5, 7, 1000000007"),
    ],
)
def test_layers_are_abridged_without_counting_them_out(
    layers: tuple[int, ...], shown: str
):
    assert abridge(layers) == shown
