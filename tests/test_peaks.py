"""What a run really takes: no more than its plan says, which is no more than it may.

Every run is a process of its own, whose largest memory the system reports. A launcher
of no size starts it, since a process begins with the largest memory of its parent.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster import write_toy_checkpoint
from ster.decoder.devices import MLX_CPU
from tests.checkpoints import (
    make_config,
    random_ids,
    tensor_shapes,
    text,
    write_checkpoint,
)
from tests.processes import finished
from tests.test_weights import Raw, write

LAUNCHER = """
import os, signal, sys
child = os.fork()
if not child:
    signal.alarm(55)  # the child ends though nobody waits for it any more
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
unit = 1 if sys.platform == "darwin" else 1024
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss * unit, file=sys.stderr)
"""
# What no command offers: MLX's own cpu backend, and a run that says its plan.
LIBRARY = """
import json, sys
from ster.errors import SterError
from ster.loading import open_runtime
from ster.runs.choice import ModelChoice

class Says:
    def note(self, sentence): print(sentence, file=sys.stderr)
    warn = note
    def progress(self, progress): pass

model, device, memory, run, prompts = sys.argv[1:]
choice = ModelChoice(model=model, device=device, memory=int(memory), verbose=True)
runtime = open_runtime(choice, reporter=Says())
prompts = json.load(open(prompts))["prompts"]
try:
    if run == "extract":
        runtime.write_activations(prompts, "o.json", 1)
    else:
        list(runtime.generate_all(prompts, max_new_tokens=3))
except SterError as error:
    sys.exit(f"Error: {error}")
"""
MEGABYTE = 10**6


@dataclass(frozen=True, slots=True)
class Ran:
    """What a process said and took.

    Args:
        code: Its exit code.
        said: Its stderr.
        peak: The largest memory that it ever had, in bytes.
    """

    code: int
    said: str
    peak: int

    @property
    def plans(self) -> list[tuple[int, int]]:
        """Each plan's peak, rounded up, and its limit, rounded down, in bytes."""
        found = re.findall(r"peak (\d+) MB of (\d+) MB", self.said)
        return [(int(peak) * MEGABYTE, int(limit) * MEGABYTE) for peak, limit in found]

    @property
    def needed(self) -> int:
        """What a refusal says that the run needs, in bytes."""
        found = re.search(r"this run needs (\d+) MB", self.said)
        assert found, self.said
        return int(found[1]) * MEGABYTE


def launch(words: Sequence[str], folder: Path) -> Ran:
    launcher = [sys.executable, "-S", "-c", LAUNCHER, sys.executable]
    done = finished([*launcher, *words], cwd=folder)
    said = done.stderr.decode()
    *_, last = said.splitlines()
    code, peak = last.split()
    return Ran(int(code), said, int(peak))


def command(*words: str) -> Callable[[int, str], list[str]]:
    """Make a run of the command, given its memory and its model."""

    def line(memory: int, model: str) -> list[str]:
        bounds = ["--model", model, "--memory", str(memory), "--verbose"]
        return ["-m", "ster", *words, *bounds]

    return line


def library(device: str, run: str) -> Callable[[int, str], list[str]]:
    """Make the same of the library."""

    def line(memory: int, model: str) -> list[str]:
        return ["-c", LIBRARY, model, device, str(memory), run, "prompts.json"]

    return line


def extract(device: str) -> Callable[[int, str], list[str]]:
    if device != "cpu":
        return library(device, "extract")
    files = ["--input", "prompts.json", "--output", "o.json"]
    return command("extract", *files, "--layers", "1")


def generate(device: str) -> Callable[[int, str], list[str]]:
    if device != "cpu":
        return library(device, "generate")
    how = ["--prompts", "prompts.json", "--output", "o.json", "--max-new-tokens", "3"]
    return command("generate", *how)


def hold_to_plan(folder: Path, line: Callable[[int, str], list[str]]) -> Ran:
    """Run in little more memory than is needed; hold the plan to what it took.

    ``folder`` has the checkpoint ``model``.
    """
    damage(folder / "model", folder / "damaged")
    # Were a weight looked at, the damaged file would be named.
    tiny = launch(line(MEGABYTE, "damaged"), folder)
    refused = launch(line(tiny.needed * 9 // 10, "damaged"), folder)
    for each in (tiny, refused):
        assert (each.code, each.plans) == (1, [])
        assert "Error: this run needs" in each.said
    # What a process has before its run differs by little.
    memory = tiny.needed * 102 // 100 + 4 * MEGABYTE
    ran = launch(line(memory, "model"), folder)
    assert ran.code == 0, ran.said
    planned, limit = max(ran.plans)
    # What is needed is rounded up, and what may be used down.
    assert limit <= memory < limit + MEGABYTE
    assert ran.peak <= planned <= limit + MEGABYTE
    return ran


def damage(model: Path, copy: Path) -> None:
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).symlink_to(file)
    (copy / "model.safetensors").unlink()
    (copy / "model.safetensors").write_bytes(b"damaged")


def write_prompts(folder: Path, prompts: list[str]) -> None:
    (folder / "prompts.json").write_text(json.dumps({"prompts": prompts}))


def write_toy(folder: Path) -> list[str]:
    """Write the toy; return the words that it knows."""
    write_toy_checkpoint(folder / "model")
    tokenizer = json.loads((folder / "model" / "tokenizer.json").read_bytes())
    return sorted(tokenizer["model"]["vocab"])


def write_drawn(folder: Path, **changes: Any) -> None:
    """Write a checkpoint that Python's own generator would take long to draw."""
    config, draw = make_config(**changes), np.random.default_rng(0)
    tensors = {
        name: (0.1 * draw.standard_normal(shape)).astype(np.float32)
        for name, shape in tensor_shapes(config).items()
    }
    write_checkpoint(folder / "model", config, tensors=tensors)


def write_quantized(folder: Path, config: dict[str, Any]) -> int:
    """Write a checkpoint at 4 bits, drawn as it lies there; return its size."""
    quantization = {"group_size": 64, "bits": 4}
    model = write_checkpoint(folder / "model", make_config()).directory
    text = json.dumps(config | {"quantization": quantization})
    (model / "config.json").write_text(text)
    tensors: Raw = {}
    draw = np.random.default_rng(0)
    for name, shape in tensor_shapes(config).items():
        if len(shape) == 1:
            tensors[name] = ("F32", shape, np.ones(shape, np.float32).tobytes())
            continue
        rows, inputs = shape
        words, groups = (rows, inputs // 8), (rows, inputs // 64)
        tensors[name] = ("U32", words, draw.bytes(4 * rows * inputs // 8))
        for part, value in (("scales", 2.0**-8), ("biases", -(2.0**-5))):
            filled = np.full(groups, value, np.float16)
            place = name.removesuffix("weight") + part
            tensors[place] = ("F16", groups, filled.tobytes())
    write(model / "model.safetensors", tensors)
    return (model / "model.safetensors").stat().st_size


def only_in_memory(device: str) -> None:
    if device not in ("cpu", MLX_CPU):
        pytest.skip("a GPU's memory is not the process's")


def test_one_long_prompt(tmp_path, device):
    only_in_memory(device)
    words = write_toy(tmp_path)
    length = 30_000 if device == "cpu" else 6_000
    drawn = np.random.default_rng(0).choice(words, length)
    write_prompts(tmp_path, [" ".join(drawn)])
    ran = hold_to_plan(tmp_path, extract(device))
    assert f"{length} tokens" in ran.said


def test_a_very_long_prompt_under_a_sliding_window(tmp_path):
    """Its attention grows with its length, and not with its square."""
    sizes = {"sliding_window": 64, "max_position_embeddings": 2**17}
    write_drawn(tmp_path, family="mistral", **sizes)
    write_prompts(tmp_path, [text(random_ids(100_000))])
    ran = hold_to_plan(tmp_path, extract("cpu"))
    assert "100000 tokens" in ran.said


def test_a_chain_of_prompts_each_a_prefix_of_the_next(tmp_path):
    """Little is computed of them, but every prompt lists all its keys."""
    words = write_toy(tmp_path)
    chain = list(np.random.default_rng(0).choice(words, 1500))
    prompts = [" ".join(chain[: length + 1]) for length in range(len(chain))]
    write_prompts(tmp_path, prompts)
    ran = hold_to_plan(tmp_path, extract("cpu"))
    assert "1500 prompts, 1125750 tokens" in ran.said


def test_many_prompts_in_several_waves(tmp_path):
    words = write_toy(tmp_path)
    draw = np.random.default_rng(0)
    write_prompts(tmp_path, [" ".join(draw.choice(words, 150)) for _ in range(400)])
    ran = hold_to_plan(tmp_path, extract("cpu"))
    waves = re.search(r"weights read for each wave; (\d+) waves", ran.said)
    assert waves, ran.said
    assert int(waves[1]) > 5


def test_keys_and_values_of_a_long_prompt_that_is_answered(tmp_path, device):
    """They are what most of the memory goes to."""
    only_in_memory(device)
    sizes = {"hidden_size": 192, "intermediate_size": 64, "num_hidden_layers": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    write_drawn(tmp_path, **sizes, **heads, max_position_embeddings=2**16)
    length = 6_000 if device == "cpu" else 1_500
    write_prompts(tmp_path, [text(random_ids(length))])
    ran = hold_to_plan(tmp_path, generate(device))
    assert ran.peak > 2 * 4 * 192 * 16 * length


def test_a_quantized_checkpoint_that_is_read_block_by_block(tmp_path, device):
    """Its values never stand in memory together, nor does the file."""
    only_in_memory(device)
    config = make_config(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=16,
        num_key_value_heads=4,
    )
    size = write_quantized(tmp_path, config)
    write_prompts(tmp_path, [text(random_ids(20, seed=seed)) for seed in range(3)])
    how = extract(device)
    ran = hold_to_plan(tmp_path, how if device != "cpu" else all_layers)
    block = 4 * (4 * 1024 * 1024 + 3 * 1024 * 4096)
    assert ran.peak < size + block


def all_layers(memory: int, model: str) -> list[str]:
    files = ["--input", "prompts.json", "--output", "o.json"]
    return command("extract", *files)(memory, model)


@pytest.mark.parametrize("run", [extract, generate])
def test_experts_that_are_read_when_they_are_chosen(tmp_path, device, run):
    only_in_memory(device)
    sizes = {"hidden_size": 256, "moe_intermediate_size": 384, "num_experts": 32}
    write_drawn(tmp_path, family="qwen3_moe", **sizes, num_experts_per_tok=2)
    write_prompts(tmp_path, [text(random_ids(200, seed=seed)) for seed in range(9)])
    hold_to_plan(tmp_path, run(device))


def test_scores_over_a_large_vocabulary(tmp_path):
    words = 100_000
    write_drawn(
        tmp_path, vocab_size=words, tie_word_embeddings=True, num_hidden_layers=2
    )
    sides = [text(random_ids(60, seed=seed, vocab_size=words)) for seed in range(12)]
    pairs = [
        {"positive": one, "negative": other}
        for one, other in zip(sides[::2], sides[1::2], strict=True)
    ]
    (tmp_path / "pairs.json").write_text(json.dumps({"pairs": pairs}))
    vector = ["--pairs", "pairs.json", "--output", "vector.json"]
    made = launch(command("vector", "train", *vector)(10**9, "model"), tmp_path)
    assert made.code == 0, made.said
    how = ["--strengths", "-4,4", "--batch-size", "4", "--max-sequence", "99"]
    measure = ["--pairs", "pairs.json", "--vector", "vector.json", *how]
    ran = launch(command("vector", "evaluate", *measure)(10**9, "model"), tmp_path)
    assert ran.code == 0, ran.said
    # One plan for reading, one for all strengths, one for random directions.
    assert len(ran.plans) == 3
    assert ran.peak <= max(ran.plans)[0]
    assert ran.peak > 8 * words * 32
    short = max(ran.plans)[0] * 8 // 10
    refused = launch(command("vector", "evaluate", *measure)(short, "model"), tmp_path)
    assert (refused.code, len(refused.plans)) == (1, 1)
    assert refused.needed > short
