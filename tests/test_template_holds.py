"""A rendering holds what it was given, is the same in every run, and small."""

from __future__ import annotations

import pytest

from ster.checkpoint.template.chat import (
    DROPS_PROMPT,
    DROPS_SYSTEM,
    READS_CLOCK,
    ChatTemplate,
)
from ster.checkpoint.template.holding import holds
from ster.errors import TemplateError
from tests.light import Notes, Warnings

PARTS = (
    "{% for m in messages %}<{{ m.role }}>{% for c in m.content %}"
    "{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endfor %}"
)
TEXT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
FAILED = "this model's chat template failed to render: "


def whole(source: str, *contents: str, system: str | None = None, reporter=None):
    """Render prompts, each alone or after a system turn, as an encoder does."""
    template = ChatTemplate(source, {}, reporter or Notes())
    template.check()
    before = [] if system is None else [{"role": "system", "content": system}]
    chats = [[*before, {"role": "user", "content": content}] for content in contents]
    batches = template.render_whole(chats)
    return [text for batch in batches for text in batch]


def refusal(source: str, *contents: str) -> TemplateError:
    with pytest.raises(TemplateError) as refused:
        whole(source, *contents)
    return refused.value


def test_a_template_that_reads_parts_only_gets_parts():
    assert whole(PARTS, "one", "something else") == [
        "<user>one",
        "<user>something else",
    ]


def test_a_template_that_fails_on_a_text_gets_parts():
    assert whole("{{ messages[0].content[0].text.strip() }}", "one") == ["one"]


def test_a_template_that_reads_texts_gets_texts():
    assert whole(TEXT, "one") == ["<user>one"]


@pytest.mark.parametrize(
    "source",
    [
        "",
        "Hello",
        "{{ messages|length }}",
        "{{ messages[0].content|length }}",
        "{{ strftime_now('%Y') }}",
        "{% for c in messages[0].content %}{{ c.image }}{% endfor %}",
        "{% if messages[0].content is not string %}{{ messages }}{% endif %}",
    ],
)
def test_a_template_that_drops_the_prompt_is_refused_at_load(source):
    with pytest.raises(TemplateError) as refused:
        ChatTemplate(source, {}, Notes()).check()
    assert refused.value.sentence == DROPS_PROMPT
    assert "--chat-template off" in refused.value.causes[0]


def test_a_template_that_drops_one_prompt_is_refused_with_its_number():
    source = "{% if 'secret' not in messages[0].content %}{{ messages[0].content }}"
    refused = refusal(source + "{% endif %}", "one", "two", "secret three")
    assert (refused.sentence, refused.prompt) == (DROPS_PROMPT, 3)


def test_a_refused_prompt_is_numbered_across_batches(monkeypatch):
    monkeypatch.setattr("ster.checkpoint.template.chat.MAX_ASKED", 2)
    source = (
        "{% if messages[0].content == 'no' %}{{ raise_exception('no') }}{% endif %}"
    )
    refused = refusal(source + TEXT, *"abcd", "no", "e")
    assert (refused.sentence, refused.prompt) == (f"{FAILED}no", 5)


@pytest.mark.parametrize(
    ("change", "content"),
    [
        ("|trim", "\n  one \n two\t\n"),
        ("|upper", "straße und Maß"),
        ("|tojson", 'he said "no"\nand left\\ é'),
        ("|tojson(ensure_ascii=true)", "née 🌊"),
        ("|e", "a < b & 'c'"),
        (".replace('\\n', ' ')", "a\nb\n\nc"),
        (".replace('<image>', '')", "<image>what is in this picture?"),
        ("|title", "the sea"),
    ],
)
def test_a_template_may_trim_escape_or_slightly_change_a_prompt(change, content):
    (text,) = whole("[{{ messages[0].content" + change + " }}]", content)
    assert text.startswith("[")


@pytest.mark.parametrize(
    ("rendering", "text", "held"),
    [
        ("<user>one<assistant>", "one", True),
        ("<user>two<assistant>", "one", False),
        ("<user>", "!!!", False),
        ("<user>the sea rose", "the sea rose slowly again", True),
        ("<user>the", "the sea rose slowly", False),
        ("", " \n", True),
    ],
)
def test_a_text_is_held_where_half_of_its_words_stand(rendering, text, held):
    assert holds(rendering, text) is held


NO_SYSTEM = (
    "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}{% endif %}"
    "{% endfor %}"
)


def test_a_dropped_system_turn_is_a_warning_said_once():
    reporter = Warnings()
    texts = whole(NO_SYSTEM, "one", "two", system="Be brief.", reporter=reporter)
    assert texts == ["one", "two"]
    assert reporter.warnings == [DROPS_SYSTEM]


def test_a_system_turn_that_is_read_from_parts_only_is_given_in_parts():
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content[0].text }}"
        "{% elif m.content is string %}{{ m.content }}{% else %}"
        "{{ m.content[0].text }}{% endif %}|{% endfor %}"
    )
    assert whole(source, "one", system="Be brief.") == ["Be brief.|one|"]


def test_thinking_that_is_taken_out_of_an_earlier_answer_is_not_missed():
    source = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}|{% endfor %}"
    template = ChatTemplate(source, {}, Notes())
    turns = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "<think>a b c d e f</think>yes"},
        {"role": "user", "content": "two"},
    ]
    batches = template.render_whole([turns])
    assert list(batches) == [["one|yes|two|"]]


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages|map(attribute='role') }}",
        "{{ strftime_now }}",
        "{{ cycler(1) }}",
        "{{ (messages|map(attribute='role')|string)|upper }}",
        "{{ [messages|map(attribute='role')] }}",
        "{{ '%s'|format(joiner()) }}",
        "{{ 'a'.upper|e }}",
    ],
)
def test_an_address_in_a_rendering_is_refused(source):
    reason = "it writes where an object lies in memory, which differs in every run"
    refused = refusal(source + TEXT, "one")
    assert refused.sentence == FAILED + reason


def test_an_address_that_stands_in_prompt_or_template_is_text():
    source = "{# 0x7f00aa00bb00 #}{{ '0x7F00AA00BB00' }}" + TEXT
    content = "it crashed at 0x00007fffdeadbeef"
    (text,) = whole(source, content)
    assert content in text


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 7999999 }}",
        "{% for i in range(99999) %}{{ i }}{% endfor %}",
        "{% for i in range(9999) %}{{ messages[0].content }}{% endfor %}",
    ],
)
def test_a_rendering_out_of_all_proportion_is_refused_at_load(source):
    with pytest.raises(TemplateError) as refused:
        ChatTemplate(TEXT + source, {}, Notes()).check()
    reason = "it writes more text than any model takes"
    assert refused.value.sentence == FAILED + reason


def test_long_text_of_a_template_or_a_prompt_is_in_proportion():
    system = "You are helpful. " * 20_000
    (text,) = whole(system + TEXT, "the sea " * 100_000)
    assert text.startswith(system)


@pytest.mark.parametrize("message", ["", " ", " \n\t "])
def test_a_template_that_refuses_without_a_word_is_refused_in_true_words(message):
    with pytest.raises(TemplateError) as refused:
        ChatTemplate(
            "{{ raise_exception(" + repr(message) + ") }}", {}, Notes()
        ).check()
    reason = "it refuses with a message that says nothing"
    assert refused.value.sentence == FAILED + reason


@pytest.mark.parametrize("use", ["{{ bos_token }}", "{{ 'x'[:0] ~ bos_token }}"])
def test_a_token_that_is_declared_as_none_renders_as_nothing(use):
    template = ChatTemplate(use + TEXT, {"bos_token": None}, Notes())
    chat = [{"role": "user", "content": "one"}]
    assert template.render([chat], add_generation_prompt=True) == ["<user>one"]
    asked = ChatTemplate("{{ bos_token is defined }}", {"bos_token": None}, Notes())
    assert asked.render([chat], add_generation_prompt=True) == ["False"]


def test_the_clock_is_noted_by_prompts_and_not_by_the_check():
    reporter = Notes()
    template = ChatTemplate("{{ strftime_now('%Y') }}" + TEXT, {}, reporter)
    template.check()
    assert reporter.notes == []
    chat = [{"role": "user", "content": "one"}]
    list(template.render_whole([chat]))
    assert reporter.notes == [READS_CLOCK]
