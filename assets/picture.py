"""Draw the picture of the README from a real run: ``python -m assets.picture MODEL``.

MODEL is SmolLM2-135M-Instruct, or a directory with it. The direction is fitted on 16 of
the pairs of ``pairs_happy.json`` and seen on the other eight.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

import ster

FOLDER = Path(__file__).parent
PICTURE = FOLDER / "steering.png"
FITTED, LAYER = 16, 15
PROMPT, STRENGTHS, TOKENS = "How was your day?", [-8, -4, 0, 4, 8], 40
SAD, HAPPY = "#0072B2", "#D55E00"
SHADES = (SAD, "#56B4E9", "#888888", "#E69F00", HAPPY)


def draw_sides(axes: Axes, runtime: ster.Runtime, happy: ster.SteeringVector) -> None:
    """Show where the sides of the held-out pairs lie along the direction."""
    pairs = ster.PairSet.load(FOLDER / "pairs_happy.json").pairs[FITTED:]
    lying: list[list[float]] = []
    for side in ("positive", "negative"):
        texts = [getattr(pair, side) for pair in pairs]
        rows = runtime.activations(texts, layers=happy.layers)
        lying.append(list((rows @ happy)[:, happy.layers.index(LAYER)]))
    for number, sides in enumerate(zip(*lying, strict=True)):
        axes.plot(sides, [number, number], color="#bbbbbb", zorder=1)
    numbers = range(len(pairs))
    axes.scatter(lying[0], numbers, color=HAPPY, marker="o", label="happy side")
    axes.scatter(lying[1], numbers, color=SAD, marker="s", label="sad side")
    axes.set_xlabel(f"along the direction, after block {LAYER}")
    axes.set_yticks([])
    axes.set_ylabel("pairs that it was not fitted on")
    axes.set_title("Read", loc="left", weight="bold")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)


def draw_answers(axes: Axes, runtime: ster.Runtime, happy: ster.SteeringVector) -> None:
    """Write down what the model says with the direction added."""
    said = runtime.answers(
        [PROMPT], steer=happy, strengths=STRENGTHS, max_new_tokens=TOKENS
    )
    axes.axis("off")
    axes.set_title(f"Steer: “{PROMPT}”", loc="left", weight="bold")
    place = 0.97
    for answer, shade in zip(said, SHADES, strict=True):
        lines = textwrap.wrap(" ".join(answer.text.split()) + " …", 84)
        strength = f"{answer.strength:+.0f}" if answer.strength else "0"
        axes.text(
            0.06, place, strength, color=shade, weight="bold", va="top", ha="right"
        )
        axes.text(0.09, place, "\n".join(lines), color="#222222", va="top")
        place -= 0.062 * len(lines) + 0.03


def main() -> None:
    """Fit, read, steer, draw."""
    mpl.use("Agg")
    plt.rcParams |= {"font.family": "DejaVu Sans", "font.size": 10}
    runtime = ster.load(sys.argv[1], device="cpu")
    pairs = ster.PairSet.load(FOLDER / "pairs_happy.json")
    fitted = ster.PairSet(trait_name=pairs.trait_name, pairs=pairs.pairs[:FITTED])
    happy = runtime.train(fitted, layers="10..20")
    figure, axes = plt.subplots(
        1, 2, figsize=(10.5, 4.2), width_ratios=[1, 1.9], layout="constrained"
    )
    for side in ("top", "right", "left"):
        axes[0].spines[side].set_visible(False)
    draw_sides(axes[0], runtime, happy)
    draw_answers(axes[1], runtime, happy)
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
