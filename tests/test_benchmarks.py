"""What makes the comparison of ``make bench`` a fair one."""

from __future__ import annotations

import json
import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.cases import make_cases
from benchmarks.process import PINNING, ask, unpin
from tests.real.facts import facts, voiced_pairs

ENVIRONMENT = [
    sys.executable,
    "-c",
    "import json, os; print(json.dumps({**os.environ}))",
]


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PINNING)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.usefixtures("pinned")
def test_no_variable_chooses_kernels_or_threads_for_one_library(capsys):
    unpin()
    assert ask(ENVIRONMENT).keys() & {"OPENBLAS_CORETYPE", "OMP_NUM_THREADS"} == set()
    assert capsys.readouterr().err.splitlines() == [
        "left out of the environment: OPENBLAS_CORETYPE=Haswell",
        "left out of the environment: OMP_NUM_THREADS=1",
    ]


@pytest.mark.usefixtures("pinned")
def test_kernels_are_chosen_where_that_is_asked_for():
    unpin("Zen")
    assert ask(ENVIRONMENT)["OPENBLAS_CORETYPE"] == "Zen"


def test_there_are_hundreds_of_facts_and_none_is_the_beginning_of_another():
    sentences = sorted(facts())
    assert len(sentences) >= 300
    for one, following in pairwise(sentences):
        assert not following.startswith(one.rstrip("."))
    assert all(len(sentence.split()) < 30 for sentence in sentences)


def test_a_clone_alone_has_the_prompts_of_every_case(tmp_path: Path):
    sets = {
        case.key: json.loads(case.prompts.read_bytes())["prompts"]
        for case in make_cases(None, tmp_path)
    }
    assert sets["a"] == facts()
    assert len(sets["c"]) == 2 * len(facts())
    assert [*zip(sets["c"][::2], sets["c"][1::2], strict=True)] == voiced_pairs()


def test_a_folder_may_bring_other_prompts(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "prompts_facts.json").write_text('{"prompts": ["Snow is cold."]}')
    pairs = '{"pairs": [{"positive": "Yes.", "negative": "No."}]}'
    (data / "pairs_honesty.json").write_text(pairs)
    sets = {
        case.key: json.loads(case.prompts.read_bytes())["prompts"]
        for case in make_cases(data, tmp_path)
    }
    assert (sets["a"], sets["c"]) == (["Snow is cold."], ["Yes.", "No."])
