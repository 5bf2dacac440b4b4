"""What ``make bench`` counts of quantized checkpoints and of experts."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    big_model,
    experts,
    mixture,
    products,
    quantized,
    quantizer,
    writing,
)
from benchmarks.cases import make_cases, write_prompts
from benchmarks.commands import PYTHON, Setup, counted
from benchmarks.process import Run, ask
from benchmarks.products import block_shapes, token_shapes
from benchmarks.weights import token_values
from ster import load
from ster.architecture.quantization import Format
from ster.architecture.spec import ModelSpec
from ster.checkpoint.packing_formats import dequantize
from tests.checkpoints import make_config, random_ids, text, write_checkpoint

BITS = pytest.mark.parametrize("bits", quantized.BITS)

# A mixture of experts that is written in no time.
SMALL: Mapping[str, Any] = mixture.CONFIG | {
    "hidden_size": 32,
    "moe_intermediate_size": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 64,
    "head_dim": 8,
}


def a_run(seconds: float, **counts: float) -> Run:
    output = f"words\n{json.dumps(counts)}\n"
    return Run(seconds=seconds, peak_bytes=2_000_000, read_bytes=0, output=output)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    config = make_config(hidden_size=64, intermediate_size=128, head_dim=16)
    write_checkpoint(tmp_path / "plain", config, shards=2)
    return tmp_path / "plain"


@pytest.fixture
def setup(tmp_path: Path, plain: Path) -> Setup:
    return Setup(
        model=str(plain),
        bf16_model=None,
        device="cpu",
        precision="f32",
        runs=1,
        work=tmp_path,
    )


def test_what_starts_the_measured_processes_stays_small():
    program = (
        "import json, sys, benchmarks.bench, benchmarks.big_model\n"
        "print(json.dumps([*sys.modules]))"
    )
    loaded = ask([sys.executable, "-c", program])
    assert "benchmarks.quantized" in loaded
    assert not {"numpy", "ster", "mlx", "torch"} & set(loaded)


class TestQuantizer:
    @BITS
    def test_a_value_is_as_near_as_its_codes_and_bf16_allow(self, bits: int):
        values = np.random.default_rng(0).standard_normal((8, 256), np.float32)
        values[3, :64] = 1.5  # a group without a width
        words, scales, biases = quantizer.quantize(values, bits)
        form = Format(mode="affine", bits=bits, group_size=quantizer.GROUP)
        found = dequantize(words, scales, biases, form)
        # bf16 moves a scale by 1/512 of it, which the largest code multiplies, and a
        # bias likewise.
        step = scales * (0.5 + (2**bits - 1) / 256) + abs(biases) / 256
        off = abs(found - values).reshape(*scales.shape, quantizer.GROUP)
        assert (off.max(axis=-1) <= step).all()
        assert (found[3, :64] == 1.5).all()

    @BITS
    def test_every_matrix_is_packed_and_every_row_stays_near(
        self, plain: Path, tmp_path: Path, bits: int
    ):
        sizes = quantizer.make_checkpoint(str(plain), tmp_path / "packed", bits)
        stored = [each.stat().st_size for each in plain.glob("*.safetensors")]
        assert sizes["plain_bytes"] == sum(stored)
        # Of 32 bits a value; headers weigh something in a file this small.
        assert sizes["packed_bytes"] < sum(stored) * (bits + 0.5 + 3) / 32
        prompts = [text(random_ids(5))]
        before, after = (
            load(str(model)).activations(prompts).array
            for model in (plain, tmp_path / "packed")
        )
        assert 0 < abs(before - after).max() < abs(before).max() * 2.0 ** (2 - bits)

    def test_a_quantized_checkpoint_is_not_quantized_again(
        self, plain: Path, tmp_path: Path
    ):
        quantizer.make_checkpoint(str(plain), tmp_path / "packed", 8)
        with pytest.raises(SystemExit, match="packed is quantized already"):
            quantizer.make_checkpoint(str(tmp_path / "packed"), tmp_path / "again", 4)


class TestQuantizedTable:
    def test_a_run_says_what_it_read_and_how_long_it_unpacked(self, setup: Setup):
        case = make_cases(None, setup.work)[0]
        write_prompts(case.prompts, [text(random_ids(5))])
        models = quantized.make_models(setup)
        assert [model.name for model in models] == ["plain", "8 bits", "4 bits"]
        found = [
            ask(counted(model.setup, case, setup.work / "rows.json"))
            for model in models
        ]
        assert [one["unpacking"] > 0 for one in found] == [False, True, True]
        assert all(one["unpacking"] < one["processor"] for one in found)
        # All but headers, most of the embedding, and the head.
        for one, model in zip(found, models, strict=True):
            assert model.size / 3 < one["read_bytes"] < model.size

    def test_a_ratio_is_that_of_two_runs_of_one_turn(self, setup: Setup):
        counts = {"unpacking": 1.0, "processor": 8.0}
        times = {"plain": (1.0, 2.0, 10.0), "4 bits": (2.0, 4.0, 5.0)}
        plain, packed = (
            quantized.Model(
                name=name,
                setup=setup,
                size=3_000_000,
                runs=[a_run(seconds, **counts) for seconds in each],
            )
            for name, each in times.items()
        )
        assert quantized.row(packed, plain) == (
            *("4 bits", "2.00", "4.00 s", "2 MB", "3 MB", "12%"),
        )


class TestBigModel:
    def test_a_value_takes_half_a_byte_and_its_part_of_scale_and_bias(self):
        plain, packed = (
            big_model.stored_bytes(big_model.tensors(32, bits)) for bits in (16, 4)
        )
        norms = 65 * 4096
        assert plain == 13_476_831_232
        assert packed == 2 * norms + (plain // 2 - norms) * (4 + 32 / 64) / 8

    def test_what_it_writes_is_read_and_each_byte_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        small = {"HIDDEN": 128, "INNER": 256, "HEADS": 4, "VOCABULARY": 2048}
        for name, value in small.items():
            monkeypatch.setattr(big_model, name, value)
        model = tmp_path / "model"
        big_model.make_checkpoint(model, 2, 4)
        prompts = write_prompts(tmp_path / "prompts.json", big_model.PROMPTS)
        words = ["--input", str(prompts), "--output", str(tmp_path / "rows.json")]
        run = [*PYTHON, "benchmarks.counted", "run", "extract", "--model", str(model)]
        read = ask([*run, *words])["read_bytes"]
        blocks = 2 * big_model.block_bytes(4)
        embedding = big_model.stored_bytes(big_model.stored("", (2048, 128), 4))
        assert blocks < read < blocks + embedding


class TestExperts:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        mixture.make_checkpoint(tmp_path / "experts", SMALL)
        return tmp_path / "experts"

    def test_each_token_is_served_by_as_many_experts_as_it_chooses(self, model: Path):
        flags = ["--model", str(model), "--device", "cpu", "--precision", "f32"]
        words = [*flags, "--input", str(model / "prompts.json")]
        call = ask([sys.executable, "-m", "benchmarks.mixture", "run", *words])
        tokens, last = call["num_tokens"], call["num_last"]
        assert last == mixture.PROMPTS < tokens
        assert [sum(rows) for rows in call["rows"]] == [2 * tokens] * 2 + [2 * last]
        assert all(len(rows) == 8 for rows in call["rows"])
        _, over, times, spread = experts.measure(str(model), 1)
        assert float(over) > 0
        assert times.count(" / ") == 1
        assert float(spread) >= 1

    def test_only_the_chosen_experts_products_are_replayed(self, model: Path):
        spec = load(str(model)).config
        assert isinstance(spec, ModelSpec)
        block = spec.layers[0]
        shapes = [*block_shapes(block, 9, 4, [4, 0, 1, 0, 0, 0, 0, 3])]
        router, *served = shapes[4:]
        assert router == (4, 32, 8)
        assert served[:3] == [(4, 32, 16), (4, 32, 16), (4, 16, 32)]
        assert sum(map(math.prod, served)) == 8 * 3 * 16 * 32


class TestTokens:
    def test_a_tokens_products_take_every_matrix_once(self, plain: Path):
        spec = load(str(plain)).config
        assert isinstance(spec, ModelSpec)
        *blocks, head = token_shapes(spec)
        assert len(blocks) == spec.num_hidden_layers
        assert head == [(1, spec.hidden_size, spec.vocab_size)]
        values = sum(math.prod(each) for block in blocks for each in block)
        assert values + math.prod(head[0]) == token_values(spec).matrices
        words = ["--model", str(plain), "--device", "cpu", "--precision", "f32"]
        timed = ask([*PYTHON, "benchmarks.products", *words, "--token"])
        assert timed["flops"] == 2 * token_values(spec).matrices
        assert timed["seconds"] > 0

    @pytest.mark.parametrize(
        "flags", [[], ["--tokens", "3"], ["--token", "--last", "2"]]
    )
    def test_products_are_of_one_token_or_of_a_run(self, flags, capsys, monkeypatch):
        words = ["--model", "m", "--device", "cpu", "--precision", "f32", *flags]
        monkeypatch.setattr(sys, "argv", ["products", *words])
        with pytest.raises(SystemExit) as left:
            products.read_options()
        assert left.value.code == 2
        assert "either --token, or both" in capsys.readouterr().err

    def test_a_tokens_time_stands_beside_reading_and_products(self):
        read = {"seconds": 0.02, "bytes": 500_000_000}
        cells = writing.reading_cells(0.026, read, lambda: 0.024)
        assert cells == ("26.0 ms / 20.0 ms (25.0 GB/s)", "1.30", "1.20")
        read["bytes"] = writing.MOST_PRODUCT_BYTES + 1
        assert writing.reading_cells(0.026, read, fail)[2] == "–"
        assert writing.reading_cells(0.026, None, fail) == ("26.0 ms", "–", "–")


def fail() -> float:
    raise AssertionError("it is not to be timed")
