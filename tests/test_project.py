"""Rules about the project itself: its public names, its sizes, what it loads when."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ster

PACKAGE = Path(ster.__file__).parent
MAX_FILE_LINES = 350
MAX_FUNCTION_LINES = 40
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


def sizes() -> Iterator[tuple[int, int, str, str]]:
    """Yield lines, longest function, its name and the file, longest file first."""
    rows = []
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        functions = [
            ((node.end_lineno or 0) - node.lineno + 1, node.name)
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
        row for row in table if row[0] > MAX_FILE_LINES or row[1] > MAX_FUNCTION_LINES
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
