"""Tables of comparisons, projections and learning curves, as a terminal shows them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ster.cli.tables.comparisons import draw_comparison
from ster.cli.tables.drawing import draw
from ster.cli.tables.learning_curves import draw_curve
from ster.cli.tables.projections import draw_projection
from ster.vectors.strengths import Strength
from tests import made


@pytest.fixture(autouse=True)
def eighty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of eighty columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def shown(parts: Iterable[Any]) -> str:
    """Draw, and leave out colours and the space at the ends of lines."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", draw(parts))
    return "\n".join(line.rstrip() for line in plain.splitlines())


def cells(page: str) -> list[list[str]]:
    """Take the rows of the table, as words."""
    lines = page.split("─\n", 1)[1].splitlines()
    rows = [re.split(r" {2,}", line.strip()) for line in lines]
    return [row for row in rows if len(row) > 2]


def test_a_comparison_is_a_table_of_clusters_and_cosines():
    page = shown(draw_comparison(made.comparison()))
    assert page.startswith("3 vectors compared\ntoy, layers 1, 3\n")
    assert cells(page) == [
        ["1", "east (caa)", "0", "0.000", "+1.00", "+0.00", "-1.00"],
        ["2", "$up$", "1", "1.000", "+0.00", "+1.00", "+0.00"],
        ["3", "-1 × east (caa)", "0", "0.000", "-1.00", "+0.00", "+1.00"],
    ]
    assert "most similar: east (caa) and $up$, cosine 0.000\n" in page
    assert "most different: east (caa) and -1 × east (caa), cosine -1.000\n" in page
    assert "silhouette of the clusters: 1.000, 1 is the best\n" in page


def test_many_cosines_are_left_out_from_the_end():
    names = [f"trait {index}" for index in range(20)]
    vectors = [made.vector(trait_name=name) for name in names]
    found = vectors[0].compare(*vectors[1:], clusters=1)
    page = shown(draw_comparison(found))
    assert "cos 1 " in page
    assert "cos 20" not in page
    assert max(map(len, page.splitlines())) <= 80
    assert [row[1] for row in cells(page)] == names
    assert "silhouette" not in page


def test_a_name_cannot_forge_a_line():
    evil = made.vector(trait_name="x\nmost similar: y\x1b[2J")
    parts = [*draw_comparison(evil.compare(made.vector(), clusters=1))]
    assert "\x1b[2J" not in draw(parts)
    assert len(re.findall(r"^most similar: ", shown(parts), re.M)) == 1


def test_a_projection_is_a_table_of_mean_places():
    page = shown(draw_projection(made.projection()))
    # Places count from 0: unsteered, two pairs, two sides, two components.
    assert cells(page) == [
        ["positive", "no", "2", "3"],
        ["positive", "yes", "10", "11"],
        ["negative", "no", "4", "5"],
        ["negative", "yes", "12", "13"],
    ]
    assert "component 1 (50%)" in page
    assert "2 pairs, read at layer 3, steered at strength 2\n" in page
    assert "all sides moved by +1.5 on average" in page
    flat = " ".join(page.split())
    assert "positive ones: 2, steered 1; 1 of 2 came nearer" in flat


def test_a_projection_without_a_direction_there_has_no_shift():
    norms = Strength(value=0.5, of_norm=True)
    found = made.projection(shift_along_direction=None, strength=norms)
    page = shown(draw_projection(found))
    assert "moved by" not in page
    assert "steered at strength 0.5n" in page


def test_a_curve_is_a_table_of_layers_and_sizes():
    page = shown(draw_curve(made.learning_curve()))
    assert page.startswith("calm\ncaa, on 4 held-out pairs\n")
    assert "layer  2 pairs  4 pairs  8 pairs  enough" in re.sub(" {2,}", "  ", page)
    assert cells(page) == [
        ["0", "0.750", "0.750", "0.500", "2"],
        ["1", "1.000", "0.500", "0.500", "2"],
    ]
    flat = " ".join(page.split())
    assert "layer 1 from 2 pairs: 1.000, 95 % interval 0.25 to 0.88; one random" in flat
    assert flat.endswith(
        "warning: 4 held-out pairs are too few to tell the sizes apart at that layer"
    )


def test_nothing_is_warned_of_where_the_interval_tells_sizes_apart():
    found = made.learning_curve()
    sure = [
        replace(each, score=replace(each.score, interval=(0.6, 1.0)))
        for each in found.points
    ]
    assert "warning" not in shown(draw_curve(replace(found, points=tuple(sure))))


def test_accuracies_of_the_smallest_sizes_are_left_out_first():
    found = made.learning_curve()
    many = [
        replace(each, size=size)
        for layer in found.layers
        for each, size in zip(found.at_layer(layer) * 10, range(1, 31), strict=True)
    ]
    page = shown(draw_curve(replace(found, points=tuple(many))))
    assert "30 pairs" in page
    assert " 1 pair " not in page
    assert max(map(len, page.splitlines())) <= 80
    assert {row[-1] for row in cells(page)} == {"1"}
