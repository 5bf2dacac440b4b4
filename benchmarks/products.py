"""The bare matrix products that a run cannot do without, and nothing between them.

q, k, v, o, gate, up and down of every block, over as many rows as the run has distinct
tokens, each as one product on all cores. Of the last block only k and v see all rows;
the rest sees the last tokens. One block's random weights serve for all blocks and the
results go to the same place each time, so this is a lower bound.

Prints ``{"seconds", "flops"}``; with MLX also ``"ceiling"``, the most operations a
second that large square products reach at this width.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ster import load
from ster.architecture.spec import LayerSpec

# A product: its rows, inputs and outputs.
Shape = tuple[int, int, int]
PASSES = 3
CEILING_SIZES = {"mlx-cpu": 1024}
CEILING_SIZE = 4096
CEILING_REPEATS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One block's products, ready to be done again and again."""

    shapes: list[Shape]
    run: Callable[[], None]


def main() -> None:
    """Time the products of a run."""
    options = read_options()
    spec = load(options.model).config
    blocks = options.blocks or spec.num_hidden_layers
    block = list(block_shapes(spec.layers[0], options.tokens, options.tokens))
    last = list(block_shapes(spec.layers[0], options.tokens, options.last))
    make = numpy_pass if options.device == "cpu" else mlx_maker(options)
    seconds = time_passes(make(block), make(last), blocks)
    flops = (blocks - 1) * count(block) + count(last)
    answer: dict[str, Any] = {"seconds": seconds, "flops": flops}
    if options.device != "cpu":
        size = CEILING_SIZES.get(options.device, CEILING_SIZE)
        answer["ceiling"] = ceiling(make, size)
    print(json.dumps(answer))


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--device", "--precision"):
        parser.add_argument(name, required=True)
    parser.add_argument("--tokens", type=int, required=True, help="distinct tokens")
    parser.add_argument("--last", type=int, required=True, help="distinct last tokens")
    parser.add_argument("--blocks", type=int, help="how many; all where not given")
    return parser.parse_args()


def block_shapes(block: LayerSpec, tokens: int, last: int) -> Iterator[Shape]:
    """List one block's products; keys and values see all tokens, the rest ``last``."""
    attention, feed_forward = block.attention, block.feed_forward
    for rows, matrix in (
        (last, attention.q_proj),
        (tokens, attention.k_proj),
        (tokens, attention.v_proj),
        (last, attention.o_proj),
        (last, feed_forward.gate_proj),
        (last, feed_forward.up_proj),
        (last, feed_forward.down_proj),
    ):
        yield rows, matrix.inputs, matrix.outputs


def count(shapes: list[Shape]) -> int:
    """Count multiplications and additions."""
    return sum(2 * rows * inputs * outputs for rows, inputs, outputs in shapes)


def time_passes(block: Pass, last: Pass, num_blocks: int) -> float:
    """Take the median of some passes over all blocks, after a first that warms up."""
    block.run()
    times = []
    for _ in range(PASSES):
        started = time.perf_counter()
        for _ in range(num_blocks - 1):
            block.run()
        last.run()
        times.append(time.perf_counter() - started)
    return median(times)


def numpy_pass(shapes: list[Shape]) -> Pass:
    """Prepare products in numpy, whose BLAS takes all cores by itself."""
    rng = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    products = [
        (values(rows, inputs), values(outputs, inputs), values(rows, outputs))
        for rows, inputs, outputs in shapes
    ]

    def run() -> None:
        for x, weight, out in products:
            np.matmul(x, weight.T, out=out)

    return Pass(shapes=shapes, run=run)


def mlx_maker(options: argparse.Namespace) -> Callable[[list[Shape]], Pass]:
    """Prepare products in MLX, on the device and at the width of the run."""
    os.environ["MLX_ENABLE_TF32"] = "0"  # as ster does: f32 means f32
    import mlx.core as mx

    widths = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
    dtype = widths[options.precision]
    mx.set_default_device(mx.Device(mx.cpu if options.device == "mlx-cpu" else mx.gpu))

    def make(shapes: list[Shape]) -> Pass:
        products = [
            (
                mx.random.normal((rows, inputs)).astype(dtype),
                mx.random.normal((outputs, inputs)).astype(dtype),
            )
            for rows, inputs, outputs in shapes
        ]
        mx.eval(products)

        def run() -> None:
            mx.eval([x @ weight.T for x, weight in products])

        return Pass(shapes=shapes, run=run)

    return make


def ceiling(make: Callable[[list[Shape]], Pass], size: int) -> float:
    """Measure the most operations a second that square products reach."""
    square = make([(size, size, size)] * 4)
    square.run()
    best = float("inf")
    for _ in range(CEILING_REPEATS):
        started = time.perf_counter()
        square.run()
        best = min(best, time.perf_counter() - started)
    return count(square.shapes) / best


if __name__ == "__main__":
    main()
