"""Every width on an MLX device: shares of what the device can do, beside mlx-lm."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import steered, tables
from benchmarks.cases import read_facts, write_prompts
from benchmarks.commands import PYTHON, Setup
from benchmarks.process import ask, say
from benchmarks.rates import share

WIDTHS = ("f32", "f16", "bf16", "4-bit")
PACKED = "4-bit"
# At 4 bits scales are stored bf16, and mlx-lm multiplies at their width.
PRECISIONS = {PACKED: "bf16"}
PACKED_BITS = "4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is read and written at each width.

    Args:
        prompts: Read together; None is all there are.
        long: Sentences of the one long prompt.
        tokens: Written after it.
        few_tokens: Written once more, to be taken off.
    """

    prompts: int | None = None
    long: int = 48
    tokens: int = 72
    few_tokens: int = 8


SHORT = Sizes(prompts=2, long=2, tokens=4, few_tokens=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured at one width: the device, ster, and mlx-lm if it is there."""

    width: str
    hardware: dict[str, Any]
    ster: dict[str, Any]
    mlx_lm: dict[str, Any] | None


def table(setup: Setup, data: Path | None, sizes: Sizes) -> str:
    """Measure every width and draw."""
    measured = list(measure(setup, data, sizes))
    bandwidth = max(one.hardware["bandwidth"] for one in measured)
    tokens = measured[0].ster["tokens"]
    titles = (
        "width of weights",
        "matmul ceiling",
        f"its share in reading {tokens:,} tokens",
        f"bandwidth ({bandwidth / 1e9:,.0f} GB/s): its share in a token",
        "long prompt, tokens/s, ster / mlx-lm",
        "written tokens/s, ster / mlx-lm",
    )
    return tables.table(titles, [row(one, bandwidth) for one in measured])


def measure(setup: Setup, data: Path | None, sizes: Sizes) -> Iterator[Measured]:
    """Measure width by width; 4 bits are made of the model."""
    facts = read_facts(data)
    work = setup.work
    asked = steered.spread(facts, sizes.prompts or len(facts))
    many = write_prompts(work / "widths.json", asked)
    text = " ".join(steered.spread(facts, sizes.long))
    long = write_prompts(work / "long.json", [text])
    plain, packed = steered.endless(setup), work / "widths-4-bits"
    shutil.rmtree(packed, ignore_errors=True)
    for width in WIDTHS:
        say(f"width {width}")
        model = plain
        if width == PACKED:
            model = packed
            words = ["benchmarks.quantizer", str(plain), str(packed), PACKED_BITS]
            ask([*PYTHON, *words])
        hardware = ask([*PYTHON, "benchmarks.hardware", setup.device, width])
        say(f"  device: {hardware}")
        ster = ask(ster_words(setup, sizes, model, width, many, long))
        say(f"  ster: {ster}")
        mlx_lm = ask(mlx_lm_words(setup, sizes, model, width, long))
        say(f"  mlx-lm: {mlx_lm}")
        yield Measured(width=width, hardware=hardware, ster=ster, mlx_lm=mlx_lm)
    shutil.rmtree(packed)


def ster_words(
    setup: Setup, sizes: Sizes, model: Path, width: str, many: Path, long: Path
) -> list[str]:
    """Return ster's command line."""
    return [
        *(*PYTHON, "benchmarks.widths_ster", "--model", str(model)),
        *("--device", setup.device, "--width", width),
        *("--precision", PRECISIONS.get(width, width)),
        *("--input", str(many), "--long", str(long), "--runs", str(setup.runs)),
        *("--tokens", str(sizes.tokens), "--few-tokens", str(sizes.few_tokens)),
    ]


def mlx_lm_words(
    setup: Setup, sizes: Sizes, model: Path, width: str, long: Path
) -> list[str]:
    """Return mlx-lm's; a packed model stays as it is stored."""
    words = [
        *(*PYTHON, "benchmarks.mlx_lm_script", "one", "--model", str(model)),
        *("--device", setup.device, "--input", str(long)),
        *("--max-new-tokens", str(sizes.tokens), "--runs", str(setup.runs)),
    ]
    return words if width == PACKED else [*words, "--width", width]


def row(one: Measured, bandwidth: float) -> tuple[str, ...]:
    """Draw one line."""
    ster, flops = one.ster, one.hardware["flops"]
    read, written = ("not installed",) * 2
    if one.mlx_lm is not None:
        read = f"{one.mlx_lm['prompt_tps']:,.0f}"
        written = f"{one.mlx_lm['generation_tps']:,.1f}"
    return (
        one.width,
        f"{flops / 1e9:,.1f} GFLOP/s",
        f"{share(ster['flops'], ster['extract'], flops):.0%}",
        f"{share(ster['token_bytes'], ster['token'], bandwidth):.0%}",
        tables.both(f"{ster['prompt_tps']:,.0f}", read),
        tables.both(f"{1 / ster['token']:,.1f}", written),
    )
