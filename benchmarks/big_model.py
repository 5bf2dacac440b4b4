"""``make bench-7b``: checkpoints of a 7B model through a machine with less memory.

It makes a checkpoint of that shape, 13.5 GB of bf16, its weights repeated noise, runs
eight prompts through all of it, and removes it; then the same at 4 bits, 3.8 GB. The
run is ``ster extract`` itself, with the bytes counted that it takes from its files.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import write_prompts
from benchmarks.commands import PYTHON
from benchmarks.process import Run, ask, run, say, unpin
from benchmarks.tables import fine_ratio, megabytes, seconds, table

HIDDEN, INNER, HEADS, VOCABULARY = 4096, 11008, 32, 32000
# Bytes of what is stored: U32 holds words of quantized values.
WIDTHS = {"BF16": 2, "U32": 4}
GROUP = 64
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


class Tensor(NamedTuple):
    """One tensor as the file holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its bytes."""
        return WIDTHS[self.dtype] * math.prod(self.shape)


class Sizes(NamedTuple):
    """What was run: how many blocks, bits of a value, bytes of the file."""

    blocks: int
    bits: int
    stored: int


def main() -> None:
    """Make the checkpoint, measure, remove it."""
    options = read_options()
    unpin()
    options.work.mkdir(parents=True, exist_ok=True)
    print("\n\n".join(measured(options.work, options.blocks, options.bits)))


def measured(work: Path, blocks: int, widths: list[int]) -> Iterator[str]:
    """Measure one after the other, so that the disk holds one at a time."""
    model = work / "7b"
    for bits in widths:
        shutil.rmtree(model, ignore_errors=True)
        refuse_full_disk(work, stored_bytes(tensors(blocks, bits)))
        try:
            say(f"making the checkpoint, {bits} bits")
            make_checkpoint(model, blocks, bits)
            yield measure(model, work, blocks, bits)
        finally:
            shutil.rmtree(model, ignore_errors=True)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=32)
    parser.add_argument(
        "--bits",
        type=int,
        nargs="+",
        choices=(16, 8, 4),
        default=[16, 4],
        help="of a stored value; 16 is bf16",
    )
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


def tensors(blocks: int, bits: int) -> Iterator[Tensor]:
    """List all tensors as a file of this shape holds them, norm and head included."""
    yield from stored("model.embed_tokens", (VOCABULARY, HIDDEN), bits)
    for block in range(blocks):
        yield from block_tensors(f"model.layers.{block}.", bits)
    yield from stored("model.norm", (HIDDEN,), bits)
    yield from stored("lm_head", (VOCABULARY, HIDDEN), bits)


def block_tensors(prefix: str, bits: int) -> Iterator[Tensor]:
    """List one block's tensors as they are stored."""
    for name, shape in block_shapes().items():
        yield from stored(prefix + name, shape, bits)


def stored(name: str, shape: tuple[int, ...], bits: int) -> Iterator[Tensor]:
    """List what holds a weight: words, scales and biases below 16 bits, as in MLX."""
    if bits == 16 or len(shape) == 1:
        yield Tensor(f"{name}.weight", "BF16", shape)
        return
    outputs, inputs = shape
    yield Tensor(f"{name}.weight", "U32", (outputs, inputs * bits // 32))
    for part in ("scales", "biases"):
        yield Tensor(f"{name}.{part}", "BF16", (outputs, inputs // GROUP))


def stored_bytes(listed: Iterable[Tensor]) -> int:
    """Count what tensors take on disk."""
    return sum(each.size for each in listed)


def block_bytes(bits: int) -> int:
    """Count what one block takes on disk."""
    return stored_bytes(block_tensors("", bits))


def widened_bytes() -> int:
    """Count what one block takes in f32."""
    return 4 * sum(map(math.prod, block_shapes().values()))


def make_checkpoint(model: Path, blocks: int, bits: int) -> None:
    """Write config, weights, and the toy checkpoint's tokenizer."""
    run([*PYTHON, "ster", "toy-model", str(model)])
    config: dict[str, Any] = {
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
    if bits < 16:
        config["quantization"] = {"group_size": GROUP, "bits": bits}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_weights(model / "model.safetensors", tensors(blocks, bits))


def write_weights(path: Path, listed: Iterable[Tensor]) -> None:
    """Write a safetensors file, and see it on the disk."""
    header: dict[str, Any] = {}
    offset = 0
    for each in listed:
        end = offset + each.size
        header[each.name] = {
            "dtype": each.dtype,
            "shape": each.shape,
            "data_offsets": [offset, end],
        }
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


def measure(model: Path, work: Path, blocks: int, bits: int) -> str:
    """Run, and set time, memory and bytes beside what they cannot be less than."""
    weights = model / "model.safetensors"
    prompts = write_prompts(work / "7b.json", PROMPTS)
    say("reading the blocks alone")
    forget(weights)
    reading = read_seconds(weights, blocks * block_bytes(bits))
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
    sizes = Sizes(blocks=blocks, bits=bits, stored=weights.stat().st_size)
    return draw(one, counted, sizes, reading, products)


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
    one: Run, counted: dict[str, int], sizes: Sizes, reading: float, products: float
) -> str:
    """Draw the table."""
    bits, size = sizes.bits, sizes.blocks * block_bytes(sizes.bits)
    most = sizes.stored + widened_bytes()
    off_disk = megabytes(one.read_bytes) if sys.platform == "linux" else "–"
    rows = [
        ("time / (reading + products)", fine_ratio(one.seconds, reading + products)),
        ("whole process", seconds(one.seconds)),
        ("reading the blocks alone", seconds(reading)),
        ("their bare products alone", seconds(products)),
        ("peak memory", megabytes(one.peak_bytes)),
        ("at most: size on disk + a block in f32", megabytes(most)),
        ("blocks on disk", megabytes(size)),
        ("copied out of the file", megabytes(counted["read_bytes"])),
        ("each byte is read", f"{counted['read_bytes'] / size:.3f} times"),
        ("came off the disk", off_disk),
    ]
    form = "bf16" if bits == 16 else f"at {bits} bits"
    shape = f"{sizes.blocks} blocks, {HIDDEN} wide"
    title = f"{shape}, stored {form}, run at f32, 8 prompts"
    return table((title, ""), rows)


if __name__ == "__main__":
    main()
