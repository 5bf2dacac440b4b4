"""How prompts are answered: one value, made of convenient keywords in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ster
from ster.errors import PromptError, SterError, UsageError
from ster.runs.sampling import Answering, Sampling
from tests.checkpoints import make_config, text, write_checkpoint


def test_the_keywords_make_one_value():
    assert Answering.of() == Answering()
    assert Answering.of(
        system="Be brief.", max_new_tokens=3, temperature=0.5, top_p=0.9, seed=7
    ) == Answering(
        system="Be brief.",
        max_new_tokens=3,
        sampling=Sampling(temperature=0.5, top_p=0.9, seed=7),
    )
    assert Answering.of(seed=7).sampling == Sampling(seed=7)


@pytest.mark.parametrize("sampling", [None, Sampling(), Sampling(temperature=1.0)])
def test_sampling_may_be_given_as_a_whole(sampling: Sampling | None):
    assert Answering.of(sampling=sampling).sampling == sampling or sampling is None


def test_a_value_is_taken_as_it_is():
    answering = Answering(max_new_tokens=3)
    assert Answering.of(answering=answering) is answering


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"sampling": Sampling(), "temperature": 0.5}, "temperature"),
        ({"sampling": Sampling(), "seed": 1, "top_p": 0.5}, "seed"),
        ({"answering": Answering(), "max_new_tokens": 1}, "max_new_tokens"),
        ({"answering": Answering(), "seed": 1}, "seed"),
    ],
)
def test_a_whole_and_its_part_are_refused(keywords: Any, field: str):
    with pytest.raises(UsageError, match="^give either .* not both$") as caught:
        Answering.of(**keywords)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("keywords", "kind", "expected"),
    [
        ({"max_new_tokens": 0}, PromptError, None),
        ({"max_new_tokens": 1.5}, UsageError, "a whole number"),
        ({"max_new_tokens": True}, UsageError, "a whole number"),
        ({"max_new_tokens": "9"}, UsageError, "a whole number"),
        ({"temperature": "0.7"}, UsageError, "a number"),
        ({"temperature": None}, UsageError, "a number"),
        ({"temperature": float("nan")}, UsageError, None),
        ({"top_p": [0.5]}, UsageError, "a number"),
        ({"top_p": 0}, UsageError, None),
        ({"seed": 1.0}, UsageError, "a whole number"),
        ({"seed": -1}, UsageError, None),
    ],
)
def test_a_wrong_part_is_refused_with_its_name_and_value(
    keywords: Any, kind: type[SterError], expected: str | None
):
    with pytest.raises(kind) as caught:
        Answering.of(**keywords)
    ((name, value),) = keywords.items()
    assert caught.value.field == name
    assert caught.value.found is value or np.isnan(value)
    assert caught.value.expected == expected


@pytest.mark.parametrize("system", [b"Be brief.", 3, "a\ud800"])
def test_a_system_message_is_text(system: Any):
    with pytest.raises(PromptError):
        Answering(system=system)


def test_numbers_of_numpy_are_numbers():
    numbers: Any = {
        "max_new_tokens": np.int64(3),
        "temperature": np.float32(0.5),
        "seed": np.uint8(7),
    }
    made = Answering.of(**numbers)
    assert made.max_new_tokens == 3
    assert made.sampling == Sampling(temperature=0.5, seed=7)


def test_an_unknown_keyword_is_named():
    wrong: Any = {"temprature": 1}
    with pytest.raises(TypeError, match="'temprature'"):
        Answering.of(**wrong)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> ster.Runtime:
    folder = tmp_path_factory.mktemp("toy") / "toy"
    ster.write_toy_checkpoint(folder)
    return ster.load(folder)


def test_every_way_to_say_it_gives_the_same_answer(runtime: ster.Runtime):
    prompt, sampling = "the sea is", Sampling(temperature=0.9, top_p=0.8, seed=3)
    expected = runtime.generate(prompt, max_new_tokens=6, sampling=sampling)
    answering = Answering(max_new_tokens=6, sampling=sampling)
    words: Any = {"temperature": 0.9, "top_p": 0.8, "seed": 3, "max_new_tokens": 6}
    assert runtime.generate(prompt, answering=answering) == expected
    assert runtime.generate(prompt, **words) == expected
    assert "".join(runtime.stream(prompt, **words)) == expected
    assert list(runtime.generate_all([prompt, prompt], **words)) == [expected] * 2
    assert runtime.generate(prompt, max_new_tokens=6) != expected


@pytest.mark.parametrize("method", ["generate", "stream", "generate_all"])
def test_a_wrong_part_is_refused_at_once(runtime: ster.Runtime, method: str):
    prompt = ["the sea"] if method == "generate_all" else "the sea"
    with pytest.raises(UsageError, match="^temperature must be a number"):
        getattr(runtime, method)(prompt, temperature="warm")


@pytest.mark.parametrize(
    ("prompts", "found"),
    [
        ({"prompts": ["a"]}, "dict"),
        ({"anything": 1}, "dict"),
        (b"the sea", "bytes"),
        (bytearray(b"the sea"), "bytearray"),
        ({"the sea", "a storm"}, "set"),
        ({"the sea": 1}.keys(), "dict_keys"),
        ("the sea", "one string"),
        (3, "int"),
        (None, "NoneType"),
        (np.array([["a", "b"]]), "ndarray of 2 dimensions"),
        (np.array("a"), "ndarray of 0 dimensions"),
    ],
)
@pytest.mark.parametrize("method", ["activations", "generate_all", "score_responses"])
def test_what_would_come_apart_is_no_list_of_texts(
    runtime: ster.Runtime, method: str, prompts: Any, found: str
):
    with pytest.raises(PromptError) as caught:
        getattr(runtime, method)(prompts)
    name = "responses" if method == "score_responses" else "prompts"
    sentence = f"{name} must be a list of strings, not {found}"
    assert caught.value.sentence == sentence
    assert (caught.value.field, caught.value.found) == (name, prompts)


def test_a_document_of_prompts_is_refused_with_the_way_out(runtime: ster.Runtime):
    with pytest.raises(PromptError) as caught:
        runtime.activations({"prompts": ["the sea"]})
    assert 'document["prompts"]' in caught.value.causes[0]


@pytest.mark.parametrize("make", [iter, tuple, np.array])
def test_whatever_yields_texts_in_order_is_a_list(runtime: ster.Runtime, make: Any):
    read = runtime.activations(make(["the sea", "a storm"]), layers=0)
    assert read.prompts == ("the sea", "a storm")


@pytest.mark.parametrize(("method", "text"), [("score_responses", "a response")])
@pytest.mark.parametrize("wrong", [3, None, b"a"])
def test_a_text_that_is_none_is_named(
    runtime: ster.Runtime, method: str, text: str, wrong: Any
):
    with pytest.raises(PromptError, match=f"^{text} must be a string, not ") as caught:
        getattr(runtime, method)(["the sea", wrong])
    assert caught.value.prompt == 2


@pytest.mark.parametrize("pairs", [{"pairs": []}, {("a", "b")}, "ab", 3, None])
def test_what_is_no_list_of_pairs_is_refused(pairs: Any):
    with pytest.raises(
        SterError, match=r"^pairs must be a list of \(positive"
    ) as caught:
        ster.PairSet.of(pairs)
    assert caught.value.field == "pairs"


def test_numbers_of_other_methods_are_refused_by_name(runtime: ster.Runtime):
    wrong: Any = "8"
    pairs = ster.PairSet.of([("the sea", "a storm"), ("calm", "loud")])
    with pytest.raises(UsageError) as size:
        runtime.score_responses(["the sea"], batch_size=wrong)
    with pytest.raises(UsageError) as share:
        runtime.optimize(pairs, holdout=wrong)
    assert [size.value.field, share.value.field] == ["batch_size", "holdout"]


def test_answers_come_prompt_by_prompt_with_their_strengths(tmp_path):
    runtime = ster.load(write_checkpoint(tmp_path, make_config()).directory)
    vector = ster.SteeringVector(
        layers=(1,),
        array=np.full((1, 32), 2.0, np.float32),
        model=runtime.model,
        trait_name="x",
        method="caa",
    )
    prompts = [text([3, 4]), text([5])]
    answers = list(
        runtime.answers(iter(prompts), steer=vector, strengths="-1,0", max_new_tokens=4)
    )
    assert [(each.prompt, each.strength) for each in answers] == [
        (prompt, strength) for prompt in prompts for strength in (-1.0, 0.0)
    ]
    assert [each.text for each in answers[1::2]] == [
        runtime.generate(prompt, max_new_tokens=4) for prompt in prompts
    ]
    (once,) = runtime.answers(prompts[:1], steer=vector, max_new_tokens=4)
    assert once.strength == 1.0
    (plain,) = runtime.answers(prompts[:1], max_new_tokens=4)
    assert (plain.strength, plain.ended) == (None, "length")
    assert len(plain.token_ids) == 4
    for wrong, steer in (("", vector), ("1", ())):
        with pytest.raises(UsageError) as refused:
            runtime.answers(prompts, steer=steer, strengths=wrong)
        assert refused.value.field == "strengths"


@pytest.mark.parametrize(
    ("length", "stop", "ended"),
    [(512, 2, "length"), (7, 2, "context"), (512, ..., "stop")],
)
def test_answers_say_why_they_ended(tmp_path, length, stop, ended):
    config = make_config(max_position_embeddings=length)
    made = write_checkpoint(tmp_path / "a", config)
    (whole,) = ster.load(made.directory).answers([text([5])], max_new_tokens=9)
    at = min(9, length - 1)
    if stop is ...:
        config["eos_token_id"] = whole.token_ids[3]
        at = whole.token_ids.index(whole.token_ids[3])
        made = write_checkpoint(tmp_path / "b", config)
    (found,) = ster.load(made.directory).answers([text([5])], max_new_tokens=9)
    assert found.ended == ended
    assert found.token_ids == whole.token_ids[:at]
