"""Make the notebooks of ``examples/`` from the scripts beside them, and run them.

    python -m assets.notebooks [NAME ...]           write them, with what they show
    python -m assets.notebooks --check [NAME ...]   run them and write nothing

A script is in the percent format, which editors know: ``# %%`` begins a cell of code,
``# %% [markdown]`` one of text. The check also tells where a notebook is not that of
its script, or where a cell shows another kind of thing than is stored.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SECONDS = 120


def read_script(path: Path) -> NotebookNode:
    """Make a notebook of a script's cells, not yet run."""
    parts = re.split(r"^# %%(.*)\n", path.read_text(encoding="utf-8"), flags=re.M)[1:]
    cells = []
    for number, (kind, body) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        text = body.strip("\n")
        if kind.strip() == "[markdown]":
            cell = nbformat.v4.new_markdown_cell(re.sub(r"^# ?", "", text, flags=re.M))
        else:
            cell = nbformat.v4.new_code_cell(text)
        cell["id"] = f"cell-{number}"
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def run(notebook: NotebookNode) -> NotebookNode:
    """Run a notebook in a folder of its own, which goes with what it wrote there."""
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(
            notebook, timeout=SECONDS, resources=resources, record_timing=False
        ).execute()
    notebook["metadata"].pop("language_info", None)
    return notebook


def shown(notebook: NotebookNode) -> list[tuple[str, list[list[str]]]]:
    """List each cell's source, and of what kinds its outputs are."""
    return [
        (
            cell.source,
            [sorted(each.get("data", [])) for each in cell.get("outputs", [])],
        )
        for cell in notebook.cells
    ]


def main(words: list[str]) -> int:
    """Write or check notebooks, all unless some are named."""
    os.environ["PYTHONWARNINGS"] = "error::UserWarning"
    # Of this environment, whatever kernels are installed for the user.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    names = [word for word in words if word != "--check"]
    stale = []
    for script in sorted(EXAMPLES.glob("*.py")):
        if names and script.stem not in names:
            continue
        notebook, place = run(read_script(script)), script.with_suffix(".ipynb")
        if "--check" not in words:
            nbformat.write(notebook, place)
        elif shown(nbformat.read(place, as_version=4)) != shown(notebook):
            stale.append(place.name)
    if stale:
        print(f"not what the script makes: {', '.join(stale)}; run: make notebooks")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
