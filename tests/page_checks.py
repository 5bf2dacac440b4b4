"""What must hold after a page of the documentation ran, beside what it prints.

A check is called where the page ran, with the names that its blocks left.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from ster import Activations, PromptSet, SteeringVector

Names = dict[str, Any]


def check_notebook(names: Names) -> None:
    """Every plot was drawn, and `@` and `project` are what the page says of them."""
    assert len(plt.get_fignums()) == 12
    assert {"probe", "selection", "evaluation", "tokens"} <= {*names}
    vector, acts = names["vector"], names["acts"]
    np.testing.assert_allclose(acts @ vector, vector.project(acts), 1e-6, 1e-9)


def check_inputs(names: Names) -> None:
    """The documents hold the prompts that the page gave in its several forms."""
    two = ["the sea is calm .", "thunder rolls"]
    table = [two[0], "describe\nthe evening lake .", two[1]]
    written = {
        name: [
            record["prompt"]
            for record in json.loads(Path(name).read_bytes())["records"]
        ]
        for name in ("two.json", "activations.json", "piped.json")
    }
    assert written == {"two.json": two, "activations.json": table, "piped.json": two}
    assert PromptSet.load("chats.jsonl").labels == {"id": (1, 2)}


def check_formats(names: Names) -> None:
    """What other libraries read from the documents is what ster reads."""
    rows = Activations.load("rows.npz")
    assert np.array_equal(names["rows"], rows.array)
    assert tuple(names["prompts"]) == rows.prompts
    assert names["metadata"]["tokens"] == "last"
    assert np.array_equal(names["of_first_prompt"], rows.array[:1])
    assert np.array_equal(names["after_block_3"], rows.layer(3))
    assert np.array_equal(names["row"], rows.array[0, 1])
    calm = SteeringVector.load("calm.json")
    assert np.array_equal(names["direction"], calm.direction(1))
    for layer in calm.layers:
        values = names["directions"][f"direction.{layer}"]
        assert np.array_equal(values, calm.direction(layer))
    assert np.array_equal(SteeringVector.load("calm.npz").array, calm.array)
    assert SteeringVector.load("calm3.gguf").layers == (3,)


def check_comparing(names: Names) -> None:
    """Every plot was drawn, and each number is the kind that the page says."""
    assert len(plt.get_fignums()) == 5
    assert names["found"].labels == ("calm", "light", "restless")
    assert names["moved"].shift_along_direction > 0
    assert names["curve"].sizes == (1, 2, 4)


def check_interventions(names: Names) -> None:
    """What was read, scored and measured is what interventions made of it."""
    runtime, (asked,) = names["runtime"], ["describe the lake ."]
    plain = runtime.activations(["the sea is calm ."], asked=[asked]).array
    assert np.abs(names["rows"].array[:, -1] - plain[:, -1]).max() > 0.1
    (score,) = runtime.score_responses(["the sea is calm ."], prompts=[asked])
    assert abs(names["scores"][0] - score) > 0.01
    assert [each.strength for each in names["report"].strength.candidates] == [1, 2]


def check_hold_up(names: Names) -> None:
    """What the page calls a direction beats its controls, and what is none is not."""
    selection, refusal = names["selection"], names["refused"].selection
    assert selection.effect.mean > selection.luckiest
    assert not selection.doubts
    assert refusal.effect.mean <= refusal.luckiest
    assert Path("happy.json").exists()
    assert not Path("nothing.json").exists()
    held_back = names["steered"]
    chosen = held_back.selected
    assert held_back.num_scored == 8
    assert chosen.effect.mean > max(map(abs, chosen.controls.effects))
    assert chosen.effect.lowest > 0
    fitted, kept = names["to_choose"].pairs, names["held_back"].pairs
    assert not {*fitted} & {*kept}


CHECKS: dict[str, Callable[[Names], None]] = {
    "docs/comparing.md": check_comparing,
    "docs/formats.md": check_formats,
    "docs/inputs.md": check_inputs,
    "docs/interventions.md": check_interventions,
    "docs/notebook.md": check_notebook,
    "docs/tutorials/hold-up.md": check_hold_up,
}
