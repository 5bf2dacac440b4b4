"""ster's part of scoring pairs: one call at several strengths, and one at one.

Prints ``{"several", "one", "ratio", "shifts"}``: seconds of each call of
``Runtime.evaluate``, weights in memory; the ratio within a turn; and how much more each
strength raises the positive sides. Writes ``{"token_ids", "starts"}``, what was scored,
for the peer.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median

import ster
from benchmarks.steered import ster_parser
from ster.checkpoint.resolve import open_files
from ster.checkpoint.tokenizer import load_encoder
from ster.reporting import QuietReporter

# Responses that are scored together.
BATCH_SIZE = 32


def main() -> None:
    """Load, warm up, and time both calls in turn."""
    options = read_options()
    runtime = ster.load(
        options.model, device=options.device, precision=options.precision
    )
    vector = ster.SteeringVector.load(options.vector)
    pairs = ster.PairSet.load(options.input)
    strengths = [float(word) for word in options.strengths.split(",")]

    def evaluate(trial: list[float]) -> tuple[float, ster.Evaluation]:
        started = time.perf_counter()
        asked = ster.StrengthTrial.of(trial, batch_size=BATCH_SIZE)
        evaluation = runtime.evaluate(pairs, vector, asked)
        return time.perf_counter() - started, evaluation

    evaluate(strengths[-1:])
    turns = [
        (evaluate(strengths), evaluate(strengths[-1:])) for _ in range(options.runs)
    ]
    times = [(several[0], one[0]) for several, one in turns]
    trial = turns[0][0][1].document["strength"]
    write_scored(options.model, pairs, options.output)
    answer = {
        "several": median(several for several, _ in times),
        "one": median(one for _, one in times),
        "ratio": median(several / one for several, one in times),
        "shifts": [each["mean_shift"] for each in trial["candidates"]],
    }
    print(json.dumps(answer))


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = ster_parser(__doc__)
    parser.add_argument("--runs", type=int, default=1)
    return parser.parse_args()


def write_scored(model: str, pairs: ster.PairSet, output: Path) -> None:
    """Write the tokens of all sides, and from where on they count."""
    encoder = load_encoder(open_files(model, None), "auto", QuietReporter())
    encoded = encoder.encode_responses(pairs.prompts, pairs.asked)
    document = {
        "token_ids": [[*map(int, ids)] for ids in encoded.token_ids],
        "starts": [*map(int, encoded.starts)],
    }
    output.write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
