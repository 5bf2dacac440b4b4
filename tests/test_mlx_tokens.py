"""What a token costs on MLX: few kernels, and weights that stay in memory."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster.decoder.steerings import Steerings
from ster.runs.growing import grow
from ster.runs.growth import Growth
from ster.runs.inputs import following_inputs
from ster.runs.loop import run_blocks
from ster.runs.sampling import Sampling
from ster.runs.streams import pack_steered
from ster.stream.texts import Entering, Leaving, Texts
from tests.checkpoints import Config, make_config, random_ids, write_checkpoint
from tests.conformance.compare import assert_close
from tests.conformance.running import open_decoder, read
from tests.golden.family_cases import FAMILY_CASES

mx = pytest.importorskip("mlx.core")
from ster.decoder.mlx.fused import fused  # noqa: E402
from ster.decoder.mlx.limits import ProcessLimit, set_wired_limit  # noqa: E402
from ster.decoder.mlx.parts import activated, meeting, plus  # noqa: E402
from ster.decoder.mlx.texts import MLXCache  # noqa: E402

# Primitives that only look at memory in another way.
VIEWS = "Broadcast|Depends|ExpandDims|Flatten|Reshape|Slice|Split|Squeeze|Transpose"
VIEWS += "|Unflatten"
CONFIGS = {
    "plain": make_config(),
    "normed heads": make_config("qwen3"),
    "a wide window": make_config("mistral", sliding_window=64),
}


@pytest.fixture
def as_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything be written down as for a GPU, where norms are one kernel."""
    monkeypatch.setattr(mx, "default_device", lambda: mx.gpu)

    def norm(x: Any, weight: Any, eps: float) -> Any:
        return mx.depends([x], [weight])[0]

    def attend(q: Any, k: Any, v: Any, **how: Any) -> Any:
        return mx.depends([q], [k, v] if how["mask"] is None else [k, v, how["mask"]])[
            0
        ]

    monkeypatch.setattr(mx.fast, "rms_norm", norm)
    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", attend)


def kernels_of_a_token(made: Any, precision: str, folder: Path) -> Counter[str]:
    """Count the kernels of the second block for a token, beside norms and attention."""
    decoder: Any = open_decoder(made, "mlx-cpu", precision=precision, keep=True)
    ids = random_ids(9)
    caches, texts = decoder.make_caches(1, 20), Texts()
    steered, nothing = pack_steered(decoder.spec, [ids]), Steerings(decoder, [{}])
    packed = steered.packed
    parts = steered.parts(
        decoder,
        nothing,
        num_blocks=3,
        top_rows=np.array([8]),
        entering=texts.enter(packed),
    )
    hidden = run_blocks(
        decoder, packed.token_ids, packed.position_ids, parts, caches=caches
    )
    # What the stream leaves in a cache is no work of the token that follows.
    mx.eval(hidden, *(cache.own(1, 9) for cache in caches))
    texts.grow()
    one = following_inputs(decoder, texts)
    hidden = decoder.embed(np.array([5]), texts.positions)
    mx.eval(hidden)
    with decoder.block(1) as block:
        hidden = block(hidden, one(1), caches[1])
    mx.export_to_dot(str(folder / "graph.dot"), hidden)
    names = re.findall(r'label ?="(\w+)"', (folder / "graph.dot").read_text())
    return Counter(name for name in names if not re.fullmatch(VIEWS, name))


@pytest.mark.parametrize(
    ("name", "precision", "most"),
    [
        ("plain", "f32", 10),
        ("plain", "bf16", 16),
        ("normed heads", "bf16", 17),
        ("a wide window", "bf16", 16),
    ],
)
def test_a_block_takes_few_kernels_for_a_token(
    tmp_path: Path, as_gpu, name, precision, most
):
    made = write_checkpoint(tmp_path, CONFIGS[name])
    kernels = kernels_of_a_token(made, precision, tmp_path)
    assert not {"Concatenate", "Gather", "Sigmoid"} & set(kernels)
    assert kernels["Matmul"] == 4
    assert kernels.total() <= most, kernels


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch, mlx: str) -> None:
    """Have steps be compiled, as on a GPU; on a cpu that needs a C++ compiler."""
    monkeypatch.setattr(mx, "default_device", lambda: mx.gpu)
    try:
        with mx.stream(mx.cpu if mlx == "mlx-cpu" else mx.gpu):
            mx.eval(fused(lambda x: x * 2 + 1)(mx.ones(3)))
    except RuntimeError:
        pytest.skip("there is no C++ compiler here")


@pytest.mark.parametrize("width", ["float32", "bfloat16"])
def test_a_step_that_was_compiled_serves_all_shapes(compiling, mlx, width):
    """The first shape it meets is that of a token, whose axes of one hide the rest."""
    draw, at = np.random.default_rng(0), getattr(mx, width)
    with mx.stream(mx.cpu if mlx == "mlx-cpu" else mx.gpu):
        for rows in (1, 5, 1, 40):
            x, y = (mx.array(draw.standard_normal((rows, 24))) for _ in range(2))
            x, y, bias = x.astype(at), y.astype(at), mx.arange(24, dtype=mx.float32)
            wide, other = (np.array(each.astype(mx.float32)) for each in (x, y))
            sigmoid = 1 / (1 + np.exp(-wide))
            for made, expected, dtype in (
                (plus(x, y), wide + other, mx.float32),
                (plus(x, bias), wide + np.arange(24), mx.float32),
                (meeting("silu")(x, y), wide * sigmoid * other, at),
                (activated("silu")(x), wide * sigmoid, at),
            ):
                assert made.dtype == dtype
                near = 1e-5 if dtype == mx.float32 else 2**-8
                found = np.array(made.astype(mx.float32))
                np.testing.assert_allclose(found, expected, rtol=near, atol=1e-6)


DENSE: dict[str, Config] = CONFIGS | {
    name: FAMILY_CASES[name][0] for name in ("gpt2-by-layer", "glm4", "gemma2")
}


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", DENSE)
def test_compiled_steps_give_the_same_rows(
    tmp_path: Path, mlx, name, precision, request
):
    made = write_checkpoint(tmp_path, DENSE[name])
    layers = range(DENSE[name].get("num_hidden_layers", 3))
    layers = range(min(len(layers), 2))
    prompts = [random_ids(n, seed=n) for n in (1, 7, 12)]
    plain = open_decoder(made, mlx, precision=precision, keep=True)
    expected = read(plain, prompts, layers)
    request.getfixturevalue("compiling")
    decoder = open_decoder(made, mlx, precision=precision, keep=True)
    # A sum in one kernel may be rounded once instead of twice.
    near = 1e-5 if precision == "f32" else 2e-2
    assert_close(read(decoder, prompts, layers), expected.astype(np.float64), near)


class TestWhatMetalKeepsInMemory:
    @pytest.fixture
    def metal(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Pretend that there is a Metal which allows 1000 bytes."""
        limits = [7]

        def set_limit(limit: int) -> int:
            limits.append(limit)
            return limits[-2]

        monkeypatch.setattr(mx.metal, "is_available", lambda: True)
        known = {"max_recommended_working_set_size": 1000}
        monkeypatch.setattr(mx, "device_info", lambda device: known)
        monkeypatch.setattr(mx, "set_wired_limit", set_limit)
        return limits

    def test_is_never_more_than_it_allows(self, metal):
        assert set_wired_limit(2000) == 7
        assert metal == [7, 1000]

    def test_is_what_it_was_once_the_last_run_has_ended(self, metal):
        wired = ProcessLimit(set_wired_limit)
        wired.hold(300)
        wired.hold(200)
        wired.widen(400)
        wired.widen(100)
        wired.let_go()
        assert metal[-1] == 400
        wired.let_go()
        assert metal == [7, 300, 300, 400, 7]

    def test_is_not_touched_where_there_is_none(self, monkeypatch):
        def fail(limit: int) -> int:
            raise ValueError("[metal::set_wired_limit] not here")

        monkeypatch.setattr(mx, "set_wired_limit", fail)
        assert set_wired_limit(1) == 0
        monkeypatch.setattr(mx.metal, "is_available", lambda: True)
        monkeypatch.setattr(mx, "device_info", lambda device: {})
        assert set_wired_limit(1) == 0


@pytest.mark.parametrize("keep", [True, False])
def test_nothing_that_a_cache_took_in_waits_for_the_next_token(tmp_path, mlx, keep):
    made = write_checkpoint(tmp_path / "model", make_config())
    decoder: Any = open_decoder(made, mlx, keep=keep)
    shared = random_ids(20)
    growth = Growth(sampling=Sampling(), stop_ids=(), max_new_tokens=2, max_texts=2)
    growth = replace(growth, reading_tokens=99)
    growing = grow(decoder, [([*shared, 3], 0), ([*shared, 4], 0)], [{}], growth)
    next(growing)
    for number, cache in enumerate(decoder._caches):
        assert len(cache.held) == 4  # keys and values, own and of the stem
        for array in cache.held:
            graph = tmp_path / f"{number}.dot"
            mx.export_to_dot(str(graph), array)
            assert "label" not in graph.read_text()


def test_texts_that_leave_do_not_copy_the_cache_for_each_that_moves(mlx):
    cache = MLXCache((2, 8), mx.float32, 64, mx.Device(mx.cpu))
    ids = mx.arange(16 * 2 * 64 * 8).reshape(16, 2, 64, 8).astype(mx.float32)
    rows = mx.arange(16 * 64).reshape(16, 64)
    stream = ids.swapaxes(1, 2).reshape(16 * 64, 2, 8)
    cache.enter(stream, -stream, Entering(stems=(), first=0, rows=rows))
    mx.eval(ids, cache.held)
    held, before = sum(each.nbytes for each in cache.held), mx.get_active_memory()
    mx.reset_peak_memory()
    moves = tuple((15 - text, text) for text in range(6))
    cache.leave(Leaving(order=np.array([]), moves=moves, stems=()))
    mx.eval(cache.held)
    assert mx.get_peak_memory() - before < 2 * held  # as they were, and those moved
    keys, values = cache.own(10, 64)
    order = [*range(15, 9, -1), *range(6, 10)]
    assert mx.array_equal(keys, ids[mx.array(order)])
    assert mx.array_equal(values, -keys)


def test_a_token_is_copied_out_before_the_next_one_is_done(
    tmp_path: Path, mlx, monkeypatch
):
    """What is evaluated with the next token, or after it, would wait for it."""
    made = write_checkpoint(tmp_path / "model", make_config(eos_token_id=None))
    decoder: Any = open_decoder(made, mlx, keep=True)
    evaluate, to_host, begun = mx.async_eval, decoder.to_host, [mx.array(0)]

    def begin(*arrays: Any) -> None:
        begun.extend(arrays)
        evaluate(*arrays)

    def look(chosen: Any) -> Any:
        assert any(each is chosen for each in begun)
        return to_host(chosen)

    monkeypatch.setattr(mx, "async_eval", begin)
    monkeypatch.setattr(decoder, "to_host", look)
    growth = Growth(sampling=Sampling(), stop_ids=(), max_new_tokens=5, max_texts=2)
    grown = list(grow(decoder, [([3, 4], 0), ([5], 0)], [{}], growth))
    assert len(grown) == 10


def test_no_token_is_worked_at_ahead_where_much_would_be_copied(
    tmp_path: Path, mlx, monkeypatch
):
    made = write_checkpoint(tmp_path / "model", make_config(eos_token_id=None))
    growth = Growth(sampling=Sampling(), stop_ids=(), max_new_tokens=3)

    def look() -> list[bool]:
        decoder: Any = open_decoder(made, mlx, keep=True)
        growing = grow(decoder, [([3, 4], 0)], [{}], growth)
        return [decoder.works_ahead for _ in growing]

    assert all(look())
    monkeypatch.setattr("ster.decoder.mlx.decoder.MAX_AHEAD_BYTES", 1 << 10)
    assert not any(look())
