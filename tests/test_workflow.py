"""Train, optimize and evaluate on the toy checkpoint, against its published numbers."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster import PairSet, SteeringVector, StrengthTrial, load
from ster.errors import DirectionError, DocumentError, LayerError, UsageError
from ster.reporting import SterWarning
from ster.runtime import Runtime
from ster.vectors.methods import METHODS
from ster.vectors.selection import PairRows
from ster.vectors.strengths import Strength, parse_strengths
from ster.workflows.choosing import rank_candidates, split_pairs
from tests.checkpoints import make_config, make_tensors, text, write_checkpoint


class Listener:
    """Writes down what a run says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, sentence: str) -> None:
        self.said.append(sentence)

    def warn(self, sentence: str) -> None:
        self.said.append(f"warning: {sentence}")

    def progress(self, progress: object) -> None:
        pass


@pytest.fixture
def runtime(toy: Path, device: str) -> Runtime:
    return load(toy, device=device)


PAIRS = PairSet.of(
    [
        ("the sea is calm .", "the storm waves crash ."),
        ("the air is still .", "the wind howls ."),
        ("a soft breeze .", "thunder rolls ."),
        ("the boat rests .", "the boat is broken ."),
    ],
    trait_name="calm",
)


def tolerance(device: str) -> float:
    return 1e-5 if device == "cpu" else 1e-4


@pytest.mark.parametrize("method", METHODS)
def test_training_gives_the_published_numbers(runtime, published, calm, method):
    vector = runtime.train(calm, method=method)
    near = tolerance(runtime.device)
    assert vector.layers == (0, 1, 2, 3)
    for layer, (accuracy, margin) in published["train"][method].items():
        assert vector.train_accuracy[int(layer)] == accuracy
        assert vector.train_margin[int(layer)] == pytest.approx(margin, abs=near)


def test_caa_gives_the_published_values(runtime, published, calm):
    vector = runtime.train(calm, layers="2,3")
    near = tolerance(runtime.device)
    for layer, values in published["caa_values_first"].items():
        found = vector.direction(int(layer))[: len(values)]
        assert found == pytest.approx(values, abs=near)


def test_optimize_gives_the_published_table_and_winner(runtime, published, calm):
    selection = runtime.optimize(calm, holdout=0.25)
    near = tolerance(runtime.device)
    assert (selection.num_fit, selection.num_holdout) == (6, 2)
    walked = [(each.layer, each.method) for each in selection.candidates]
    assert walked == [(layer, method) for layer in range(4) for method in METHODS]
    for each in selection.candidates:
        table = published["holdout_6_fit_2_held"][each.method]
        accuracy, margin = table[str(each.layer)]
        assert each.accuracy == accuracy
        assert each.margin == pytest.approx(margin, abs=near)
    winner = published["optimize_winner"]
    best, vector = selection.best, selection.vector
    assert (best.layer, best.method) == (winner["layer"], winner["method"])
    assert (vector.layers, vector.method) == ((best.layer,), best.method)
    assert vector.train_accuracy == (winner["train_accuracy"],)
    assert vector.train_margin == pytest.approx([winner["train_margin"]], abs=near)
    assert vector.metadata["selection"] == (
        "chosen over 12 candidates on a 2-pair holdout, then refitted on all 8 pairs"
    )


def test_a_vector_says_where_it_comes_from(cpu, toy):
    vector = cpu.train(PAIRS, method="probe", layers=[2])
    assert vector.model == str(toy)
    assert (vector.precision, vector.chat_template) == ("f32", "absent")
    assert (vector.trait_name, vector.method) == ("calm", "logistic")
    assert vector.metadata.keys() == {"pair_count", "residual_norms"}
    assert vector.metadata["pair_count"] == "4"


def test_a_written_artifact_is_the_vector(cpu, tmp_path):
    vector = cpu.train(PAIRS, output=tmp_path / "v.json")
    again = SteeringVector.load(tmp_path / "v.json")
    assert again.document.keys() == vector.document.keys()
    assert again.array.tobytes() == vector.array.tobytes()
    assert again.train_margin == vector.train_margin


def test_pairs_are_read_as_their_sides_are_alone(cpu):
    vector = cpu.train(PAIRS)
    rows = [cpu.activations([side]).array[0] for side in PAIRS.prompts]
    difference = np.mean(rows[0::2], axis=0) - np.mean(rows[1::2], axis=0)
    lengths = np.linalg.norm(difference, axis=1, keepdims=True)
    assert vector.array == pytest.approx(difference / lengths, abs=1e-5)


def test_optimize_fits_in_file_order_and_ranks_on_the_last_pairs(cpu):
    selection = cpu.optimize(PAIRS, holdout=0.25, layers=1)
    fitted = cpu.train(PairSet(trait_name="", pairs=PAIRS.pairs[:3]), layers=1)
    held = cpu.evaluate(PairSet(trait_name="", pairs=PAIRS.pairs[3:]), fitted)
    margin = selection.candidates[0].margin
    assert margin == pytest.approx(held.layers[0].margin, abs=1e-6)


def test_of_exact_ties_the_earlier_candidate_stays():
    one = np.random.default_rng(0).standard_normal((2, 6, 1, 4)).astype(np.float32)
    sides = np.concatenate([-one, one, one], axis=2)
    rows = PairRows(positive=sides[0] + 1, negative=sides[1])
    candidates = rank_candidates((2, 5, 9), rows[:4], rows[4:])
    twins = [each for each in candidates if each.layer in (5, 9)]
    best = max((each.accuracy, each.margin) for each in candidates)
    chosen = [each for each in candidates if each.selected]
    assert len(chosen) == 1
    assert (chosen[0].accuracy, chosen[0].margin) == best
    assert [each.margin for each in twins[:3]] == [each.margin for each in twins[3:]]
    assert chosen[0].layer != 9


def test_a_candidate_says_how_sure_it_is_and_what_chance_does(cpu):
    selection = cpu.optimize(PAIRS, holdout=0.5)
    for each in selection.candidates:
        low, high = each.interval
        assert 0 <= low <= each.accuracy <= high <= 1
        assert 0 <= each.random.mean <= each.random.percentile_95 <= 1
    best = max(each.random.mean for each in selection.candidates)
    assert selection.random_best.mean >= best


@pytest.mark.parametrize(
    ("num_pairs", "holdout", "num_fit"),
    [
        (8, 0.25, 6),
        (8, 0.2, 6),
        (10, 0.25, 7),  # 2.5 is rounded away from zero
        (6, 0.25, 4),  # 1.5
        (5, 0.1, 4),  # 0.5
        (306, 0.2, 245),
        (2, 0.5, 1),
        (3, 0.5, 1),  # 1.5
    ],
)
def test_the_split(num_pairs, holdout, num_fit):
    assert split_pairs(num_pairs, holdout) == num_fit


@pytest.mark.parametrize(
    ("num_pairs", "holdout", "words"),
    [
        (1, 0.2, "0.2 over 1 contrastive pairs leaves 1 pairs to fit and 0 to"),
        (1, 0.5, "0.5 over 1 contrastive pairs leaves 0 pairs to fit and 1 to"),
        (8, 0.99, "0.99 over 8 contrastive pairs leaves 0 pairs to fit and 8 to"),
        (8, 1e-7, "0.0000001 over 8 contrastive pairs leaves 8 pairs to fit and 0 to"),
    ],
)
def test_a_split_without_two_parts_is_refused(num_pairs, holdout, words):
    with pytest.raises(DirectionError) as caught:
        split_pairs(num_pairs, holdout)
    assert caught.value.sentence == (
        f"a held-out fraction of {words} rank on; both need at least one"
    )
    assert (caught.value.field, caught.value.found) == ("holdout", holdout)


@pytest.mark.parametrize("holdout", [0, 1, -0.5, 1.5, float("nan"), float("inf")])
def test_a_share_outside_of_zero_and_one_is_refused(cpu, holdout):
    with pytest.raises(DirectionError) as caught:
        cpu.optimize(PAIRS, holdout=holdout)
    assert caught.value.sentence == (
        "the held-out fraction must be above zero and below one"
    )
    assert caught.value.field == "holdout"
    assert caught.value.found is holdout


@pytest.mark.parametrize(("holdout", "warned"), [(0.25, True), (0.5, False)])
def test_the_split_is_said_and_one_held_pair_is_warned_of(toy, holdout, warned):
    listener = Listener()
    load(toy, reporter=listener).optimize(PAIRS, holdout=holdout)
    held = 1 if warned else 2
    expected = [
        f"fitting each candidate on {4 - held} pairs and ranking on a {held}-pair "
        "holdout"
    ]
    if warned:
        expected.append(
            "a one-pair holdout scores every candidate 0 or 1, so this ranking "
            "separates almost nothing; add pairs to make the choice mean something"
        )
    assert listener.said[1:] == expected


def test_evaluating_on_the_training_pairs_repeats_their_numbers(runtime):
    vector = runtime.train(PAIRS, layers=[1, 3])
    evaluation = runtime.evaluate(PAIRS, vector)
    found = [(each.layer, each.accuracy, each.margin) for each in evaluation.layers]
    numbers = zip(
        vector.layers, vector.train_accuracy, vector.train_margin, strict=True
    )
    assert found == list(numbers)
    norms = np.linalg.norm(runtime.activations(PAIRS.prompts).array, axis=2)
    assert evaluation.layers[1].residual_norm == pytest.approx(
        norms[:, 3].mean(), rel=1e-6
    )
    assert evaluation.strength is None


def test_a_negated_vector_orders_the_other_way(cpu):
    vector = cpu.train(PAIRS, layers=3)
    margins = [cpu.evaluate(PAIRS, each).layers[0].margin for each in (vector, -vector)]
    assert margins[0] == -margins[1] != 0


def trial(text: str, *, batch_size: int = 3, max_sequence: int = 99) -> StrengthTrial:
    return StrengthTrial.of(text, batch_size=batch_size, max_sequence=max_sequence)


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_strengths_are_measured_by_what_the_runtime_scores(runtime):
    vector = runtime.train(PAIRS, layers=2)
    choice = runtime.evaluate(PAIRS, vector, trial("-6,0,6")).strength
    assert choice is not None
    before = np.array(runtime.score_responses(PAIRS.prompts))
    for each in choice.candidates:
        after = runtime.score_responses(PAIRS.prompts, steer=[vector * each.strength])
        rise = np.array(after) - before
        shifts = rise[0::2] - rise[1::2]
        assert each.mean_shift == pytest.approx(shifts.mean(), abs=1e-4)
        assert each.ordered == (shifts > 1e-9).mean()
    nothing = choice.candidates[1]
    assert (nothing.strength, nothing.ordered, nothing.mean_shift) == (0, 0, 0)


def test_pairs_that_are_too_long_are_skipped_and_named(toy):
    listener = Listener()
    runtime = load(toy, reporter=listener)
    vector = runtime.train(PAIRS, layers=0)
    choice = runtime.evaluate(PAIRS, vector, trial("1.5", max_sequence=4)).strength
    assert choice is not None
    assert (choice.num_pairs, choice.num_scored) == (4, 1)
    assert [line for line in listener.said if "skipping" in line] == [
        f"skipping pair {number}: 5 tokens exceed the 4 token limit"
        for number in (1, 2, 4)
    ]
    measured = choice.candidates[0]
    *_, random, strength, warning = listener.said
    assert random == "10 random directions at 1 strength and both signs, on 1 of 1 pair"
    assert strength == (
        f"strength 1.5: {measured.ordered:.3f} of pairs ordered, "
        f"mean shift {measured.mean_shift:.4f}"
    )
    assert warning.startswith("warning: no strength is chosen: the nearest is 1.5, but")


def test_a_limit_that_leaves_no_pair_is_refused(cpu):
    vector = cpu.train(PAIRS, layers=0)
    with pytest.raises(DirectionError) as caught:
        cpu.evaluate(PAIRS, vector, trial("1", max_sequence=2))
    assert caught.value.sentence == "every pair exceeds the 2 token limit"
    # The shortest pair's longer side.
    assert (caught.value.field, caught.value.found) == ("max_sequence", 2)
    assert caught.value.expected == 4
    assert caught.value.causes == ("the shortest has 4 tokens",)


@pytest.mark.parametrize(
    ("text", "batch_size", "sentence"),
    [
        ("", 1, "strength selection needs at least one strength to measure"),
        ("1,inf", 1, "strength selection needs finite strengths, not inf"),
        ("-inf", 1, "strength selection needs finite strengths, not -inf"),
        ("nan,1", 1, "strength selection needs finite strengths, not NaN"),
        ("-1e39", 1, "strength selection needs finite strengths, not -inf"),
        ("infn", 1, "strength selection needs finite strengths, not inf"),
        ("1", 0, "strength selection requires batch size of at least one"),
    ],
)
def test_a_trial_that_measures_nothing_is_refused(text, batch_size, sentence):
    with pytest.raises(DirectionError) as caught:
        trial(text, batch_size=batch_size)
    assert caught.value.sentence == sentence


@pytest.mark.parametrize("max_sequence", [0, -1])
def test_a_trial_of_no_tokens_is_refused(max_sequence):
    with pytest.raises(DirectionError) as caught:
        trial("1", max_sequence=max_sequence)
    assert caught.value.sentence == (
        "strength selection requires maximum sequence of at least one"
    )


@pytest.fixture
def huge(tmp_path: Path) -> Runtime:
    """Return a model of finite rows whose differences leave float32."""
    config = make_config(num_hidden_layers=1)
    tensors = make_tensors(config)
    embedding = np.zeros((60, 32), np.float32)
    embedding[3, 0], embedding[4, 0] = 3e38, -3e38
    tensors["model.embed_tokens.weight"] = embedding
    return load(write_checkpoint(tmp_path / "huge", config, tensors=tensors).directory)


EXTREMES = PairSet.of([(text([3]), text([4]))] * 2)


def test_a_margin_that_is_not_finite_is_refused_before_anything_is_written(
    huge, tmp_path
):
    with pytest.raises(DirectionError) as caught:
        huge.train(EXTREMES, output=tmp_path / "new" / "v.json")
    assert caught.value.sentence == "training produced a zero or non-finite direction"
    assert caught.value.causes == ("the margin at layer 0 is not finite",)
    assert not (tmp_path / "new").exists()


def test_no_report_holds_a_margin_that_is_not_finite(huge):
    axis = other(huge, array=np.eye(1, 32, dtype="f4"), layers=(0,))
    with pytest.raises(DirectionError, match="^the margin at layer 0 is not finite$"):
        huge.evaluate(EXTREMES, axis)


TOO_LONG = "the vector added after layer 1 is too long"


def test_a_sum_whose_length_leaves_float32_is_refused(cpu):
    long = other(cpu, array=np.full((1, 64), 3e18, np.float32))
    with pytest.raises(DirectionError) as caught:
        cpu.generate("the sea", steer=[long])
    assert caught.value.sentence == TOO_LONG
    assert caught.value.causes == ("its squared length leaves float32",)
    assert caught.value.layer == 1
    assert caught.value.found == pytest.approx(64 * 9e36, rel=1e-6)
    largest = other(cpu, array=np.full((1, 64), 3e38, np.float32))
    with pytest.raises(DirectionError, match=TOO_LONG):
        cpu.score_responses(["the sea"], steer=[largest, largest, -largest])


@pytest.mark.parametrize("strength", ["3e18", "-3e18", "3e38", "1e38n"])
def test_a_strength_whose_length_leaves_float32_is_refused(cpu, strength):
    array = np.full((1, 64), 2, np.float32)
    array[0, 0] = 0
    with pytest.raises(DirectionError, match=TOO_LONG):
        cpu.evaluate(PAIRS, other(cpu, array=array), trial(strength))


def test_one_vector_steers_as_a_list_of_it_does(cpu):
    vector, prompt = cpu.train(PAIRS, layers=1) * 4, "the sea is"
    listed = cpu.activations([prompt], steer=[vector]).array
    assert (cpu.activations([prompt], steer=vector).array == listed).all()
    answer = cpu.generate(prompt, steer=[vector], max_new_tokens=4)
    assert cpu.generate(prompt, steer=vector, max_new_tokens=4) == answer
    assert list(cpu.generate_all([prompt], steer=vector, max_new_tokens=4)) == [answer]
    scores = cpu.score_responses([prompt], steer=[vector])
    assert cpu.score_responses([prompt], steer=vector) == scores


def test_no_response_has_no_score_and_an_empty_batch_is_refused(cpu):
    assert cpu.score_responses([]) == []
    with pytest.raises(UsageError) as caught:
        cpu.score_responses(["the sea"], batch_size=0)
    assert (caught.value.field, caught.value.found) == ("batch_size", 0)
    assert caught.value.sentence == "batch_size must be at least one, not 0"


def test_strengths_are_read_in_order():
    assert parse_strengths(" -4, 0,2.5 ,-.5n,1e1n") == (
        Strength(value=-4),
        Strength(value=0),
        Strength(value=2.5),
        Strength(value=-0.5, of_norm=True),
        Strength(value=10, of_norm=True),
    )


@pytest.mark.parametrize("text", ["a", "1,,2", "1,", "n", "1nn", "1_0", "٣", "0x1"])
def test_what_is_no_strength_is_a_usage_error(text):
    with pytest.raises(UsageError, match="^invalid strength "):
        parse_strengths(text)


def other(runtime: Runtime, **changes: object) -> SteeringVector:
    fields: dict[str, Any] = {
        "layers": (1,),
        "array": np.ones((1, 64), np.float32),
        "model": runtime.model,
        "precision": "f32",
        "chat_template": "absent",
        "trait_name": "t",
        "method": "caa",
    }
    return SteeringVector(**(fields | changes))


def test_another_spelling_of_the_same_directory_is_the_same_model(cpu, toy, tmp_path):
    linked = tmp_path / "linked"
    linked.symlink_to(toy)
    for spelling in (f"{toy}/", f"{toy}/../{toy.name}", str(linked)):
        evaluation = cpu.evaluate(PAIRS, other(cpu, model=spelling))
        assert len(evaluation.document["layers"]) == 1


def test_a_copy_of_a_directory_is_another_model(cpu, toy, tmp_path):
    copied = shutil.copytree(toy, tmp_path / "copied")
    with pytest.raises(DocumentError, match="does not match runtime model"):
        cpu.evaluate(PAIRS, other(cpu, model=str(copied)))


def test_a_vector_of_another_model_is_refused(cpu, toy):
    name = os.fspath(toy)
    with pytest.raises(DocumentError) as caught:
        cpu.evaluate(PAIRS, other(cpu, model="other"))
    assert caught.value.sentence == (
        f'artifact model "other" does not match runtime model "{name}"'
    )
    assert caught.value.field == "model"
    assert (caught.value.found, caught.value.expected) == ("other", name)
    with pytest.raises(DocumentError) as caught:
        cpu.generate("the sea", steer=[other(cpu, model="other")])
    assert caught.value.sentence == (
        f'artifact was trained for model "other", current model is "{name}"'
    )


def test_a_vector_of_another_shape_is_refused(cpu):
    with pytest.raises(DocumentError) as caught:
        cpu.evaluate(PAIRS, other(cpu, array=np.ones((1, 32), "f4")))
    assert caught.value.sentence == "artifact width 32 does not match model width 64"
    assert caught.value.field == "hidden_size"
    assert (caught.value.found, caught.value.expected) == (32, 64)
    with pytest.raises(LayerError) as caught_layer:
        cpu.evaluate(PAIRS, other(cpu, layers=(4,)))
    assert caught_layer.value.sentence == "layer 4 is outside the model's 0..3 range"


def test_another_encoding_or_width_is_warned_of(cpu):
    with pytest.warns(SterWarning) as caught:
        cpu.evaluate(PAIRS, other(cpu, chat_template="applied", precision="f16"))
    assert [str(each.message) for each in caught] == [
        "this direction was trained with chat template applied and this run encodes "
        "absent, so the number below describes a format it was not trained in",
        "this direction was trained at precision f16 and this run maps the base "
        "weights at f32, so it is being read in a different space than it was fitted "
        "in",
    ]


@pytest.mark.parametrize("label", ["absent", "off", None])
def test_raw_text_is_raw_text_by_either_name(cpu, label):
    cpu.evaluate(PAIRS, other(cpu, chat_template=label, precision=None))


def test_another_space_is_warned_of_once_however_many_strengths(cpu):
    with pytest.warns(SterWarning) as caught:
        cpu.evaluate(PAIRS, other(cpu, precision="f16"), trial("1,2,3"))
    said = [str(each.message) for each in caught]
    assert len([each for each in said if not each.startswith("no strength")]) == 1


def test_pca_without_variance_is_warned_of(cpu):
    """Its direction is then the first axis, whatever the pairs are."""
    alike = PairSet.of([("the sea is calm .", "the wind howls .")] * 3, trait_name="a")
    with pytest.warns(SterWarning, match=r"pca found nothing at layers 1, 3, where"):
        found = cpu.train(alike, layers=[1, 3], method="pca")
    assert np.abs(found.array[:, 0]).tolist() == [1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cpu.train(alike, layers=[1, 3], method="pca-uncentred")
        cpu.train(PAIRS, layers=[1, 3], method="pca")
