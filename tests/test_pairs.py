"""Pair sets: read strictly, refused with the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ster import PairSet
from ster.errors import DocumentError

ASSETS = Path(__file__).parents[1] / "assets"
PAIR = '{"positive": "a", "negative": "b"}'


def refusal(path: Path, text: str | bytes) -> DocumentError:
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(data.replace(b"PAIR", PAIR.encode()))
    with pytest.raises(DocumentError) as caught:
        PairSet.load(path)
    return caught.value


def test_pairs_keep_their_order_and_sides(tmp_path):
    path = tmp_path / "p.json"
    path.write_text(
        '{"trait_name": "x", "pairs": [{"positive": "a", "negative": "b"}, '
        '{"negative": " d", "positive": "é"}]}'
    )
    pairs = PairSet.load(path)
    assert pairs.trait_name == "x"
    assert pairs.prompts == ["a", "b", "é", " d"]
    assert [pair.positive for pair in pairs] == ["a", "é"]
    assert repr(pairs) == "PairSet('x', 2 pairs)"


@pytest.mark.parametrize("field", ["", '"trait_name": null, '])
def test_a_set_without_a_trait_is_named_after_its_file(tmp_path, field):
    path = tmp_path / "calm.v2.json"
    path.write_text("{" + field + f'"pairs": [{PAIR}]' + "}")
    assert PairSet.load(path).trait_name == "calm.v2"


def test_a_byte_order_mark_is_read_over(tmp_path):
    path = tmp_path / "p.json"
    path.write_bytes(b'\xef\xbb\xbf{"pairs": [' + PAIR.encode() + b"]}")
    assert len(PairSet.load(path)) == 1


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("3", "the document is neither an object nor a list of pairs"),
        ("{}", "missing field `pairs`"),
        ('{"pairs": {}}', "`pairs` is no list"),
        ('{"pairs": [1]}', "pairs[0] is no object"),
        ('{"pairs": [{"positive": "a"}]}', "missing field `negative` of pairs[0]"),
        (
            '{"pairs": [PAIR, {"positive": 1, "negative": "b"}]}',
            "`positive` of pairs[1] is no string",
        ),
        ('{"pairs": [PAIR], "x": 1}', 'the document has the unknown field "x"'),
        (
            '{"pairs": [{"positive": "a", "negative": "b", "note": ""}]}',
            'pairs[0] has the unknown field "note"',
        ),
        ('{"pairs": [PAIR], "trait_name": 3}', "`trait_name` is no string"),
        ('{"pairs": [PAIR], "pairs": []}', 'key "pairs" is given twice'),
        ('{"pairs": NaN}', None),
        (b"\xff", "invalid UTF-8 at byte 0"),
    ],
)
def test_what_is_no_pair_set_is_refused(tmp_path, text, cause):
    path = tmp_path / "p.json"
    error = refusal(path, text)
    assert error.sentence == f"invalid pair set JSON in {path}"
    assert len(error.causes) == 1
    assert cause is None or error.causes[0] == cause


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(DocumentError) as caught:
        PairSet.load("none.json")
    assert caught.value.sentence == "failed to read pair set none.json"
    assert caught.value.causes == ("No such file or directory (os error 2)",)


def test_a_set_without_pairs_is_refused(tmp_path):
    path = tmp_path / "p.json"
    error = refusal(path, '{"pairs": []}')
    assert (error.sentence, error.causes) == (f"pair set {path} contains no pairs", ())


@pytest.mark.parametrize("side", ["positive", "negative"])
@pytest.mark.parametrize("blank", ["", " \n", "\u2003"])
def test_a_blank_side_is_refused(tmp_path, side, blank):
    path = tmp_path / "p.json"
    pair = {"positive": "a", "negative": "b", side: blank}
    error = refusal(path, json.dumps({"pairs": [pair]}))
    assert error.sentence == (
        f"pair set {path} contains an empty positive or negative prompt"
    )


def test_pairs_made_in_a_notebook_are_checked_too():
    assert PairSet.of([("a", "b")], trait_name="t").prompts == ["a", "b"]
    with pytest.raises(DocumentError, match="^pair set contains no pairs$"):
        PairSet.of([])
    with pytest.raises(DocumentError, match="empty positive or negative prompt$"):
        PairSet.of([("a", " ")])


@pytest.mark.parametrize("name", ["happy", "formal", "french"])
def test_the_example_pairs_are_balanced_and_without_repeats(name):
    pairs = PairSet.load(ASSETS / f"pairs_{name}.json")
    assert len(pairs) == 24
    assert len(set(pairs.prompts)) == 48


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([("a", 1)], "pair set contains a side that is no string"),
        ([(None, "b")], "pair set contains a side that is no string"),
        ([1], "pair set contains what is no (positive, negative) pair"),
        (["ab"], "pair set contains what is no (positive, negative) pair"),
        ([("a",)], "pair set contains what is no (positive, negative) pair"),
        ([("a", "b", "c")], "pair set contains what is no (positive, negative) pair"),
    ],
)
def test_what_is_no_pair_of_strings_is_refused(pairs, sentence):
    with pytest.raises(DocumentError) as caught:
        PairSet.of(pairs)
    assert caught.value.sentence == sentence


def test_a_trait_is_named_by_a_string():
    trait_name: Any = 3
    with pytest.raises(DocumentError, match="^the name of a trait must be a string$"):
        PairSet.of([("a", "b")], trait_name=trait_name)
