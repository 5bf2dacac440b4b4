"""Typed reading of config fields, and what a refusal names."""

from __future__ import annotations

import math

import pytest

from ster.architecture.fields import LARGEST_COUNT, LARGEST_NUMBER, Fields
from ster.errors import ConfigError


def fields(**values: object) -> Fields:
    return Fields(values=values, path="m/config.json", model_type="llama")


def cause(read, *args, **kwargs) -> str:
    with pytest.raises(ConfigError) as caught:
        read(*args, **kwargs)
    assert caught.value.sentence == "invalid llama config m/config.json"
    (only,) = caught.value.causes
    return only


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        ("count", 1),
        ("count", LARGEST_COUNT),
        ("number", 1),
        ("number", 0.5),
        ("number", 2.0**-149),
        ("number", LARGEST_NUMBER),
        ("flag", True),
        ("flag", False),
        ("word", ""),
        ("word", "silu"),
    ],
)
def test_a_value_of_the_right_type_is_returned(reader, value):
    keywords = {"default": False} if reader == "flag" else {}
    assert getattr(fields(a=value), reader)("a", **keywords) == value


def test_a_whole_number_reads_as_a_float_where_one_is_wanted():
    assert type(fields(a=10000).number("a")) is float


@pytest.mark.parametrize(
    ("reader", "value", "complaint"),
    [
        ("count", 0, f"`a` is 0, not between 1 and {LARGEST_COUNT}"),
        ("count", -1, f"`a` is -1, not between 1 and {LARGEST_COUNT}"),
        ("count", 2**31, f"`a` is 2147483648, not between 1 and {LARGEST_COUNT}"),
        ("count", 64.0, "`a` is 64.0, not a whole number"),
        ("count", True, "`a` is true, not a whole number"),
        ("count", "64", '`a` is "64", not a whole number'),
        ("count", [1], "`a` is [1], not a whole number"),
        ("number", True, "`a` is true, not a number"),
        ("number", "1", '`a` is "1", not a number'),
        ("number", {}, "`a` is {}, not a number"),
        ("number", 0, "`a` is 0, not a finite number above zero"),
        ("number", -0.5, "`a` is -0.5, not a finite number above zero"),
        ("number", 1e39, "`a` is 1e+39, not a finite number above zero"),
        ("number", 1e-310, "`a` is 1e-310, not a finite number above zero"),
        (
            "number",
            2.0**-150,
            "`a` is 7.006492321624085e-46, not a finite number above zero",
        ),
        ("number", math.inf, "`a` is Infinity, not a finite number above zero"),
        ("number", math.nan, "`a` is NaN, not a finite number above zero"),
        ("word", 3, "`a` is 3, not a string"),
        ("word", ["a"], '`a` is ["a"], not a string'),
        ("inner", [], "`a` is [], not an object"),
        ("inner", "x", '`a` is "x", not an object'),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(reader, value, complaint):
    assert cause(getattr(fields(a=value), reader), "a") == complaint


@pytest.mark.parametrize("value", [0, 1, "true", []])
def test_only_true_and_false_are_flags(value):
    assert cause(fields(a=value).flag, "a", default=True).endswith("not true or false")


def test_a_number_beyond_any_float_is_refused_and_shown_short():
    assert cause(fields(a=10**400).number, "a") == (
        f"`a` is 1{'0' * 56}..., not a finite number above zero"
    )


@pytest.mark.parametrize("values", [{}, {"a": None}], ids=["absent", "null"])
class TestNothing:
    def test_is_not_there(self, values):
        assert not fields(**values).has("a")

    def test_takes_the_default(self, values):
        found = fields(**values)
        assert found.count("a", 7) == 7
        assert found.number("a", 0.5) == 0.5
        assert found.word("a", "silu") == "silu"
        assert found.flag("a", default=True) is True
        assert found.inner("a") is None

    @pytest.mark.parametrize("reader", ["count", "number", "word"])
    def test_is_missing_where_there_is_no_default(self, values, reader):
        assert cause(getattr(fields(**values), reader), "a") == "missing field `a`"


def test_falsy_values_are_there():
    assert fields(a=False).has("a")
    assert fields(a=0).has("a")
    assert fields(a=False).flag("a", default=True) is False


def test_bounds_may_be_narrower():
    assert fields(a=0).count("a", least=0) == 0
    assert cause(fields(a=11).count, "a", most=10) == "`a` is 11, not between 1 and 10"


def test_a_field_within_an_object_is_named_with_its_path():
    inner = fields(rope={"deep": {"x": "y"}}).inner("rope")
    assert inner is not None
    deep = inner.inner("deep")
    assert deep is not None
    assert cause(deep.count, "x") == '`rope.deep.x` is "y", not a whole number'
    assert cause(deep.count, "z") == "missing field `rope.deep.z`"


def test_text_is_shown_as_it_stands_in_the_file():
    assert cause(fields(a="größe").count, "a") == '`a` is "größe", not a whole number'


@pytest.mark.parametrize("kind", ["deep", "long"])
def test_what_cannot_be_shown_is_refused_too(kind):
    value: object = 10**5000
    if kind == "deep":
        value = []
        for _ in range(100_000):
            value = [value]
    assert cause(fields(a=value).word, "a") == "`a` is ..., not a string"
