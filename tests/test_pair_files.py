"""Pairs as people have them: files of every form, and what is refused of them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from ster import ContrastPair, PairSet
from ster.errors import DocumentError, OutputError

CAA = [
    {
        "question": "Which?\n (A) this\n (B) that",
        "answer_matching_behavior": " (A)",
        "answer_not_matching_behavior": " (B)",
        "label_confidence": 0.9,
    }
]
ASKED = ContrastPair(prompt=CAA[0]["question"], positive=" (A)", negative=" (B)")  # type: ignore[arg-type]
TWO = PairSet.of([("a", "b"), ("c", "d")]).pairs
NEEDS = (
    "; a pair has `positive` and `negative`, or CAA's `answer_matching_behavior` and "
    "so on"
)


def load(tmp_path: Path, name: str, content: str | bytes) -> PairSet:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return PairSet.load(path)


def test_caa_s_json_becomes_answers_to_a_prompt_as_they_stand(tmp_path):
    pairs = load(tmp_path, "refusal.json", json.dumps(CAA))
    assert pairs.trait_name == "refusal"
    assert pairs.pairs == (ASKED,)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.json", '[{"positive": "a", "negative": "b", "id": 1}, '
         '{"positive": "c", "negative": "d", "prompt": null}]'),
        ("p.jsonl", '{"positive": "a", "negative": "b"}\n\n'
         '{"positive": "c", "negative": "d", "note": "x"}\n'),
        ("p.csv", "id,positive,negative\n1,a,b\n2,c,d\n"),
        ("p.csv", "\ufeffnegative,prompt,positive\r\nb,,a\r\nd,,c\r\n"),
        ("p.TSV", "positive\tnegative\na\tb\nc\td"),
        ("p.csv", "answer_matching_behavior,answer_not_matching_behavior\na,b\nc,d"),
    ],
)  # fmt: skip
def test_every_form_gives_the_same_pairs_and_leaves_out_what_it_does_not_know(
    tmp_path, name, content
):
    assert load(tmp_path, name, content).pairs == TWO


def test_a_table_has_prompts_and_system_turns(tmp_path):
    content = (
        "question,positive,negative,positive_system,group\n"
        '"How\nis it?",good,bad,Be glad.,one\n,1,2,,\n'
    )
    assert load(tmp_path, "p.csv", content).pairs == (
        ContrastPair(
            prompt="How\nis it?",
            positive="good",
            negative="bad",
            positive_system="Be glad.",
            group="one",
        ),
        ContrastPair(positive="1", negative="2"),
    )


@pytest.mark.parametrize(
    "content",
    [
        '{"pairs": [{"positive": "a", "negative": "b"}, '
        '{"positive": "c", "negative": "d"}]}',
        '[{"positive": "a", "negative": "b"},\n {"positive": "c", "negative": "d"}]',
        '{"positive": "a", "negative": "b"}\n{"positive": "c", "negative": "d"}\n',
        "positive,negative\na,b\nc,d\n",
        "negative\tpositive\nb\ta\nd\tc\n",
    ],
)
def test_standard_input_is_told_by_its_content(content):
    pairs = PairSet.load("-", stream=io.BytesIO(content.encode()))
    assert (pairs.pairs, pairs.trait_name) == (TWO, "")


@pytest.mark.parametrize("content", [b"", b" \r\n", b"\xef\xbb\xbf"])
def test_standard_input_that_is_empty_is_said_to_be(content):
    with pytest.raises(DocumentError) as caught:
        PairSet.load("-", stream=io.BytesIO(content))
    sentence = "pair set standard input contains no pairs"
    assert (caught.value.sentence, caught.value.causes) == (sentence, ("it is empty",))


@pytest.mark.parametrize(
    ("name", "content", "sentence", "cause"),
    [
        ("p.csv", "", "pair set P contains no pairs", "it is empty"),
        ("p.tsv", "\ufeff \n", "pair set P contains no pairs", "it is empty"),
        ("p.jsonl", "\n", "pair set P contains no pairs", "it is empty"),
        ("p.json", "", "invalid pair set JSON in P", "it is empty"),
        ("p.json", "[]", "pair set P contains no pairs", None),
        ("p.csv", "positive,negative\n", "pair set P contains no pairs", None),
        ("p.csv", "positive,b\nx,y", "invalid pair set CSV in P",
         f'line 1: no `negative` among "positive", "b"{NEEDS}'),
        ("p.csv", "positive,negative,positive\na,b,c", "invalid pair set CSV in P",
         'the column "positive" is there twice'),
        ("p.csv", "positive,negative,prompt,question\na,b,c,d",
         "invalid pair set CSV in P",
         "line 1: both `prompt` and `question` are there"),
        ("p.csv", "positive,negative\na\n", "invalid pair set CSV in P",
         "line 2 has 1 field for 2 columns"),
        ("p.csv", 'positive,negative\n"a"x,b\n', "invalid pair set CSV in P",
         "line 2: ',' expected after '\"'"),
        ("p.csv", "positive,negative\na,b\n\n ,b\n",
         "pair set P contains an empty positive or negative prompt",
         "pair 2 stands on line 4"),
        ("p.csv", b"positive,negative\n\xff,b\n", "invalid pair set CSV in P",
         "invalid UTF-8 at byte 18; the file must be UTF-8"),
        ("p.jsonl", '{"positive": 3, "negative": "b"}', "invalid pair set JSON in P",
         "line 1: `positive` is no string"),
        ("p.jsonl", '\n{"positive": NaN}', "invalid pair set JSON in P", None),
        ("p.jsonl", "[1]", "invalid pair set JSON in P",
         f"line 1: no object with {NEEDS.removeprefix('; a pair has ')}"),
        ("p.json", '[{"positive": "a"}]', "invalid pair set JSON in P",
         f'pair 1: no `negative` among "positive"{NEEDS}'),
        ("p.parquet", "PAR1", "failed to read pair set P", ".parquet is not read here; "
         "ster.PairSet.of(table) takes what pandas reads of it"),
    ],
)  # fmt: skip
def test_a_faulty_file_is_refused_in_one_sentence(
    tmp_path, name, content, sentence, cause
):
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, name, content)
    path = str(tmp_path / name)
    assert caught.value.sentence == sentence.replace("P", path)
    assert caught.value.path == path
    assert cause is None or caught.value.causes == (cause,)


def test_a_directory_is_no_pair_set(tmp_path):
    with pytest.raises(DocumentError, match="^failed to read pair set "):
        PairSet.load(tmp_path)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".tsv"])
def test_what_is_saved_is_read_back(tmp_path, suffix):
    pairs = PairSet.of(
        [
            ContrastPair(positive=' "a",\n', negative="é\tb", prompt="p"),
            ContrastPair(positive="x", negative="x", positive_system="s", group="g"),
        ],
        trait_name="trait",
    )
    path = tmp_path / f"trait{suffix}"
    pairs.save(path)
    assert PairSet.load(path) == pairs


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_lone_carriage_return_is_saved_and_read_back(tmp_path, suffix):
    pairs = PairSet.of([("a\rb", "c"), ("d\r", "e")])
    pairs.save(tmp_path / f"p{suffix}")
    assert PairSet.load(tmp_path / f"p{suffix}").pairs == pairs.pairs


def test_a_set_without_a_name_is_saved_without_one(tmp_path):
    PairSet.of([("a", "b")]).save(tmp_path / "calm.json")
    assert PairSet.load(tmp_path / "calm.json").trait_name == "calm"


def test_pairs_are_not_saved_as_something_else(tmp_path):
    with pytest.raises(OutputError) as caught:
        PairSet.of([("a", "b")]).save(tmp_path / "p.parquet")
    assert caught.value.causes[0].startswith(
        "a suffix says how this document is written"
    )
    assert list(tmp_path.iterdir()) == []
