"""Where something is done to a text, what is done there, and rows that are moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ster.decoder.steerings import Steerings
from ster.stream.changes import Add, Move, Treatments, are_same, changes_of
from ster.stream.where import parse_where
from tests.checkpoints import Checkpoint, make_config, write_checkpoint
from tests.conformance.running import open_decoder

WIDTH = 32
LENGTH = 9
SPANS = {
    # By word, the tokens of a text of nine whose prompt has five, or none.
    "all": ([0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    "prompt": ([0, 1, 2, 3, 4], []),
    "generated": ([5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    "last": ([4], []),
    "2": ([2], [2]),
    "-2": ([3], []),
    "3..": ([3, 4, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8]),
    "-2..": ([3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    "-99..": ([0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    "..-3": ([0, 1], []),
    "1..3": ([1, 2], [1, 2]),
    "-4..-2": ([1, 2], []),
    "1..-1": ([1, 2, 3], []),
    " +1..+3 ": ([1, 2], [1, 2]),
    "40..": ([], []),
}


@pytest.mark.parametrize("words", SPANS)
def test_a_word_means_the_tokens_that_its_page_says(words):
    where = parse_where(words)
    for prompt_length, expected in zip((5, 0), SPANS[words], strict=True):
        start, stop = where.span(prompt_length)
        assert [at for at in range(LENGTH) if start <= at < stop] == expected


def vector(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)


def unit(seed: int) -> Any:
    made = vector(seed)
    return (made / np.linalg.norm(made)).astype(np.float32)


def test_tokens_have_one_number_where_the_same_is_done_to_them():
    everywhere, head = Add(vector=vector(0)), Add(vector=vector(1), where=where("..3"))
    tail = Move(direction=unit(2), slope=-1.0, where=where("generated"))
    steerings: list[Any] = [{}, {1: (head, tail)}, {1: (everywhere,), 2: (tail,)}]
    texts = [(0, 4), (1, 4), (1, 2), (2, 4)]
    treatments = Treatments(steerings, texts)
    numbers = [treatments.of(*text, LENGTH).tolist() for text in texts]
    nothing = numbers[0][0]
    first, then, late = numbers[1][0], numbers[1][3], numbers[1][4]
    assert numbers[0] == [nothing] * LENGTH
    assert numbers[1] == [first] * 3 + [nothing] + [late] * 5
    assert then == nothing
    both = numbers[2][2]  # a generated token among the first three
    assert numbers[2] == [first] * 2 + [both] + [late] * 6
    assert numbers[3][:4] == [numbers[3][0]] * 4
    assert len({nothing, first, late, both, numbers[3][0], numbers[3][4]}) == 6
    for text, each in zip(texts, numbers, strict=True):
        assert [treatments.at(*text, at) for at in range(LENGTH)] == each
        assert treatments.of(*text, LENGTH, 3).tolist() == each[3:]
    done = treatments.deltas
    assert (done[nothing], [*done[both]]) == ({}, [1])
    assert are_same(done[both][1], (Add(vector=vector(1)), tail))
    assert not are_same(done[both][1], (tail, Add(vector=vector(1))))


def where(words: str) -> Any:
    return parse_where(words)


def test_what_is_done_to_all_tokens_needs_no_texts():
    plain: list[Any] = [{}, {1: vector(0)}]
    treatments = Treatments(plain)
    assert treatments.deltas == plain
    assert treatments.of(1, 7, 5).tolist() == [1] * 5


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return write_checkpoint(tmp_path_factory.mktemp("model"), make_config())


MOVES = [
    Move(direction=unit(1), offset=2.0, slope=-1.0, low=0.0),
    Move(direction=unit(2), slope=-0.5, keep_norm=True),
    Move(direction=unit(3), offset=1.5, below=0.1),
    Move(direction=unit(4), offset=-40.0, keep_norm=True, below=-1.0),
]


def moved(row: Any, move: Add | Move) -> Any:
    if isinstance(move, Add):
        return row + move.vector
    direction = np.asarray(move.direction, np.float64)
    along = float(row @ direction)
    if not along < move.below:
        return row
    shift = min(max(move.offset + move.slope * along, move.low), move.high)
    new = row + shift * direction
    if move.keep_norm and shift:
        new = new * (np.linalg.norm(row) / np.linalg.norm(new))
    return new


def test_rows_of_one_stream_are_moved_in_ways_of_their_own(checkpoint, device):
    """Some rows are added to, some moved once or twice, and some left alone."""
    decoder = open_decoder(checkpoint, device, keep=True)
    done: list[Any] = [
        (),
        (Add(vector=vector(9)), MOVES[0]),
        (MOVES[1],),
        (MOVES[2], MOVES[3]),
        (MOVES[3], Add(vector=vector(8))),
        vector(7),
    ]
    steerings = Steerings(decoder, [{1: each} for each in done])
    which = np.random.default_rng(0).integers(0, len(done), 1500)
    rows = np.random.default_rng(1).standard_normal((1500, WIDTH)).astype(np.float32)
    hidden = decoder.vectors(np.array(rows, order="F"))
    after = steerings.of(which).add(decoder, hidden, 1)
    found = decoder.rows(after, np.arange(1500))
    expected = rows.astype(np.float64)
    for number, row in enumerate(expected):
        for change in changes_of(done[which[number]]):
            row = moved(row, change)
        expected[number] = row
    assert np.abs(found - expected).max() < 2e-5
    alone = which == 0
    assert (found[alone] == rows[alone]).all()


def test_a_move_waits_for_its_block_and_asks_the_host_nothing(
    checkpoint, mlx, monkeypatch
):
    import mlx.core as mx

    decoder = open_decoder(checkpoint, mlx, keep=True)
    steerings = Steerings(decoder, [{1: (each,)} for each in MOVES])
    hidden = decoder.vectors(np.ones((8, WIDTH), np.float32))
    steering = steerings.of(np.arange(8) % len(MOVES))
    mx.eval(hidden)
    with monkeypatch.context() as patch:
        for name in ("eval", "async_eval"):
            patch.setattr(mx, name, None)
        hidden = steering.add(decoder, hidden, 1)
    assert decoder.rows(hidden, np.arange(8)).shape == (8, WIDTH)


def test_a_row_of_nothing_keeps_its_length(checkpoint, device):
    decoder = open_decoder(checkpoint, device, keep=True)
    gone = Move(direction=unit(1), slope=-1.0, keep_norm=True)
    steerings = Steerings(decoder, [{0: (gone,)}])
    rows = np.stack([np.zeros(WIDTH, np.float32), unit(2)])
    hidden = steerings.of(np.zeros(2, np.int64)).add(decoder, decoder.vectors(rows), 0)
    found = decoder.rows(hidden, np.arange(2))
    assert not found[0].any()
    assert np.linalg.norm(found[1]) == pytest.approx(1, rel=1e-6)
    assert abs(found[1] @ gone.direction) < 1e-6
