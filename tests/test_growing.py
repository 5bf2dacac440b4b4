"""Texts that grow together, against each of them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.decoder.numpy import decoder as numpy_decoder
from ster.errors import NumericsError
from ster.runs import growing, loop
from ster.runs.plan import Plan
from ster.runs.sampling import Sampling
from ster.runtime import Runtime
from ster.stream.texts import MIN_STEM
from tests.checkpoints import (
    Config,
    make_config,
    make_tensors,
    random_ids,
    text,
    write_checkpoint,
)
from tests.conformance.running import no_memory_held
from tests.golden.family_cases import FAMILY_CASES
from tests.grown import grow_tokens

CASES: dict[str, Config] = {
    "llama": make_config(),
    "a window": make_config("mistral", sliding_window=7),
    "biases": make_config("qwen2"),
    "dynamic": make_config(
        max_position_embeddings=24,
        rope_scaling={"rope_type": "dynamic", "factor": 4.0},
    ),
    "gemma2": FAMILY_CASES["gemma2"][0],
    "gpt2": FAMILY_CASES["gpt2-by-layer"][0],
    "longrope": FAMILY_CASES["phi3-longrope"][0],
    "gpt_oss": make_config("gpt_oss"),
    "mixtral": make_config("mixtral"),
}
SHARED = random_ids(MIN_STEM + 2, seed=9, vocab_size=50)
PROMPTS = [
    [*SHARED, 5],
    random_ids(3, seed=1, vocab_size=50),
    [*SHARED, 5, 6, 7],
    [*SHARED, 5],
    [8],
    [*SHARED[:4], 3],
]


def make_runtime(folder: Path, config: Config, device: str, **words: Any) -> Runtime:
    made = write_checkpoint(folder / "model", config)
    return ster.load(made.directory, device=device, **words)


def steerings(config: Config) -> list[Mapping[int, Any]]:
    """Return none, and some that part after several layers."""
    top = (
        config["num_hidden_layers" if "num_hidden_layers" in config else "n_layer"] - 1
    )
    size = config["hidden_size" if "hidden_size" in config else "n_embd"]
    draw = np.random.default_rng(3)
    # Gemma's stream is longer.
    scale = 200 if config["model_type"] == "gemma2" else 2
    rows = (scale * draw.standard_normal((3, size))).astype(np.float32)
    return [{}, {0: rows[0]}, {0: rows[0], top: rows[1]}, {top: rows[2]}]


@pytest.mark.parametrize("max_texts", [3, None])
@pytest.mark.parametrize("name", CASES)
def test_a_text_in_company_is_what_it_is_alone(tmp_path, device, name, max_texts):
    config = CASES[name]
    session = make_runtime(tmp_path, config, device)._session
    deltas, count = steerings(config), 9
    limit = session.spec.max_position_embeddings
    prompts = [prompt for prompt in PROMPTS if len(prompt) < limit]
    together = grow_tokens(session, prompts, count, deltas, max_texts=max_texts)
    alone = [
        grow_tokens(session, [prompt], count, [each])[0]
        for prompt in prompts
        for each in deltas
    ]
    assert together == alone
    assert len({tuple(each) for each in together}) > len(prompts)


@pytest.mark.parametrize("precision", ["f16"])
def test_at_half_width_too(tmp_path, device, precision):
    runtime = make_runtime(tmp_path, CASES["llama"], device, precision=precision)
    deltas = steerings(CASES["llama"])[:2]
    together = grow_tokens(runtime._session, PROMPTS, 6, deltas)
    alone = [
        grow_tokens(runtime._session, [prompt], 6, [each])[0]
        for prompt in PROMPTS
        for each in deltas
    ]
    assert together == alone


def test_texts_that_end_leave_and_others_take_their_places(tmp_path, device):
    session = make_runtime(tmp_path, CASES["llama"], device)._session
    deltas = steerings(CASES["llama"])
    whole = grow_tokens(session, PROMPTS, 12, deltas)
    stops = {whole[0][3], whole[5][0], whole[9][6]}
    expected = []
    for tokens in whole:
        at = next((i for i, each in enumerate(tokens) if each in stops), len(tokens))
        expected.append(tokens[:at])
    assert len(set(map(len, expected))) > 3
    for most in (1, 2, 5, None):
        made = grow_tokens(session, PROMPTS, 12, deltas, stop_ids=stops, max_texts=most)
        assert made == expected


def test_each_text_draws_as_if_alone(tmp_path, device):
    session = make_runtime(tmp_path, CASES["llama"], device)._session
    how = Sampling(temperature=1.3, top_p=0.9, seed=5)
    together = grow_tokens(session, PROMPTS, 8, sampling=how)
    assert together == [
        grow_tokens(session, [each], 8, sampling=how)[0] for each in PROMPTS
    ]
    assert together != grow_tokens(session, PROMPTS, 8)


def close_at(monkeypatch: pytest.MonkeyPatch, *steps: int) -> list[tuple[int, int]]:
    """Call the first text's tokens close at some steps of those that have company.

    Returns:
        What happens from now on: how many texts get a token in each step, and how many
        tokens the first of them has then.
    """
    happened: list[tuple[int, int]] = []
    choose = growing.Batch._choose

    def note(batch: Any, hidden: Any, texts: Any) -> Any:
        chosen = choose(batch, hidden, texts)
        happened.append((len(texts), len(texts[0].token_ids)))
        together = [each for each in happened if each[0] > 1]
        if len(texts) > 1 and len(together) - 1 in steps:
            chosen.is_close[0] = True
        return chosen

    monkeypatch.setattr(growing.Batch, "_choose", note)
    return happened


def test_a_token_that_rounding_might_change_is_chosen_alone(tmp_path, monkeypatch):
    session = make_runtime(tmp_path, CASES["llama"], "cpu")._session
    expected = [grow_tokens(session, [each], 5)[0] for each in PROMPTS]
    happened = close_at(monkeypatch, 2)
    assert grow_tokens(session, PROMPTS, 5) == expected
    many = len(PROMPTS)
    together = [(many, 0), (many, 1), (many, 2)]
    alone = [(1, 0), (1, 1), (1, 2)]
    assert happened == [*together, *alone, (many, 3), (many, 4)]


def test_a_text_with_two_such_tokens_stays_alone(tmp_path, monkeypatch):
    session = make_runtime(tmp_path, CASES["llama"], "cpu")._session
    expected = [grow_tokens(session, [each], 5)[0] for each in PROMPTS]
    happened = close_at(monkeypatch, 0, 2)
    assert grow_tokens(session, PROMPTS, 5) == expected
    many = len(PROMPTS)
    first = [(many, 0), (1, 0), (many, 1), (many, 2)]
    alone = [(1, tokens) for tokens in range(5)]
    assert happened == [*first, *alone, (many - 1, 3), (many - 1, 4)]


def test_a_text_whose_tokens_were_others_is_written_anew(tmp_path, monkeypatch):
    """As where rounding is coarser than is thought: its keys are of other tokens."""
    session = make_runtime(tmp_path, CASES["llama"], "cpu")._session
    expected = [grow_tokens(session, [each], 8)[0] for each in PROMPTS]
    happened = close_at(monkeypatch, 3)
    choose = growing.Batch._choose

    def mistake(batch: Any, hidden: Any, texts: Any) -> Any:
        chosen = choose(batch, hidden, texts)
        if len(texts) > 1 and len(texts[0].token_ids) == 1:
            chosen.token_ids[0] = (expected[0][1] + 1) % 50
        return chosen

    monkeypatch.setattr(growing.Batch, "_choose", mistake)
    assert grow_tokens(session, PROMPTS, 8) == expected
    assert (1, 7) in happened  # alone to its end


def test_a_text_that_ends_at_such_a_token_ends(tmp_path, monkeypatch):
    session = make_runtime(tmp_path, CASES["llama"], "cpu")._session
    whole = grow_tokens(session, PROMPTS[:1], 5)[0]
    stops = {whole[1]}
    assert whole[0] not in stops
    expected = [grow_tokens(session, [each], 5, stop_ids=stops)[0] for each in PROMPTS]
    close_at(monkeypatch, 1)
    assert grow_tokens(session, PROMPTS, 5, stop_ids=stops) == expected
    assert expected[0] == whole[:1]


def test_all_tokens_may_be_close(tmp_path, monkeypatch):
    session = make_runtime(tmp_path, CASES["llama"], "cpu")._session
    expected = [grow_tokens(session, [each], 5)[0] for each in PROMPTS]
    begun = []
    choose_alone = growing.Batch._choose_alone

    def begin(batch: Any, grown: Any) -> Any:
        begun.append(grown.number)
        yield from choose_alone(batch, grown)

    monkeypatch.setattr(growing.Batch, "_choose_alone", begin)
    monkeypatch.setattr(numpy_decoder, "CLOSE", 1e9)
    assert grow_tokens(session, PROMPTS, 5) == expected
    assert begun == [*range(len(PROMPTS))] * 2  # and at the second one they stay alone
    begun.clear()
    assert grow_tokens(session, PROMPTS[:1], 5) == expected[:1]
    assert not begun  # it is alone


def test_two_tokens_that_are_as_likely_are_close(tmp_path):
    config = make_config()
    tensors = make_tensors(config)
    tensors["lm_head.weight"][7] = tensors["lm_head.weight"][9]
    made = write_checkpoint(tmp_path / "model", config, tensors=tensors)
    session = ster.load(made.directory)._session
    together = grow_tokens(session, PROMPTS, 20)
    assert together == [grow_tokens(session, [each], 20)[0] for each in PROMPTS]


def test_keys_that_texts_share_are_held_once(tmp_path, device):
    session = make_runtime(tmp_path, CASES["llama"], device)._session
    entered: list[Any] = []

    def watch(decoder: Any) -> None:
        make = decoder.make_caches

        def make_caches(*sizes: int) -> Any:
            caches = make(*sizes)
            enter = caches[0].enter

            def note(keys: Any, values: Any, entering: Any) -> None:
                entered.append(entering)
                enter(keys, values, entering)

            caches[0].enter = note
            return caches

        decoder.make_caches = make_caches

    prompts = [[*SHARED, n] for n in range(10)]
    grow_tokens(session, prompts, 3, watch=watch)
    (entering,) = entered
    assert [each.rows.shape[0] for each in entering.stems] == [len(SHARED)]
    assert tuple(entering.rows.shape) == (10, 1)


def test_blocks_below_the_parting_run_once_for_all_steerings(
    tmp_path, device, monkeypatch
):
    session = make_runtime(tmp_path, CASES["llama"], device)._session
    rows: list[tuple[int, int]] = []
    seen = loop.run_blocks

    def run_blocks(decoder: Any, *words: Any, **more: Any) -> Any:
        parts = words[2]
        rows.extend((part.start, part.stop) for part in parts)
        return seen(decoder, *words, **more)

    monkeypatch.setattr(growing, "run_blocks", run_blocks)
    vector = np.ones(32, np.float32)
    deltas = [{}, {1: vector}, {1: -vector}]
    grow_tokens(session, PROMPTS[:1], 1, deltas)
    assert rows == [(0, 2), (2, 3)]
    rows.clear()
    grow_tokens(session, PROMPTS[:1], 1, [{0: vector}, {0: vector}])
    assert rows == [(0, 3)]


@pytest.mark.filterwarnings("ignore::ster.SterWarning")
def test_little_memory_means_fewer_texts_at_a_time(tmp_path, device, monkeypatch):
    runtime = make_runtime(tmp_path, CASES["llama"], device)
    prompts = [text(each) for each in PROMPTS * 4]
    expected = list(runtime.generate_all(prompts, max_new_tokens=200))
    session = runtime._session
    no_memory_held(monkeypatch, device)

    def plan(prompts: list[list[int]]) -> Plan:
        return session.plan(prompts, 3, head=True, new_tokens=200, repeats=True)

    few, ample = plan(PROMPTS[:2]), plan(PROMPTS * 4)
    assert len(ample.waves) == 1
    memory = (3 * few.peak_bytes + ample.peak_bytes) // 4
    session.choice = replace(session.choice, memory=memory)
    assert len(plan(PROMPTS * 4).waves) > 1
    assert list(runtime.generate_all(prompts, max_new_tokens=200)) == expected


def test_the_answer_whose_scores_are_no_numbers_is_named(tmp_path, device):
    config = make_config()
    tensors = make_tensors(config)
    tensors["model.embed_tokens.weight"][6] = np.inf
    made = write_checkpoint(tmp_path / "model", config, tensors=tensors)
    runtime = ster.load(made.directory, device=device)
    prompts = [text([5]), text([6]), text([7])]
    with pytest.raises(NumericsError, match="not finite") as refused:
        list(runtime.generate_all(prompts, max_new_tokens=3))
    assert refused.value.prompt == 2


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_scores_at_several_strengths_are_those_of_each(tmp_path, device, layer):
    from ster.runs.scoring import plan_scoring

    runtime = make_runtime(tmp_path, CASES["a window"], device)
    session = runtime._session
    texts = [text(each) for each in PROMPTS]
    prompts = [None, None, text([3, 4]), None, text([3]), None]
    responses = session.encoder.encode_responses(texts, prompts)
    draw = np.random.default_rng(0)
    vector = draw.standard_normal(32).astype(np.float32)
    deltas = [{}, {layer: vector}, {layer: -2 * vector, 2: vector}]
    with plan_scoring(session, responses, None, steerings=3).open() as scorer:
        found = scorer.score_all(deltas)
    for each, scores in zip(deltas, found, strict=True):
        for at in (2, 100):
            with plan_scoring(session, responses, at).open() as scorer:
                (alone,) = scorer.score_all([each])
            assert scores == pytest.approx(alone, rel=1e-5, abs=1e-5)
    assert found[0] != pytest.approx(found[1], rel=1e-3)
