"""Every example in a docstring runs, and shows what it says."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import ster

PACKAGE = Path(ster.__file__).parent


def modules_with_examples() -> list[str]:
    """Name the modules whose text has a prompt in it; the others are not imported."""
    return sorted(
        ".".join(("ster", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in PACKAGE.rglob("*.py")
        if ">>>" in path.read_text(encoding="utf-8")
    )


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """Find the docstrings that have examples; each stands alone, with no imports."""
    found = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={})
    return [
        doctest.DocTest(one.examples, {}, one.name, one.filename, one.lineno, None)
        for one in found
        if one.examples
    ]


@pytest.mark.parametrize("name", modules_with_examples())
def test_an_example_shows_what_a_person_sees_who_types_it(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    for example in examples(import_module(name)):
        doctest.DocTestRunner().run(example, out=said.append)
    assert not said, "".join(said)


def test_the_examples_are_found():
    assert "ster.runtime" in modules_with_examples()
    assert examples(import_module("ster.runtime"))
