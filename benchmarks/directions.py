"""How well the directions steer that ``optimize`` chooses: the measurements.

Of the shuffled pairs of each set of pairs/, ``optimize`` gets two thirds, once by
effect and once by accuracy. The others are for the verdict; no fit and no rule has seen
them. Every method at every layer, fitted on the same two thirds, steers them by plus
and minus the same share of its layer's norm; beside them do random directions.

What was found goes to ``build/directions/SET.json``, from which
``benchmarks.choice_rules`` makes tables. A layer is written as soon as it is measured;
what is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ster
from ster.runs.scoring import Scorer, plan_scoring
from ster.vectors.directions import fit_directions
from ster.vectors.effects import random_directions
from ster.vectors.methods import EFFECT_METHODS
from ster.workflows.choosing_by_effect import STRENGTH
from ster.workflows.steering_halves import RANDOM_DIRECTIONS, measure_odd
from ster.workflows.strengths import encode_sides

PAIRS = Path(__file__).parent / "pairs"
MODEL = Path("build/real_model/smollm2-f32")
OUTPUT = Path("build/directions")
NUM_CHOOSING, NUM_JUDGING = 28, 14

F32 = NDArray[np.float32]


def main() -> None:
    """Measure the sets in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("sets", nargs="*")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    runtime = ster.load(options.model, device="cpu")
    for name in options.sets or sorted(path.stem for path in PAIRS.glob("*.json")):
        started = time.perf_counter()
        measured = Measured(runtime, name, options.output)
        measured.choose()
        measured.judge()
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)


class Measured:
    """What is measured on one set.

    Args:
        runtime: The model.
        name: The set.
        output: Where the file goes.
    """

    def __init__(self, runtime: ster.Runtime, name: str, output: Path) -> None:
        self._runtime = runtime
        self._path = output / f"{name}.json"
        self._found: dict[str, Any] = {"chosen": {}, "effects": {}, "random": {}}
        if self._path.exists():
            self._found = json.loads(self._path.read_text())
        self._choosing, self._judging = split(name)

    def choose(self) -> None:
        """Let ``optimize`` choose by both rules."""
        chosen = self._found["chosen"]
        for rule in ("effect", "accuracy"):
            if rule in chosen:
                continue
            started = time.perf_counter()
            with warnings.catch_warnings():
                # The doubts, which are in the report.
                warnings.simplefilter("ignore", ster.SterWarning)
                selection = self._runtime.optimize(self._choosing, by=rule)
            (layer,) = selection.vector.layers
            chosen[rule] = {
                "layer": layer,
                "method": selection.vector.method,
                "report": selection.document,
                "seconds": time.perf_counter() - started,
                "direction": selection.vector.array[0].tolist(),
            }
            self._keep()

    def judge(self) -> None:
        """Steer the pairs for the verdict with every method at every layer.

        Random directions are for the layers that the table is about.
        """
        read = self._runtime.activations(self._choosing).array
        rows = read.reshape(NUM_CHOOSING, 2, *read.shape[1:])
        with self._open() as scorer:
            for layer in range(rows.shape[2]):
                if f"caa {layer}" not in self._effects:
                    self._judge(scorer, layer, rows[:, :, layer])
            caa = {
                at: np.mean(self._effects[f"caa {at}"]) for at in range(rows.shape[2])
            }
            best = max(caa, key=lambda at: caa[at])
            for layer in {best, self._found["chosen"]["effect"]["layer"]}:
                self._judge_chance(scorer, layer, rows[:, :, layer])

    @property
    def _effects(self) -> dict[str, list[float]]:
        effects: dict[str, list[float]] = self._found["effects"]
        return effects

    def _judge(self, scorer: Scorer, layer: int, rows: F32) -> None:
        sides = rows[:, 0, None], rows[:, 1, None]
        named = {each: fit_directions(each, *sides)[0] for each in EFFECT_METHODS}
        by_accuracy = self._found["chosen"]["accuracy"]
        if layer == by_accuracy["layer"]:
            named["accuracy"] = np.float32(by_accuracy["direction"])
        found = steer(scorer, np.stack([*named.values()]), layer, rows)
        self._effects.update(
            {f"{name} {layer}": each for name, each in zip(named, found, strict=True)}
        )
        self._keep()

    def _judge_chance(self, scorer: Scorer, layer: int, rows: F32) -> None:
        drawn = random_directions(RANDOM_DIRECTIONS, rows.shape[-1], layer)
        rolled = steer(scorer, drawn, layer, rows)
        self._found["random"][str(layer)] = [float(np.mean(each)) for each in rolled]
        self._keep()

    def _open(self) -> AbstractContextManager[Scorer]:
        """Open the weights, to steer the sides of the pairs for the verdict."""
        session = self._runtime._session
        sides = encode_sides(session, self._judging, None).scored.sides
        plan = plan_scoring(session, sides, None, steerings=2 * RANDOM_DIRECTIONS)
        return plan.open()

    def _keep(self) -> None:
        self._path.write_text(json.dumps(self._found, indent=1))


def split(name: str) -> tuple[ster.PairSet, ster.PairSet]:
    """Shuffle a set's pairs; return those to choose on, and those to judge on."""
    pairs = [*ster.PairSet.load(PAIRS / f"{name}.json")]
    order = np.random.default_rng(0).permutation(len(pairs))
    ends = NUM_CHOOSING, NUM_CHOOSING + NUM_JUDGING
    choosing, judging, _ = np.split(order, ends)
    return take(name, pairs, choosing), take(name, pairs, judging)


def take(
    name: str, pairs: Sequence[ster.ContrastPair], numbers: NDArray[np.int64]
) -> ster.PairSet:
    """Take some pairs."""
    return ster.PairSet(trait_name=name, pairs=tuple(pairs[at] for at in numbers))


def steer(scorer: Scorer, directions: F32, layer: int, rows: F32) -> list[list[float]]:
    """Return the effect of each direction on each pair, in nats.

    Args:
        scorer: Of the sides of pairs.
        directions: Each of length 1, (num_directions, hidden_size).
        layer: Where they are added.
        rows: What was read there, whose mean norm the strength is a share of.
    """
    norm = np.linalg.norm(rows, axis=-1).mean()
    deltas = directions * np.float32(float(STRENGTH.removesuffix("n")) * norm)
    found: list[list[float]] = measure_odd(scorer, layer, deltas).tolist()
    return found


if __name__ == "__main__":
    main()
