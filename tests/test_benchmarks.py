"""What makes the comparison of ``make bench`` a fair one."""

from __future__ import annotations

import os
import sys

import pytest

from benchmarks.process import PINNING, ask, unpin

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
