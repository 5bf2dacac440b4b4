"""How well directions steer that were chosen by this rule or that: the measurements.

Of each set of pairs/ two parts are for choosing and a third is for the verdict. Every
direction is fitted on the first part and scored on the second, the other way round, and
fitted on both and scored on the third. What is kept, as ``build/directions/SET.npz``,
are the shifts of single pairs, so that ``benchmarks.choice_rules`` can try any rule on
them without the model. A layer is written as soon as it is measured; what is there is
not measured again.

A *shift* is how much more steering raises log p of the positive side than that of the
negative one, in nats. Keys are ``METHOD STRENGTH LAYER``:

* shifts: (2, 42), at + and − the strength, of the pairs of the three parts;
* with `` neutral``: (2, 8), the rise of log p per token of answers about nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ster
from ster.runs.scoring import plan_scoring
from ster.runs.session import Session
from ster.vectors.directions import fit_directions

PAIRS = Path(__file__).parent / "pairs"
MODEL = Path("build/real_model/smollm2-f32")
OUTPUT = Path("build/directions")
PART = 14
STRENGTHS = (0.1, 0.2)
NUM_RANDOM = 10
# Where what takes long is measured: other methods, and random directions.
METHOD_LAYERS = (4, 9, 14, 19, 24, 28)
RANDOM_LAYERS = (9, 16, 23)
NEUTRAL = [
    ("What is on the shelf?", "There are two cups and a green kettle."),
    ("When does the shop open?", "It opens at nine and closes at six."),
    ("Where is the bridge?", "The bridge is a mile north of the village."),
    ("What did you buy?", "I bought a loaf of bread and some stamps."),
    ("How long is the walk?", "It takes about twenty minutes on foot."),
    ("What is the box made of?", "The box is made of wood and a little glass."),
    ("Who wrote the report?", "The report was written by two engineers."),
    ("What grows in the field?", "They grow wheat in it, and beans every third year."),
]

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Fit = Callable[[F32, F32], F64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some pairs, and what was read at the ends of their sides.

    Args:
        pairs: The pairs.
        rows: By what was read, (num_pairs, 2, num_layers, hidden_size).
    """

    pairs: list[ster.ContrastPair]
    rows: dict[str, F32]

    def __add__(self, other: Part) -> Part:
        """Join two parts."""
        rows = {
            name: np.concatenate([each, other.rows[name]])
            for name, each in self.rows.items()
        }
        return Part(pairs=self.pairs + other.pairs, rows=rows)


def main() -> None:
    """Measure the sets in turn, some layers of each before the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("sets", nargs="*")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    names = options.sets or sorted(path.stem for path in PAIRS.glob("*.json"))
    runtime = ster.load(options.model, device="cpu")
    measured = {name: Measured(runtime, name, options.output) for name in names}
    num_layers = runtime.config.num_hidden_layers
    upper = num_layers // 2 | 1
    passes = range(0, num_layers, 2), range(upper, num_layers, 2), range(1, upper, 2)
    for layers in passes:
        for name, each in measured.items():
            started = time.perf_counter()
            each.measure(layers)
            print(
                f"{name}, {layers}: {time.perf_counter() - started:.0f} s", flush=True
            )


class Measured:
    """What is measured on one set.

    Args:
        runtime: The model.
        name: The set.
        output: Where the file goes.
    """

    def __init__(self, runtime: ster.Runtime, name: str, output: Path) -> None:
        self._session: Session = runtime._session
        self._path = output / f"{name}.npz"
        self.found: dict[str, F64] = {}
        if self._path.exists():
            self.found = dict(np.load(self._path))
        self._parts = read_parts(runtime, name)
        first, second, last = self._parts
        self._rounds = [(second, first), (first, second), (first + second, last)]
        self._unsteered = [self._score(each, [{}])[0] for each in self._parts]
        self._neutral, self._sizes = self._encode_neutral()
        self._measure_optimized(runtime, first + second)

    def measure(self, layers: Sequence[int]) -> None:
        """Measure what is not yet there."""
        for layer in layers:
            if f"caa 0.1 {layer}" in self.found:
                continue
            asked = [("caa", strength) for strength in strengths_at(layer)]
            if layer in METHOD_LAYERS:
                asked += [(name, STRENGTHS[0]) for name in FITS if name != "caa"]
            self._measure(layer, asked)
            if layer in RANDOM_LAYERS:
                self._measure_random(layer)
            np.savez(self._path, **self.found)

    def _measure(self, layer: int, asked: list[tuple[str, float]]) -> None:
        shifts = []
        for number, (fitted, scored) in enumerate(self._rounds):
            steps = [s * fit_at(fitted, m, layer) for m, s in asked]
            deltas = [{layer: sign * step} for step in steps for sign in (1, -1)]
            shifts.append(self._shifts(number, scored, deltas))
            if number == 2:
                self._keep_neutral(layer, asked, deltas)
        joined = np.concatenate(shifts, axis=1)
        for at, (method, strength) in enumerate(asked):
            key = f"{method} {strength} {layer}"
            self.found[key] = joined[2 * at : 2 * at + 2]

    def _measure_random(self, layer: int) -> None:
        both, last = self._rounds[2]
        drawn = np.random.default_rng(layer).normal(
            size=(NUM_RANDOM, both.rows["user"].shape[-1])
        )
        norm = norm_at(both, "user", layer)
        units = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        steps = (STRENGTHS[0] * norm * units).astype(np.float32)
        deltas = [{layer: sign * step} for step in steps for sign in (1, -1)]
        found = self._shifts(2, last, deltas)
        self.found[f"random 0.1 {layer}"] = found.reshape(NUM_RANDOM, 2, -1)

    def _measure_optimized(self, runtime: ster.Runtime, both: Part) -> None:
        """Measure what ``optimize`` chooses by accuracy."""
        if "optimize 0.1" in self.found:
            return
        pairs = ster.PairSet(trait_name="chosen", pairs=tuple(both.pairs))
        vector = runtime.optimize(pairs).vector
        (layer,) = vector.layers
        norm = norm_at(both, "user", layer)
        steps = [s * norm * vector.array[0] for s in STRENGTHS]
        deltas = [{layer: sign * step} for step in steps for sign in (1, -1)]
        found = self._shifts(2, self._parts[2], deltas)
        self.found["optimize 0.1"], self.found["optimize 0.2"] = found[:2], found[2:]
        self.found["optimize layer"] = np.array(layer)
        self.found["optimize method"] = np.array(vector.method)

    def _shifts(self, number: int, part: Part, deltas: list[dict[int, F32]]) -> F64:
        """Return how much more the positive sides rise, (num_deltas, num_pairs)."""
        rises = self._score(part, deltas) - self._unsteered[number]
        return rises[:, 0::2] - rises[:, 1::2]

    def _score(self, part: Part, deltas: list[dict[int, F32]]) -> F64:
        pairs = ster.PairSet(trait_name="scored", pairs=tuple(part.pairs))
        return score(self._session, pairs.prompts, pairs.asked, deltas)

    def _encode_neutral(self) -> tuple[F64, F64]:
        asked, answers = zip(*NEUTRAL, strict=True)
        encoded = self._session.encoder.encode_responses(answers, asked)
        ends = [len(each) for each in encoded.token_ids]
        sizes = np.subtract(ends, encoded.starts).astype(np.float64)
        return score(self._session, answers, asked, [{}])[0], sizes

    def _keep_neutral(
        self,
        layer: int,
        asked: list[tuple[str, float]],
        deltas: list[dict[int, F32]],
    ) -> None:
        prompts, answers = zip(*NEUTRAL, strict=True)
        rises = score(self._session, answers, prompts, deltas) - self._neutral
        for at, (method, strength) in enumerate(asked):
            key = f"{method} {strength} {layer} neutral"
            self.found[key] = rises[2 * at : 2 * at + 2] / self._sizes


def score(
    session: Session,
    texts: Sequence[str],
    asked: Sequence[str | None],
    deltas: list[dict[int, F32]],
) -> F64:
    """Score whole responses under each steering, (num_deltas, num_texts)."""
    encoded = session.encoder.encode_responses([*texts], [*asked])
    scoring = plan_scoring(session, encoded, None, steerings=len(deltas))
    with scoring.open() as scorer:
        return np.array(scorer.score_all(deltas))


def strengths_at(layer: int) -> Sequence[float]:
    """Return the strengths of caa: both at the even layers, which come first."""
    return STRENGTHS[: 1 + (layer % 2 == 0)]


def read_parts(runtime: ster.Runtime, name: str) -> list[Part]:
    """Shuffle a set's pairs, and read the ends of their sides in two ways.

    ``user`` is what training reads now, after a user's turn; ``text`` is the last token
    of the text itself, in the assistant's turn that is scored.
    """
    pairs = [*ster.PairSet.load(PAIRS / f"{name}.json")]
    order = np.random.default_rng(0).permutation(len(pairs))[: 3 * PART]
    shuffled = ster.PairSet(trait_name=name, pairs=tuple(pairs[at] for at in order))
    user = runtime.activations(shuffled).array
    text = runtime.activations(
        shuffled.prompts, role="assistant", asked=shuffled.asked, tokens="text"
    ).array
    rows = {
        each: read.reshape(3, PART, 2, *read.shape[1:])
        for each, read in (("user", user), ("text", text))
    }
    return [
        Part(
            pairs=[*shuffled.pairs[at * PART : (at + 1) * PART]],
            rows={each: read[at] for each, read in rows.items()},
        )
        for at in range(3)
    ]


def fit_at(part: Part, method: str, layer: int) -> F32:
    """Fit a direction at one layer, as long as the stream there on average."""
    reading, fit = FITS[method]
    rows = part.rows[reading][:, :, layer]
    direction = fit(rows[:, 0], rows[:, 1])
    unit = direction / np.linalg.norm(direction)
    # One norm for all: what is compared are directions.
    return (norm_at(part, "user", layer) * unit).astype(np.float32)


def norm_at(part: Part, reading: str, layer: int) -> float:
    """Return the mean length of the rows of a layer."""
    return float(np.linalg.norm(part.rows[reading][:, :, layer], axis=-1).mean())


def _mean_difference(positive: F32, negative: F32) -> F64:
    fitted = fit_directions("caa", positive[:, None], negative[:, None])
    return fitted[0].astype(np.float64)


def _uncentred_component(positive: F32, negative: F32) -> F64:
    differences = (positive - negative).astype(np.float64)
    _, _, right = np.linalg.svd(differences, full_matrices=False)
    return right[0] * np.sign(right[0] @ differences.mean(0))


def _logistic_regression(positive: F32, negative: F32) -> F64:
    """Fit an L2 probe with intercept to standardised rows, to convergence (C = 1).

    There are fewer rows than dimensions, so Newton's method runs over the weights of
    the rows: the loss depends on the direction through their products alone.
    """
    rows = np.concatenate([positive, negative]).astype(np.float64)
    mean, spread = rows.mean(0), rows.std(0) + 1e-12
    rows = (rows - mean) / spread
    labels = np.repeat([1.0, 0.0], [len(positive), len(negative)])
    gram = rows @ rows.T
    weights, intercept = np.zeros(len(rows)), 0.0
    for _ in range(50):
        chance = 1 / (1 + np.exp(-(gram @ weights + intercept)))
        errors = weights - (labels - chance)
        curve = chance * (1 - chance)
        system = np.block(
            [
                [np.eye(len(rows)) + curve[:, None] * gram, curve[:, None]],
                [(curve @ gram)[None], np.array([[curve.sum()]])],
            ]
        )
        step = np.linalg.solve(system, -np.append(errors, (chance - labels).sum()))
        weights, intercept = weights + step[:-1], intercept + step[-1]
        if np.abs(step).max() < 1e-10:
            break
    return (rows.T @ weights) / spread


FITS: dict[str, tuple[str, Fit]] = {
    "caa": ("user", _mean_difference),
    "logreg": ("user", _logistic_regression),
    "pca-uncentred": ("user", _uncentred_component),
    "caa-text": ("text", _mean_difference),
}

if __name__ == "__main__":
    main()
