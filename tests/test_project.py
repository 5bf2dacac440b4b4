"""Rules about the project itself: names, sizes, what it loads when and where it looks.

And one about its tests: none waits for ever.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ster
from tests.processes import finished

PACKAGE = Path(ster.__file__).parent
TESTS = Path(__file__).parent
MAX_FILE_LINES = 350
# Of code: a docstring is meant to be as long as it needs to be.
MAX_CODE_LINES = 40
HEAVY = (
    "huggingface_hub",
    "jinja2",
    "matplotlib",
    "mlx",
    "numpy",
    "orjson",
    "pandas",
    "rich",
    "tokenizers",
    "transformers",
    "xarray",
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
    result = finished([sys.executable, "-c", program + loaded])
    assert result.returncode in (0, 2)
    modules = json.loads(result.stdout.splitlines()[-1])
    assert "ster" in modules
    assert sorted(set(HEAVY).intersection(modules)) == []


def test_every_package_says_what_it_is_for():
    packages = {path.parent for path in PACKAGE.rglob("*.py")}
    silent = [
        package.relative_to(PACKAGE).as_posix()
        for package in packages
        if not ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    ]
    assert silent == []


# A folder of one machine or one person.
ELSEWHERE = re.compile(r"/(?:home|Users|root|work|mnt|media|opt|srv|private)/")


def climbs_out(node: ast.AST, depth: int) -> bool:
    """Tell whether ``Path(__file__)...`` leads out of the project.

    Args:
        node: Any part of a file.
        depth: How many folders up the project's own folder lies.
    """
    climbed = 0
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        match node:
            case ast.Subscript(ast.Attribute(attr="parents"), ast.Constant(int(up))):
                climbed += up + 1
            case ast.Attribute(attr="parent"):
                climbed += 1
            case ast.Call(ast.Name("Path"), [ast.Name("__file__")]):
                return climbed > depth
        node = node.func if isinstance(node, ast.Call) else node.value
    return False


@pytest.mark.parametrize("root", [PACKAGE, TESTS], ids=["ster", "tests"])
def test_no_file_names_a_place_outside_the_project(root):
    found = []
    for path in root.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        depth = len(path.relative_to(root.parent).parts)
        name = path.relative_to(root.parent).as_posix()
        if ELSEWHERE.search(source):
            found.append(name)
        if any(climbs_out(node, depth) for node in ast.walk(ast.parse(source))):
            found.append(name)
    # The folder beside the project is found in one place, and may be missing.
    assert found == (["tests/golden/texts.py"] if root == TESTS else [])


def endless(node: ast.AST) -> bool:
    """Tell whether a call may wait for ever, or start a process that stays."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else ""
    if isinstance(function, ast.Name):
        name = function.id
    if name in ("Popen", "pause", "sigwait"):
        return True
    if name in ("run", "call", "check_call", "check_output"):
        of_subprocess = ast.unparse(function).startswith("subprocess.")
        return of_subprocess and "timeout" not in {key.arg for key in node.keywords}
    # With an argument, `join` is a string's and `get` a mapping's; or it is the limit.
    waits = name in ("wait", "communicate", "join", "get", "result")
    return waits and not node.args and not node.keywords


def test_a_call_that_may_wait_for_ever_is_known():
    endless_calls = """
subprocess.Popen(line); Popen(line); subprocess.run(line, check=True)
process.wait(); process.communicate(); thread.join(); queue.get(); future.result()
signal.pause()
"""
    ending_calls = """
subprocess.run(line, timeout=60); process.wait(60); process.communicate(timeout=60)
", ".join(words); fields.get("a"); run(line)
"""
    for calls, expected in ((endless_calls, True), (ending_calls, False)):
        for line in ast.parse(calls).body:
            assert isinstance(line, ast.Expr)
            assert endless(line.value) is expected, ast.unparse(line)


def test_no_test_waits_for_ever():
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS).as_posix()
        calls = filter(endless, ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        found += [f"{name}: {ast.unparse(call)}" for call in calls]
    assert found == ["processes.py: subprocess.Popen(command, **streams)"], (
        "give every wait a limit, and start processes with tests.processes"
    )
