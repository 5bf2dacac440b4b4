"""Tokenizers and chat templates that are broken or hostile, at the command line."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from tests.cli.user import ABSENT, APPLIED, OFF, PROGRESS, User

USER = "{{ messages[0].content }}"


def set_model(**changes: object) -> Any:
    return lambda document: document["model"].update(changes)


def normalize(pattern: str) -> Any:
    step = {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}
    return lambda document: document.update(normalizer=step)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"tokens",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        "{}".encode("utf-16"),
        b'{"version": "1.0", "added_tokens": [',
        set_model(type="Nonsense"),
        set_model(vocab=None),
        set_model(vocab={"a": -1}),
        set_model(vocab={"a": 2**40}),
        normalize("("),
        lambda document: document.update(model=None),
        lambda document: document.update(pre_tokenizer={"type": "Nonsense"}),
        lambda document: document.update(added_tokens=[{"id": "one"}]),
    ],
)
def test_a_tokenizer_that_is_none_is_refused(user: User, broken):
    if isinstance(broken, bytes):
        user.write("toy/tokenizer.json", broken)
    else:
        user.tokenizer(broken)
    ran = user.runs()
    assert (ran.code, ran.out) == (1, "")
    start = "Error: failed to load tokenizer toy/tokenizer.json: "
    assert ran.err.startswith(start)
    assert ran.err.count("\n") == 1
    assert len(ran.err) > len(start) + 1
    assert not os.path.exists("o.json")


def test_a_sentencepiece_model_alone_is_refused_and_named(user: User):
    (user.folder / "toy/tokenizer.json").rename("toy/tokenizer.model")
    user.is_refused("tokenizer is missing: toy/tokenizer.json", ...)


def test_a_token_beyond_the_vocabulary_is_refused_with_its_prompt(user: User):
    user.tokenizer(lambda document: document["model"]["vocab"].update(thunder=67))
    sentence = (
        "failed to tokenize prompt: token id 67 of prompt 2 is outside the model's "
        "vocabulary of 67"
    )
    user.is_refused(sentence, said=ABSENT)


def test_a_prompt_without_tokens_is_refused(user: User):
    user.tokenizer(normalize("thunder|rolls"))
    user.is_refused("tokenizer produced no tokens", said=ABSENT)


def test_a_word_without_a_token_for_the_unknown_is_refused(user: User):
    user.tokenizer(set_model(unk_token="[NONE]"))
    user.prompts("the sea", "xyzzy")
    ran = user.runs()
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"{ABSENT}Error: failed to tokenize prompt: ")
    assert ran.err.count("\n") == 2


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", ...),
        (b"[]", "expected an object"),
        (b'{"chat_template": ', ...),
        (b'{"added_tokens_decoder": 3}', "`added_tokens_decoder` is not an object"),
        (b"\xff", "invalid UTF-8 at byte 0"),
    ],
)
def test_a_tokenizer_config_that_is_none_is_refused_unless_unused(
    user: User, data, cause
):
    user.write("toy/tokenizer_config.json", data)
    user.is_refused("invalid tokenizer config toy/tokenizer_config.json", cause)
    assert user.runs("--chat-template", "off").code == 0


PARSE = "this model's chat template does not parse: "
RENDER = "this model's chat template failed to render: "
NO_TEMPLATE = "this model's chat template list has an entry with no template"
DROPS = "this model's chat template drops the prompt"
TRIED = (
    "it was given as a text and in parts; --chat-template off encodes it as raw text"
)
NEITHER = "this model's chat_template is neither a template nor a list of them"


@pytest.mark.parametrize(
    ("published", "sentence"),
    [
        (
            "{% if %}",
            PARSE + "Expected an expression, got 'end of statement block' (line 1)",
        ),
        ("\n\n{% nonsense %}", PARSE + "Encountered unknown tag 'nonsense'. (line 3)"),
        (
            "{{ raise_exception('Only user roles are supported!') }}",
            RENDER + "Only user roles are supported!",
        ),
        (
            "{{ raise_exception('a\x1b[2J\nb') }}",
            RENDER + "a\N{REPLACEMENT CHARACTER}[2J b",
        ),
        (
            (
                "{% if messages[0].role != 'system' %}{{ raise_exception('no "
                "system turn') }}{% endif %}"
            ),
            RENDER + "no system turn",
        ),
        ("{{ messages[1].content.x }}", RENDER + "list object has no element 1"),
        ("{{ nonsense() }}", RENDER + "'nonsense' is undefined"),
        ("{{ 1 // 0 }}", RENDER + "integer division or modulo by zero"),
        (
            "{{ ''.__class__.__mro__ }}",
            RENDER + "access to attribute '__class__' of 'str' object is unsafe.",
        ),
        ("{{ 'x' * 1000000000 }}", RENDER + "a repeated sequence is too long"),
        (
            "{% for i in range(1000000000) %}{% endfor %}",
            RENDER
            + (
                "Range too big. The sandbox blocks ranges larger than "
                "MAX_RANGE (100000)."
            ),
        ),
        (
            "{% include 'config.json' %}",
            RENDER + "no loader for this environment specified",
        ),
        ([{"name": "default"}], NO_TEMPLATE),
        (["{{ x }}"], NO_TEMPLATE),
        (
            [{"name": "a", "template": USER}, {"name": "b", "template": USER}],
            (
                "this model publishes several named chat templates and none "
                "of them is the default"
            ),
        ),
        (7, NEITHER),
        (True, NEITHER),
        ({"default": 7}, NO_TEMPLATE),
    ],
)
def test_a_template_that_is_none_or_breaks_is_refused_unless_unused(
    user: User, published, sentence
):
    user.tokenizer_config(chat_template=published)
    user.is_refused(sentence)
    ran = user.runs("--chat-template", "off")
    assert (ran.code, ran.err) == (0, OFF + PROGRESS)


@pytest.mark.timeout(60)
def test_a_template_that_loops_is_stopped_within_seconds(user: User):
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    user.tokenizer_config(chat_template=loop + "{% endfor %}")
    ran = user.runs()
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"Error: {RENDER}it took longer than 5 seconds\n"


@pytest.mark.parametrize("name", ["bos_token", "eos_token"])
def test_a_token_that_a_template_writes_has_to_be_declared(user: User, name):
    user.tokenizer_config(chat_template=USER + "{{ " + name + " }}", **{name: ...})
    user.is_refused(
        f"this model's chat template uses {name}, but its tokenizer config declares "
        "none"
    )
    user.write("toy/special_tokens_map.json", json.dumps({name: {"content": "<s>"}}))
    assert user.runs().code == 0


def test_a_token_that_is_only_asked_for_need_not_be_declared(user: User):
    template = "{% if bos_token is defined and bos_token %}{{ bos_token }}{% endif %}"
    user.tokenizer_config(chat_template=template + USER, bos_token=...)
    assert user.runs().code == 0


def test_a_template_file_wins_and_is_the_one_that_is_refused(user: User):
    user.tokenizer_config(chat_template=USER)
    user.write("toy/chat_template.jinja", "{% if %}")
    user.is_refused(
        PARSE + "Expected an expression, got 'end of statement block' (line 1)"
    )
    user.write("toy/chat_template.jinja", b"\xff")
    user.is_refused("failed to read toy/chat_template.jinja", ...)


def test_a_template_that_refuses_one_prompt_says_so_before_weights_are_read(user: User):
    refuse = "{{ raise_exception('not that') }}"
    condition = "{% if 'rolls' in messages[0].content %}" + refuse + "{% endif %}"
    user.tokenizer_config(chat_template=condition + USER)
    user.damage_weights()
    user.is_refused(RENDER + "not that", said=APPLIED)


def test_a_template_that_drops_the_prompt_is_refused_before_weights(user: User):
    user.damage_weights()
    user.tokenizer_config(chat_template="")
    user.is_refused(DROPS, TRIED)


def test_a_template_that_reads_parts_only_tells_prompts_apart(user: User):
    parts = "{% for c in messages[0].content %}{{ c.text }}{% endfor %}"
    user.tokenizer_config(chat_template=parts)
    user.prompts("thunder", "the sea")
    assert user.runs().code == 0
    first, second = user.document()["records"]
    assert first["layers"] != second["layers"]


def test_a_config_with_a_repeated_key_and_infinity_is_read(user: User):
    text = '{"chat_template": 7, "model_max_length": Infinity, "chat_template": '
    user.write("toy/tokenizer_config.json", text + json.dumps(USER) + "}")
    assert user.runs().code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds address space")
def test_a_tokenizer_that_aborts_is_refused_in_one_sentence(user: User):
    grow = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 1000}
    steps = {"type": "Sequence", "normalizers": [grow] * 4}
    user.tokenizer(lambda document: document.update(normalizer=steps))
    user.is_refused(
        "failed to tokenize prompt: the process that tokenizes ended with exit status "
        "-6",
        said=ABSENT,
    )
