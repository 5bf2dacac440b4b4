"""The names of points, the ``--points`` grammar, and which model has which."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ster.architecture.config import resolve_config
from ster.architecture.points import check_model_has
from ster.architecture.wide import WideSpec
from ster.errors import CheckpointError, UsageError
from ster.points import (
    ATTN_OUT,
    MLP_OUT,
    POINTS,
    RESID_MID,
    RESID_POST,
    check_points,
    inner_points,
    parse_points,
    select_points,
)
from tests.checkpoints import ALL_FAMILIES, make_config

WIDE = WideSpec(
    model_type="mamba",
    hidden_size=8,
    vocab_size=9,
    num_hidden_layers=2,
    max_position_embeddings=16,
    max_tokens=None,
    config={},
    path="config.json",
    num_values=1,
    layer_values=1,
    token_values=1,
    cache_values=1,
    num_heads=1,
    has_experts=False,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resid_post", (RESID_POST,)),
        ("mlp_out,attn_out", (MLP_OUT, ATTN_OUT)),
        (" attn_out , resid_mid,,attn_out", (ATTN_OUT, RESID_MID)),
        ("resid_post,resid_mid,attn_out,mlp_out", POINTS),
    ],
)
def test_a_list_of_points_keeps_its_order_and_each_once(text, expected):
    assert parse_points(text) == expected
    assert select_points(text) == expected
    assert select_points([*expected, expected[0]]) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("resid_pre", "resid_pre"),
        ("attn_out,Resid_Post", "Resid_Post"),
        ("attn_out mlp_out", "attn_out mlp_out"),
        ('a"\n', r"a\""),
    ],
)
def test_an_unknown_point_is_refused_by_name(text, named):
    with pytest.raises(UsageError) as refused:
        parse_points(text)
    assert str(refused.value) == (
        f'unknown point "{named}"; expected resid_post, resid_mid, attn_out, or mlp_out'
    )
    assert refused.value.field == "points"
    assert refused.value.exit_code == 2


def test_a_name_that_is_no_string_is_refused_too():
    names: Any = ["attn_out", 3]
    with pytest.raises(UsageError, match='unknown point "3"; expected resid_post'):
        check_points(names)


@pytest.mark.parametrize("points", ["", " , ", []])
def test_no_point_at_all_is_refused(points):
    with pytest.raises(UsageError, match="^no points selected; expected resid_post, "):
        select_points(points)


def test_the_stream_that_a_block_returns_is_not_inside_it():
    assert inner_points([RESID_POST]) == frozenset()
    assert inner_points(POINTS) == {RESID_MID, ATTN_OUT, MLP_OUT}


PARALLEL = ("gpt_neox", "cohere2")


@pytest.mark.parametrize("family", PARALLEL)
def test_parallel_halves_have_nothing_between_them(family):
    model = resolve_config(make_config(family), "config.json")
    check_model_has([RESID_POST, ATTN_OUT, MLP_OUT], model)
    with pytest.raises(CheckpointError) as refused:
        check_model_has([ATTN_OUT, RESID_MID], model)
    assert str(refused.value) == (
        f"blocks of {family} add both halves to the stream at once, so there is no "
        "resid_mid between them; ask for resid_post, attn_out, or mlp_out"
    )
    assert (refused.value.field, refused.value.found) == ("points", RESID_MID)


def test_all_other_families_have_all_points():
    for family in ALL_FAMILIES:
        if family not in PARALLEL:
            model = resolve_config(make_config(family), "config.json")
            check_model_has(POINTS, model)
    one_after_the_other = make_config("gpt_neox", use_parallel_residual=False)
    check_model_has(POINTS, resolve_config(one_after_the_other, "config.json"))


def test_the_documentation_has_every_point_and_every_family():
    text = Path(__file__).parents[1].joinpath("docs/points.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` \| [a-z]", text, re.M) == [*POINTS]
    table = text[text.index("| families |") :]
    cells = re.findall(r"^\| ([a-z][^|]*) \|", table, re.M)
    words = [word for cell in cells for word in re.findall(r"\b[a-z]+[0-9a-z_]*", cell)]
    assert set(ALL_FAMILIES) <= set(words)


@pytest.mark.parametrize("point", [RESID_MID, ATTN_OUT, MLP_OUT])
def test_a_model_that_runs_as_a_whole_shows_nothing_inside_its_layers(point):
    check_model_has([RESID_POST], WIDE)
    with pytest.raises(CheckpointError) as refused:
        check_model_has([RESID_POST, point], WIDE)
    assert str(refused.value) == (
        f"--points {point} needs a family that ster computes itself; mamba runs "
        "through mlx-lm, which shows what a layer hands on and nothing inside it: "
        "leave out --points, or ask for resid_post"
    )
    assert (refused.value.field, refused.value.found) == ("points", point)
