"""Work spread over cores: order, errors, cuts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

from ster.decoder.numpy.threads import GRAIN, Threads, usable_cores
from tests.checkpoints import write_checkpoint


@pytest.fixture(scope="module")
def threads() -> Threads:
    return Threads(3)


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_results_come_in_the_order_of_the_items(threads, count):
    assert threads.map(lambda n: n * n, list(range(count))) == [
        n * n for n in range(count)
    ]


@pytest.mark.parametrize("items", [[5], [1, 5, 2, 6]])
def test_the_first_error_is_raised(threads, items):
    def refuse_large(number):
        if number > 4:
            raise ValueError(f"{number} is too large")

    with pytest.raises(ValueError, match="^5 is too large$"):
        threads.map(refuse_large, items)


def test_several_items_run_side_by_side(threads):
    meeting = threading.Barrier(3)
    threads.map(lambda _: meeting.wait(30), [1, 2, 3])  # breaks if they ran one by one


@pytest.mark.parametrize("items", [[1e30], [1e30, 1e30]])
def test_infinities_make_no_warning(threads, items):
    def compute(value):
        number = np.full(2, value, np.float32)
        beyond, above = number * number, number / np.zeros(2, np.float32)
        return beyond - above

    assert np.isnan(threads.map(compute, items)).all()


def test_runs_that_overlap_leave_blas_its_threads():
    blas = ThreadpoolController().select(user_api="blas")
    before = blas.info()
    first_runs, first_may_end = threading.Event(), threading.Event()

    def first(_: int) -> Any:
        first_runs.set()
        assert first_may_end.wait(30)
        return blas.info()

    with ThreadPoolExecutor(1) as other:
        running = other.submit(Threads(2).map, first, [1, 2])
        assert first_runs.wait(30)

        def second(_: int) -> None:
            first_may_end.set()
            running.result(30)

        Threads(2).map(second, [1, 2])
        for library in running.result(30)[0]:
            assert library["num_threads"] == 1
    assert blas.info() == before


@given(st.integers(1, 5000), st.integers(GRAIN, 700), st.integers(1, 16))
def test_slices_cover_the_rows_in_order_and_are_of_nearly_equal_size(rows, most, cores):
    slices = Threads(cores).slices(rows, most)
    assert slices[0].start == 0
    assert slices[-1].stop == rows
    assert all(a.stop == b.start for a, b in pairwise(slices))
    sizes = [part.stop - part.start for part in slices]
    assert max(sizes) <= most
    assert all(size % GRAIN == 0 for size in sizes[:-1])
    assert max(sizes) - min(sizes) < 2 * GRAIN


@pytest.mark.parametrize(
    ("rows", "parts"), [(0, 1), (1, 1), (127, 1), (128, 2), (1000, 3), (10_000, 21)]
)
def test_few_rows_stay_together_and_many_are_cut(threads, rows, parts):
    """Many are cut into as many slices for each of three threads."""
    assert len(threads.slices(rows, 512)) == parts


def test_the_cores_of_this_process_are_counted():
    assert usable_cores() >= 1
    assert Threads().num_threads == usable_cores()


FORKED = """
import os, signal
import numpy as np
from ster import load
from tests.checkpoints import random_ids, text

runtime = load({model!r})
prompts = [text(random_ids(200, seed=seed)) for seed in range(3)]
before = runtime.activations(prompts).array
if child := os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(60)
os._exit(0 if np.array_equal(runtime.activations(prompts).array, before) else 3)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_has_threads_of_its_own(tmp_path):
    model = str(write_checkpoint(tmp_path / "model").directory)
    code = FORKED.format(model=model)
    root = Path(__file__).parents[1]
    line = [sys.executable, "-W", "ignore", "-c", code]
    assert subprocess.run(line, cwd=root, timeout=90, check=False).returncode == 0
