"""Chats as prompts: read whole, gone on with, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster import Activations, PromptSet, Runtime
from ster.checkpoint.template.chat import (
    DROPS_EARLIER,
    DROPS_PROMPT,
    DROPS_RESPONSE,
    ChatTemplate,
)
from ster.errors import PromptError, TemplateError
from tests.checkpoints import make_config, write_checkpoint
from tests.light import Notes, Warnings

# w11, w12 and w13 stand for the heads of turns; w14 opens the assistant's.
TEMPLATE = (
    "{% set heads = {'user': 'w11', 'assistant': 'w12', 'system': 'w13'} %}"
    "{% for m in messages %}{{ heads[m.role] + ' ' + m.content + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}w14{% endif %}"
)
CHAT = [
    {"role": "system", "content": "w20 w21"},
    {"role": "user", "content": "w22"},
    {"role": "assistant", "content": "w23 w24"},
    {"role": "user", "content": "w25 w26"},
]
RENDERED = "w13 w20 w21 w11 w22 w12 w23 w24 w11 w25 w26 w14"
ANSWERED = CHAT[:3]
ANSWERED_RENDERED = "w13 w20 w21 w11 w22 w12 w23 w24"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chats") / "model"
    return write_checkpoint(folder, make_config(), chat_template=TEMPLATE).directory


@pytest.fixture(scope="module")
def runtime(folder: Path) -> Runtime:
    return ster.load(folder)


@pytest.fixture(scope="module")
def raw(folder: Path) -> Runtime:
    return ster.load(folder, chat_template="off")


def test_rows_of_chats_are_those_of_the_rendered_template(
    runtime: Runtime, raw: Runtime
):
    read = runtime.activations([CHAT, "w30", {"messages": ANSWERED}])
    texts = [RENDERED, "w11 w30 w14", ANSWERED_RENDERED]
    np.testing.assert_array_equal(read.array, raw.activations(texts).array)
    assert read.prompts == ("w25 w26", "w30", "w23 w24")
    alone = runtime.activations(["w30"]).array[0]
    np.testing.assert_allclose(read.array[1], alone, rtol=0, atol=1e-4)


def test_a_document_is_written_of_chats_too(runtime: Runtime, tmp_path: Path):
    runtime.write_activations([CHAT, "w30"], tmp_path / "a.json")
    written = Activations.load(tmp_path / "a.json")
    expected = runtime.activations([CHAT, "w30"])
    np.testing.assert_array_equal(written.array, expected.array)
    assert written.prompts == expected.prompts


def test_chats_are_gone_on_with(runtime: Runtime, raw: Runtime):
    asked: Any = [CHAT, "w30", [CHAT[1]]]
    (of_chat, of_text, of_turn) = runtime.answers(asked, max_new_tokens=4)
    expected = raw.answers([RENDERED, "w11 w30 w14", "w11 w22 w14"], max_new_tokens=4)
    assert [of_chat.token_ids, of_text.token_ids, of_turn.token_ids] == [
        each.token_ids for each in expected
    ]
    assert (of_chat.prompt, of_text.prompt) == ("w25 w26", "w30")
    assert list(runtime.generate_all(asked, max_new_tokens=4)) == [
        of_chat.text,
        of_text.text,
        of_turn.text,
    ]


def test_the_system_turn_goes_before_a_chat(runtime: Runtime):
    (inside,) = runtime.generate_all([CHAT], max_new_tokens=4)
    given: Any = runtime.generate_all([CHAT[1:]], system="w20 w21", max_new_tokens=4)
    assert [*given] == [inside]


@pytest.mark.parametrize(
    ("chat", "system", "sentence"),
    [
        (CHAT, "w40", "prompt 1 has a system turn of its own, and another is given"),
        (
            ANSWERED,
            None,
            "prompt 1 ends with the assistant's turn, so nothing is left to answer",
        ),
    ],
)
def test_a_chat_that_cannot_be_answered_is_refused_at_once(
    runtime: Runtime, chat: Any, system: str | None, sentence: str
):
    with pytest.raises(PromptError) as refusal:
        runtime.answers([chat], system=system)
    assert refusal.value.sentence == sentence


def test_without_a_template_only_a_chat_of_one_turn_is_a_text(raw: Runtime):
    np.testing.assert_array_equal(
        raw.activations([[CHAT[1]]]).array, raw.activations(["w22"]).array
    )
    for run in (raw.activations, raw.answers):
        with pytest.raises(PromptError) as refusal:
            run(["w30", CHAT])
        assert refusal.value.sentence == (
            "a conversation of several turns needs the model's chat template, and this "
            "run's chat template is off"
        )
        assert refusal.value.prompt == 2


def test_columns_of_prompts_reach_every_run(runtime: Runtime, tmp_path: Path):
    (tmp_path / "p.jsonl").write_text('{"text": "w30", "n": 1}\n"w31"\n')
    prompts = PromptSet.load(tmp_path / "p.jsonl")
    expected = runtime.activations(["w30", "w31"])
    np.testing.assert_array_equal(runtime.activations(prompts).array, expected.array)
    asked = np.array(["w30", "w31"])
    np.testing.assert_array_equal(runtime.activations(asked).array, expected.array)
    assert len([*runtime.answers(prompts, max_new_tokens=1)]) == 2


def whole(source: str, chat: Any, reporter: Notes) -> str:
    template = ChatTemplate(source, {}, reporter)
    template.check()
    ((text,),) = template.render_whole([chat])
    return text


ONLY = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("chat", "sentence"),
    [
        ([CHAT[1], {"role": "tool", "content": "w50"}], DROPS_PROMPT),
        ([CHAT[1], CHAT[0]], DROPS_PROMPT),
        (ANSWERED, DROPS_RESPONSE),
    ],
)
def test_a_template_that_drops_the_last_turn_is_refused(chat: Any, sentence: str):
    with pytest.raises(TemplateError) as refusal:
        whole(ONLY, chat, Warnings())
    assert refusal.value.sentence == sentence


def test_a_template_that_drops_an_earlier_question_warns_once():
    reporter = Warnings()
    assert whole("{{ messages[-1].content }}", CHAT[1:], reporter) == "w25 w26"
    assert reporter.warnings == [DROPS_EARLIER]
    # Thinking and answers of the past are taken out by many templates.
    users = ONLY
    assert whole(users, CHAT[1:], Notes()) == "w22w25 w26"


def test_a_turn_has_what_the_template_reads(tmp_path: Path):
    template = "{% for m in messages %}{{ m.name }} {{ m.content }} {% endfor %}"
    made = write_checkpoint(tmp_path, make_config(), chat_template=template)
    named = {"role": "user", "content": "w22", "name": "w40"}
    chat = json.loads(json.dumps([named]))
    read = ster.load(made.directory).activations([chat])
    expected = ster.load(made.directory, chat_template="off").activations(["w40 w22"])
    np.testing.assert_array_equal(read.array, expected.array)
