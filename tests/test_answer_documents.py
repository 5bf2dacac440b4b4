"""The document of answers, which is written while they come."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.documents.answers import Answer, AnswerWriter
from ster.errors import OutputError

ENDS = [KeyboardInterrupt, RuntimeError, SystemExit]


def open_writer(path: Path) -> AnswerWriter:
    return AnswerWriter(path, model="m", model_revision=None)


def answered(*answers: str) -> dict[str, object]:
    """Return the document of these answers."""
    records = [
        {"prompt": f"p{n}", "strength": 0.5, "text": each, "tokens": 3, "ended": "stop"}
        for n, each in enumerate(answers)
    ]
    return {
        "schema_version": 1,
        "product": "ster",
        "model": "m",
        "model_revision": None,
        "answers": records,
    }


def answer(number: int, text: str) -> Answer:
    return Answer(
        prompt=f"p{number}", strength=0.5, text=text, token_ids=(7, 8, 9), ended="stop"
    )


def write_and_end(writer: AnswerWriter, number: int, end: type[BaseException]) -> None:
    with writer:
        for index in range(number):
            writer.write(answer(index, f"a{index}"))
        raise end


def test_answers_make_a_compact_document_in_order(tmp_path: Path):
    path = tmp_path / "new/answers.json"
    with open_writer(path) as writer:
        writer.write(answer(0, 'é "\n'))
        assert not path.exists()
        writer.write(answer(1, ""))
    expected = answered('é "\n', "")
    text = json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
    assert path.read_text(encoding="utf-8") == text
    assert list(path.parent.iterdir()) == [path]
    assert writer.kept is None


def test_an_answer_says_how_its_vectors_were_applied(toy):
    runtime = ster.load(toy)
    one, other = (
        ster.SteeringVector.of(np.ones(64, "f4"), layers=layer, model=runtime.model)
        for layer in (1, 2)
    )
    steer: list[Any] = [
        one,
        ster.Intervention(other, "2n", how="add-below", below=-3, layers=[2]),
        ster.Intervention(one, where="-2..", how="add-below", below="1n"),
    ]
    (found,) = runtime.answers(["the sea"], steer=steer, max_new_tokens=1)
    plain = {"where": "all", "keep_norm": False, "layers": None}
    assert found.document["interventions"] == [
        plain | {"how": "add", "below": None},
        plain | {"how": "add-below", "below": -3.0, "layers": [2]},
        plain | {"how": "add-below", "below": "1n", "where": "-2.."},
    ]
    assert len({found, found}) == 1
    # What a document says makes the intervention again.
    again = [
        ster.Intervention(vector, strength, **words)  # type: ignore[arg-type]
        for vector, strength, words in zip(
            (one, other, one), (1.0, "2n", 1.0), found.interventions, strict=True
        )
    ]
    assert [*map(repr, again)] == [*map(repr, [ster.Intervention(one), *steer[1:]])]
    plainly: list[Any] = [
        (),
        one,
        (one, 0.5),
        [one, ster.Intervention(other, where="0..")],
    ]
    for simple in plainly:
        (found,) = runtime.answers(["the sea"], steer=simple, max_new_tokens=1)
        assert "interventions" not in found.document


def test_an_answer_spells_its_strength():
    usual = answer(0, "text")
    assert usual.spelled == "0.5"
    assert replace(usual, strength=-4.0).spelled == "-4"
    assert replace(usual, strength=None, strength_word="-0.1n").spelled == "-0.1n"
    assert replace(usual, strength=None).spelled == "0"


def test_no_answers_make_a_document_too(tmp_path: Path):
    with open_writer(tmp_path / "answers.json"):
        pass
    assert json.loads((tmp_path / "answers.json").read_bytes()) == answered()


@pytest.mark.parametrize("end", ENDS)
def test_an_interrupted_run_keeps_its_finished_answers(
    tmp_path: Path, end: type[BaseException]
):
    path = tmp_path / "answers.json"
    path.write_bytes(b"old")
    writer = open_writer(path)
    with pytest.raises(end):
        write_and_end(writer, 2, end)
    assert path.read_bytes() == b"old"
    assert writer.kept == f"{path}.partial"
    assert json.loads(Path(writer.kept).read_bytes()) == answered("a0", "a1")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("end", ENDS)
def test_a_run_that_ends_before_the_first_answer_leaves_nothing(
    tmp_path: Path, end: type[BaseException]
):
    writer = open_writer(tmp_path / "new/answers.json")
    with pytest.raises(end):
        write_and_end(writer, 0, end)
    assert writer.kept is None
    assert list(tmp_path.iterdir()) == []


def test_answers_do_not_stay_in_memory(tmp_path: Path):
    with open_writer(tmp_path / "answers.json") as writer:
        tracemalloc.start()
        for index in range(500):
            writer.write(answer(index, "x" * 10_000))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 500_000


def test_a_model_that_is_no_text_is_refused_before_the_first_answer(tmp_path: Path):
    with pytest.raises(OutputError) as refusal:
        AnswerWriter(tmp_path / "a.json", model="a\udcff", model_revision=None)
    assert refusal.value.path == str(tmp_path / "a.json")
