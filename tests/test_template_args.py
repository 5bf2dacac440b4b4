"""What a template is told beside the conversation."""

from __future__ import annotations

import json

import pytest

from ster.checkpoint.template.arguments import check_template_args, parse_template_args
from ster.checkpoint.tokenizer import load_encoder
from ster.errors import UsageError
from tests.checkpoints import word_tokenizer
from tests.light import Folder, Notes, Warnings

TEMPLATE = "{{ messages[0].content }}{% if enable_thinking %} w5{% endif %}"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("x=false", False),
        ("x=true", True),
        ("x=null", None),
        ("x=3", 3),
        ("x=-0.5", -0.5),
        ('x=["a", 1]', ["a", 1]),
        ('x={"a": 1}', {"a": 1}),
        ('x="true"', "true"),
        ("x=low", "low"),
        ("x=", ""),
        ("x=a=b", "a=b"),
        ("x=False", "False"),
        ("x=NaN", "NaN"),
        ("x=[1", "[1"),
        ("x=" + "[" * 9999, "[" * 9999),
    ],
)
def test_a_value_is_json_or_else_text(word, value):
    assert parse_template_args([word]) == {"x": value}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["x"], 'invalid template argument "x"; expected NAME=VALUE'),
        (["=3"], 'invalid template argument "=3"; expected NAME=VALUE'),
        (["a b=3"], 'invalid template argument "a b=3"; expected NAME=VALUE'),
        (["x=1", "x=1"], 'template argument "x" is given twice'),
        (["messages=[]"], 'template argument "messages" cannot be set'),
        (
            ["add_generation_prompt=false"],
            'template argument "add_generation_prompt" cannot be set',
        ),
        (["bos_token=x"], 'template argument "bos_token" cannot be set'),
    ],
)
def test_words_that_are_no_arguments_are_refused(words, sentence):
    with pytest.raises(UsageError) as refused:
        parse_template_args(words)
    assert refused.value.sentence == sentence
    assert refused.value.field == "template_args"


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, b"x"])
def test_a_value_that_json_lacks_is_refused(value):
    with pytest.raises(UsageError) as refused:
        check_template_args({"x": value})
    sentence = 'template argument "x" has a value that is no JSON'
    assert refused.value.sentence == sentence


def publish(folder, **config):
    word_tokenizer(60).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Folder(folder)


def ids(encoder, prompt="w4"):
    return encoder.encode([prompt])[0].tolist()


def test_a_template_reads_its_arguments(tmp_path):
    files = publish(tmp_path, chat_template=TEMPLATE)
    without = ids(load_encoder(files, "auto", Notes()))
    with_it = ids(load_encoder(files, "auto", Notes(), {"enable_thinking": True}))
    assert with_it == [*without, without[0] + 1]


def test_an_argument_that_the_template_does_not_read_is_warned_of(tmp_path):
    files = publish(tmp_path, chat_template=TEMPLATE)
    reporter = Warnings()
    load_encoder(files, "auto", reporter, {"enable_thinkin": True})
    assert reporter.warnings == [
        'this model\'s chat template does not read "enable_thinkin", so the argument '
        "changes nothing"
    ]


def test_an_argument_named_as_a_declared_token_is_refused(tmp_path):
    extra = {"extra_special_tokens": {"boi": "<boi>"}}
    files = publish(tmp_path, chat_template=TEMPLATE, **extra)
    with pytest.raises(UsageError, match='"boi" cannot be set'):
        load_encoder(files, "auto", Notes(), {"boi": "x"})


@pytest.mark.parametrize(("mode", "label"), [("off", "off"), ("auto", "absent")])
def test_arguments_without_a_template_are_refused(tmp_path, mode, label):
    files = publish(tmp_path)
    sentence = (
        "template arguments need the model's chat template, and this run's chat "
        f"template is {label}"
    )
    with pytest.raises(UsageError) as refused:
        load_encoder(files, mode, Notes(), {"enable_thinking": False})
    assert refused.value.sentence == sentence
