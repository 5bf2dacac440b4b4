"""What the device itself can do, by MLX: the ceilings that a run is measured by.

``hardware DEVICE WIDTH`` prints ``{"flops", "size", "bandwidth", "way"}``: the most
operations a second of large square products at a width (at 4 bits of
``mx.quantized_matmul``, whose inputs are bf16 or f32), at the best of some sizes, and
the most bytes a second of large copies and sums. Each pass is waited for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.rates import square_flops
from benchmarks.weights import GROUP, PACKED, PACKED_BITS

SIZES = {"mlx-cpu": (256, 512)}
GPU_SIZES = (1024, 2048, 4096)
# What packed weights are multiplied with.
INPUTS = {PACKED: ("bf16", "f32")}
# Products that one pass does, so that waiting for the device is a small part of it.
PRODUCTS = 4
# Passes go on for as long, and the best counts.
SECONDS = 1.0
BYTES = {"mlx-cpu": 1 << 27}
GPU_BYTES = 1 << 29


def main() -> None:
    """Measure one width."""
    device, width = sys.argv[1:]
    os.environ["MLX_ENABLE_TF32"] = "0"  # as ster does: f32 means f32
    import mlx.core as mx

    mx.set_default_device(mx.Device(mx.cpu if device == "mlx-cpu" else mx.gpu))
    flops, size = max(
        (product_rate(mx, inputs, size, packed=width == PACKED), size)
        for inputs in INPUTS.get(width, (width,))
        for size in SIZES.get(device, GPU_SIZES)
    )
    rate, way = max(bandwidths(mx, BYTES.get(device, GPU_BYTES)))
    print(json.dumps({"flops": flops, "size": size, "bandwidth": rate, "way": way}))


def product_rate(
    mx: Any,  # noqa: ANN401
    inputs: str,
    size: int,
    *,
    packed: bool,
) -> float:
    """Measure the operations a second of square products.

    Args:
        mx: MLX, its device chosen.
        inputs: f32, f16 or bf16.
        size: Of a side.
        packed: The weight has 4 bits a value, else it is as wide as the inputs.
    """
    widths = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
    shape = (size, size)
    x, weight = (mx.random.normal(shape).astype(widths[inputs]) for _ in range(2))
    if packed:
        parts = mx.quantize(weight, group_size=GROUP, bits=PACKED_BITS)
        mx.eval(x, *parts)

        def multiply(values: Any) -> Any:  # noqa: ANN401
            return mx.quantized_matmul(
                values, *parts, transpose=True, group_size=GROUP, bits=PACKED_BITS
            )
    else:
        mx.eval(x, weight)

        def multiply(values: Any) -> Any:  # noqa: ANN401
            return values @ weight.T

    def work() -> None:
        # Other inputs each time: equal products might be done once.
        mx.eval([multiply(x + at) for at in range(PRODUCTS)])

    return PRODUCTS * square_flops(size) / best(work)


def bandwidths(mx: Any, num_bytes: int) -> list[tuple[float, str]]:  # noqa: ANN401
    """Measure bytes a second: a copy reads and writes each, a sum reads it."""
    values = mx.ones((num_bytes // 4,), mx.float32)
    mx.eval(values)
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "copy": (2 * num_bytes, lambda: values + 1),
        "sum": (num_bytes, lambda: values.sum()),
        "max": (num_bytes, lambda: values.max()),
    }
    return [
        (moved / best(lambda work=work: mx.eval(work())), name)  # type: ignore[misc]
        for name, (moved, work) in ways.items()
    ]


def best(work: Callable[[], object]) -> float:
    """Take the fastest of the passes of some time, after one that warms up."""
    work()
    fastest, ends = float("inf"), time.perf_counter() + SECONDS
    while (started := time.perf_counter()) < ends:
        work()
        fastest = min(fastest, time.perf_counter() - started)
    return fastest


if __name__ == "__main__":
    main()
