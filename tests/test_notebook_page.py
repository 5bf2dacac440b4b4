"""The blocks of docs/notebook.md run, one after the other, as a reader runs them."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

PAGE = Path(__file__).resolve().parents[1] / "docs" / "notebook.md"
mpl.use("Agg")


def test_every_block_runs_in_its_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == text.count("```") / 2
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out == "PairSet('calm', 4 pairs)\n"
    assert len(plt.get_fignums()) == 10
    plt.close("all")
    assert {"probe", "selection", "evaluation", "tokens"} <= {*names}
    # What the page says of `@` and `project`.
    vector, acts = names["vector"], names["acts"]
    scores, projected = acts @ vector, vector.project(acts)  # type: ignore[operator, attr-defined]
    np.testing.assert_allclose(scores, projected, rtol=1e-6, atol=1e-9)
