"""Rules about the project itself: its public names, its sizes, what it loads when."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ster

PACKAGE = Path(ster.__file__).parent
MAX_FILE_LINES = 350
# Of code: a docstring is meant to be as long as it needs to be.
MAX_CODE_LINES = 40
HEAVY = (
    "huggingface_hub",
    "jinja2",
    "mlx",
    "numpy",
    "orjson",
    "rich",
    "tokenizers",
    "transformers",
)


def test_public_names_are_sorted_and_without_repeats():
    assert ster.__all__ == sorted(set(ster.__all__))


@pytest.mark.parametrize("name", ster.__all__)
def test_a_public_name_comes_from_its_home(name):
    assert getattr(ster, name) is not None
    assert name in dir(ster)


def test_names_imported_for_the_type_checker_are_the_public_ones():
    tree = ast.parse(Path(ster.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in imports for alias in node.names}
    assert homes == ster._HOMES
    assert sorted({*homes, "__version__"}) == ster.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ster' has no attribute 'nope'"):
        _ = ster.nope


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> int:
    """Count the lines of a function that do something: no docstring, no comment."""
    start, stop = function.lineno, function.end_lineno or function.lineno
    said: set[int] = set()
    if ast.get_docstring(function) is not None:
        text = function.body[0]
        said.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    lines = source.splitlines()
    return sum(
        number not in said and not re.match(r"\s*(#|$)", lines[number - 1])
        for number in range(start, stop + 1)
    )


def sizes() -> Iterator[tuple[int, int, str, str]]:
    """Yield lines, longest function, its name and the file, longest file first."""
    rows = []
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        functions = [
            (code_lines(node, source), node.name)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        longest, name = max(functions, default=(0, "-"))
        file = path.relative_to(PACKAGE).as_posix()
        rows.append((len(source.splitlines()), longest, name, file))
    yield from sorted(rows, reverse=True)


def test_files_and_functions_stay_small():
    table = list(sizes())
    print(f"\n{'lines':>6} {'longest':>7}  file")
    for lines, longest, name, file in table:
        print(f"{lines:>6} {longest:>7}  {file} ({name})")
    print(f"{sum(row[0] for row in table):>6} {'':>7}  in all")
    too_large = [
        row for row in table if row[0] > MAX_FILE_LINES or row[1] > MAX_CODE_LINES
    ]
    assert too_large == []


@pytest.mark.parametrize(
    "program",
    [
        "import ster",
        "from ster.cli import run; run(['--help'])",
        "from ster.cli import run; run(['--version'])",
        "from ster.cli import run; run(['extract', '--help'])",
        "from ster.cli import run; run(['extract'])",
    ],
)
def test_what_needs_no_model_loads_no_heavy_library(program):
    loaded = (
        "; import json, sys"
        "; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program + loaded],
        capture_output=True,
        check=True,
        text=True,
    )
    modules = json.loads(result.stdout.splitlines()[-1])
    assert "ster" in modules
    assert sorted(set(HEAVY).intersection(modules)) == []
