"""The notebooks of ``examples/`` run, and are those of their scripts."""

from __future__ import annotations

import sys

import pytest

from tests.pages import ROOT
from tests.processes import finished

SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
MOST_BYTES = 200_000


@pytest.mark.parametrize("name", [script.stem for script in SCRIPTS])
def test_a_notebook_runs_and_shows_what_is_stored(name: str):
    line = [sys.executable, "-m", "assets.notebooks", "--check", name]
    ran = finished(line, cwd=ROOT)
    assert ran.returncode == 0, (ran.stdout + ran.stderr).decode()


def test_every_notebook_has_a_script_and_is_small():
    stored = sorted((ROOT / "examples").glob("*.ipynb"))
    assert [each.stem for each in stored] == [script.stem for script in SCRIPTS]
    assert len(stored) == 3
    assert all(each.stat().st_size < MOST_BYTES for each in stored)
