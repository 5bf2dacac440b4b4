"""Conversations of several turns, as the library takes them."""

from __future__ import annotations

from typing import Any

import pytest

import ster
from ster.errors import PromptError, UsageError
from ster.runs.turns import check_turns

Runtime = ster.Runtime
USER = {"role": "user", "content": "the sea"}
ANSWER = {"role": "assistant", "content": "calm"}
SYSTEM = {"role": "system", "content": "quiet"}
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("turns") / "toy"
    ster.write_toy_checkpoint(folder)
    return ster.load(folder)


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("turns") / "toy"
    ster.write_toy_checkpoint(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return ster.load(folder)


def test_turns_are_read_one_after_the_other(chatty: Runtime, plain: Runtime):
    turns = [SYSTEM, USER, ANSWER, {"role": "user", "content": "a storm"}]
    joined = plain.generate("quiet the sea calm a storm", max_new_tokens=5)
    assert "".join(chatty.stream(turns, max_new_tokens=5)) == joined
    after = chatty.stream(turns[1:], system="quiet", max_new_tokens=5)
    assert "".join(after) == joined


def test_one_turn_of_a_user_is_a_prompt(chatty: Runtime, plain: Runtime):
    for runtime in (chatty, plain):
        answer = runtime.generate("the sea", max_new_tokens=5)
        assert "".join(runtime.stream([USER], max_new_tokens=5)) == answer


@pytest.mark.parametrize("turns", [[SYSTEM, USER], [USER, ANSWER, USER]])
def test_several_turns_need_the_template(plain: Runtime, turns: Any):
    with pytest.raises(PromptError) as refused:
        plain.stream(turns)
    assert str(refused.value) == (
        "a conversation of several turns needs the model's chat template, and this "
        "run's chat template is absent"
    )
    assert refused.value.found == "absent"


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([], "the last turn of a conversation must be the user's"),
        ([USER, ANSWER], "the last turn of a conversation must be the user's"),
        ([USER, SYSTEM], "the system's turn stands once, before all others"),
        ([SYSTEM, SYSTEM, USER], "the system's turn stands once"),
        ([{"role": "tool", "content": "x"}, USER], 'unknown role "tool"'),
        ([{"role": "user"}], "turn 1 must have a role and a content"),
        ([USER | {"name": "x"}], "turn 1 must have a role and a content"),
        ([USER, "x", USER], "turn 2 must have a role and a content"),
        ([USER | {"content": 3}], "content must be a string, not 3"),
        ([USER | {"role": None}], "role must be a string, not None"),
    ],
)
def test_what_is_no_conversation_is_refused(chatty: Runtime, turns: Any, words: str):
    with pytest.raises(UsageError) as refused:
        chatty.stream(turns)
    assert words in str(refused.value)


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_turn_is_refused(chatty: Runtime, text: str):
    with pytest.raises(PromptError, match="prompt must not be empty"):
        chatty.stream([USER, ANSWER, USER | {"content": text}])
    with pytest.raises(PromptError, match="the system's turn is empty"):
        chatty.stream([SYSTEM | {"content": text}, USER])


def test_a_system_turn_is_not_given_twice(chatty: Runtime):
    with pytest.raises(UsageError, match="the system's turn stands once"):
        chatty.stream([SYSTEM, USER], system="quiet")
    assert check_turns([SYSTEM, USER]) == [SYSTEM, USER]


@pytest.mark.parametrize("prompt", [3, None, USER, b"the sea"])
def test_what_is_neither_text_nor_turns_is_refused(chatty: Runtime, prompt: Any):
    with pytest.raises(PromptError):
        chatty.stream(prompt)


def test_a_stream_is_counted_as_an_answer(chatty: Runtime):
    before = chatty.closing_line(1.0)
    written = "".join(chatty.stream([USER], max_new_tokens=3))
    assert written
    assert chatty.closing_line(1.0) != before
    assert "answer" in chatty.closing_line(1.0)
