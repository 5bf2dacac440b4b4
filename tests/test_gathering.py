"""Rows of several waves in one array."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import ster
from ster.runs.gathering import Gathering
from ster.runs.reading import Reading
from ster.runs.rows import WantedRows
from tests.checkpoints import random_ids, text, write_checkpoint
from tests.conformance.running import force_waves

ROWS = np.arange(7 * 3 * 1000, dtype=np.float32).reshape(7, 3, 1000)


class Stub:
    """A reading of seven prompts, one row each."""

    wanted = WantedRows(positions=[[0]] * 7)


def gather(*cuts: slice) -> Gathering:
    gathering = Gathering(cast(Reading, Stub()))
    for cut in cuts:
        gathering.add([ROWS[cut], -ROWS[cut]])
    return gathering


@pytest.mark.parametrize("at", [(2,), (1, 2, 6), ()])
def test_waves_of_any_size_make_the_same_array(at: tuple[int, ...]):
    ends = [0, *at, 7]
    cuts = [slice(a, b) for a, b in pairwise(ends)]
    one, other = gather(*cuts).arrays()
    assert np.array_equal(one, ROWS)
    assert np.array_equal(other, -ROWS)


def test_rows_so_far_keep_no_room_for_the_others():
    one, _ = gather(slice(0, 2), slice(2, 3)).arrays()
    assert np.array_equal(one, ROWS[:3])
    assert one.base is None


def test_rows_are_never_there_twice():
    waves = [np.ones((1, 3, 100_000), np.float32) for _ in range(7)]
    gathering = Gathering(cast(Reading, Stub()))
    tracemalloc.start()
    for each in waves:
        gathering.add([each])
    (whole,) = gathering.arrays()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.1 * whole.nbytes


def test_several_waves_are_read_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = write_checkpoint(tmp_path)
    prompts = [text(random_ids(4, seed=each)) for each in range(6)]
    pairs = ster.PairSet.of([*zip(prompts[::2], prompts[1::2], strict=True)])

    def read() -> tuple[Any, Any]:
        runtime = ster.load(str(made))
        found = runtime.activations(prompts, tokens="all", points="mlp_out,resid_post")
        return found, runtime.train(pairs)

    alone, trained = read()
    force_waves(monkeypatch, 2)
    cut, again = read()
    for one, other in (
        (alone.array, cut.array),
        (alone.others["resid_post"], cut.others["resid_post"]),
        (trained.array, again.array),
    ):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=1e-5)
