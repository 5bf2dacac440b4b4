"""The choice of a model: one value, whoever makes it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from ster import loading
from ster.checkpoint.template.arguments import parse_template_args
from ster.checkpoint.tokenizer import load_encoder
from ster.cli.model import ModelFlags, with_model_flags
from ster.errors import UsageError
from ster.loading import load
from ster.runs.choice import ModelChoice
from ster.toy import write_toy_checkpoint


def test_flags_and_keywords_make_the_same_choice(monkeypatch: pytest.MonkeyPatch):
    chosen: list[ModelChoice] = []
    monkeypatch.setattr(
        loading, "open_runtime", lambda choice, **_: chosen.append(choice)
    )
    load(
        Path("m"),
        revision="r",
        precision="f16",
        chat_template="off",
        template_args={"n": 1},
        memory="2G",
    )
    flags = ModelFlags(
        model="m",
        revision="r",
        precision="f16",
        chat_template="off",
        template_args=["n=1"],
        memory="2G",
    )
    assert chosen == [flags.choice]


def test_nothing_chosen_is_the_same_too(monkeypatch: pytest.MonkeyPatch):
    chosen: list[ModelChoice] = []
    monkeypatch.setattr(
        loading, "open_runtime", lambda choice, **_: chosen.append(choice)
    )
    load("m")
    assert chosen == [ModelFlags(model="m").choice] == [ModelChoice(model="m")]


@pytest.mark.parametrize(
    ("template_args", "told"),
    [({}, {}), ({"a": False}, {"template_args": {"a": False}})],
)
def test_template_arguments_reach_the_encoder_when_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template_args: Any, told: Any
):
    write_toy_checkpoint(tmp_path / "toy")
    heard: list[dict[str, Any]] = []

    def listen(files: Any, mode: str, reporter: Any, **words: Any) -> Any:
        heard.append(words)
        return load_encoder(files, mode, reporter)

    monkeypatch.setattr(loading, "load_encoder", listen)
    load(tmp_path / "toy", template_args=template_args)
    assert heard == [told]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("a=false", False),
        ("a=3", 3),
        ("a=null", None),
        ('a=["x"]', ["x"]),
        ("a=x=y", "x=y"),
        ("a=", ""),
        ('a="3"', "3"),
        ("a=" + "[" * 100_000, "[" * 100_000),
    ],
)
def test_a_value_is_json_or_else_a_string(word: str, value: object):
    assert parse_template_args([word]) == {"a": value}


@pytest.mark.parametrize("words", [["a"], ["=a"], ["a b=1"], ["a=1", "a=2"]])
def test_what_is_no_argument_is_refused(words: list[str]):
    with pytest.raises(UsageError) as caught:
        parse_template_args(words)
    assert (caught.value.field, caught.value.found) == ("template_args", words[-1])


def test_a_command_gets_its_flags_as_one_value():
    @with_model_flags
    def command(*, name: str, flags: ModelFlags, size: int = 1, text: bool = False):
        return name, flags, size, text

    run: Any = command
    assert list(inspect.signature(run).parameters) == [
        "model",
        "name",
        *("revision", "device", "precision", "chat_template", "template_args"),
        "size",
        *("memory", "verbose"),
        "text",
    ]
    words: Any = {"revision": None, "device": "cpu", "precision": "f16", "memory": None}
    words |= {"chat_template": "off", "template_args": None, "verbose": True}
    flags = ModelFlags(model="m", precision="f16", chat_template="off", verbose=True)
    assert run(model="m", name="n", size=2, text=True, **words) == ("n", flags, 2, True)


@pytest.mark.parametrize(
    "name", ["model", "device", "precision", "chat_template", "revision"]
)
def test_a_word_that_is_no_string_is_refused_by_name(name: str):
    words: Any = {"model": "m", name: 3}
    with pytest.raises(UsageError, match=f"^{name} must be a string, not 3$") as caught:
        load(**words)
    assert (caught.value.field, caught.value.found) == (name, 3)


@pytest.mark.parametrize("arguments", [["x=1"], "x=1", {1: 2}])
def test_template_arguments_are_values_by_name(arguments: Any):
    with pytest.raises(UsageError, match="template"):
        load("m", template_args=arguments)
