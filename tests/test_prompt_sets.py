"""Prompts from Python: lists, arrays, tables and chats become one value."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ster import PromptSet
from ster.errors import PromptError
from tests.processes import finished

USER = {"role": "user", "content": "Hi"}
CHAT = [{"role": "system", "content": "Be brief."}, USER]


class Dataset:
    """Stands for ``datasets.Dataset``: names of columns, columns by name, rows."""

    def __init__(self, columns: dict[str, list[Any]]):
        self._columns = columns

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, name: str) -> Iterator[Any]:
        return iter(self._columns[name])

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        raise AssertionError("columns are quicker than rows")


class Stream:
    """Stands for ``datasets.IterableDataset``, which has no length."""

    def __init__(self, rows: list[dict[str, Any]]):
        self._rows = rows

    @property
    def column_names(self) -> list[str] | None:
        return None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)


class Splits(dict[str, Dataset]):
    """Stands for ``datasets.DatasetDict``."""

    @property
    def column_names(self) -> dict[str, list[str]]:
        return {name: split.column_names for name, split in self.items()}


class Arrow:
    """Stands for ``pyarrow.Table``: what it calls columns are not their names."""

    column_names = ("text", "n")
    columns = ([1], [2])

    class Column:
        def __init__(self, value: object):
            self._value = value

        def to_pylist(self) -> list[object]:
            return [self._value]

    def __getitem__(self, name: str) -> Column:
        return Arrow.Column({"text": "a", "n": 1}[name])

    def __len__(self) -> int:
        return 1


def refusal_of(given: Any) -> PromptError:
    with pytest.raises(PromptError) as refusal:
        PromptSet.of(given)
    return refusal.value


@pytest.mark.parametrize(
    "given",
    [
        ["a", "b"],
        ("a", "b"),
        iter(["a", "b"]),
        np.array(["a", "b"]),
        np.array(["a", "b"], object),
        pd.Series(["a", "b"], index=["columns", "column_names"]),
        pd.Index(["a", "b"]),
        pd.DataFrame({"prompt": ["a", "b"]}),
        pd.DataFrame({"text": pd.array(["a", "b"], "string")}, index=[5, 5]),
        Dataset({"text": ["a", "b"]}),
        Stream([{"prompt": "a"}, {"text": "b"}]),
        [{"prompt": "a"}, "b"],
        PromptSet(prompts=("a", "b")),
    ],
    ids=lambda given: type(given).__name__,
)
def test_texts_are_taken_however_they_are_held(given: Any):
    made = PromptSet.of(given)
    assert made == PromptSet(prompts=("a", "b"))
    assert list(map(type, made.prompts)) == [str, str]


def test_a_prompt_set_is_taken_as_it_is():
    made = PromptSet.of(["a"])
    assert PromptSet.of(made) is made


def test_other_columns_of_a_data_frame_are_labels_as_python_values():
    frame = pd.DataFrame(
        {
            "n": [1, 2],
            "prompt": ["a", "b"],
            "x": [0.5, None],
            "text": ["kept", None],
            "columns": ["c", "d"],
            7: [True, False],
            "kind": pd.Categorical(["u", "v"]),
        }
    )
    made = PromptSet.of(frame)
    assert made.prompts == ("a", "b")
    assert made.labels == {
        "n": (1, 2),
        "x": (0.5, None),
        "text": ("kept", None),
        "columns": ("c", "d"),
        "7": (True, False),
        "kind": ("u", "v"),
    }
    assert [type(value) for value in made.labels["n"]] == [int, int]


def test_columns_of_a_dataset_are_labels():
    made = PromptSet.of(Dataset({"id": [3, 4], "text": ["a", "b"]}))
    assert made == PromptSet(prompts=("a", "b"), labels={"id": (3, 4)})
    table: Any = Arrow()
    assert PromptSet.of(table) == PromptSet(prompts=("a",), labels={"n": (1,)})


@pytest.mark.parametrize(
    "given",
    [
        [CHAT, "b"],
        [tuple(CHAT), "b"],
        [{"messages": CHAT}, {"prompt": "b"}],
        Dataset({"messages": [CHAT, [{"role": "user", "content": "b"}]]}),
        pd.DataFrame({"messages": [np.array(CHAT), [{**USER, "content": "b"}]]}),
        Dataset({"messages": [CHAT, None], "text": [None, "b"]}),
        [[*CHAT[:1], {**USER, "name": None}], "b"],
    ],
    ids=lambda given: type(given).__name__,
)
def test_chats_keep_their_turns(given: Any):
    made = PromptSet.of(given)
    assert made.prompts == ("Hi", "b")
    assert made.chats is not None
    assert made.chats[0] == tuple(CHAT)
    assert made.conversations == [tuple(CHAT), ({"role": "user", "content": "b"},)]
    assert made.labels == {}


def test_another_field_of_a_turn_stays_for_the_template():
    made = PromptSet.of([[{**USER, "name": "Ada"}]])
    assert made.conversations == [({**USER, "name": "Ada"},)]


def test_labels_are_none_where_a_prompt_lacks_them():
    made = PromptSet.of(
        [{"prompt": "a", "n": np.int64(1)}, "b", {"text": "c", "m": []}]
    )
    assert made.labels == {"n": (1, None, None), "m": (None, None, [])}
    assert type(made.labels["n"][0]) is int


@pytest.mark.parametrize(
    ("given", "sentence", "cause"),
    [
        ([], "prompt set contains no prompts", None),
        (pd.DataFrame({"prompt": []}), "prompt set contains no prompts", None),
        ("a", "prompts must be a list of strings, not one string", None),
        (b"a", "prompts must be a list of strings, not bytes", None),
        (3, "prompts must be a list of strings, not int", None),
        ({"a"}, "prompts must be a list of strings, not set", "sorted(...)"),
        (
            {"prompt": "a"},
            "prompts must be a list of strings, not dict",
            'document["prompts"]',
        ),
        (
            Splits(train=Dataset({"text": ["a"]})),
            "prompts must be a list of strings, not Splits",
            'dataset["train"]',
        ),
        (
            pd.DataFrame({"a": ["b"], "c\n": [1]}),
            "a table of prompts needs a column prompt, text or messages",
            "the columns of this DataFrame are a, c\\n",
        ),
        (
            Dataset({}),
            "a table of prompts needs a column prompt, text or messages",
            "the columns of this Dataset are none",
        ),
        (
            pd.DataFrame([["a", "b"]], columns=["text", "text"]),
            "the column text is there twice",
            None,
        ),
        (
            np.array([["a"]]),
            "prompts must be a list of strings, not ndarray of 2 dimensions",
            None,
        ),
    ],
)
def test_what_holds_no_prompts_is_refused(given: Any, sentence: str, cause: str | None):
    refusal = refusal_of(given)
    assert refusal.sentence == sentence
    if cause is not None:
        assert cause in refusal.causes[0]


@pytest.mark.parametrize(
    ("item", "sentence", "cause"),
    [
        (" ", "prompt must not be empty", None),
        (3, "a prompt must be a string, not int", None),
        (None, "a prompt must be a string, not NoneType", None),
        ([], "a prompt must be a string, not list", None),
        (["b"], "a prompt must be a string, not list", None),
        ("\ud800", "failed to tokenize prompt: lone surrogate at character 0", None),
        (
            [{**USER, "content": "\ud800"}],
            "failed to tokenize prompt: lone surrogate at character 0",
            None,
        ),
        (
            {"prompt": 3},
            "prompt 2 cannot be read",
            "`prompt` is no string",
        ),
        (
            USER,
            "prompt 2 cannot be read",
            "a chat is a list of turns, and prompts are a list of chats",
        ),
        (
            [USER, {"role": "assistant"}],
            "prompt 2 cannot be read",
            "missing field `content` of `messages[1]`",
        ),
        (
            [USER, "b"],
            "prompt 2 cannot be read",
            "`messages[1]` is no object with `role` and `content`",
        ),
    ],
)
def test_what_is_no_prompt_is_refused_with_its_number(
    item: Any, sentence: str, cause: str | None
):
    refusal = refusal_of(["a", item])
    assert (refusal.sentence, refusal.prompt) == (sentence, 2)
    if cause is not None:
        assert cause in refusal.causes[0]


def test_a_missing_prompt_of_a_table_is_refused_with_its_number():
    refusal = refusal_of(pd.DataFrame({"prompt": ["a", None]}))
    assert (refusal.sentence, refusal.prompt) == ("prompt 2 cannot be read", 2)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"prompts": ()}, "prompt set contains no prompts"),
        (
            {"prompts": ("a",), "labels": {"n": (1, 2)}},
            "label n has 2 values for 1 prompt",
        ),
        ({"prompts": ("a",), "chats": ()}, "chats has 0 values for 1 prompt"),
        (
            {"prompts": ("a",), "chats": ((USER,),)},
            "chat 1 does not end with its prompt",
        ),
        ({"prompts": ("a",), "chats": ((),)}, "chat 1 does not end with its prompt"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(
    parts: Mapping[str, Any], sentence: str
):
    with pytest.raises(PromptError) as refusal:
        PromptSet(**parts)
    assert refusal.value.sentence == sentence


def test_a_set_counts_its_prompts_and_yields_their_texts():
    made = PromptSet.of(["a", CHAT])
    assert (len(made), list(made)) == (2, ["a", "Hi"])


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["a"], "PromptSet(1 prompt)"),
        (["a", CHAT, [USER]], "PromptSet(3 prompts, 2 chats)"),
        ([{"text": "a", "n\n": 1, "m": 2}], "PromptSet(1 prompt, labels n\\n, m)"),
        (
            [{"text": "a", **dict.fromkeys("bcdefg")}],
            "PromptSet(1 prompt, labels b, c, d, e, f, …)",
        ),
    ],
)
def test_a_set_shows_on_one_line_what_it_has(given: Any, shown: str):
    assert repr(PromptSet.of(given)) == shown


ANSWERED = [USER, {"role": "assistant", "content": "Yes?"}]


def test_a_chat_to_answer_gets_the_system_turn_before_it():
    asked = PromptSet.of([[*ANSWERED, USER], "a"]).conversations_to_answer("Be calm.")
    first = {"role": "system", "content": "Be calm."}
    assert asked == [
        (first, *ANSWERED, USER),
        (first, {"role": "user", "content": "a"}),
    ]


@pytest.mark.parametrize(
    ("chat", "system", "sentence"),
    [
        (
            ANSWERED,
            None,
            "prompt 2 ends with the assistant's turn, so nothing is left to answer",
        ),
        (
            CHAT,
            "Be calm.",
            "prompt 2 has a system turn of its own, and another is given",
        ),
    ],
)
def test_a_chat_that_cannot_be_answered_is_refused(
    chat: Any, system: str | None, sentence: str
):
    with pytest.raises(PromptError) as refusal:
        PromptSet.of(["a", chat]).conversations_to_answer(system)
    assert (refusal.value.sentence, refusal.value.prompt) == (sentence, 2)


def test_no_library_of_tables_is_imported():
    program = (
        "import sys, ster; ster.PromptSet.of([{'text': 'a'}]); "
        "sys.exit(any(name in sys.modules for name in ('pandas', 'datasets')))"
    )
    assert finished([sys.executable, "-c", program]).returncode == 0
