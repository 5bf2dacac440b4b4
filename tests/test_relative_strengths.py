"""Strengths such as ``0.05n``: shares of each layer's own mean residual norm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster import PairSet, Runtime, SteeringVector, StrengthTrial, load
from ster.errors import DirectionError, DocumentError, UsageError, WeightsError
from tests.checkpoints import make_config, make_tensors, text, write_checkpoint
from tests.made import strength_choice

NORMS = (2.0, 30.0)
PROMPTS = [text([3, 4, 9]), text([5, 6])]
PAIRS = PairSet.of([(text([3, 4]), text([7, 8])), (text([5]), text([9, 10, 11]))])


def make(layers: Sequence[int] = (1, 3), seed: int = 0, **facts: Any) -> SteeringVector:
    array = np.random.default_rng(seed).standard_normal((len(layers), 32))
    facts = {"model": "toy", "trait_name": "calm", "method": "caa", **facts}
    return SteeringVector(layers=tuple(layers), array=array.astype(np.float32), **facts)


def explicit(vector: SteeringVector, share: float, norms: Sequence[float]) -> Any:
    """Scale each layer with numpy alone."""
    rows = [
        row * np.float32(share * norm)
        for row, norm in zip(vector.array, norms, strict=True)
    ]
    return np.stack(rows)


@pytest.mark.parametrize("share", [0.05, -0.5, 0])
def test_each_layer_is_scaled_by_its_own_norm(share: float):
    vector = make().with_norms(NORMS)
    scaled = vector.at(f"{share}n")
    assert scaled.array.tobytes() == explicit(vector, share, NORMS).tobytes()
    assert scaled.metadata["scale"] == f"{share:g}n"
    assert scaled.residual_norms == NORMS


@pytest.mark.parametrize("strength", [2, -0.5, "3", " 4 "])
def test_a_number_scales_all_layers_alike(strength: Any):
    scaled, times = make().at(strength), make() * float(strength)
    assert scaled.array.tobytes() == times.array.tobytes()
    assert scaled.metadata == times.metadata


def test_the_length_of_a_vector_counts_and_its_norms_do_not_change():
    vector = make().with_norms(NORMS)
    twice = vector * 2
    assert twice.residual_norms == NORMS
    assert (twice.at("0.25n").array == 2 * vector.at("0.25n").array).all()
    for made in (twice.at("0.25n"), vector.at("0.25n") * 2):
        assert made.metadata["scale"] == "0.5n"
        assert "scale=0.5n" in repr(made)


def test_a_sum_keeps_the_norms_of_its_layers():
    one = make((0, 2)).with_norms([1.0, 4.0])
    other = make((2, 5), seed=1).with_norms([6.0, 9.0])
    assert (one + other).residual_norms == (1.0, 5.0, 9.0)
    assert (one.at("0.5n") + other).metadata["sum"] == "0.5n × calm (caa) + calm (caa)"
    assert (one + make((2,))).residual_norms == (1.0, 4.0)
    assert (one + make((5,))).residual_norms is None


def test_norms_are_in_the_document_and_come_back(tmp_path: Path):
    vector = make().with_norms(np.array([0.1, 3.0], np.float32))
    vector.save(tmp_path / "v.json")
    document = json.loads((tmp_path / "v.json").read_bytes())
    assert document["metadata"] == {"residual_norms": "[0.1, 3.0]"}
    assert SteeringVector.load(tmp_path / "v.json").residual_norms == (0.1, 3.0)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "3",
        "{}",
        "[1]",
        "[1, 2, 3]",
        "[1, -2]",
        "[1, NaN]",
        "[1, Infinity]",
        "[1, true]",
        '[1, "2"]',
        "[1, null]",
        "[1, 1e999]",
        "[1, 1" + "0" * 400 + "]",
        "[" * 100_000,
    ],
)
def test_norms_that_are_none_count_as_absent(written: str):
    assert make(metadata={"residual_norms": written}).residual_norms is None


@pytest.mark.parametrize(
    "norms", [(), (1.0,), (1.0, 2.0, 3.0), (1.0, -1.0), (1.0, float("inf")), (1, "2")]
)
def test_what_is_no_norm_for_each_layer_is_not_taken(norms: Any):
    with pytest.raises(DirectionError, match="^residual norms must be one length"):
        make().with_norms(norms)


def test_what_has_no_norms_is_refused_with_the_way_out():
    with pytest.raises(DirectionError) as caught:
        make().at("0.05n")
    assert caught.value.sentence == (
        "a vector without residual norms cannot be taken at 0.05n"
    )
    assert "with_norms" in caught.value.causes[0]


def test_norms_do_not_count_twice():
    vector = make().with_norms(NORMS).at("0.05n")
    with pytest.raises(UsageError) as caught:
        vector.at("2n")
    assert caught.value.sentence == (
        "2n of a vector at 0.05n would count in residual norms twice"
    )


@pytest.mark.parametrize("strength", ["infn", "nan", float("inf"), 1e39])
def test_a_strength_must_be_finite(strength: Any):
    with pytest.raises(DirectionError, match="must be finite"):
        make().with_norms(NORMS).at(strength)


@pytest.mark.parametrize("strength", ["", "1,2", "x", None, [1], True])
def test_what_is_no_strength_is_refused(strength: Any):
    with pytest.raises(UsageError, match="strength"):
        make().at(strength)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """Return a model whose residual norms differ much from layer to layer."""
    config = make_config()
    tensors = make_tensors(config)
    for name in ("mlp.down_proj", "self_attn.o_proj"):
        tensors[f"model.layers.1.{name}.weight"] *= 30
    folder = tmp_path_factory.mktemp("model")
    return load(write_checkpoint(folder, config, tensors=tensors).directory)


def measured(runtime: Runtime, prompts: Any, layers: Any) -> Any:
    rows = runtime.activations(prompts, layers=layers).array.astype(np.float64)
    return np.linalg.norm(rows, axis=2).mean(axis=0)


def test_training_records_the_norms_of_the_rows(runtime: Runtime, tmp_path: Path):
    vector = runtime.train(PAIRS, output=tmp_path / "v.json")
    norms = measured(runtime, PAIRS, "all")
    assert vector.residual_norms == pytest.approx(norms, rel=1e-6)
    assert norms[1] > 2 * norms[0]
    assert SteeringVector.load(tmp_path / "v.json").residual_norms == (
        vector.residual_norms
    )
    best = runtime.optimize(PAIRS, holdout=0.5).vector
    assert best.residual_norms == pytest.approx([norms[best.layers[0]]], rel=1e-6)


def replaced(vector: SteeringVector, array: Any) -> SteeringVector:
    return SteeringVector(
        layers=vector.layers,
        array=array,
        model=vector.model,
        trait_name="x",
        method="caa",
    )


def test_steering_at_a_share_is_steering_with_the_rows_of_numpy(runtime: Runtime):
    vector = runtime.train(PAIRS, layers=[0, 1])
    plain = replaced(vector, explicit(vector, 0.5, vector.residual_norms or ()))
    expected = runtime.generate(PROMPTS[0], steer=plain, max_new_tokens=6)
    assert expected != runtime.generate(PROMPTS[0], max_new_tokens=6)
    ways: list[Any] = [vector.at("0.5n"), (vector, "0.5n"), [(vector, "0.5n")]]
    for steer in ways:
        assert runtime.generate(PROMPTS[0], steer=steer, max_new_tokens=6) == expected
        alone = runtime.generate_all(PROMPTS[:1], steer=steer, max_new_tokens=6)
        assert list(alone) == [expected]
        assert runtime.score_responses(PROMPTS, steer=steer) == (
            runtime.score_responses(PROMPTS, steer=plain)
        )
        read = runtime.activations(PROMPTS, steer=steer).array
        assert (read == runtime.activations(PROMPTS, steer=plain).array).all()


def test_answers_say_their_strength_as_it_is_spelled(runtime: Runtime):
    vector = runtime.train(PAIRS, layers=[0, 1])
    answers = list(
        runtime.answers(
            PROMPTS, steer=vector, strengths="-0.5n,0,2,0.5n", max_new_tokens=6
        )
    )
    said = [(each.strength, each.strength_word) for each in answers]
    assert said == [(None, "-0.5n"), (0.0, None), (2.0, None), (None, "0.5n")] * 2
    assert [each.text for each in answers] == [
        runtime.generate(prompt, steer=vector.at(strength), max_new_tokens=6)
        for prompt in PROMPTS
        for strength in ("-0.5n", 0, 2, "0.5n")
    ]


def test_a_strength_multiplies_the_sum_of_vectors_with_strengths(runtime: Runtime):
    one = runtime.train(PAIRS, layers=[0, 1])
    other = runtime.train(PAIRS, layers=[1, 2], method="pca")
    (answer,) = runtime.answers(
        PROMPTS[:1],
        steer=[(one, "0.25n"), (other, -3), other],
        strengths=[2],
        max_new_tokens=6,
    )
    total = one.at("0.5n") + other * -6 + other * 2
    assert answer.text == runtime.generate(PROMPTS[0], steer=total, max_new_tokens=6)


class Listener:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def warn(self, sentence: str) -> None:
        assert sentence.startswith("no strength is chosen"), sentence

    def progress(self, progress: object) -> None:
        pass


NOTE = "measuring residual norms on this run's 2 prompts: a vector carries none"


def test_norms_that_no_vector_carries_are_measured_once_on_the_prompts(
    runtime: Runtime,
):
    listener = Listener()
    heard = load(runtime.model, reporter=listener)
    one, other = (
        replaced(runtime.train(PAIRS, layers=layers), array)
        for layers, array in (
            ([0, 1], np.eye(2, 32, dtype="f4")),
            ([1, 2], np.eye(2, 32, 5, dtype="f4")),
        )
    )
    norms = measured(runtime, PROMPTS, [0, 1, 2])
    known = [one.with_norms(norms[:2]).at("0.5n"), other.with_norms(norms[1:]).at("1n")]
    steer: Any = [(one, "0.5n"), (other, "1n")]
    found = [each.text for each in heard.answers(PROMPTS, steer=steer)]
    assert found == list(runtime.generate_all(PROMPTS, steer=known))
    assert listener.notes.count(NOTE) == 1
    assert heard.score_responses(PROMPTS, steer=steer) == pytest.approx(
        runtime.score_responses(PROMPTS, steer=known), rel=1e-6
    )
    assert heard.activations(PROMPTS, steer=steer).array == pytest.approx(
        runtime.activations(PROMPTS, steer=known).array, rel=1e-4, abs=1e-5
    )
    assert listener.notes.count(NOTE) == 3
    assert heard.activations(PROMPTS, steer=(one, "0n")).array.any()
    assert listener.notes.count(NOTE) == 3


def test_what_needs_no_weights_is_refused_before_norms_are_measured(tmp_path: Path):
    folder = write_checkpoint(tmp_path, make_config()).directory
    runtime = load(folder)
    bare = make((1,), model=runtime.model)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    long = text([5] * 600)
    with pytest.raises(Exception, match="^prompt contains 600 tokens"):
        runtime.answers([*PROMPTS, long], steer=bare, strengths="1n")
    with pytest.raises(UsageError, match="twice"):
        runtime.answers(PROMPTS, steer=(bare, "1n"), strengths="1n")
    with pytest.raises(UsageError, match="invalid strength"):
        runtime.answers(PROMPTS, steer=(bare, "x"))
    with pytest.raises(WeightsError):
        runtime.answers(PROMPTS, steer=bare, strengths="1n")


def test_a_vector_of_another_model_is_named_by_its_file(runtime: Runtime):
    good = make((1,), model=runtime.model, source="a.json")
    with pytest.raises(DocumentError) as caught:
        runtime.generate(PROMPTS[0], steer=[good, make(source="b.json")])
    assert (caught.value.path, caught.value.causes) == ("b.json", ("it is b.json",))


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_strengths_in_norms_are_scored_layer_by_layer(runtime: Runtime):
    vector = runtime.train(PAIRS, layers=[0, 1, 2])
    norms = vector.residual_norms or ()
    choice = runtime.evaluate(PAIRS, vector, StrengthTrial.of("-0.5n,2,0.5n")).strength
    assert choice is not None
    before = np.array(runtime.score_responses(PAIRS.prompts))
    arrays = (
        explicit(vector, -0.5, norms),
        vector.array * 2,
        explicit(vector, 0.5, norms),
    )
    for each, array in zip(choice.candidates, arrays, strict=True):
        plain = replaced(vector, array)
        rise = np.array(runtime.score_responses(PAIRS.prompts, steer=plain)) - before
        shifts = rise[0::2] - rise[1::2]
        assert each.mean_shift == pytest.approx(shifts.mean(), abs=1e-4)
    report: Any = choice.document
    mean = sum(norms) / 3
    assert report["residual_norms"] == list(norms)
    assert report["residual_norm"] == pytest.approx(mean)
    found = [
        (each["strength"], each.get("strength_word")) for each in report["candidates"]
    ]
    assert found == [
        (pytest.approx(-0.5 * mean), "-0.5n"),
        (2.0, None),
        (pytest.approx(0.5 * mean), "0.5n"),
    ]
    assert choice.selected is None
    assert report["selected_strength"] is None
    assert "selected_strength_word" not in report


def test_a_chosen_strength_in_norms_is_spelled():
    choice = strength_choice()
    first = replace(choice.candidates[0], strength_word="0.1n")
    report = replace(choice, candidates=(first, *choice.candidates[1:])).document
    assert report["selected_strength"] == 4.0
    assert report["selected_strength_word"] == "0.1n"


def test_a_vector_without_norms_counts_in_those_of_the_pairs(runtime: Runtime):
    listener = Listener()
    heard = load(runtime.model, reporter=listener)
    vector = runtime.train(PAIRS, layers=[0, 1])
    trial, absolute = StrengthTrial.of("0.5n"), StrengthTrial.of([2])
    bare = replaced(vector, vector.array)
    known, found = (heard.evaluate(PAIRS, each, trial) for each in (vector, bare))
    assert known.strength is not None
    assert found.strength is not None
    assert found.strength.residual_norms == pytest.approx(known.strength.residual_norms)
    assert found.strength.candidates[0].mean_shift == pytest.approx(
        known.strength.candidates[0].mean_shift, abs=1e-5
    )
    heard.evaluate(PAIRS, bare, absolute)
    note = "the vector carries no residual norms: n counts in those of these pairs"
    assert listener.notes.count(note) == 1
    assert "strength 0.5n: " in " ".join(listener.notes)


def test_a_trial_does_not_count_in_norms_twice(runtime: Runtime):
    vector = runtime.train(PAIRS, layers=[0, 1]).at("0.5n")
    with pytest.raises(UsageError, match="^2n of a vector at 0.5n"):
        runtime.evaluate(PAIRS, vector, StrengthTrial.of("2n"))
