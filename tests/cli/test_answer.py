"""Answers as JSON and as text."""

from __future__ import annotations

import json

import pytest

from ster.cli.answer import render

DOCUMENT = {
    "b": [{"layer": 0, "norm": 1.5}, {"layer": 1, "norm": None}],
    "a": {"z": "é", "y": True},
    "empty": [],
}


def test_a_document_is_pretty_with_sorted_keys():
    assert render({"b": [1], "a": "é"}, text=False) == (
        '{\n  "a": "é",\n  "b": [\n    1\n  ]\n}\n'
    )


def test_text_is_one_line_a_leaf_in_the_same_order():
    assert render(DOCUMENT, text=True) == (
        "a.y: true\na.z: é\n"
        "b[0].layer: 0\nb[0].norm: 1.5\nb[1].layer: 1\nb[1].norm: -\n"
    )


@pytest.mark.parametrize("text", [True, False])
def test_a_string_is_printed_as_it_is(text):
    assert render("./x y/", text=text) == "./x y/\n"


@pytest.mark.parametrize(
    "mark", ["\n", "\r", "\x00", "\x1b", "\x85", "\u2028", "\u2029"]
)
def test_no_name_or_value_can_forge_a_line(mark):
    forged = f"é{mark}method: pca"
    out = render({"a": forged, forged: 1}, text=True)
    assert out == f"a: {json.dumps(forged)}\n{json.dumps(forged)}: 1\n"
    assert len(out.splitlines()) == 2
