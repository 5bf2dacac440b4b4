"""The tree of errors, what a refusal says, and which exit code it has."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

from ster import errors
from ster.errors import (
    ConfigError,
    NumericsError,
    SterError,
    UsageError,
    WeightsError,
    flatten,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, SterError)
]


def drawn_tree() -> dict[str, str]:
    """Read each class's parent off the drawing in the module's docstring."""
    parents: dict[str, str] = {}
    open_at: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.fullmatch(r"( {4}[│├└─ ]*)(\w+Error)  .+", line)
        if found is None:
            continue
        depth, name = len(found[1]), found[2]
        open_at = [(d, n) for d, n in open_at if d < depth]
        parents[name] = open_at[-1][1] if open_at else "Exception"
        open_at.append((depth, name))
    return parents


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    assert drawn_tree() == {c.__name__: c.__bases__[0].__name__ for c in CLASSES}


@pytest.mark.parametrize("kind", CLASSES)
def test_only_an_unknown_word_is_a_usage_error(kind):
    assert kind("no").exit_code == (2 if kind is UsageError else 1)


def test_a_sentence_stands_alone_and_causes_follow_it():
    error = SterError("it failed", "so", ValueError("because"))
    assert error.sentence == "it failed"
    assert error.causes == ("so", "because")
    assert str(error) == "it failed: so: because"
    assert str(SterError("it failed")) == "it failed"


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        ("as it is", ["as it is"]),
        (FileNotFoundError(2, "No such file"), ["No such file (os error 2)"]),
        (OSError(13, "Permission denied", "f"), ["Permission denied (os error 13)"]),
        (OSError("no number"), ["no number"]),
        (ValueError("two\nlines"), ["two\nlines"]),
        (KeyError(), ["KeyError"]),
        (
            WeightsError("outer", ConfigError("inner", "core")),
            ["outer", "inner", "core"],
        ),
    ],
)
def test_causes_become_lines(cause, lines):
    assert flatten((cause,)) == lines


def test_causes_keep_their_order():
    assert flatten(("a", SterError("b", "c"), "d")) == ["a", "b", "c", "d"]


def test_an_error_carries_what_its_sentence_says():
    error = ConfigError(
        "no", path=Path("a/config.json"), field="head_dim", found=3, expected="even"
    )
    assert (error.path, error.field) == ("a/config.json", "head_dim")
    assert (error.found, error.expected) == (3, "even")
    assert (error.layer, error.prompt) == (None, None)


def test_an_error_takes_from_its_cause_what_it_does_not_say_itself():
    cause = NumericsError("inner", layer=3, prompt=7, field="x")
    error = SterError("outer", cause, field="y")
    assert (error.layer, error.prompt, error.field) == (3, 7, "y")


def shown_in_a_notebook(cell: str) -> str:
    """Run a cell as IPython does, and return what it shows of a refusal."""
    name = "<cell 1>"
    linecache.cache[name] = len(cell), None, cell.splitlines(keepends=True), name
    with pytest.raises(SterError) as refused:
        exec(compile(cell, name, "exec"), {})
    return "\n".join(refused.value._render_traceback_())


def test_a_notebook_shows_a_refusal_and_the_line_that_met_it():
    cell = "from ster.layers import parse_layers\n\nlayers = parse_layers('3..1', 4)\n"
    assert shown_in_a_notebook(cell) == (
        'LayerError: layer range "3..1" must have start < end\n\n'
        "at line 3: layers = parse_layers('3..1', 4)"
    )


def test_a_notebook_shows_causes_and_no_frame_of_a_library(tmp_path):
    cell = f"import ster\nster.PairSet.load('{tmp_path}/none.json')\n"
    shown = shown_in_a_notebook(cell)
    assert f"DocumentError: failed to read pair set {tmp_path}/none.json" in shown
    assert "Caused by:\n    No such file or directory (os error 2)" in shown
    assert "pairs.py" not in shown
    assert shown.endswith(f"at line 2: ster.PairSet.load('{tmp_path}/none.json')")


def test_all_frames_are_shown_to_those_who_ask(monkeypatch):
    monkeypatch.setenv("STER_TRACEBACK", "1")
    cell = "from ster.layers import parse_layers\nparse_layers('x', 4)\n"
    assert "layers.py" in shown_in_a_notebook(cell)
