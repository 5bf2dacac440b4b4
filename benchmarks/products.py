"""The bare matrix products that a run cannot do without, and nothing between them.

q, k, v, o, gate, up and down of every block, over as many rows as the run has distinct
tokens, each as one product on all cores. Of the last block only k and v see all rows;
the rest sees the last tokens. One block's random weights serve for all blocks and the
results go to the same place each time, so this is a lower bound. Of experts each has
the rows that it is said to have, and a product for each matrix.

Of one token that is written alone (``--token``) every block has weights of its own, as
the reading of them is what takes the time, and the head is there; what has the same
inputs is one product.

Prints ``{"seconds", "flops"}``; with MLX also ``"ceiling"``, the most operations a
second that large square products reach at this width.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ster import load
from ster.architecture.parts import Experts, FeedForward
from ster.architecture.spec import LayerSpec, ModelSpec

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
    if not isinstance(spec, ModelSpec):
        raise SystemExit("its blocks are not ster's own, so their shapes are not known")
    make = numpy_pass if options.device == "cpu" else mlx_maker(options)
    if options.token:
        passes = [make(shapes) for shapes in token_shapes(spec)]
    else:
        passes = make_passes(spec, options, make)
    answer: dict[str, Any] = {
        "seconds": time_passes(passes),
        "flops": sum(count(each.shapes) for each in passes),
    }
    if options.device != "cpu":
        size = CEILING_SIZES.get(options.device, CEILING_SIZE)
        answer["ceiling"] = ceiling(make, size)
    print(json.dumps(answer))


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--device", "--precision"):
        parser.add_argument(name, required=True)
    parser.add_argument("--token", action="store_true", help="one, written alone")
    parser.add_argument("--tokens", type=int, help="distinct tokens")
    parser.add_argument("--last", type=int, help="distinct last tokens")
    parser.add_argument("--blocks", type=int, help="how many; all where not given")
    help = "of each block, how many rows each expert serves; JSON"
    parser.add_argument("--experts", type=json.loads, help=help)
    options = parser.parse_args()
    given = [each is not None for each in (options.tokens, options.last)]
    if any(given) if options.token else not all(given):
        parser.error("either --token, or both --tokens and --last")
    return options


def make_passes(
    spec: ModelSpec, options: argparse.Namespace, make: Callable[[list[Shape]], Pass]
) -> list[Pass]:
    """Prepare all blocks; without experts, all but the last are one."""
    tokens, last, first = options.tokens, options.last, spec.layers[0]
    if not options.experts:
        blocks = options.blocks or spec.num_hidden_layers
        block = make(list(block_shapes(first, tokens, tokens)))
        return [block] * (blocks - 1) + [make(list(block_shapes(first, tokens, last)))]
    if len(options.experts) != len(spec.layers):
        raise SystemExit("the run was cut into waves: it needs more free memory")
    seen = [tokens] * (len(spec.layers) - 1) + [last]
    return [
        make(list(block_shapes(block, tokens, rows, served)))
        for block, rows, served in zip(spec.layers, seen, options.experts, strict=True)
    ]


def block_shapes(
    block: LayerSpec, tokens: int, last: int, served: Sequence[int] = ()
) -> Iterator[Shape]:
    """List one block's products.

    Args:
        block: What it is.
        tokens: Rows that keys and values see.
        last: Rows that the rest sees.
        served: Of these, how many each expert does.
    """
    attention, feed_forward = block.attention, block.feed_forward
    matrices = [
        (last, attention.q_proj),
        (tokens, attention.k_proj),
        (tokens, attention.v_proj),
        (last, attention.o_proj),
    ]
    parts: list[tuple[int, FeedForward]]
    if isinstance(feed_forward, Experts):
        matrices.append((last, feed_forward.router))
        parts = list(zip(served, feed_forward.experts, strict=True))
    else:
        parts = [(last, feed_forward)]
    matrices += [
        (rows, each) for rows, part in parts for each in (*part.inner, part.down_proj)
    ]
    for rows, matrix in matrices:
        yield rows, matrix.inputs, matrix.outputs


def token_shapes(spec: ModelSpec) -> Iterator[list[Shape]]:
    """List the products of one token, block by block, then the head's."""
    for block in spec.layers:
        attention, feed_forward = block.attention, block.feed_forward
        if isinstance(feed_forward, Experts):
            raise SystemExit("which experts a token chooses is not known")
        groups = (
            (attention.q_proj, attention.k_proj, attention.v_proj),
            (attention.o_proj,),
            feed_forward.inner,
            (feed_forward.down_proj,),
        )
        yield [(1, each[0].inputs, sum(one.outputs for one in each)) for each in groups]
    yield [(1, spec.output.inputs, spec.output.outputs)]


def count(shapes: list[Shape]) -> int:
    """Count multiplications and additions."""
    return sum(2 * rows * inputs * outputs for rows, inputs, outputs in shapes)


def time_passes(blocks: list[Pass]) -> float:
    """Take the median of some passes over all blocks, after one that warms up."""
    blocks[0].run()
    times = []
    for _ in range(PASSES):
        started = time.perf_counter()
        for block in blocks:
            block.run()
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
