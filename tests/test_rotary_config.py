"""Both spellings of rotary scaling, and what is refused rather than guessed."""

from __future__ import annotations

import math

import pytest

from ster.architecture.fields import Fields
from ster.architecture.rotary import (
    DefaultRope,
    DynamicRope,
    LinearRope,
    Llama3Rope,
    RopeConfig,
    YarnRope,
)
from ster.architecture.rotary_config import read_rope
from ster.errors import ConfigError

PATH = "m/config.json"
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LLAMA3_ROPE = Llama3Rope(
    theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)
YARN = {"rope_type": "yarn", "factor": 4.0}


def rope(max_positions: int = 64, /, **values: object) -> RopeConfig:
    fields = Fields(values=values, path=PATH, model_type="llama")
    return read_rope(fields, max_positions).scaling


def refusal(**values: object) -> str:
    """Return sentence and cause of a refusal, on one line."""
    with pytest.raises(ConfigError) as caught:
        rope(**values)
    return str(caught.value).removeprefix(f"invalid llama config {PATH}: ")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, DefaultRope(theta=10000.0)),
        ({"rope_theta": 500000}, DefaultRope(theta=500000.0)),
        ({"rope_theta": None, "rope_scaling": None}, DefaultRope(theta=10000.0)),
        ({"rope_scaling": {}, "rope_theta": 5e5}, DefaultRope(theta=5e5)),
        ({"rope_scaling": {"rope_type": "default"}}, DefaultRope(theta=10000.0)),
        ({"rope_scaling": {"type": "default"}}, DefaultRope(theta=10000.0)),
        ({"rope_scaling": {"rope_type": None}}, DefaultRope(theta=10000.0)),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}, "rope_theta": 5e5},
            LinearRope(theta=5e5, factor=2.0),
        ),
        (
            {"rope_scaling": {"type": "dynamic", "rope_type": "dynamic", "factor": 2}},
            DynamicRope(theta=10000.0, factor=2.0, max_position_embeddings=64),
        ),
        ({"rope_scaling": {"factor": 1.0}}, DefaultRope(theta=10000.0)),
        ({"rope_scaling": LLAMA3, "rope_theta": 500000.0}, LLAMA3_ROPE),
    ],
)
def test_the_older_spelling_is_read(values, expected):
    assert rope(**values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"rope_parameters": None}, DefaultRope(theta=10000.0)),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
            DefaultRope(theta=5e5),
        ),
        ({"rope_parameters": {"rope_theta": 5e5}}, DefaultRope(theta=5e5)),
        ({"rope_parameters": LLAMA3 | {"rope_theta": 5e5}}, LLAMA3_ROPE),
        ({"rope_parameters": LLAMA3, "rope_theta": 5e5}, LLAMA3_ROPE),
    ],
)
def test_the_newer_spelling_is_read(values, expected):
    assert rope(**values) == expected


@pytest.mark.parametrize(
    "values",
    [
        {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}, "rope_scaling": LLAMA3},
        {"rope_parameters": LLAMA3, "rope_scaling": LLAMA3, "rope_theta": 5e5},
        {
            "rope_parameters": LLAMA3 | {"rope_theta": 5e5},
            "rope_scaling": LLAMA3 | {"rope_theta": None, "factor": None},
            "rope_theta": 500000,
        },
        {"rope_parameters": LLAMA3, "rope_scaling": None, "rope_theta": 5e5},
        {
            "rope_parameters": {},
            "rope_scaling": {"type": "llama3"} | LLAMA3,
            "rope_theta": 5e5,
        },
    ],
)
def test_both_spellings_may_stand_together_when_they_agree(values):
    assert rope(**values) == LLAMA3_ROPE


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        (
            {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
            "`rope_theta` is 10000.0, but `rope_parameters.rope_theta` is 500000.0",
        ),
        (
            {"rope_theta": 1e4, "rope_scaling": {"rope_theta": 5e5}},
            "`rope_theta` is 10000.0, but `rope_scaling.rope_theta` is 500000.0",
        ),
        (
            {"rope_scaling": LLAMA3, "rope_parameters": {"rope_theta": 5e5}},
            '`rope_scaling` is "llama3", but `rope_parameters` is "default"',
        ),
        (
            {"rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | {"factor": 32.0}},
            "`rope_scaling.factor` is 8.0, but `rope_parameters.factor` is 32.0",
        ),
    ],
)
def test_a_disagreement_is_refused_and_both_sides_are_named(values, cause):
    assert refusal(**values) == cause


@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("key", ["type", "rope_type"])
@pytest.mark.parametrize("kind", ["ntk", "mrope", "LLAMA3", ""])
def test_an_unknown_scaling_is_refused_by_its_name(spelling, key, kind):
    assert refusal(**{spelling: {key: kind, "factor": 2.0}}) == (
        f'm/config.json declares rope_scaling "{kind}"; '
        "Ster implements default, llama3, linear, dynamic, yarn, longrope rotary "
        "scaling"
    )


def test_an_odd_name_is_quoted_on_one_line():
    assert refusal(rope_scaling={"type": 'a"\n'}).startswith(
        r'm/config.json declares rope_scaling "a\"\n"; Ster'
    )


@pytest.mark.parametrize("kind", ["linear", "yarn"])
@pytest.mark.parametrize("factor", [{}, {"factor": None}], ids=["absent", "null"])
def test_a_scaling_without_its_factor_is_refused(kind, factor):
    assert refusal(rope_scaling={"type": kind} | factor) == (
        f"m/config.json declares {kind} rope_scaling with no factor"
    )


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"rope_scaling": {"type": "dynamic"}}, "missing field `rope_scaling.factor`"),
        (
            {"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2}},
            '`rope_scaling.type` is "linear", not "dynamic", as `rope_type` is',
        ),
        (
            {"rope_scaling": {"factor": 2.0}},
            "`rope_scaling.factor` is 2.0, but there is no `rope_type` that would "
            "use it",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": "2"}},
            '`rope_scaling.factor` is "2", not a number',
        ),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 0}},
            "`rope_parameters.factor` is 0, not a finite number above zero",
        ),
        ({"rope_scaling": {"type": 4}}, "`rope_scaling.type` is 4, not a string"),
        ({"rope_scaling": "linear"}, '`rope_scaling` is "linear", not an object'),
        ({"rope_theta": "1e4"}, '`rope_theta` is "1e4", not a number'),
        ({"rope_theta": 1}, "`rope_theta` is 1.0, not above one"),
        (
            {"rope_parameters": {"rope_theta": 0.5}},
            "`rope_parameters.rope_theta` is 0.5, not above one",
        ),
        (
            {"rope_scaling": LLAMA3 | {"low_freq_factor": None}},
            "missing field `rope_scaling.low_freq_factor`",
        ),
        (
            {"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}},
            "`rope_scaling.high_freq_factor` is 1.0, not different from "
            "low_freq_factor",
        ),
        (
            {"rope_scaling": YARN | {"truncate": 1}},
            "`rope_scaling.truncate` is 1, not true or false",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            '`rope_parameters.full_attention` is {"rope_type": "default"}, '
            "not one scaling for all layers",
        ),
        ({"partial_rotary_factor": 0.5}, "`partial_rotary_factor` is 0.5, not 1.0"),
        (
            {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}},
            "`rope_parameters.partial_rotary_factor` is 0.25, not 1.0",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(values, cause):
    assert refusal(**values) == cause


def test_a_whole_rotation_may_be_spelled_out():
    assert rope(partial_rotary_factor=1.0) == DefaultRope(theta=10000.0)


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_the_original_length_is_looked_for_in_three_places(kind):
    scaling = LLAMA3 | {"rope_type": kind}
    without = {k: v for k, v in scaling.items() if not k.startswith("original")}

    def original(**values: object) -> int:
        read = rope(64, **values)
        assert isinstance(read, Llama3Rope | YarnRope)
        return read.original_max_position_embeddings

    assert original(rope_scaling=without) == 64
    assert original(rope_scaling=scaling) == 8192
    # transformers 5.24 lets the field beside the scaling win.
    top = {"original_max_position_embeddings": 1024}
    assert original(rope_scaling=scaling, **top) == 1024


def test_yarn_has_the_defaults_of_its_paper():
    assert rope(2048, rope_scaling=YARN) == YarnRope(
        theta=10000.0,
        factor=4.0,
        attention_factor=0.1 * math.log(4.0) + 1.0,
        beta_fast=32.0,
        beta_slow=1.0,
        truncate=True,
        original_max_position_embeddings=2048,
    )


@pytest.mark.parametrize(
    ("changes", "attention_factor"),
    [
        # attention_scaling of transformers 5.24's LlamaRotaryEmbedding.
        ({}, 1.138629436111989),
        ({"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 1.5}, 0.8116769910542814),
        ({"factor": 40.0, "mscale": 0.707}, 1.3688879454113936),
        ({"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0}, 1.3688879454113936),
        ({"attention_factor": 0.5, "mscale": 2.0, "mscale_all_dim": 3.0}, 0.5),
        ({"factor": 0.5}, 1.0),
    ],
)
def test_yarn_scales_cosines_as_its_fields_say(changes, attention_factor):
    read = rope(rope_scaling=YARN | changes)
    assert isinstance(read, YarnRope)
    assert read.attention_factor == attention_factor
