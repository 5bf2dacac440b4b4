"""``ster vector ablate`` as a person runs it, on the toy checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ster
from ster.cli import run
from ster.cli.tables.ablations import draw_ablation
from tests.cli.user import User


@pytest.fixture
def folder(user: User) -> Path:
    """A folder with the toy checkpoint and a vector of layers 1 and 2."""
    vector = ster.SteeringVector.of(
        np.ones((2, 64)), layers=(1, 2), model="toy", trait_name="calm"
    )
    vector.save(user.folder / "v.json")
    return user.folder


def line(*more: str, vector: str = "v.json", output: str = "new") -> list[str]:
    words = ["--model", "toy", "--vector", vector, "--output", output]
    return ["vector", "ablate", *words, *more]


def test_the_report_and_the_checkpoint_are_those_of_the_library(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(line("--strength=-0.5", "--revision", "r")) == 0
    printed = capsys.readouterr()
    assert printed.err == "writing model.safetensors\n"
    vector = ster.SteeringVector.load("v.json")
    done = ster.ablate("toy", vector, "other", strength=-0.5, revision="r")
    expected = done.document | {"artifact": "v.json", "output": "new"}
    assert json.loads(printed.out) == expected
    weights = "model.safetensors"
    assert (folder / "new" / weights).read_bytes() == (
        folder / "other" / weights
    ).read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (line("--strength", "1n"), 2, "takes out a share of a direction, not 1n"),
        (line("--strength", "nan"), 2, "must be finite"),
        (line("--strength", "much"), 2, "invalid strength"),
        (line(vector="v.json:2"), 2, "without :2"),
        (line(vector="none.json"), 1, "failed to read steering artifact none.json"),
        (line(output="-"), 1, "failed to write -"),
        (line("--device", "cpu"), 2, "No such option: --device"),
    ],
)
def test_bad_words_are_refused_and_nothing_is_written(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
):
    assert run(words) == code
    assert said in capsys.readouterr().err
    assert not {"new", "-"} & {*os.listdir(folder)}


def test_a_table_shows_the_first_tensors_and_says_so():
    done = SimpleNamespace(
        model="toy", trait_name="calm", strength=1.0, layers=(1,), output="new",
        rewritten=[f"tensor{each}" for each in range(30)], total_tensors=40,
        parameters=7, copied_tensors=10, files=("a",),
    )  # fmt: skip
    parts = [*draw_ablation(done)]  # type: ignore[arg-type]
    (table,) = (each for each in parts if hasattr(each, "columns"))
    assert list(table.columns[0].cells) == [f"tensor{each}" for each in range(20)]
    assert "the first 20; the document has all" in parts
