"""A pair's own prompt: its sides are read and scored as the assistant's answers."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from ster import ContrastPair, PairSet, StrengthTrial, load, write_toy_checkpoint
from ster.checkpoint.template.chat import TemplateRefusal
from ster.checkpoint.tokenizer import load_encoder
from ster.checkpoint.tokens.bounds import TokenIds
from ster.checkpoint.tokens.responses import EncodedResponses, find_starts, join
from ster.decoder.whole import WholeModel
from ster.errors import DocumentError, PromptError, TemplateError
from ster.runs.scoring import score_responses
from ster.runtime import Runtime
from ster.stream.changes import Deltas
from tests.golden.text_cases import TEXT_CASES, write_text_case
from tests.light import Folder, Notes
from tests.test_responses import ALTERNATING, TURNS, encoder, raw

ASKED = "describe the evening lake ."
PAIRS = PairSet.of(
    [
        ContrastPair(prompt=ASKED, positive="the sea is calm .", negative="the wind"),
        ContrastPair(positive="a soft breeze .", negative="thunder rolls ."),
    ],
    trait_name="calm",
)
# Heads of turns are words of the toy checkpoint.
TOY_TURNS = (
    "{% for m in messages %}{{ 'the' if m.role == 'user' else 'a' }} {{ m.content }} "
    "{% endfor %}{% if add_generation_prompt %}a{% endif %}"
)
STRICT = (
    "{% if messages[0].role != 'user' %}{{ raise_exception('no user') }}{% endif %}"
    + TOY_TURNS
)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("models") / "toy"
    write_toy_checkpoint(folder)
    return load(folder)


def ids(*numbers: int) -> TokenIds:
    return array("i", numbers)


def with_template(folder: Path, template: str) -> Runtime:
    write_toy_checkpoint(folder / "toy")
    config = folder / "toy" / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": template}))
    return load(folder / "toy")


def load_pairs(folder: Path, *pairs: dict[str, Any]) -> PairSet:
    path = folder / "p.json"
    path.write_text(json.dumps({"pairs": pairs}))
    return PairSet.load(path)


def sides(**more: Any) -> dict[str, Any]:
    return {"positive": "a", "negative": "b", **more}


def test_some_pairs_of_a_document_have_a_prompt(tmp_path):
    pairs = load_pairs(tmp_path, sides(prompt=" q\n"), sides(), sides(prompt=None))
    assert [pair.prompt for pair in pairs] == [" q\n", None, None]
    assert pairs.prompts == ["a", "b"] * 3
    assert pairs.asked == [" q\n", " q\n", None, None, None, None]


@pytest.mark.parametrize("wrong", [3, True, ["q"], {}])
def test_a_documents_prompt_that_is_no_string_is_refused(tmp_path, wrong):
    with pytest.raises(DocumentError) as refused:
        load_pairs(tmp_path, sides(), sides(prompt=wrong))
    assert refused.value.causes == ("`prompt` of pairs[1] is no string",)


@pytest.mark.parametrize("blank", ["", " \n", "\u2003"])
def test_a_blank_prompt_is_refused_with_its_pairs_number(tmp_path, blank):
    with pytest.raises(DocumentError) as refused:
        load_pairs(tmp_path, sides(), sides(prompt=blank))
    sentence = f"pair set {tmp_path / 'p.json'} contains an empty prompt"
    facts = refused.value.sentence, refused.value.prompt, refused.value.found
    assert facts == (sentence, 2, blank)


@pytest.mark.parametrize(
    ("key", "text", "fault"),
    [
        ("prompt", 3, "a prompt that is no string"),
        ("prompt", " ", "an empty prompt"),
        ("prompt", "\ud800", "a prompt with a lone surrogate, which is no character"),
        ("positive", "\ud800", "a side with a lone surrogate, which is no character"),
        ("negative", "a\udfff", "a side with a lone surrogate, which is no character"),
    ],
)
def test_pairs_of_a_notebook_are_checked_too(key, text, fault):
    with pytest.raises(DocumentError) as refused:
        PairSet.of([("a", "b"), ContrastPair(**sides(**{key: text}))])
    assert refused.value.sentence == f"pair set contains {fault}"
    assert refused.value.prompt == 2


@pytest.mark.parametrize(
    ("prompt", "text", "whole"),
    [
        ("w5", "w7", "w5 w7"),
        ("w5\n", "w7", "w5\nw7"),
        ("w5", " w7", "w5 w7"),
        ("w5", "\u2003w7", "w5\u2003w7"),
        (None, "w7", "w7"),
    ],
)
def test_one_space_joins_what_no_white_space_parts(prompt, text, whole):
    assert join(prompt, text) == whole


def test_without_a_template_an_answer_follows_its_prompt(tmp_path):
    encodes = encoder(tmp_path, None)
    expected = [raw(tmp_path, "w5 w6 w7"), raw(tmp_path, "w8")]
    texts, prompts = ["w7", "w8"], ["w5 w6", None]
    assert [ids.tolist() for ids in encodes.encode(texts, prompts)] == expected
    got = encodes.encode_responses(texts, prompts)
    assert [ids.tolist() for ids in got.token_ids] == expected
    assert got.forms == ("after prompt", "alone")
    assert got.starts == (2, 1)


@pytest.mark.parametrize("template", [TURNS, ALTERNATING])
def test_a_template_reads_an_answer_as_the_assistants_turn(tmp_path, template):
    got = encoder(tmp_path, template).encode(["w7", "w8"], ["w5", None])
    (tmp_path / "tokenizer_config.json").unlink()
    assert [ids.tolist() for ids in got] == [
        raw(tmp_path, "w1 w5 w2 w7"),
        raw(tmp_path, "w1 w8"),
    ]


def test_an_opened_turn_belongs_to_the_prompt(tmp_path):
    opened = TURNS + "{% if add_generation_prompt %}w2{% endif %}"
    encodes = encoder(tmp_path, opened)
    assert encodes.encode(["w5"])[0].tolist() == [0, 5, 0]
    assert encodes.encode(["w7"], ["w5"])[0].tolist() == [0, 5, 0, 7]
    assert encodes.encode_responses(["w7"], ["w5"]).starts == (3,)


@pytest.mark.parametrize("mode", ["auto", "off"])
@pytest.mark.parametrize("name", TEXT_CASES)
@pytest.mark.parametrize("prompt", ["Why is the sea quiet?", "stone\n", "light 水"])
def test_an_answer_begins_where_its_own_text_does(tmp_path, name, mode, prompt):
    write_text_case(tmp_path, TEXT_CASES[name])
    encodes = load_encoder(Folder(tmp_path), mode, Notes())
    got = encodes.encode_responses(["the harbour lies still."], [prompt])
    ids, start = got.token_ids[0].tolist(), got.starts[0]
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.decode(ids[start:]).strip() == "the harbour lies still."
    assert prompt.strip() in tokenizer.decode(ids[:start])


def test_an_answer_is_refused_where_its_prompt_is_dropped(tmp_path):
    source = "{% for m in messages %}{% if m.role == 'assistant' or loop.length == 1 %}"
    encodes = encoder(tmp_path, source + "{{ m.content }}{% endif %}{% endfor %}")
    with pytest.raises(TemplateError) as refused:
        encodes.encode(["w8", "w7"], [None, "w5"])
    assert refused.value.sentence == "this model's chat template drops the prompt"
    assert refused.value.prompt == 2


@pytest.mark.parametrize("first", [None, "w5"])
def test_a_refused_answer_to_a_prompt_names_the_way_out(tmp_path, first):
    source = (
        "{% if messages[-1].content == 'w8' %}{{ raise_exception('x') }}{% endif %}"
    )
    encodes = encoder(tmp_path, source + ALTERNATING)
    with pytest.raises(TemplateError) as refused:
        encodes.encode_responses(["w7", "w8"], [first, "w5"])
    assert refused.value.sentence == "this model's chat template failed to render: x"
    assert refused.value.prompt == 2
    assert refused.value.causes == ("--chat-template off encodes raw text",)
    assert not isinstance(refused.value, TemplateRefusal)


def test_an_answer_without_a_token_of_its_own_is_refused():
    with pytest.raises(PromptError, match="^tokenizer produced no tokens$") as refused:
        find_starts([ids(5, 7), ids(5, 6)], [ids(5), ids(5, 6, 8)])
    assert refused.value.prompt == 2


class Summing(WholeModel):
    """Says of a response the sum of its ids, the first left out."""

    def score_responses(
        self, responses: Sequence[Any], deltas: Deltas, prompt_lengths: Sequence[int]
    ) -> list[float]:
        assert responses or not deltas
        return [float(sum(ids[1:])) for ids in responses]

    def read_rows(self, *_: Any) -> Any:
        raise NotImplementedError

    def write_tokens(self, *_: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    @property
    def max_position_embeddings(self) -> int:
        raise NotImplementedError


def test_a_whole_model_scores_an_answer_without_its_prompt():
    responses = EncodedResponses(
        token_ids=[ids(9, 1, 2, 4), ids(9, 1, 8), ids(9, 3)],
        forms=("after prompt", "after prompt", "alone"),
        starts=(2, 2, 1),
    )
    model: Any = Summing()
    assert score_responses(model, responses, [{}]) == [[6.0, 8.0, 3.0]]


def test_of_an_answer_only_its_own_tokens_are_scored(toy):
    texts = ["the sea is calm .", "a soft breeze ."]
    whole = toy.score_responses([f"{ASKED} {text}" for text in texts])
    (before,) = toy.score_responses([ASKED])
    found = toy.score_responses(texts, prompts=[ASKED] * 2)
    assert found == pytest.approx([each - before for each in whole], abs=1e-4)
    mixed = toy.score_responses(texts, prompts=[ASKED, None])
    assert mixed[1] == pytest.approx(toy.score_responses(texts)[1], abs=1e-5)


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        ([ASKED, " "], "prompt must not be empty"),
        ([ASKED, 3], "a prompt must be a string, not int"),
        ([ASKED], "2 responses cannot answer 1 prompts"),
        (ASKED, "prompts must be a list of strings, not one string"),
    ],
)
def test_prompts_that_nothing_can_answer_are_refused(toy, prompts, sentence):
    with pytest.raises(PromptError) as refused:
        toy.score_responses(["the sea", "a storm"], prompts=prompts)
    assert refused.value.sentence == sentence


def test_pairs_are_read_after_their_prompts(toy):
    texts = [f"{ASKED} the sea is calm .", f"{ASKED} the wind", *PAIRS.prompts[2:]]
    rows = toy.activations(texts).array
    assert toy.activations(PAIRS).array == pytest.approx(rows, abs=1e-6)
    difference = np.mean(rows[0::2] - rows[1::2], axis=0)
    difference /= np.linalg.norm(difference, axis=1, keepdims=True)
    assert toy.train(PAIRS).array == pytest.approx(difference, abs=1e-5)


def test_rows_of_pairs_say_their_pair_and_side(toy):
    acts = toy.activations(PAIRS)
    assert acts.labels == {
        "pair": (0, 0, 1, 1),
        "side": ("positive", "negative") * 2,
    }
    assert acts[[3]].labels == {"pair": (1,), "side": ("negative",)}
    assert toy.activations(PAIRS.prompts).labels == {}


def test_under_a_template_pairs_are_read_as_turns(toy, tmp_path):
    texts = [
        f"the {ASKED} a the sea is calm .",
        f"the {ASKED} a the wind",
        "the a soft breeze . a",
        "the thunder rolls . a",
    ]
    found = with_template(tmp_path, TOY_TURNS).activations(PAIRS)
    assert found.array == pytest.approx(toy.activations(texts).array, abs=1e-6)
    assert list(found.prompts) == PAIRS.prompts


@pytest.mark.filterwarnings("ignore:no strength is chosen")
@pytest.mark.parametrize(
    ("template", "forms"),
    [
        (TOY_TURNS, {"after prompt": 1, "alone": 1}),
        (STRICT, {"after empty user turn": 1, "after prompt": 1}),
    ],
)
def test_strengths_say_how_many_pairs_got_which_form(tmp_path, template, forms):
    runtime = with_template(tmp_path, template)
    vector = runtime.train(PAIRS)
    trial = StrengthTrial.of([2])
    report = runtime.evaluate(PAIRS, vector, trial).document
    strength: Any = report["strength"]
    assert strength["response_forms"] == list(forms)
    assert strength["response_form_counts"] == forms
    scores = [
        np.array(
            runtime.score_responses(PAIRS.prompts, prompts=PAIRS.asked, steer=steer)
        )
        for steer in ([], [vector * 2.0])
    ]
    rises = scores[1] - scores[0]
    (candidate,) = strength["candidates"]
    expected = float(np.mean(rises[0::2] - rises[1::2]))
    assert candidate["mean_shift"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_one_form_is_not_counted(toy):
    pairs = PairSet.of([("the sea is calm .", "the wind")])
    report = toy.evaluate(pairs, toy.train(pairs), StrengthTrial.of([1])).document
    strength: Any = report["strength"]
    assert strength["response_forms"] == ["alone"]
    assert "response_form_counts" not in strength


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_pairs_that_are_left_out_are_not_counted(toy):
    vector = toy.train(PAIRS)
    trial = StrengthTrial.of([1], max_sequence=5)
    strength: Any = toy.evaluate(PAIRS, vector, trial).document["strength"]
    assert (strength["scored_pairs"], strength["skipped_long"]) == (1, 1)
    assert strength["response_forms"] == ["alone"]
