"""``make bench-7b``: a checkpoint of 13.5 GB through a machine with less memory.

It makes a checkpoint of a 7B model's shape, its weights repeated noise, runs eight
prompts through all of it, and removes it. The run is ``ster extract`` itself, with the
bytes counted that it takes from its mapped files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cases import write_prompts
from benchmarks.commands import PYTHON
from benchmarks.process import Run, ask, run, say, unpin
from benchmarks.tables import fine_ratio, megabytes, seconds, table

HIDDEN, INNER, HEADS, VOCABULARY = 4096, 11008, 32, 32000
WIDTH = 2  # bytes of a stored bf16
SPARE_BYTES = 500_000_000
CHUNK = 1 << 26
# Values of noise, repeated through the file: an odd number of rows, so that no two
# matrices of a block begin alike.
NOISE_VALUES = 4096 * 4099
PROMPTS = [
    "the sea is calm .",
    "the river is deep .",
    "my name is anna",
    "a small boat",
    "the sun is warm today",
    "where is the old house ?",
    "one two three four",
    "good night and good luck",
]


def main() -> None:
    """Make the checkpoint, measure, remove it."""
    options = read_options()
    unpin()
    model = options.work / "7b"
    shutil.rmtree(model, ignore_errors=True)
    options.work.mkdir(parents=True, exist_ok=True)
    refuse_full_disk(options.work, stored_bytes(options.blocks))
    try:
        say("making the checkpoint")
        make_checkpoint(model, options.blocks)
        print(measure(model, options.work, options.blocks))
    finally:
        shutil.rmtree(model, ignore_errors=True)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=32)
    parser.add_argument("--work", type=Path, default=Path("build/bench"))
    return parser.parse_args()


def refuse_full_disk(work: Path, needed: int) -> None:
    """Stop before the disk is full."""
    free = shutil.disk_usage(work).free
    if free < needed + SPARE_BYTES:
        raise SystemExit(
            f"{work} has {megabytes(free)}, {megabytes(needed)} are needed"
        )


def block_shapes() -> dict[str, tuple[int, ...]]:
    """List one block's tensors."""
    square = (HIDDEN, HIDDEN)
    return {
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
        **{f"self_attn.{name}_proj": square for name in "qkvo"},
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
    }


def tensor_shapes(blocks: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """List all tensors as a file of this shape holds them, norm and head included."""
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for block in range(blocks):
        for name, shape in block_shapes().items():
            yield f"model.layers.{block}.{name}.weight", shape
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def num_values(shape: tuple[int, ...]) -> int:
    """Count a tensor's values."""
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def block_bytes() -> int:
    """Count what one block takes on disk."""
    return WIDTH * sum(map(num_values, block_shapes().values()))


def stored_bytes(blocks: int) -> int:
    """Count what the whole file takes on disk."""
    return WIDTH * sum(num_values(shape) for _, shape in tensor_shapes(blocks))


def make_checkpoint(model: Path, blocks: int) -> None:
    """Write config, weights, and the toy checkpoint's tokenizer."""
    run([*PYTHON, "ster", "toy-model", str(model)])
    config = {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": blocks,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_weights(model / "model.safetensors", blocks)


def write_weights(path: Path, blocks: int) -> None:
    """Write a safetensors file, and see it on the disk."""
    header: dict[str, Any] = {}
    offset = 0
    for name, shape in tensor_shapes(blocks):
        end = offset + WIDTH * num_values(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header).encode()
    noise = make_noise()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        while offset:
            offset -= file.write(noise[:offset])
        file.flush()
        os.fsync(file.fileno())


def make_noise() -> bytes:
    """Make bf16 values of ±0.016 to ±0.031, so that the stream stays finite.

    Sign and seven bits of fraction are random; the exponent is that of 1/64.
    """
    low = os.urandom(NOISE_VALUES)
    # A bf16 is sign, exponent and fraction of 1, 8 and 7 bits; the low byte holds the
    # exponent's last bit, which is set here: 1/64 has exponent 121.
    signs = bytes(0x3C | byte & 0x80 for byte in range(256))
    high = os.urandom(NOISE_VALUES).translate(signs)
    fractions = bytes(0x80 | byte & 0x7F for byte in range(256))
    noise = bytearray(2 * NOISE_VALUES)
    noise[0::2], noise[1::2] = low.translate(fractions), high
    return bytes(noise)


def measure(model: Path, work: Path, blocks: int) -> str:
    """Run, and set time, memory and bytes beside what they cannot be less than."""
    weights = model / "model.safetensors"
    prompts = write_prompts(work / "7b.json", PROMPTS)
    say("reading the blocks alone")
    forget(weights)
    reading = read_seconds(weights, blocks * block_bytes())
    say("their bare products alone")
    words = ["--model", str(model), "--device", "cpu", "--precision", "f32"]
    call = ask(
        [*PYTHON, "benchmarks.counted", "tokens", str(model), str(prompts)],
    )
    tokens = ["--tokens", str(call["num_tokens"]), "--last", str(call["num_last"])]
    products = ask([*PYTHON, "benchmarks.products", *words, *tokens])["seconds"]
    say("ster extract")
    forget(weights)
    output = ["--output", str(work / "7b-rows.json")]
    one = run(
        [
            *(*PYTHON, "benchmarks.counted", "run", "extract"),
            *(*words, "--input", str(prompts), *output),
        ]
    )
    counted = json.loads(one.output.splitlines()[-1])
    return draw(one, counted, blocks, reading, products)


def forget(path: Path) -> None:
    """Have the system drop the file's pages, where it can be asked to."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_seconds(path: Path, size: int) -> float:
    """Time plain reading from the beginning of a file."""
    chunk, left = memoryview(bytearray(CHUNK)), size
    started = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while left > 0 and (got := file.readinto(chunk)):
            left -= got
    return time.perf_counter() - started


def draw(
    one: Run, counted: dict[str, int], blocks: int, reading: float, products: float
) -> str:
    """Draw the table."""
    size = blocks * block_bytes()
    off_disk = megabytes(one.read_bytes) if sys.platform == "linux" else "–"
    rows = [
        ("time / (reading + products)", fine_ratio(one.seconds, reading + products)),
        ("whole process", seconds(one.seconds)),
        ("reading the blocks alone", seconds(reading)),
        ("their bare products alone", seconds(products)),
        ("peak memory", megabytes(one.peak_bytes)),
        ("blocks on disk", megabytes(size)),
        ("taken from the mapped blocks", megabytes(counted["block_bytes"])),
        ("each weight is taken", f"{counted['block_bytes'] / size:.3f} times"),
        ("came off the disk", off_disk),
    ]
    title = f"{blocks} blocks, {HIDDEN} wide, stored bf16, run at f32, 8 prompts"
    return table((title, ""), rows)


if __name__ == "__main__":
    main()
