"""However a run is arranged, the numbers are those of each prompt alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ster
from ster.decoder.contract import Decoder
from ster.decoder.numpy import attention, block, decoder, parts, scratch, weights
from tests.checkpoints import (
    Checkpoint,
    Config,
    as_stored,
    make_config,
    make_tensors,
    random_ids,
    text,
    write_checkpoint,
)
from tests.conformance.compare import (
    assert_close,
    precisions,
    tolerance,
)
from tests.conformance.running import Pieces, cut, open_decoder, read
from tests.reference import exact, last_rows

NUM_LAYERS = 3
CONFIGS: dict[str, Config] = {
    "plain": make_config(),
    "windows in some layers": make_config(
        "qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    "a theta for each length": make_config(
        max_position_embeddings=8, rope_scaling={"type": "dynamic", "factor": 2.0}
    ),
    "normed heads and a narrow window": make_config(
        "qwen3", use_sliding_window=True, sliding_window=2, max_window_layers=0
    ),
}
# A prompt's tokens are cut from one of few texts, so that most sets share prefixes.
TEXTS = [random_ids(60, seed=seed) for seed in range(3)]
TEXTS.append(TEXTS[0][:20] + random_ids(40, seed=9))
PROMPTS = st.lists(
    st.builds(
        lambda stem, cut, tail: (*TEXTS[stem][:cut], *tail),
        st.integers(0, len(TEXTS) - 1),
        st.integers(1, 60),
        st.lists(st.integers(3, 5), max_size=3),
    ),
    min_size=1,
    max_size=8,
)
LAYERS = st.sets(st.integers(0, NUM_LAYERS - 1), min_size=1).map(sorted)
few = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    return {
        name: write_checkpoint(tmp_path_factory.mktemp("checkpoint"), config)
        for name, config in CONFIGS.items()
    }


@pytest.fixture(scope="module")
def truth(
    checkpoints: dict[str, Checkpoint],
) -> Callable[[str, tuple[int, ...]], NDArray[np.float64]]:
    """Return what asks the oracle for a prompt's rows, and remembers them."""

    @cache
    def ask(name: str, prompt: tuple[int, ...]) -> NDArray[np.float64]:
        made = checkpoints[name]
        return last_rows(made.config, made.tensors, prompt)

    return ask


@pytest.fixture(scope="module")
def opened(checkpoints: dict[str, Checkpoint]) -> Callable[..., Decoder[Any]]:
    """Return what opens a decoder, and keeps it for the next example."""

    @cache
    def open_one(
        name: str, device: str, precision: str, resident: bool
    ) -> Decoder[Any]:
        made = checkpoints[name]
        return open_decoder(made, device, precision=precision, keep=resident)

    return open_one


@pytest.mark.parametrize("name", CONFIGS)
@few
@given(
    prompts=PROMPTS,
    layers=LAYERS,
    wave_size=st.integers(1, 8),
    resident=st.booleans(),
    pairs=st.sampled_from([1, 100, 1000, 100_000]),
    data=st.data(),
)
def test_no_arrangement_of_a_run_changes_a_number(
    truth, opened, device, name, prompts, layers, wave_size, resident, pairs, data
):
    order = data.draw(st.permutations(range(len(prompts))))
    shuffled = [prompts[index] for index in order]
    decoder = Pieces(opened(name, device, "f32", resident), pairs)
    waves = [
        read(decoder, [shuffled[i] for i in wave], layers)
        for wave in cut(len(shuffled), wave_size)
    ]
    expected = np.stack([truth(name, prompt)[layers] for prompt in shuffled])
    rows = np.concatenate(waves)
    assert_close(rows, expected, tolerance(device, "f32"), layers)


@pytest.mark.parametrize("name", CONFIGS)
def test_at_half_width_packed_prompts_are_those_alone(truth, opened, device, name):
    prompts = [tuple(TEXTS[0][:n]) for n in (1, 7, 20, 21, 60)]
    prompts += [tuple(stem[:30]) for stem in TEXTS]
    expected = np.stack([truth(name, prompt) for prompt in prompts])
    for precision in precisions(device)[1:]:
        decoder = opened(name, device, precision, False)
        packed = read(decoder, prompts, range(NUM_LAYERS))
        alone = [read(decoder, [prompt], range(NUM_LAYERS)) for prompt in prompts]
        for rows in (packed, np.concatenate(alone)):
            assert_close(rows, expected, tolerance(device, precision))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_at_half_width_rounds_where_it_says_and_nowhere_else(
    checkpoints, opened, device, name
):
    """Weights, inputs of products, keys and values are half as wide, and all else not.

    So is what a product makes where MLX's kernels make it.
    """
    made, stems = checkpoints[name], [stem[:6] for stem in TEXTS]
    for precision in precisions(device)[1:]:
        narrow = partial(at_width, precision)
        native = exact if device == "cpu" else narrow
        expected = np.stack(
            [
                last_rows(made.config, made.tensors, stem, narrow, made=native)
                for stem in stems
            ]
        )
        rows = read(opened(name, device, precision, True), stems, range(NUM_LAYERS))
        close = np.abs(rows - expected) <= 1e-6 * np.abs(expected).max((0, 2))[:, None]
        # A last bit may fall the other way, and then what follows from it: 0.27 of the
        # last layer and more stay, whatever the BLAS. One rounding too many or too few
        # leaves no more than a fiftieth of any layer where it was.
        share = close.mean(axis=(0, 2))
        assert share[0] > 0.7, share
        assert share[-1] > 0.1, share


def at_width(precision: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return as_stored(x.astype(np.float32), precision).astype(np.float64)


@few
@given(prompts=PROMPTS, layers=LAYERS)
def test_the_same_run_gives_the_same_bits(opened, device, prompts, layers):
    decoder = opened("plain", device, "f32", False)
    first = read(decoder, prompts, layers)
    assert np.array_equal(read(decoder, prompts, layers), first)


@pytest.mark.parametrize("factor", [1.0, 20.0, 150.0])
def test_scores_of_hundreds_neither_overflow_nor_vanish(tmp_path, device, factor):
    """exp() ends at 88; some rows' scores all lie as far below as others' above."""
    config = make_config()
    tensors = make_tensors(config)
    tensors["model.layers.0.self_attn.q_proj.weight"] *= np.float32(factor)
    made = write_checkpoint(tmp_path, config, tensors=tensors)
    expected = np.stack([last_rows(config, tensors, stem) for stem in TEXTS])
    decoder = open_decoder(made, device, keep=True)
    rows = read(decoder, TEXTS, range(NUM_LAYERS))
    assert_close(rows, expected, tolerance(device, "f32"))


def test_a_later_token_changes_no_earlier_row(opened, device):
    """Rows of a prefix, read while longer prompts are in the stream, and alone."""
    stem = TEXTS[1][:12]
    decoder = opened("plain", device, "f32", True)
    alone = read(decoder, [stem], range(NUM_LAYERS))
    among = [
        read(decoder, [stem, [*stem, token]], range(NUM_LAYERS)) for token in (3, 9)
    ]
    for rows in among:
        assert_close(rows[:1], alone, tolerance(device, "f32"))
    assert np.abs(among[0][1] - among[1][1]).max() > 0.1


@pytest.mark.parametrize(
    ("family", "dtype", "precision"),
    [
        ("llama", "f32", "f16"),
        ("llama", "bf16", "f32"),
        ("qwen2", "f16", "f16"),
        ("qwen3", "bf16", "f16"),
        ("qwen3", "f32", "f32"),
    ],
)
def test_nothing_in_a_block_is_float64_by_accident(
    tmp_path: Path, family: str, dtype: str, precision: str
):
    parameters = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}
    config = make_config(family, rope_theta=..., rope_parameters=parameters)
    write_checkpoint(tmp_path, config, dtype=dtype)
    runtime = ster.load(tmp_path, precision=precision)
    prompts = [text(stem[:length]) for stem in TEXTS for length in (1, 20, 60)]
    seen: set[str] = set()
    wide: set[str] = set()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "return":
            for name, value in [*frame.f_locals.items(), ("the result", argument)]:
                if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                    place = f"{frame.f_code.co_qualname}: {name}"
                    seen.add(place)
                    if value.dtype == np.float64:
                        wide.add(place)
        return trace

    modules = (attention, block, decoder, parts, scratch, weights)
    files = {module.__file__ for module in modules}
    before = sys.gettrace()
    sys.settrace(trace)
    threading.settrace(trace)
    try:
        rows = runtime.activations(prompts).array
    finally:
        sys.settrace(before)
        threading.settrace(before)
    assert wide == set()
    assert {"attend: scores", "RMSNorm.__call__: normed", "silu: divisor"} <= seen
    assert rows.dtype == np.float32


@pytest.mark.parametrize("name", CONFIGS)
def test_rotary_tables_are_float32(opened, name):
    brought: list[Any] = []
    decoder = opened(name, "cpu", "f32", True)

    class Listening(Pieces):
        def bring_rotary(self, tables: Any) -> Any:
            brought.append(decoder.bring_rotary(tables))
            return brought[-1]

    read(Listening(decoder, 1000), TEXTS, [NUM_LAYERS - 1])
    dtypes = {array.dtype for each in brought for array in (each.cos, each.sin)}
    assert dtypes == {np.dtype(np.float32)}
