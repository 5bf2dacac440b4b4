"""Ways to apply a vector, and places: against plain numpy, alone and in company."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster import Intervention, SteeringVector
from ster.errors import DirectionError, LayerError, SterError, UsageError
from ster.runs.reading import ReadingChoice, plan_reading
from ster.runs.scoring import plan_scoring
from ster.runs.writing import plan_writing
from ster.vectors.applying import HOWS as OFFERED
from ster.workflows.steering import sum_deltas
from tests.checkpoints import (
    Checkpoint,
    make_config,
    random_ids,
    text,
    write_checkpoint,
)
from tests.conformance.compare import assert_close, tolerance
from tests.intervened import HOWS, applied
from tests.reference import F64, log_probability, logits, residuals

LAYER, WIDTH = 1, 32
SHARED = random_ids(7, seed=5)
PROMPTS = [[*SHARED, 4], [*SHARED, 4, 9, 8], [11], [*SHARED[:3], 30]]
ANSWERS = [[5, 6, 7], [12], [20, 21, 22, 23], [5, 6]]
VECTOR = (0.5 * np.random.default_rng(4).standard_normal(WIDTH)).astype(np.float32)
# Where the rows of these prompts lie along it: some less far, and some farther.
STRENGTHS = {"clamp": 0.05, "at-least": 0.05, "at-most": -0.05, "remove": 0.75}
# By word, the tokens of a text that it means: its prompt's tokens, and all its tokens.
PLACES: Mapping[str, Callable[[int, int], Sequence[int]]] = {
    "all": lambda prompt, length: range(length),
    "prompt": lambda prompt, length: range(prompt),
    "generated": lambda prompt, length: range(prompt, length),
    "last": lambda prompt, length: [prompt - 1],
    "2..": lambda prompt, length: range(2, length),
    "..-1": lambda prompt, length: range(prompt - 1),
    "-3..": lambda prompt, length: range(max(prompt - 3, 0), length),
    "1..4": lambda prompt, length: range(1, min(length, 4)),
    "0": lambda prompt, length: [0],
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return write_checkpoint(tmp_path_factory.mktemp("model"), make_config())


def load(checkpoint: Checkpoint, device: str) -> ster.Runtime:
    return ster.load(checkpoint.directory, device=device)


def vector_of(
    runtime: ster.Runtime, layers: Sequence[int] = (LAYER,), **facts: Any
) -> SteeringVector:
    array = np.stack([VECTOR * (1 + layer) for layer in range(len(layers))])
    return SteeringVector.of(array, layers=layers, model=runtime.model, **facts)


def strength_of(how: str) -> float:
    return STRENGTHS.get(how, 1.5)


def ways_of(how: str) -> dict[str, Any]:
    return {"how": how, "below": 0.02} if how == "add-below" else {"how": how}


def oracle(how: str, **words: Any) -> Callable[[F64], F64]:
    return applied(VECTOR, how, strength_of(how), below=0.02, **words)


def test_all_ways_are_tested():
    assert OFFERED == HOWS


@pytest.mark.parametrize("keep_norm", [False, True])
@pytest.mark.parametrize("how", HOWS)
def test_a_way_is_its_formula(checkpoint, device, how, keep_norm):
    runtime = load(checkpoint, device)
    steer = Intervention(
        vector_of(runtime), strength_of(how), keep_norm=keep_norm, **ways_of(how)
    )
    found = runtime.activations(
        [text(ids) for ids in PROMPTS], tokens="all", steer=steer
    )
    apply = oracle(how, keep_norm=keep_norm)
    config, tensors = checkpoint.config, checkpoint.tensors
    whole, untouched = (
        np.concatenate(
            [
                residuals(config, tensors, ids, steering=steering).swapaxes(0, 1)
                for ids in PROMPTS
            ]
        )
        for steering in ({LAYER: apply}, {})
    )
    assert_close(found.array, whole, tolerance(device, "f32"))
    assert np.abs(whole[:, 2] - untouched[:, 2]).max() > 0.05  # it does something
    if how in ("clamp", "at-least", "at-most", "add-below"):  # and not to all rows
        p = untouched[:, LAYER] @ (VECTOR / np.linalg.norm(VECTOR))
        same = np.isclose(apply(untouched[:, LAYER]), untouched[:, LAYER]).all(axis=1)
        assert 0 < same.sum() < len(same), p


# Alone, a prompt of one token has none before its last.
@pytest.mark.filterwarnings("ignore:where ..-1 means no token")
@pytest.mark.parametrize("how", ["add", "remove"])
@pytest.mark.parametrize("where", PLACES)
def test_texts_are_written_as_if_alone_and_anew_for_each_token(
    checkpoint, device, how, where
):
    runtime = load(checkpoint, device)
    steer = Intervention(vector_of(runtime), 3.0, how=how, where=where)
    found = [
        answer.token_ids
        for answer in runtime.answers(
            [text(ids) for ids in PROMPTS], steer=steer, max_new_tokens=5
        )
    ]
    for ids, made in zip(PROMPTS, found, strict=True):
        assert [*made] == greedy(checkpoint, ids, how, where, len(made))
        alone = runtime.answers([text(ids)], steer=steer, max_new_tokens=5)
        assert next(alone).token_ids == made


@pytest.mark.parametrize(
    "config",
    [
        make_config("mistral", sliding_window=4),
        make_config(
            max_position_embeddings=12,
            rope_scaling={"rope_type": "dynamic", "factor": 4.0},
        ),
    ],
    ids=["a window", "dynamic"],
)
def test_texts_in_company_are_what_they_are_alone(tmp_path, device, config):
    runtime = load(write_checkpoint(tmp_path, config), device)
    vector, prompts = vector_of(runtime), [text(ids) for ids in PROMPTS]
    steer = [
        Intervention(vector, 3.0, how="at-least", where="-2.."),
        Intervention(vector, 3.0, layers=0, where="generated", keep_norm=True),
    ]
    many = runtime.answers(prompts, steer=steer, strengths=[1, 2], max_new_tokens=8)
    for each in many:
        alone = runtime.answers(
            [each.prompt], steer=steer, strengths=[each.strength or 0], max_new_tokens=8
        )
        assert next(alone).token_ids == each.token_ids


def greedy(
    checkpoint: Checkpoint, ids: Sequence[int], how: str, where: str, count: int
) -> list[int]:
    made: list[int] = []
    for _ in range(count):
        whole = [*ids, *made]
        places = PLACES[where](len(ids), len(whole))
        steering = {LAYER: applied(VECTOR, how, 3.0, places=places)}
        scores = logits(checkpoint.config, checkpoint.tensors, whole, steering)
        made.append(int(scores[-1].argmax()))
    return made


@pytest.mark.parametrize("where", PLACES)
def test_responses_are_scored_where_their_prompts_end(checkpoint, device, where):
    runtime = load(checkpoint, device)
    steer = Intervention(vector_of(runtime), -2.0, how="replace", where=where)
    texts = [text(ids) for ids in ANSWERS]
    asked = [text(ids) for ids in PROMPTS]
    found = runtime.score_responses(texts, prompts=asked, steer=steer)
    config, tensors = checkpoint.config, checkpoint.tensors
    expected = []
    for prompt, answer in zip(PROMPTS, ANSWERS, strict=True):
        whole = [*prompt, *answer]
        places = PLACES[where](len(prompt), len(whole))
        steering = {LAYER: applied(VECTOR, "replace", -2.0, places=places)}
        both, before = (
            sum_from(config, tensors, whole, start, steering)
            for start in (1, len(prompt))
        )
        assert both == pytest.approx(log_probability(config, tensors, whole, steering))
        expected.append(before)
    assert found == pytest.approx(expected, abs=2e-4)
    alone = [
        runtime.score_responses([each], prompts=[prompt], steer=steer)[0]
        for each, prompt in zip(texts, asked, strict=True)
    ]
    assert found == pytest.approx(alone, abs=2e-5)


def sum_from(
    config: Any, tensors: Any, ids: Sequence[int], start: int, steering: Any
) -> float:
    scores = logits(config, tensors, ids, steering)
    every = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return float(sum(every[at - 1, ids[at]] for at in range(start, len(ids))))


@pytest.mark.parametrize("layers", [[0, 1, 2], [1], [0, 2]])
@pytest.mark.parametrize("where", ["prompt", "generated", "last", "-3..", "2.."])
def test_answers_are_read_where_their_prompts_end(checkpoint, device, where, layers):
    runtime = load(checkpoint, device)
    steer = Intervention(vector_of(runtime), 2.0, how="replace", where=where)
    every, last = (
        runtime.activations(
            [text(ids) for ids in ANSWERS],
            asked=[text(ids) for ids in PROMPTS],
            layers=layers,
            tokens=tokens,
            points=["resid_post", "mlp_out"],
            steer=steer,
        )
        for tokens in ("all", "last")
    )
    whole = []
    for prompt, answer in zip(PROMPTS, ANSWERS, strict=True):
        ids = [*prompt, *answer]
        places = PLACES[where](len(prompt), len(ids))
        steering = {LAYER: applied(VECTOR, "replace", 2.0, places=places)}
        rows = residuals(checkpoint.config, checkpoint.tensors, ids, steering=steering)
        whole.append(rows[layers].swapaxes(0, 1))
    allowed = tolerance(device, "f32")
    array = every.at_point("resid_post").array
    assert_close(array, np.concatenate(whole), allowed)
    ends = np.stack([rows[-1] for rows in whole])
    assert_close(last.at_point("resid_post").array, ends, allowed)


@pytest.mark.filterwarnings("ignore:no strength is chosen")
@pytest.mark.parametrize(
    ("how", "where"),
    [("replace", "generated"), ("add", "-1.."), ("at-least", "all"), ("remove", "all")],
)
def test_a_trial_measures_what_is_scored(checkpoint, how, where):
    """And its effect is half of the shift less that of the opposite vector."""
    runtime = load(checkpoint, "cpu")
    vector = vector_of(runtime)
    pairs = ster.PairSet.of(
        [
            ster.ContrastPair(
                prompt=text(asked), positive=text(one), negative=text(two)
            )
            for asked, one, two in zip(PROMPTS, ANSWERS, ANSWERS[::-1], strict=True)
        ]
    )
    strengths = [-2, 2] if how != "remove" else [0.5, 1]
    trial = ster.StrengthTrial.of(strengths, random_directions=2)
    steer = Intervention(vector, how=how, where=where)
    report = runtime.evaluate(pairs, steer, trial).strength
    assert report is not None
    sides, asked = pairs.prompts, pairs.asked
    plain = np.array(runtime.score_responses(sides, prompts=asked))

    def shift(steer: Intervention) -> float:
        scores = runtime.score_responses(sides, prompts=asked, steer=steer)
        rises = np.array(scores) - plain
        return float((rises[0::2] - rises[1::2]).mean())

    for measured in report.candidates:
        up = Intervention(vector, measured.strength, how=how, where=where)
        down = Intervention(-vector, measured.strength, how=how, where=where)
        assert measured.mean_shift == pytest.approx(shift(up), abs=1e-4)
        effect = (shift(up) - shift(down)) / 2
        assert measured.effect.mean == pytest.approx(effect, abs=1e-4)
        if how == "remove":  # with the opposite vector it does the same
            assert measured.controls is None
            assert "remove does the same" in " ".join(report.doubts)
        else:
            assert measured.controls is not None
            assert len(set(measured.controls.effects)) == 2
    assert len({each.mean_shift for each in report.candidates}) == 2


def test_a_trial_says_how_much(checkpoint):
    runtime = load(checkpoint, "cpu")
    pairs = ster.PairSet.of([(text([3, 4]), text([5]))])
    trial = ster.StrengthTrial.of([-2, 2])
    vector = vector_of(runtime)
    for steer, sentence in (
        (Intervention(vector, 2.0), "an intervention at 2 cannot be measured"),
        (Intervention(vector, how="clamp"), "clamp limits to -c..c"),
        (Intervention(vector, where="last"), "last means no token of text 1"),
    ):
        with pytest.raises(UsageError, match=sentence):
            runtime.evaluate(pairs, steer, trial)
    trial = ster.StrengthTrial.of([0, 2])
    for how in ("replace", "clamp", "at-least", "at-most"):
        with pytest.raises(UsageError, match=f"{how} at 0 does something"):
            runtime.evaluate(pairs, Intervention(vector, how=how), trial)


def test_several_are_done_in_their_order(checkpoint, device):
    runtime = load(checkpoint, device)
    one = vector_of(runtime)
    other = SteeringVector.of(np.roll(VECTOR, 3), layers=LAYER, model=runtime.model)
    steps: list[tuple[Any, Callable[[F64], F64]]] = [
        (one, applied(VECTOR, "add", 1.0)),
        (Intervention(other, how="remove"), applied(np.roll(VECTOR, 3), "remove", 1.0)),
        ((one, 2), applied(VECTOR, "add", 2.0)),
        (
            Intervention(other, 1.0, where="2.."),
            applied(np.roll(VECTOR, 3), "add", 1.0, places=range(2, 100)),
        ),
    ]
    found = runtime.activations(
        [text(ids) for ids in PROMPTS], steer=[steer for steer, _ in steps]
    )

    def all_of(rows: F64) -> F64:
        for _, apply in steps:
            rows = apply(rows)
        return rows

    config, tensors = checkpoint.config, checkpoint.tensors
    whole = [
        residuals(config, tensors, ids, steering={LAYER: all_of})[:, -1]
        for ids in PROMPTS
    ]
    assert_close(found.array, np.stack(whole), tolerance(device, "f32"))


def test_strengths_multiply_and_stand_side_by_side(checkpoint, device):
    runtime = load(checkpoint, device)
    steer = Intervention(vector_of(runtime), 2.0, how="replace", where="generated")
    prompts = [text(ids) for ids in PROMPTS]
    many = runtime.answers(
        prompts, steer=steer, strengths=[-1, 0, 1.5], max_new_tokens=4
    )
    found = [(each.prompt, each.strength, each.token_ids) for each in many]
    for prompt, strength, ids in found:
        alone = Intervention(
            vector_of(runtime), 2.0 * (strength or 0), how="replace", where="generated"
        )
        (answer,) = runtime.answers([prompt], steer=alone, max_new_tokens=4)
        assert answer.token_ids == ids
    assert len({ids for _, _, ids in found}) > len(PROMPTS)


def test_a_plain_intervention_is_the_vector_itself(checkpoint, device):
    runtime = load(checkpoint, device)
    vector, prompts = vector_of(runtime), [text(ids) for ids in PROMPTS]
    plain = runtime.activations(prompts, steer=(vector, 1.5)).array
    several: list[Any] = [Intervention(vector), (vector, 0.5)]
    for steer in (Intervention(vector, 1.5), several):
        found = runtime.activations(prompts, steer=steer).array
        assert found.tobytes() == plain.tobytes()


def test_activations_say_what_they_were_steered_by(checkpoint, device):
    runtime = load(checkpoint, device)
    vector, prompt = vector_of(runtime), text(PROMPTS[0])
    vector = vector.replaced(trait_name="calm")
    assert runtime.activations([prompt]).steered == ()
    one = runtime.activations([prompt], steer=vector * 2)
    assert one.steered == (f"2 × calm (given) at layer {LAYER}",)
    assert repr(one).endswith(f"hidden_size={WIDTH}, steered by {one.steered[0]})")
    assert one[:1].steered == one.steered
    several: list[Any] = [
        (vector.with_norms([2.0]), "0.5n"),
        Intervention(vector, how="remove", layers="all", where="-1.."),
    ]
    assert runtime.activations([prompt], steer=several).steered == (
        f"0.5n × calm (given) at layer {LAYER}",
        "calm (given) at layers 0 to 2 (remove, where -1..)",
    )


def test_a_direction_of_one_layer_is_removed_at_all(checkpoint, device):
    runtime = load(checkpoint, device)
    steer = Intervention(vector_of(runtime), how="remove", layers="all")
    ids = PROMPTS[1]
    found = runtime.activations([text(ids)], tokens="all", steer=steer).array
    steering = {layer: applied(VECTOR, "remove", 1.0) for layer in range(3)}
    whole = residuals(checkpoint.config, checkpoint.tensors, ids, steering=steering)
    assert_close(found, whole.swapaxes(0, 1), tolerance(device, "f32"))


def test_layers_are_chosen_among_the_vectors_own(checkpoint):
    runtime = load(checkpoint, "cpu")
    vector = vector_of(runtime, (0, LAYER))
    prompts = [text(PROMPTS[0])]
    some = Intervention(vector, layers=[LAYER])
    only = SteeringVector.of(2 * VECTOR, layers=LAYER, model=runtime.model)
    found, plain = (
        runtime.activations(prompts, steer=steer).array for steer in (some, only)
    )
    assert (found == plain).all()
    for layers, sentence in (("all", "no layer 2"), ([7], "outside the model's")):
        with pytest.raises(LayerError, match=sentence):
            runtime.activations(prompts, steer=Intervention(vector, layers=layers))


def test_norms_are_shares_of_each_layers_own(checkpoint):
    runtime = load(checkpoint, "cpu")
    vector = vector_of(runtime).with_norms([4.0])
    prompts = [text(ids) for ids in PROMPTS]
    for one, other in (
        (
            Intervention(vector, "0.5n", how="replace"),
            Intervention(vector, 2.0, how="replace"),
        ),
        (
            Intervention(vector, how="add-below", below="0.01n"),
            Intervention(vector, how="add-below", below=0.04),
        ),
    ):
        found, plain = (
            runtime.activations(prompts, steer=s).array for s in (one, other)
        )
        assert (found == plain).all()
    # At layers whose norms the vector does not carry they are measured.
    spread = Intervention(vector, "0.1n", how="at-least", layers=[0, 1])
    rows = runtime.activations(prompts).array
    norms = np.linalg.norm(rows[:, :2], axis=2).mean(axis=0)
    found = runtime.activations(prompts, steer=spread).array
    each = [
        Intervention(vector, float(0.1 * norm), how="at-least", layers=layer)
        for layer, norm in enumerate(norms)
    ]
    assert found == pytest.approx(runtime.activations(prompts, steer=each).array, 1e-4)


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        ({"how": "project"}, UsageError, 'unknown how "project"; expected add, remove'),
        ({"where": "some"}, UsageError, 'unknown tokens "some"; expected all, prompt'),
        ({"where": ".."}, UsageError, 'unknown tokens ".."'),
        ({"where": "5..2"}, UsageError, 'the range "5..2" is empty'),
        ({"where": "-1..-1"}, UsageError, 'the range "-1..-1" is empty'),
        ({"where": 3}, UsageError, "where must be a string"),
        ({"below": 1.0}, UsageError, "below is for add-below, not for add"),
        ({"how": "add-below"}, UsageError, "add-below needs a threshold"),
        ({"how": "add-below", "below": "x"}, UsageError, 'invalid strength "x"'),
        ({"how": "add-below", "below": np.inf}, DirectionError, "must be finite"),
        ({"how": "remove", "strength": "1n"}, UsageError, "is a share, not a length"),
        ({"how": "clamp", "strength": -1}, UsageError, "clamp limits to -c..c"),
        ({"strength": np.nan}, DirectionError, "must be finite"),
        ({"keep_norm": 1}, UsageError, "keep_norm must be True or False"),
        ({"vector": 3}, UsageError, "vector must be a SteeringVector, not int"),
    ],
)
def test_what_contradicts_itself_is_refused_when_it_is_made(
    checkpoint, words, kind, sentence
):
    given = {"vector": vector_of(load(checkpoint, "cpu"))} | words
    with pytest.raises(kind, match=sentence):
        Intervention(**given)


def test_it_says_what_it_does(checkpoint):
    vector = vector_of(load(checkpoint, "cpu"), trait_name="calm")
    assert repr(Intervention(vector)) == "Intervention('calm' at 1, add)"
    assert (
        repr(
            Intervention(vector, "2n", how="add-below", below=-3, layers="0..2").at(0.5)
        )
        == "Intervention('calm' at 1n, add-below, below=-3, layers='0..2')"
    )
    kept = Intervention(vector, how="remove", where="-2..", keep_norm=True)
    expected = "Intervention('calm' at 1, remove, where='-2..', keep_norm=True)"
    assert repr(kept) == expected
    given: list[Any] = [np.int64(1), np.array(1), np.array([1])]
    for layers in given:
        there = Intervention(vector, layers=layers)
        assert repr(there) == "Intervention('calm' at 1, add, layers=(1,))"


def test_strengths_are_refused_before_a_weight_is_opened(tmp_path: Path):
    made = write_checkpoint(tmp_path, make_config())
    runtime = load(made, "cpu")
    file = made.directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    vector = vector_of(runtime)
    zeros = SteeringVector.of(np.zeros(WIDTH, "f4"), layers=1, model=runtime.model)
    for steer, strengths, sentence in (
        (Intervention(vector, how="clamp"), [1, -1], "clamp limits"),
        (Intervention(vector, how="remove"), ["1n"], "is a share"),
        (Intervention(vector, 1e20, how="replace"), None, "is too long"),
        (Intervention(zeros, how="remove"), None, "all zeros at layer 1"),
    ):
        with pytest.raises(SterError, match=sentence):
            runtime.answers([text([5])], steer=steer, strengths=strengths)
    steer = Intervention(vector, where="generated")
    with pytest.raises(UsageError, match="generated means no token of text 1"):
        runtime.activations([text([5])], steer=steer)
    for where in ("prompt", "last", "-1"):
        with pytest.raises(UsageError, match=f"{where} means no token of text 2"):
            runtime.score_responses(
                [text([5]), text([6])],
                prompts=[text([7]), None],
                steer=Intervention(vector, where=where),
            )


def test_a_zero_that_does_nothing_leaves_the_stream_alone(checkpoint):
    runtime = load(checkpoint, "cpu")
    vector, prompts = vector_of(runtime), [text(PROMPTS[0])]
    plain = runtime.activations(prompts).array
    for words in ({"how": "add"}, {"how": "remove"}, {"how": "add-below", "below": 9}):
        steer = Intervention(vector, 0, **words)
        found = runtime.activations(prompts, steer=steer).array
        assert found.tobytes() == plain.tobytes()
    removed = runtime.activations(prompts, steer=Intervention(vector, how="remove"))
    replaced = Intervention(vector, 0, how="replace")
    assert (runtime.activations(prompts, steer=replaced).array == removed.array).all()


def test_a_plan_counts_the_tokens_that_texts_do_not_share(checkpoint):
    """Texts whose prompts end elsewhere may begin alike and share nothing."""
    session = load(checkpoint, "cpu")._session
    asked, answers = [text(SHARED), text([*SHARED, 5])], [text([5, 6]), text([6])]
    responses = session.encoder.encode_responses(answers, asked)
    assert [*responses.token_ids[0]] == [*responses.token_ids[1]]
    plain, told = (
        plan_scoring(session, responses, None, by_prompt=by_prompt).plan
        for by_prompt in (False, True)
    )
    assert (plain.num_tokens, told.num_tokens) == (9, 18)
    how, vector = ster.Answering(max_new_tokens=2), vector_of(load(checkpoint, "cpu"))
    prompts = [text(SHARED), text([*SHARED, 5])]
    for where, expected in (("all", 8), ("2..", 8), ("generated", 15)):
        deltas = sum_deltas(Intervention(vector, where=where), session)
        assert plan_writing(session, prompts, how, [deltas]).plan.num_tokens == expected
    for where, expected in (("all", 9), ("2..", 9), ("-1..", 18)):
        reading = plan_reading(
            session,
            answers,
            (2,),
            repeats=True,
            choice=ReadingChoice(asked=asked),
            deltas=sum_deltas(Intervention(vector, where=where), session),
        )
        assert reading.plan.num_tokens == expected


@pytest.mark.parametrize(
    ("where", "idle"),
    [
        *(("99", True), ("-3", True), ("4..9", True), ("-9..-2", True)),
        *(("3", False), ("3..9", False), ("-2", False), ("generated", False)),
    ],
)
def test_a_place_that_no_text_will_have_is_warned_of(tmp_path: Path, where, idle):
    """Prompts of two tokens and one, and at most three are written: of those the last
    is not read.
    """
    runtime = load(write_checkpoint(tmp_path, make_config()), "cpu")
    steer = Intervention(vector_of(runtime), where=where)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        [*runtime.answers([text([5, 6]), text([7])], steer=steer, max_new_tokens=3)]
    sentence = f"where {where} means no token of any prompt or answer"
    assert [str(each.message).startswith(sentence) for each in caught] == [True] * idle
