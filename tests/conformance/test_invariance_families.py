"""However a run of any family is arranged, the numbers are those of each prompt alone.

What a prompt alone gives is held to transformers by the golden files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ster.decoder.contract import Decoder
from tests.checkpoints import (
    ALL_FAMILIES,
    Checkpoint,
    make_config,
    write_checkpoint,
)
from tests.conformance.compare import assert_close, precisions, tolerance
from tests.conformance.running import Pieces, cut, open_decoder, read
from tests.conformance.test_invariance import CONFIGS as SHAPES
from tests.conformance.test_invariance import (
    LAYERS,
    NUM_LAYERS,
    PROMPTS,
    TEXTS,
    few,
)
from tests.expert_families import EXPERT_DIFFERENCES
from tests.golden.family_cases import FAMILY_CASES
from tests.golden.quantized_cases import QUANTIZED_CASES

# Every family as it is, those whose angles depend on a prompt's length or a position,
# and of how weights may be packed one each.
BY_LENGTH = ("phi3-longrope", "ministral3")
PACKED = ("q-tied-some", "q-modes", "q-qwen3-moe", "q-gpt-oss", "fp8-qwen3-moe")
CONFIGS = {family: make_config(family) for family in ALL_FAMILIES}
CONFIGS |= {name: FAMILY_CASES[name][0] for name in BY_LENGTH}
CONFIGS |= {
    name: QUANTIZED_CASES[name][0] | {"num_hidden_layers": NUM_LAYERS}
    for name in PACKED
    if name != "q-gpt-oss"
}
CONFIGS["q-gpt-oss"] = QUANTIZED_CASES["q-gpt-oss"][0] | {
    "num_hidden_layers": NUM_LAYERS,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
}
# And the shapes of attention, which the oracle knows.
ALL_CONFIGS = {**SHAPES, **CONFIGS}
# Where two experts are as good, a rounding decides, and at half width that happens.
STEADY = [
    name
    for name, config in CONFIGS.items()
    if config["model_type"] not in EXPERT_DIFFERENCES
]
# Prompts go past the first length on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::ster.SterWarning")
fewer = settings(few, max_examples=12)


@pytest.fixture(scope="module")
def opened(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Decoder[Any]]:
    """Return what opens a decoder of a family, and keeps it for the next example."""

    @cache
    def write(name: str) -> Checkpoint:
        return write_checkpoint(tmp_path_factory.mktemp("family"), ALL_CONFIGS[name])

    @cache
    def open_one(
        name: str, device: str, precision: str, resident: bool
    ) -> Decoder[Any]:
        return open_decoder(write(name), device, precision=precision, keep=resident)

    return open_one


@pytest.fixture(scope="module")
def alone(
    opened: Callable[..., Decoder[Any]],
) -> Callable[[str, tuple[int, ...]], NDArray[np.float64]]:
    """Return what reads a prompt alone on the cpu, and remembers its rows."""

    @cache
    def ask(name: str, prompt: tuple[int, ...]) -> NDArray[np.float64]:
        decoder = opened(name, "cpu", "f32", True)
        rows = read(decoder, [prompt], range(NUM_LAYERS))
        wide: NDArray[np.float64] = rows[0].astype(np.float64)
        return wide

    return ask


@pytest.mark.parametrize("name", CONFIGS)
@fewer
@given(
    prompts=PROMPTS,
    layers=LAYERS,
    wave_size=st.integers(1, 8),
    resident=st.booleans(),
    pairs=st.sampled_from([1, 100, 1000, 100_000]),
)
def test_no_arrangement_of_a_run_changes_a_number(
    alone, opened, device, name, prompts, layers, wave_size, resident, pairs
):
    decoder = Pieces(opened(name, device, "f32", resident), pairs)
    waves = [
        read(decoder, [prompts[i] for i in wave], layers)
        for wave in cut(len(prompts), wave_size)
    ]
    expected = np.stack([alone(name, prompt)[layers] for prompt in prompts])
    rows = np.concatenate(waves)
    assert_close(rows, expected, tolerance(device, "f32"), layers)


@pytest.mark.parametrize("name", ALL_CONFIGS)
def test_streamed_and_resident_weights_give_the_same_bits(opened, device, name):
    prompts = [stem[:length] for stem in TEXTS for length in (1, 20, 33)]
    streamed = read(opened(name, device, "f32", False), prompts, range(NUM_LAYERS))
    resident = opened(name, device, "f32", True)
    for _ in range(2):
        again = read(resident, prompts, range(NUM_LAYERS))
        assert np.array_equal(again, streamed)


@pytest.mark.parametrize("name", ALL_CONFIGS)
def test_a_block_of_which_only_the_last_rows_are_run_gives_the_same_rows(
    opened, device, name
):
    prompts = [stem[:length] for stem in TEXTS for length in (1, 19, 20, 33)]
    decoder = opened(name, device, "f32", True)
    whole = read(decoder, prompts, range(NUM_LAYERS))
    for layer in range(NUM_LAYERS):
        trimmed = read(decoder, prompts, [layer])
        assert_close(trimmed, whole[:, [layer]], tolerance(device, "f32"), [layer])


@pytest.mark.parametrize("name", STEADY)
def test_at_half_width_packed_prompts_are_those_alone(alone, opened, device, name):
    prompts = [tuple(TEXTS[0][:n]) for n in (1, 7, 20, 21, 60)]
    prompts += [tuple(stem[:30]) for stem in TEXTS]
    expected = np.stack([alone(name, prompt) for prompt in prompts])
    for precision in precisions(device)[1:]:
        decoder = opened(name, device, precision, False)
        packed = read(decoder, prompts, range(NUM_LAYERS))
        single = [read(decoder, [prompt], range(NUM_LAYERS)) for prompt in prompts]
        for rows in (packed, np.concatenate(single)):
            assert_close(rows, expected, tolerance(device, precision))
