"""Pairs from two instructions: put before prompts, or said by the system."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ster import ContrastPair, PairSet, StrengthTrial, load, write_toy_checkpoint
from ster.documents.pair_sets.personas import make_persona_pairs
from ster.errors import SterError

PROMPTS = ["the sea", "a storm"]
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)


def test_an_instruction_stands_before_every_prompt():
    pairs = make_persona_pairs(["Be glad."], ["Be sad."], PROMPTS, trait_name="glad")
    assert pairs.trait_name == "glad"
    assert pairs.prompts == [
        "Be glad. the sea",
        "Be sad. the sea",
        "Be glad. a storm",
        "Be sad. a storm",
    ]


def test_several_wordings_of_one_prompt_stand_and_stay_together():
    pairs = make_persona_pairs(
        ["Be glad:\n", "Say '{prompt}' gladly."], ["Be sad:\n"], PROMPTS
    )
    assert [pair.positive for pair in pairs] == [
        "Be glad:\nthe sea",
        "Say 'the sea' gladly.",
        "Be glad:\na storm",
        "Say 'a storm' gladly.",
    ]
    assert pairs.groups == [0, 0, 1, 1]


def test_a_system_s_turn_leaves_the_text_the_same():
    pairs = make_persona_pairs(["Be glad."], ["Be sad."], PROMPTS, way="system")
    assert pairs[0] == ContrastPair(
        positive="the sea",
        negative="the sea",
        positive_system="Be glad.",
        negative_system="Be sad.",
        group="the sea",
    )
    found: Any = pairs.inspect().document
    assert found["repeats"]["equal_sides"] == 0
    assert found["differs_at"]["middle"] == 2


@pytest.mark.parametrize(
    ("positive", "negative", "way", "sentence"),
    [
        (["a", "b"], ["c", "d", "e"], "prefix",
         "2 positive instructions and 3 negative ones do not pair"),
        ([" "], ["c"], "prefix", "an instruction must not be empty"),
        (["a"], ["{prompt}"], "prefix", "an instruction must not be empty"),
        (["a"], ["a"], "prefix",
         "the positive and the negative instruction are the same"),
        (["a {prompt}"], ["b"], "system", "a system turn has no place for {prompt}"),
        (["a"], ["b"], "suffix",
         'unknown way of a persona "suffix"; expected prefix or system'),
    ],
)  # fmt: skip
def test_instructions_that_make_no_pairs_are_refused(positive, negative, way, sentence):
    with pytest.raises(SterError) as caught:
        make_persona_pairs(positive, negative, PROMPTS, way=way)
    assert caught.value.sentence == sentence


@pytest.fixture(scope="module")
def templated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("templated")
    write_toy_checkpoint(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text() or "{}")
    config["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load(folder)


@pytest.mark.parametrize("asked", [None, "what is it"])
def test_system_pairs_are_read_as_the_conversations_that_they_are(templated, asked):
    pair = ContrastPair(
        positive="the sea",
        negative="the sea",
        prompt=asked,
        positive_system="calm",
        negative_system="storm",
    )
    read = templated.activations(PairSet.of([pair]), layers=2)
    assert read.labels["side"] == ("positive", "negative")
    rows = read.array
    before = [] if asked is None else [{"role": "user", "content": asked}]
    role = "user" if asked is None else "assistant"
    chats = [
        [
            {"role": "system", "content": system},
            *before,
            {"role": role, "content": "the sea"},
        ]
        for system in ("calm", "storm")
    ]
    expected = templated.activations(chats, layers=2).array
    np.testing.assert_array_equal(rows, expected)
    found: Any = templated.inspect(PairSet.of([pair])).document
    assert found["differs_at"]["middle"] == 1
    vector = templated.train(PairSet.of([pair]), layers=2)
    difference = (expected[0] - expected[1]).ravel()
    np.testing.assert_allclose(
        vector.array[0], difference / np.linalg.norm(difference), atol=1e-6
    )


def test_system_pairs_are_not_scored_and_need_a_template(templated, tmp_path):
    pairs = make_persona_pairs(["calm"], ["storm"], PROMPTS, way="system")
    vector = templated.train(pairs, layers=2)
    trial = StrengthTrial.of("1,2")
    with pytest.raises(SterError) as caught:
        templated.evaluate(pairs, vector, trial)
    assert caught.value.sentence == (
        "pair 1 has a system turn, and pairs with one are read but not scored"
    )
    write_toy_checkpoint(tmp_path)
    with pytest.raises(SterError, match="needs the model's chat template"):
        load(tmp_path).train(pairs, layers=2)
