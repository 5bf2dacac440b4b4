"""Turns that are streamed; ``test_conversations`` has chats among prompts."""

from __future__ import annotations

from typing import Any

import pytest

import ster
from ster.errors import PromptError

USER = {"role": "user", "content": "the sea"}
ANSWER = {"role": "assistant", "content": "calm"}
SYSTEM = {"role": "system", "content": "quiet"}
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ster.Runtime:
    folder = tmp_path_factory.mktemp("turns") / "toy"
    ster.write_toy_checkpoint(folder)
    return ster.load(folder)


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> ster.Runtime:
    folder = tmp_path_factory.mktemp("turns") / "toy"
    ster.write_toy_checkpoint(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return ster.load(folder)


def test_turns_are_read_one_after_the_other(chatty: ster.Runtime, plain: ster.Runtime):
    turns = [SYSTEM, USER, ANSWER, {"role": "user", "content": "a storm"}]
    joined = plain.generate("quiet the sea calm a storm", max_new_tokens=5)
    assert "".join(chatty.stream(turns, max_new_tokens=5)) == joined
    after = chatty.stream(turns[1:], system="quiet", max_new_tokens=5)
    assert "".join(after) == joined


def test_one_turn_of_a_user_is_a_prompt(chatty: ster.Runtime, plain: ster.Runtime):
    for runtime in (chatty, plain):
        answer = runtime.generate("the sea", max_new_tokens=5)
        assert "".join(runtime.stream([USER], max_new_tokens=5)) == answer


@pytest.mark.parametrize("turns", [[SYSTEM, USER], [USER, ANSWER, USER]])
def test_several_turns_need_the_template(plain: ster.Runtime, turns: Any):
    with pytest.raises(PromptError, match="needs the model's chat template") as refused:
        plain.stream(turns)
    assert refused.value.found == "absent"


@pytest.mark.parametrize("prompt", [[], [USER, ANSWER], 3, None])
def test_what_cannot_be_answered_is_refused(chatty: ster.Runtime, prompt: Any):
    with pytest.raises(PromptError):
        chatty.stream(prompt)


def test_a_stream_is_counted_as_an_answer(chatty: ster.Runtime):
    assert "".join(chatty.stream([USER], max_new_tokens=3))
    assert "answer" in chatty.closing_line(1.0)
