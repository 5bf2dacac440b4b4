"""``ster models`` and the table in docs/models.md: one list of families."""

from __future__ import annotations

import json

import pytest

from assets.families_table import PAGE, with_table
from ster.architecture.catalogue import families
from ster.architecture.families import FAMILIES
from ster.architecture.wide_families import CHECKED
from ster.cli import run

Captured = pytest.CaptureFixture[str]


def test_every_family_is_listed_with_how_it_was_checked(capsys: Captured):
    assert run(["models"]) == 0
    listed = json.loads(capsys.readouterr().out)["families"]
    names = [each["family"] for each in listed]
    assert names == [*FAMILIES, *sorted(CHECKED.keys() - FAMILIES.keys())]
    assert all(each["models"] and each["checked"] for each in listed)
    through = {each["family"]: each["through"] for each in listed}
    assert (through["llama"], through["stablelm"]) == ("ster", "mlx-lm")


def test_the_list_is_shown_as_lines(capsys: Captured):
    assert run(["models", "--text"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "families[0].family: llama" in lines


def test_a_family_that_runs_through_mlx_lm_says_how_far_off_it_was():
    wide = [each for each in families() if each.through == "mlx-lm"]
    assert wide
    assert all(0 < (each.largest_error or 1) < 5e-5 for each in wide)


def test_the_page_of_models_has_the_list_of_today():
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_table(text), "run: python -m assets.families_table"
