"""What makes the comparison of ``make bench`` a fair one."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.cases import make_cases
from benchmarks.commands import Setup
from benchmarks.process import PINNING, ask, unpin
from tests.real.facts import facts, voiced_pairs

# By name, since the type checker need not have what the measured scripts import.
BENCH = importlib.import_module("benchmarks.bench")
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


def chosen(device: str, keys: str, tmp_path: Path) -> list[str]:
    """Name the modules of the tables that letters choose on a device."""
    setup = Setup(
        model="m",
        bf16_model=None,
        device=device,
        precision="f32",
        runs=1,
        work=tmp_path,
    )
    options = argparse.Namespace(cases=keys, short=True, data=None)
    case = make_cases(None, tmp_path)[0]
    tables = BENCH.chosen_tables(setup, options, case)
    return [each.func.__module__.removeprefix("benchmarks.") for each in tables]


def test_letters_choose_tables_as_far_as_the_device_has_a_use_for_them(tmp_path: Path):
    common = ["writing", "answers", "scoring", "startup"]
    assert chosen("cpu", "abcdefxpwgsuqm", tmp_path) == [
        *common,
        "quantized",
        "experts",
    ]
    assert chosen("metal", "pwgsuqm", tmp_path) == ["widths", *common, "quantized"]
    assert chosen("mlx-cpu", "pwgsuqm", tmp_path) == ["widths", *common]
    assert chosen("cpu", "a", tmp_path) == []


def test_a_table_that_cannot_be_made_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse() -> str:
        raise SystemExit("the model is quantized already")

    words = ["bench", "--model", "m", "--cases", "w", "--work", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(BENCH, "unpin", lambda _: None)
    tables = [refuse, lambda: "| the next |"]
    monkeypatch.setattr(BENCH, "chosen_tables", lambda *_: tables)
    with pytest.raises(SystemExit) as ended:
        BENCH.main()
    assert ended.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert "No table: the model is quantized already" in lines
    assert "| the next |" in lines
