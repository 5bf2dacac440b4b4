"""What ``make bench`` counts of tokens, bytes, operations and times."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import (
    answers,
    endless,
    hardware,
    mixture,
    quantizer,
    rates,
    reading_weights,
    scoring,
    steered,
    widths,
)
from benchmarks.cases import read_sides
from benchmarks.commands import Setup
from benchmarks.machine import read_graphics
from benchmarks.process import Run, ask
from benchmarks.weights import TokenValues, token_values, token_values_of
from benchmarks.widths_ster import read_flops
from ster import SteeringVector, load
from ster.architecture.spec import ModelSpec
from tests.checkpoints import as_stored, make_config, random_ids, text, write_checkpoint

SIZES: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}


def write_model(path: Path, **config: Any) -> tuple[str, ModelSpec]:
    write_checkpoint(path, make_config(**SIZES | config))
    spec = load(path).config
    assert isinstance(spec, ModelSpec)
    return str(path), spec


def stored_values(model: str) -> int:
    headers = (path.read_bytes() for path in Path(model).glob("*.safetensors"))
    sizes = 0
    for header in headers:
        length = int.from_bytes(header[:8], "little")
        tensors = json.loads(header[8 : 8 + length])
        tensors.pop("__metadata__", None)
        sizes += sum(math.prod(each["shape"]) for each in tensors.values())
    return sizes


class TestWeights:
    def test_a_token_reads_everything_but_the_embedding(self, tmp_path: Path):
        model, spec = write_model(tmp_path / "m", tie_word_embeddings=False)
        found = token_values(spec)
        embedding = spec.vocab_size * spec.hidden_size
        assert found.matrices + found.others == stored_values(model) - embedding
        assert found.others == (2 * spec.num_hidden_layers + 1) * spec.hidden_size
        assert token_values_of(model) == found

    def test_an_embedding_that_is_the_head_too_is_read(self, tmp_path: Path):
        model, spec = write_model(tmp_path / "m", tie_word_embeddings=True)
        found = token_values(spec)
        assert found.matrices + found.others == stored_values(model)

    def test_of_experts_only_those_that_are_chosen_are_read(self, tmp_path: Path):
        small = {"hidden_size": 32, "moe_intermediate_size": 16, "num_experts": 8}
        more = {"num_experts_per_tok": 2, "vocab_size": 64, "head_dim": 8}
        mixture.make_checkpoint(tmp_path / "m", mixture.CONFIG | small | more)
        spec = load(tmp_path / "m").config
        assert isinstance(spec, ModelSpec)
        found, expert = token_values(spec), 3 * 32 * 16
        left_out = 64 * 32 + spec.num_hidden_layers * (8 - 2) * expert
        if spec.head is None:
            left_out -= 64 * 32
        total = stored_values(str(tmp_path / "m"))
        assert found.matrices + found.others == total - left_out

    @pytest.mark.parametrize(("width", "size"), [("f32", 4), ("f16", 2), ("bf16", 2)])
    def test_a_value_has_the_bytes_of_its_width(self, width: str, size: int):
        assert TokenValues(matrices=640, others=10).num_bytes(width) == 650 * size

    def test_at_four_bits_the_bytes_are_those_that_the_packed_file_has(self):
        values = np.random.default_rng(0).standard_normal((8, 256), np.float32)
        norm = np.ones(256, np.float32)
        packed = quantizer.pack("a.weight", values, 4) | quantizer.pack("n", norm, 4)
        # Whatever is f32 here is written as bf16.
        stored = [
            each.nbytes if each.dtype == np.uint32 else 2 * each.size
            for each in packed.values()
        ]
        counted = TokenValues(matrices=values.size, others=norm.size)
        assert counted.num_bytes("4-bit") == sum(stored)
        assert as_stored(norm, "bf16").shape == norm.shape


class TestFlops:
    def test_each_matrix_sees_each_token_and_the_last_block_what_is_read(
        self, tmp_path: Path
    ):
        _, spec = write_model(tmp_path / "m", tie_word_embeddings=False)
        head = spec.vocab_size * spec.hidden_size
        blocks = token_values(spec).matrices - head
        assert read_flops(spec, tokens=9, last=9) == 2 * 9 * blocks
        last = spec.layers[-1].attention
        keys_and_values = last.k_proj.num_values + last.v_proj.num_values
        spared = blocks // spec.num_hidden_layers - keys_and_values
        assert read_flops(spec, tokens=9, last=4) == 2 * (9 * blocks - 5 * spared)

    def test_a_token_is_multiplied_by_as_many_experts_as_it_chooses(
        self, tmp_path: Path
    ):
        small = {"hidden_size": 32, "moe_intermediate_size": 16, "num_experts": 8}
        more = {"num_experts_per_tok": 2, "vocab_size": 64, "head_dim": 8}
        mixture.make_checkpoint(tmp_path / "m", mixture.CONFIG | small | more)
        spec = load(tmp_path / "m").config
        assert isinstance(spec, ModelSpec)
        blocks = token_values(spec).matrices - spec.output.num_values
        assert read_flops(spec, tokens=7, last=7) == 2 * 7 * blocks

    def test_a_square_product_adds_and_multiplies_once_for_each_of_three_sides(self):
        assert rates.square_flops(4) == 2 * 64


class TestRates:
    def test_what_two_answers_have_in_common_is_in_no_tokens_time(self):
        runs = [(1.0, 3.0), (2.0, 3.0), (1.5, 9.5)]
        assert rates.token_seconds(runs, 4) == 0.5

    def test_a_share_is_of_the_most_a_second(self):
        assert rates.share(amount=30.0, seconds=2.0, most=60.0) == 0.25

    def test_a_tokens_time_stands_beside_that_of_reading_its_weights(self):
        cells = rates.beside_reading(0.026, 0.02, 500_000_000)
        assert cells == ("26.0 ms / 20.0 ms (25.0 GB/s)", "1.30")

    def test_only_rows_that_are_equal_to_the_last_token_count(self):
        ours = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
        theirs = [[1, 2, 3], [4, 5, 0], [7, 8, 9]]
        assert rates.count_same(ours, theirs) == (2, 3)

    def test_a_difference_is_measured_by_the_largest_value(self):
        assert rates.difference([1.0, -3.0], [1.0, -4.0]) == 0.25


class TestReadingWeights:
    @pytest.mark.parametrize("way", reading_weights.WAYS)
    def test_every_way_reads_every_value(self, way: str):
        values = np.ones(1000, np.float32)
        one = float(reading_weights.WAYS[way](values))  # type: ignore[arg-type]
        values[-1] = 3.0
        assert float(reading_weights.WAYS[way](values)) > one  # type: ignore[arg-type]

    def test_of_more_than_is_read_the_rest_takes_as_long_for_each_byte(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(reading_weights, "timed", lambda _: 2.0)
        monkeypatch.setattr(reading_weights, "MOST_BYTES", 4000)
        assert reading_weights.read(4000, 2)[1] == 2.0
        assert reading_weights.read(12000, 2)[1] == 6.0

    def test_all_runs_are_read_whatever_the_number_of_threads(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        seen: list[int] = []

        def read_once(pool: object, way: object, runs: list[Any]) -> None:
            seen.append(sum(each.size for each in runs))

        monkeypatch.setattr(reading_weights, "read_once", read_once)
        reading_weights.read(4 * 1001, 3)
        assert set(seen) == {1001}


class TestEndless:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        write_model(tmp_path / "plain", eos_token_id=2)
        stops = json.dumps({"eos_token_id": [2, 3], "temperature": 0.5})
        (tmp_path / "plain" / "generation_config.json").write_text(stops)
        return tmp_path / "plain"

    def test_no_token_ends_a_text_and_nothing_else_is_changed(
        self, model: Path, tmp_path: Path
    ):
        endless.make_checkpoint(str(model), tmp_path / "endless")
        for name in ("config.json", "generation_config.json"):
            before = json.loads((model / name).read_bytes())
            after = json.loads((tmp_path / "endless" / name).read_bytes())
            assert after == before | {"eos_token_id": None}
        prompts = [text(random_ids(5))]
        rows, same = (
            load(each).activations(prompts).array
            for each in (model, tmp_path / "endless")
        )
        assert np.array_equal(rows, same)

    def test_it_is_made_afresh_and_holds_no_weights_of_its_own(
        self, model: Path, tmp_path: Path
    ):
        made = tmp_path / "endless"
        made.mkdir()
        (made / "model-00009.safetensors").write_bytes(b"of another model")
        endless.make_checkpoint(str(model), made)
        weights = sorted(made.glob("*.safetensors"))
        assert [each.resolve().parent for each in weights] == [model.resolve()]


class TestAnswers:
    def test_a_hundred_answers_are_sixty_four_hundred_tokens(self):
        sizes = answers.Sizes()
        assert (sizes.rows, sizes.tokens) == (100, 6400)

    @pytest.mark.parametrize("rows", [[[1, 2, 3]] * 3, [[1, 2, 3]] * 3 + [[1, 2]]])
    def test_programs_that_did_not_write_equally_much_are_not_compared(
        self, rows: list[list[int]]
    ):
        sizes = answers.Sizes(prompts=2, strengths=(0.0, 1.0), new_tokens=3)
        answers.check_rows("ster", [[1, 2, 3]] * 4, sizes)
        with pytest.raises(SystemExit, match="the peer wrote . rows"):
            answers.check_rows("the peer", rows, sizes)

    def test_a_part_of_the_rows_counts_for_its_own_tokens(self):
        runs = [
            Run(seconds=9, peak_bytes=10**6, read_bytes=0, output=f'{{"seconds": {s}}}')
            for s in (1.0, 2.0, 4.0)
        ]
        part = answers.program("alone", runs, 5 * 64, whole=False)
        assert part.rate == 160
        assert answers.row(part, 640.0) == ("alone", "160.0", "4.00", "–", "–")
        whole = answers.program("ster", runs, 6400, (99, 100))
        assert answers.row(whole, 6400.0)[2:] == ("2.00", "1 MB", "99 of 100")

    def test_what_is_not_installed_has_no_numbers(self):
        one = answers.Program(name="mlx-lm: not installed", rate=0, peak_bytes=None)
        assert answers.row(one, 1.0) == ("mlx-lm: not installed", *["–"] * 4)

    def test_ster_writes_every_prompt_at_every_strength(self, tmp_path: Path):
        model, spec = write_model(tmp_path / "plain", eos_token_id=2)
        endless.make_checkpoint(model, tmp_path / "endless")
        array = np.ones((1, spec.hidden_size), np.float32)
        made = str(tmp_path / "endless")
        SteeringVector(
            layers=(1,), array=array, model=made, trait_name="t", method="caa"
        ).save(tmp_path / "vector.json")
        prompts = [text(random_ids(4, seed=seed)) for seed in (1, 2)]
        (tmp_path / "asked.json").write_text(json.dumps({"prompts": prompts}))
        setup = Setup(
            model=model,
            bf16_model=None,
            device="cpu",
            precision="f32",
            runs=1,
            work=tmp_path,
        )
        work = answers.Work(
            setup=setup,
            steering=steered.Steering(
                model=tmp_path / "endless", vector=tmp_path / "vector.json", layer=1
            ),
            sizes=answers.Sizes(prompts=2, strengths=(-1.0, 0.0, 4.0), new_tokens=5),
            prompts=tmp_path / "asked.json",
        )
        assert ask(work.ster())["rows"] == 6
        assert len(work.tokens("ster")) == 6
        assert ask(work.ster("--one-by-one", "2"))["rows"] == 2


class TestSteered:
    def test_items_are_spread_over_all(self):
        assert steered.spread(range(10), 4) == [0, 2, 5, 7]
        assert steered.spread(range(3), 9) == [0, 1, 2]

    def test_the_middle_layer_is_found_in_a_wrapped_config_too(self):
        config: dict[str, object] = {"num_hidden_layers": 30}
        assert steered.middle_layer(config) == 15
        assert steered.middle_layer({"text_config": config}) == 15
        assert steered.middle_layer({"n_layer": 12}) == 6
        with pytest.raises(SystemExit, match="how many layers"):
            steered.middle_layer({})

    def test_scored_pairs_keep_their_sides_together(self, tmp_path: Path):
        path = scoring.write_pairs(tmp_path / "pairs.json", None, 5)
        pairs = json.loads(path.read_bytes())["pairs"]
        sides = read_sides(None)
        both = [*zip(sides[0::2], sides[1::2], strict=True)]
        assert len(pairs) == 5
        assert {(one["positive"], one["negative"]) for one in pairs} <= {*both}


class TestWidths:
    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize("inputs", ["f32", "f16", "bf16"])
    def test_a_rate_is_that_of_all_products_of_a_pass(
        self, *, inputs: str, packed: bool, monkeypatch: pytest.MonkeyPatch
    ):
        mx = pytest.importorskip("mlx.core")
        monkeypatch.setattr(hardware, "best", lambda work: work() or 2.0)
        rate = hardware.product_rate(mx, inputs, 64, packed=packed)
        assert rate == 4 * 2 * 64**3 / 2.0

    def test_a_copy_moves_each_byte_twice(self, monkeypatch: pytest.MonkeyPatch):
        mx = pytest.importorskip("mlx.core")
        monkeypatch.setattr(hardware, "best", lambda work: work() or 2.0)
        found = {way: rate for rate, way in hardware.bandwidths(mx, 4000)}
        assert found == {"copy": 4000.0, "sum": 2000.0, "max": 2000.0}

    def test_shares_are_of_the_measured_ceilings(self):
        one = widths.Measured(
            width="bf16",
            hardware={"flops": 2e12, "bandwidth": 6e10},
            ster={
                "flops": 1e12,
                "extract": 2.0,
                "token_bytes": 3e8,
                "token": 0.01,
                "prompt_tps": 4000.0,
            },
            mlx_lm={"prompt_tps": 5000.0, "generation_tps": 90.0},
        )
        assert widths.row(one, 6e10) == (
            *("bf16", "2,000.0 GFLOP/s", "25%", "50%"),
            *("4,000 / 5,000", "100.0 / 90.0"),
        )

    def test_without_mlx_lm_the_row_says_so(self):
        ster = {"flops": 1, "extract": 1, "token_bytes": 1, "token": 1, "prompt_tps": 1}
        one = widths.Measured(
            width="f32", hardware={"flops": 1}, ster=ster, mlx_lm=None
        )
        assert widths.row(one, 1)[-2:] == ("1 / not installed", "1.0 / not installed")


def test_the_gpu_cores_of_a_mac_are_read():
    told = "Apple M1:\n  Chipset Model: Apple M1\n  Total Number of Cores: 8\n"
    assert read_graphics(told) == "8 GPU cores, "
    assert read_graphics("Displays: none") == ""


def test_the_script_says_where_mlx_lm_is_missing(tmp_path: Path):
    program = (
        "import sys, importlib.util as util\n"
        "from benchmarks import mlx_lm_script\n"
        "mlx_lm_script.find_spec = lambda _: None\n"
        "words = ['one', '--model', 'm', '--input', 'i', '--device', 'metal']\n"
        "sys.argv[1:] = [*words, '--max-new-tokens', '4']\n"
        "mlx_lm_script.main()\n"
    )
    assert ask([sys.executable, "-c", program]) is None
