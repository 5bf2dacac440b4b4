"""The loop of a conversation, without a terminal and without a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ster.cli.conversation import (
    COMMANDS,
    ONCE,
    AnswerStopped,
    Conversation,
    Loop,
    Weighted,
)
from ster.errors import DocumentError, PromptError
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength

CALM = SteeringVector(
    layers=(1,),
    array=np.ones((1, 4), np.float32),
    model="toy",
    trait_name="calm\x1b[2J",
    method="caa",
)
STEERED = [(CALM, ONCE)]


class Talk:
    """A conversation whose answers repeat what they were asked, and how."""

    def __init__(self, **words: Any) -> None:
        self.state = Conversation(**words)
        self.asked: list[tuple[list[dict[str, str]], float | None]] = []
        self.told: list[str] = []
        self.refused: list[str] = []
        self.pieces: Any = None

    def answer(self, state: Conversation) -> Iterator[str]:
        length = [abs(each.strength.value) for each in state.steer]
        self.asked.append((state.messages, length[0] if length else None))
        return (
            self.pieces() if self.pieces else iter(["an ", f"answer {len(self.asked)}"])
        )

    def load(self, path: str) -> Weighted:
        if path != "calm.json":
            raise DocumentError(f"failed to read {path}")
        return CALM, ONCE

    def hears(self, *lines: str) -> str:
        loop = Loop(
            state=self.state,
            answer=self.answer,
            load=self.load,
            tell=self.told.append,
            refuse=lambda error: self.refused.append(error.sentence),
        )
        return "".join(loop.run([f"{line}\n" for line in lines]))

    @property
    def roles(self) -> list[str]:
        return [turn["role"] for turn in self.state.turns]


def test_every_answer_knows_all_turns_before_it():
    talk = Talk(system="be brief")
    assert talk.hears("hello", "", "   ", " and now? ") == "an answer 1\nan answer 2\n"
    assert [
        [(turn["role"], turn["content"]) for turn in messages]
        for messages, _ in talk.asked
    ] == [
        [("system", "be brief"), ("user", "hello")],
        [
            ("system", "be brief"),
            ("user", "hello"),
            ("assistant", "an answer 1"),
            ("user", "and now?"),
        ],
    ]
    assert (talk.told, talk.refused) == ([], [])


def test_a_strength_counts_from_the_next_answer_on():
    talk = Talk(vectors=STEERED, strength=Strength(value=2.0))
    talk.hears("a", "/strength -4", "b", "/strength 0", "c", "/strength", "/strength 1")
    assert [strength for _, strength in talk.asked] == [2.0, 4.0, None]
    assert talk.told == [
        rf"calm\u{{1b}}[2J (caa, 1 layer) at strength {each}"
        for each in ("-4", "0", "0", "1")
    ]


def test_a_strength_may_count_in_norms_but_not_twice():
    talk = Talk(vectors=[(CALM, Strength(value=0.1, of_norm=True)), (CALM, ONCE)])
    talk.hears("/strength 2", "/strength 0.05n", "/vector calm.json", "/strength 0.5n")
    assert len(talk.refused) == 1
    assert "twice" in talk.refused[0]
    assert [each.count("calm") for each in talk.told] == [2, 1, 1]
    assert talk.told[0].endswith("at strength 2")
    assert "at strength 0.2n, " in talk.told[0]
    assert talk.told[2].endswith("at strength 0.5n")


def test_a_strength_without_a_vector_says_so():
    talk = Talk()
    talk.hears("/strength 4", "a")
    assert talk.told == ["strength 4, but there is no vector: /vector FILE"]
    assert talk.asked[0][1] is None


@pytest.mark.parametrize("word", ["x", "nan", "inf", "1,2", "1e999", "4 5", ","])
def test_a_strength_that_is_no_number_changes_nothing(word: str):
    talk = Talk(vectors=STEERED, strength=Strength(value=2.0))
    talk.hears(f"/strength {word}", "a")
    assert len(talk.refused) == 1
    assert (talk.state.strength.value, talk.asked[0][1]) == (2.0, 2.0)


def test_a_vector_is_loaded_and_a_bad_one_changes_nothing():
    talk = Talk()
    talk.hears("/vector calm.json", "/vector other.json", "a", "/vector")
    assert talk.refused == ["failed to read other.json"]
    assert talk.asked[0][1] == 1.0
    assert len(talk.told) == 2


def test_a_system_turn_is_set_and_taken_away():
    talk = Talk()
    talk.hears("/system be kind", "a", "/system", "b")
    assert [messages[0]["role"] for messages, _ in talk.asked] == ["system", "user"]
    assert talk.told == ["the system's turn is set", "no system's turn"]


def test_again_answers_the_last_turn_anew():
    talk = Talk()
    out = talk.hears("/again", "a", "b", "/again")
    assert talk.refused == ["there is nothing to answer yet"]
    assert out == "an answer 1\nan answer 2\nan answer 3\n"
    assert talk.asked[1] == talk.asked[2]
    assert talk.roles == ["user", "assistant", "user", "assistant"]
    assert talk.state.turns[-1]["content"] == "an answer 3"


def test_reset_forgets_turns_and_keeps_the_rest():
    talk = Talk(system="s", vectors=STEERED, strength=Strength(value=3.0))
    talk.hears("a", "/reset", "b")
    messages, strength = talk.asked[1]
    assert [turn["content"] for turn in messages] == ["s", "b"]
    assert strength == 3.0


def test_quit_ends_and_what_follows_is_not_read():
    talk = Talk()
    assert talk.hears("a", "/quit", "b") == "an answer 1\n"
    assert len(talk.asked) == 1


def test_help_names_every_command():
    talk = Talk()
    talk.hears("/help")
    assert all(f"/{name}" in talk.told[0] for name in COMMANDS)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("/strenght 4", "did you mean /strength?"),
        ("/xyz", "/help lists them"),
        ("/", "/help lists them"),
        ("/QUIT", "/help lists them"),
    ],
)
def test_an_unknown_command_is_no_turn(line: str, meant: str):
    talk = Talk()
    talk.hears(line)
    (refused,) = talk.refused
    assert refused.startswith('unknown command "/')
    assert refused.endswith(meant)
    assert talk.asked == []


def test_two_slashes_send_one():
    talk = Talk()
    talk.hears("//quit now")
    assert talk.state.turns[0]["content"] == "/quit now"


def test_a_refused_turn_is_forgotten_and_the_conversation_goes_on():
    talk = Talk()

    def refuse() -> Iterator[str]:
        yield from ()
        raise PromptError("too long")

    talk.hears("a")
    talk.pieces = refuse
    talk.hears("b", "/again")
    talk.pieces = None
    talk.hears("c")
    assert talk.refused == ["too long", "too long"]
    contents = [turn["content"] for turn in talk.state.turns]
    assert contents == ["a", "an answer 1", "c", "an answer 4"]


@pytest.mark.parametrize(
    ("said", "roles"),
    [(["some", " words"], ["user", "assistant"]), ([], []), (["  "], [])],
)
def test_what_a_stopped_answer_has_said_stays(said: list[str], roles: list[str]):
    talk = Talk()

    def stopped() -> Iterator[str]:
        yield from said
        raise AnswerStopped

    talk.pieces = stopped
    out = talk.hears("a")
    assert talk.roles == roles
    assert "stopped" in talk.told[0]
    assert out == ("some words\n" if roles else "".join(said))
    talk.pieces = None
    talk.hears("b")
    assert talk.roles == [*roles, "user", "assistant"]
