"""The --layers grammar and the library's rules for layers."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ster.cli.tables.comparisons import draw_comparison
from ster.cli.tables.drawing import draw
from ster.errors import LayerError
from ster.layers import check_layers, parse_layers, select_layers
from ster.vectors.applying import Applying
from ster.vectors.steering import SteeringVector


@pytest.mark.parametrize(
    ("spec", "layers"),
    [
        ("all", tuple(range(12))),
        ("0", (0,)),
        ("11", (11,)),
        ("3,1,2", (1, 2, 3)),
        ("8..12", (8, 9, 10, 11)),
        ("0..1", (0,)),
        ("2..5,4..6,4", (2, 3, 4, 5)),
        (" 1 ,\t2..4\n", (1, 2, 3)),
        ("\u30001\u00a0", (1,)),
        (",,1,,2,", (1, 2)),
        ("+3", (3,)),
        ("+1..+3", (1, 2)),
        ("007,0000000000000000000000000001", (1, 7)),
    ],
)
def test_selections_are_sorted_and_counted_once(spec: str, layers: tuple[int, ...]):
    assert parse_layers(spec, 12) == layers


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("", "no layers selected"),
        (" , ,", "no layers selected"),
        (" all", 'invalid layer "all"'),
        ("ALL", 'invalid layer "ALL"'),
        ("all,3", 'invalid layer "all"'),
        ("-1", 'invalid layer "-1"'),
        ("+", 'invalid layer "+"'),
        ("++1", 'invalid layer "++1"'),
        ("1_0", 'invalid layer "1_0"'),
        ("1.5", 'invalid layer "1.5"'),
        ("1e1", 'invalid layer "1e1"'),
        ("0x1", 'invalid layer "0x1"'),
        ("1 2", 'invalid layer "1 2"'),
        ("\u0663", 'invalid layer "\u0663"'),
        ("\u00b2", 'invalid layer "\u00b2"'),
        ("0,\u200b1", 'invalid layer "\\u{200b}1"'),
        ("\x1c1", 'invalid layer "\\u{1c}1"'),
        ('a"b\\', r'invalid layer "a\"b\\"'),
        ("a\nb", r'invalid layer "a\nb"'),
        ("1..=3", 'invalid layer range "1..=3"'),
        ("..3", 'invalid layer range "..3"'),
        ("3..", 'invalid layer range "3.."'),
        ("..", 'invalid layer range ".."'),
        ("1 .. 3", 'invalid layer range "1 .. 3"'),
        ("1...3", 'invalid layer range "1...3"'),
        ("1..2..3", 'invalid layer range "1..2..3"'),
        ("-1..3", 'invalid layer range "-1..3"'),
        ("3..3", 'layer range "3..3" must have start < end'),
        ("4..3", 'layer range "4..3" must have start < end'),
        ("99..98", 'layer range "99..98" must have start < end'),
        ("99,x", 'invalid layer "x"'),
        ("12", "layer 12 is outside the model's 0..11 range"),
        ("90,5,14", "layer 14 is outside the model's 0..11 range"),
        ("10..20", "layer 12 is outside the model's 0..11 range"),
        ("40..50,30..60,99", "layer 30 is outside the model's 0..11 range"),
        (
            "0..18446744073709551615",
            "layer 12 is outside the model's 0..11 range",
        ),
        (
            "18446744073709551615",
            "layer 18446744073709551615 is outside the model's 0..11 range",
        ),
        ("18446744073709551616", 'invalid layer "18446744073709551616"'),
        ("9" * 5000, f'invalid layer "{"9" * 5000}"'),
    ],
)
def test_other_words_are_refused_by_name(spec: str, sentence: str):
    with pytest.raises(LayerError) as refusal:
        parse_layers(spec, 12)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ("0-2", ("a range is written 0..2, its end not included",)),
        ("1,0:2", ("a range is written 0..2, its end not included",)),
        ("-2", ()),
        ("0-1-2", ()),
        ("a-2", ()),
    ],
)
def test_a_range_that_is_written_in_another_way_is_refused_with_ours(
    spec: str, causes: tuple[str, ...]
):
    with pytest.raises(LayerError) as refusal:
        parse_layers(spec, 12)
    assert refusal.value.causes == causes


def test_one_layer_models_have_layer_0():
    assert parse_layers("all", 1) == (0,)
    with pytest.raises(
        LayerError, match=r"^layer 1 is outside the model's 0\.\.0 rang"
    ):
        parse_layers("1", 1)


@pytest.mark.parametrize("spec", ["all", "0", "nonsense"])
def test_a_model_without_layers_is_refused_first(spec: str):
    with pytest.raises(LayerError, match="^model has no layers$"):
        parse_layers(spec, 0)
    with pytest.raises(LayerError, match="^model has no layers$"):
        check_layers([0], 0)


@given(st.lists(st.integers(0, 30), min_size=1))
def test_words_and_lists_select_the_same(layers: list[int]):
    spec = ",".join(map(str, layers))
    assert (
        parse_layers(spec, 31) == check_layers(layers, 31) == tuple(sorted({*layers}))
    )


@given(st.text())
def test_any_text_is_read_or_refused(spec: str):
    with suppress(LayerError):
        assert set(parse_layers(spec, 12)) <= set(range(12))


def test_library_callers_may_use_numpy_integers_and_any_iterable():
    layers = check_layers(iter(np.array([5, 2, 5])), 6)
    assert layers == (2, 5)
    assert all(type(layer) is int for layer in layers)
    assert select_layers(np.array(3), 6) == (3,)


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ([], "at least one layer is required"),
        ([6, -1, 7], "layer -1 is outside the model's 0..5 range"),
        ([6, 9], "layer 6 is outside the model's 0..5 range"),
        ([True], 'invalid layer "True"'),
        ([1.0], 'invalid layer "1.0"'),
        (["1"], 'invalid layer "1"'),
        ([None], 'invalid layer "None"'),
    ],
)
def test_library_callers_are_refused_by_name(layers: list[int], sentence: str):
    with pytest.raises(LayerError) as refusal:
        check_layers(layers, 6)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("layers", "facts"),
    [
        ("0,x", ("layers", "x", None)),
        ("1..x", ("layers", "1..x", None)),
        ("3..2", ("layers", "3..2", None)),
        (" ", ("layers", " ", None)),
        ([0, 1.5], ("layers", 1.5, None)),
        ([0, 9], ("layers", None, 9)),
        ("2..9", ("layers", None, 4)),
    ],
)
def test_a_refused_selection_says_what_is_wrong_with_it(layers, facts):
    with pytest.raises(LayerError) as caught:
        select_layers(layers, 4)
    error = caught.value
    assert (error.field, error.found, error.layer) == facts


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((2,), "layer 2"),
        ((0, 2), "layers 0, 2"),
        ((0, 1, 2), "layers 0 to 2"),
    ],
)
def test_one_layer_is_named_as_one(layers, words):
    array = np.ones((len(layers), 2), np.float32)
    vector = SteeringVector(
        layers=layers, array=array, model="m", trait_name="t", method="caa"
    )
    assert f", {words}, " in repr(vector)
    with pytest.raises(LayerError) as caught:
        vector.direction(9)
    assert str(caught.value) == f"the vector has no layer 9, only {words}"
    comparison = vector.compare(vector, clusters=1)
    assert f", {words}, " in repr(comparison)
    assert f", {words}\n" in draw(draw_comparison(comparison))
    assert str(Applying.of(layers=layers)) == f"add, at {words}"


def test_a_spec_of_one_layer_is_named_as_one():
    said = [str(Applying.of(layers=each)) for each in ("2", "1..3", "all")]
    assert said == ["add, at layer 2", "add, at layers 1..3", "add, at layers all"]
