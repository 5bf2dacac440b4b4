"""Rows at any token: each is what that token has in a prompt that ends with it."""

from __future__ import annotations

import json
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster import Activations, SterWarning, load
from ster.errors import PromptError, UsageError
from ster.runs.wave import read_rows
from tests.checkpoints import random_ids, text, word_tokenizer, write_checkpoint

LENGTHS = (5, 1, 9, 5)
IDS = [random_ids(length, seed=length) for length in LENGTHS]
PROMPTS = [*map(text, IDS)]
TEMPLATE = (
    "<s>{% for m in messages %}{{ 'w3 ' if m.role == 'user' else 'w4 ' }}"
    "{{ m.content }} w5 {% endfor %}{% if add_generation_prompt %}w4 {% endif %}"
)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Llama without template, whose tokenizer puts a BOS before a text."""
    directory = write_checkpoint(tmp_path_factory.mktemp("raw")).directory
    word_tokenizer(60, adds_bos=True).save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same with a template."""
    directory = write_checkpoint(tmp_path_factory.mktemp("chat")).directory
    config = {"chat_template": TEMPLATE, "bos_token": "<s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def close(got: np.ndarray, expected: np.ndarray) -> None:
    """Hold rows to 1e-5 of the largest value of their layer."""
    largest = np.abs(expected).max(axis=(0, 2), keepdims=True)
    assert got.shape == expected.shape
    assert (np.abs(got - expected) <= 1e-5 * largest).all()


def rows_of(read: Activations, prompt: int) -> np.ndarray:
    rows: np.ndarray = read.array[read.prompt_index == prompt]
    return rows


def test_all_rows_are_the_last_rows_of_all_beginnings(raw, device):
    runtime = load(raw, device=device)
    read = runtime.activations(PROMPTS, tokens="all")
    assert read.array.shape == (sum(LENGTHS) + 4, 3, 32)
    assert len(read) == len(read.array)
    assert read.prompts == tuple(PROMPTS)
    for number, ids in enumerate(IDS):
        rows = rows_of(read, number)
        stems = [text(ids[: end + 1]) for end in range(len(ids))]
        close(rows[1:], runtime.activations(stems).array)
    assert read.tokens is not None
    assert read.tokens.position.tolist() == [
        place for length in LENGTHS for place in range(length + 1)
    ]
    assert read.tokens.token_id.tolist() == [id for ids in IDS for id in (1, *ids)]
    assert read.tokens.text[:3] == ("<s>", f"w{IDS[0][0]}", f"w{IDS[0][1]}")
    # The beginning of the sequence is the tokenizer's, not the text's.
    assert read.tokens.in_template.sum() == 4
    assert read.tokens.num_bos.tolist() == [1] * 4
    assert read.tokens.num_tokens.tolist() == [length + 1 for length in LENGTHS]


def test_the_last_row_alone_has_the_bits_that_it_has_among_all(raw, device):
    runtime = load(raw, device=device)
    last, every = (
        runtime.activations(PROMPTS),
        runtime.activations(PROMPTS, tokens="all"),
    )
    ends = np.cumsum(every.tokens.num_tokens) - 1  # type: ignore[union-attr]
    below = slice(0, -1)  # the top layer has other rows, so other products
    assert np.array_equal(last.array[:, below], every.array[ends][:, below])
    close(last.array, every.array[ends])
    assert last.read == "last"
    assert last.tokens is not None
    assert last.tokens.position.tolist() == [*LENGTHS]


def test_the_mean_is_that_of_the_texts_own_rows(raw, device):
    runtime = load(raw, device=device)
    every, mean = (
        runtime.activations(PROMPTS, tokens=each) for each in ("all", "mean")
    )
    expected = [
        rows_of(every, number)[1:].astype(np.float64).mean(axis=0)
        for number in range(4)
    ]
    close(mean.array, np.array(expected))
    assert mean.tokens is not None
    assert mean.tokens.position.tolist() == [-1] * 4
    assert mean.tokens.text == tuple(f"mean of {length} tokens" for length in LENGTHS)


def test_text_and_mean_leave_the_template_out(chat, device):
    runtime = load(chat, device=device)
    every = runtime.activations(PROMPTS, tokens="all")
    for number, length in enumerate(LENGTHS):
        own = rows_of(every, number)[2 : 2 + length]
        end = runtime.activations([PROMPTS[number]], tokens="text")
        close(end.array, own[-1:])
        assert end.tokens is not None
        assert end.tokens.token_id.tolist() == [IDS[number][-1]]
        assert not end.tokens.in_template.any()
        mean = runtime.activations([PROMPTS[number]], tokens="mean")
        close(mean.array, own.astype(np.float64).mean(axis=0)[None])
    last = runtime.activations(PROMPTS)
    assert last.tokens is not None
    assert last.tokens.text == ("w4",) * 4
    assert last.tokens.in_template.all()


def test_chosen_tokens_are_the_same_rows(raw, device):
    runtime = load(raw, device=device)
    every = runtime.activations(PROMPTS, layers=[0, 2], tokens="all")
    some = runtime.activations(PROMPTS, layers=[0, 2], tokens=[0, -1])
    starts = np.cumsum([0, *every.tokens.num_tokens[:-1]])  # type: ignore[union-attr]
    ends = np.cumsum(every.tokens.num_tokens) - 1  # type: ignore[union-attr]
    close(some.array, every.array[np.stack([starts, ends], axis=1).ravel()])
    word = f"w{IDS[2][3]}"

    def such(tokens: Any) -> list[bool]:
        return [each == word for each in tokens.text]

    found = runtime.activations([PROMPTS[2]], layers=[0, 2], tokens=such)
    close(found.array, rows_of(every, 2)[[4]])
    assert found.read == "chosen by such"


def test_an_answer_is_read_after_its_prompt(chat, device):
    runtime = load(chat, device=device)
    asked, answer = PROMPTS[0], PROMPTS[1]
    ends = [runtime.show(answer, role="assistant", asked=asked, tokens="text")]
    assert ends[0].tokens.text[ends[0].is_read.argmax()] == f"w{IDS[1][0]}"
    read = runtime.activations([answer], role="assistant", asked=[asked], tokens="all")
    alone = runtime.activations([answer], role="assistant")
    assert read.tokens is not None
    assert read.tokens.text == tuple(f"<s> w3 {asked} w5 w4 {answer} w5".split())
    assert not np.array_equal(alone.array, read.array[-1:])


def test_a_role_or_what_is_asked_must_fit(chat):
    runtime = load(chat)
    with pytest.raises(UsageError, match='unknown role "system"'):
        runtime.activations(PROMPTS, role="system")
    with pytest.raises(PromptError, match="asked has 1 value for 4 prompts"):
        runtime.activations(PROMPTS, asked=["w3"])


def test_equal_prompts_and_shared_beginnings_each_have_their_rows(raw, device):
    runtime = load(raw, device=device)
    ids = random_ids(6, seed=1)
    prompts = [text(ids), text(ids[:3]), text(ids), text([*ids[:3], 9])]
    together = runtime.activations(prompts, tokens="all")
    for number, prompt in enumerate(prompts):
        alone = runtime.activations([prompt], tokens="all")
        close(rows_of(together, number), alone.array)


def test_waves_of_any_size_give_the_same_rows(raw, device, monkeypatch):
    runtime = load(raw, device=device)
    for tokens in ("all", "mean"):
        whole = runtime.activations(PROMPTS, tokens=tokens)
        with monkeypatch.context() as patch:
            patch.setattr("ster.runs.plan.WAVE_TOKENS", 4)
            small = load(raw, device=device).activations(PROMPTS, tokens=tokens)
        close(small.array, whole.array)
        assert small.tokens is not None
        assert small.tokens.text == whole.tokens.text  # type: ignore[union-attr]


def test_rows_that_are_held_at_once_are_few_where_blocks_stay(raw, monkeypatch):
    """Whatever the number of prompts, or reading all tokens would fill the memory."""
    notes: list[range] = []
    runtime = load(raw)
    monkeypatch.setattr("ster.runs.plan.MAX_ROW_BYTES", 60 * 5 * 4 * 32)
    reading = runtime.activations

    def watched(*arguments: Any, **named: Any) -> Any:
        (rows,) = read_rows(*arguments, **named)
        notes.append(range(len(rows)))
        return [rows]

    monkeypatch.setattr("ster.runs.reading.read_rows", watched)
    prompts = [text(random_ids(9, seed=seed)) for seed in range(40)]
    assert len(reading(prompts, tokens="all")) == 400
    assert max(map(len, notes)) <= 60
    assert len(notes) >= 7


def test_an_index_that_a_prompt_lacks_is_refused_before_weights(raw, monkeypatch):
    monkeypatch.setattr(
        "ster.runs.session.open_weights",
        lambda *_: pytest.fail("weights were opened"),
    )
    with pytest.raises(PromptError, match="prompt 2 has 2 tokens, so there is no"):
        load(raw).activations(PROMPTS, tokens=[2])


def test_interrupted_readings_keep_the_finished_waves_where_asked(raw, monkeypatch):
    monkeypatch.setattr("ster.runs.plan.WAVE_TOKENS", 6)
    calls = iter(range(99))

    def stopped(*arguments: Any, **named: Any) -> Any:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return read_rows(*arguments, **named)

    expected = load(raw).activations(PROMPTS[:2], tokens="all")
    monkeypatch.setattr("ster.runs.reading.read_rows", stopped)
    runtime = load(raw)
    with pytest.warns(SterWarning, match="stopped: kept 2 of 4 prompts"):
        kept = runtime.activations(PROMPTS, tokens="all", on_interrupt="keep")
    assert kept.prompts == tuple(PROMPTS[:2])
    close(kept.array, expected.array)
    calls = iter(range(99))
    with pytest.raises(KeyboardInterrupt):
        runtime.activations(PROMPTS, tokens="all")
    calls = iter(range(1, 99))
    with pytest.raises(KeyboardInterrupt):  # nothing was finished
        runtime.activations(PROMPTS, tokens="all", on_interrupt="keep")
    with pytest.raises(UsageError, match="expected raise or keep"):
        runtime.activations(PROMPTS, on_interrupt="stop")


def test_a_slice_of_activations_knows_its_tokens(raw):
    read = load(raw).activations(PROMPTS, tokens="all")
    part = read[4:9]
    assert part.prompts == tuple(PROMPTS[:3])
    assert part.tokens is not None
    assert part.tokens.prompt_index.tolist() == [0, 0, 1, 1, 2]
    assert part.tokens.position.tolist() == [4, 5, 0, 1, 0]
    assert np.array_equal(part.array, read.array[4:9])
    assert np.array_equal(read[-1], read.array[-1])
    backwards = read[::-1]
    assert backwards.prompts == tuple(reversed(PROMPTS))
    assert all(a >= b for a, b in pairwise(read.prompt_index[::-1]))
    with pytest.raises(IndexError, match="no rows"):
        read[:0]


def test_a_text_can_be_looked_at(chat):
    shown = load(chat).show("w7 w8", tokens="text")
    assert repr(shown) == (
        "6 tokens, 2 of them the text's own, 1 BOS; chat template applied; "
        "▸ read at tokens text\n"
        "  position id text  from\n"
        "         0  1 '<s>' template\n"
        "         1  3 'w3'  template\n"
        "         2  7 'w7'  text\n"
        "▸        3  8 'w8'  text\n"
        "         4  5 'w5'  template\n"
        "         5  4 'w4'  template"
    )


def test_a_long_text_is_cut_in_the_middle(raw):
    shown = load(raw).show(text(random_ids(300)))
    lines = repr(shown).splitlines()
    assert len(lines) == 63
    assert len(shown) == 301
    assert "…" in lines[32]
    assert lines[-1].startswith("▸")


def test_a_waves_rows_are_gone_when_the_next_wave_has_its_own(
    raw, tmp_path, monkeypatch
):
    """Or a document of all tokens would take the memory of two waves."""
    monkeypatch.setattr("ster.runs.plan.WAVE_TOKENS", 6)
    earlier: list[weakref.ref[np.ndarray]] = []

    def watched(*arguments: Any, **named: Any) -> Any:
        assert [ref() for ref in earlier] == [None] * len(earlier)
        arrays = read_rows(*arguments, **named)
        # Arrays made from this one hold it too.
        base = arrays[0] if arrays[0].base is None else arrays[0].base
        earlier.append(weakref.ref(base))
        return arrays

    monkeypatch.setattr("ster.runs.reading.read_rows", watched)
    runtime = load(raw)
    runtime.write_activations(PROMPTS, tmp_path / "all.npz", tokens="all")
    assert len(earlier) >= 3
