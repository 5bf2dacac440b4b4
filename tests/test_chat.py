"""Chat templates: which one counts, what it renders, and what it cannot do to us."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ster.checkpoint.confined import process as confined_process
from ster.checkpoint.template import chat
from ster.checkpoint.template import process as template_process
from ster.checkpoint.template.chat import ChatTemplate
from ster.checkpoint.template.process import TemplateProcess
from ster.checkpoint.template.published import choose_template
from ster.checkpoint.tokenizer_config import TokenizerConfig, read_tokenizer_config
from ster.errors import TemplateError, TokenizerError
from tests.light import Folder, Notes

USER = [{"role": "user", "content": "Hi é <b>"}]
TURNS = [
    *USER,
    {"role": "assistant", "content": "Ja"},
    {"role": "user", "content": "x"},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
FAILED = "this model's chat template failed to render: "


def load(path: Path, **files: object) -> ChatTemplate | None:
    for name, content in files.items():
        name = {"jinja": "chat_template.jinja"}.get(name, f"{name}.json")
        text = content if isinstance(content, str) else json.dumps(content)
        (path / name).write_text(text, encoding="utf-8")
    folder = Folder(path)
    return ChatTemplate.load(folder, read_tokenizer_config(folder), Notes())


def render(source, conversation=USER, tokens=TOKENS, *, add_generation_prompt=True):
    template = ChatTemplate(source, tokens, Notes())
    return template.render([conversation], add_generation_prompt=add_generation_prompt)[
        0
    ]


def refusal(source: str, tokens=TOKENS) -> str:
    with pytest.raises(TemplateError) as refused:
        ChatTemplate(source, tokens, Notes()).check()
    return refused.value.sentence


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>Hi é <b></s>"),
        ("a\n  {% if true %}\n  b\n  {% endif %}\n c\n", "a\n  b\n c"),
        ("{# note #}\n x {{- ' y ' -}}\n z\n\n", " x y z\n"),
        ("{{ messages|tojson }}", '[{"role": "user", "content": "Hi é <b>"}]'),
        ("{{ 'é'|tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        (
            "{{ {'b': 1, 'a': [2]}|tojson(indent=1, sort_keys=true) }}",
            '{\n "a": [\n  2\n ],\n "b": 1\n}',
        ),
        ("{{ {'a': 1}|tojson(separators=(',', ':')) }}", '{"a":1}'),
        (
            "{% for i in [1, 2, 3, 4] %}{% if i == 2 %}{% continue %}{% endif %}"
            "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "13",
        ),
        ("[{% generation %}\n{{ bos_token }}{% endgeneration %}]", "[<s>]"),
        ("{{ tools }}|{{ documents }}|{{ add_generation_prompt }}", "None|None|True"),
        (
            "{{ unknown }}{% if think is defined %}!{% endif %}{{ '<think>\n' }}",
            "<think>\n",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}"
            "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ dict(a=1).a }}",
            "11",
        ),
        ("{{ '%s-%03d'|format('q', 7) }}{{ '{:>4}'.format('a') }}", "q-007   a"),
        ("{{ 2 ** 10 }}{{ 'ab' * 2 }}{{ 'a'|center(5) }}", "1024abab  a  "),
        (
            "{{ 12345678901|round }}{{ '%d'|format(12345678901) }}",
            "1234567890112345678901",
        ),
        ("", ""),
    ],
)
def test_a_template_renders_as_transformers_renders_it(source, text):
    assert render(source) == text


def test_whole_conversations_render_with_and_without_a_generation_prompt():
    source = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    template = ChatTemplate(source, {}, Notes())
    without = "<user>Hi é <b><assistant>Ja<user>x"
    both = template.render([TURNS, USER], add_generation_prompt=True)
    assert both == [f"{without}<assistant>", "<user>Hi é <b><assistant>"]
    assert template.render([TURNS], add_generation_prompt=False) == [without]
    assert template.render([], add_generation_prompt=True) == []


@pytest.mark.parametrize("content", ['"}\n{"', "\0\x1b[0m\u2028", "\ud800", "{{ 1 }}"])
def test_the_text_of_a_prompt_comes_through_unchanged(content):
    conversation = [{"role": "user", "content": content}]
    assert render("{{ messages[0].content }}", conversation) == content


def test_a_long_prompt_is_no_reason_to_refuse():
    content = "é" * 9_000_000
    conversation = [{"role": "user", "content": content}]
    assert render("{{ messages[0].content }}", conversation) == content


@pytest.mark.parametrize("name", ["bos_token", "eos_token"])
@pytest.mark.parametrize(
    "use", ["{{ NAME }}", "{{ NAME + 'x' }}", "{{ 'x' ~ NAME }}", "{{ NAME|trim }}"]
)
def test_a_token_that_is_written_but_not_declared_is_refused(name, use):
    sentence = (
        f"this model's chat template uses {name}, "
        "but its tokenizer config declares none"
    )
    assert refusal(use.replace("NAME", name), {}) == sentence


@pytest.mark.parametrize(
    "source",
    [
        "{% if bos_token is defined %}{{ bos_token }}{% endif %}",
        "{% if bos_token %}{{ bos_token }}{% endif %}",
        "{% if add_generation_prompt %}{% else %}{{ eos_token }}{% endif %}",
        "{{ bos_token or '' }}{{ eos_token|default('') }}{{ pad_token }}",
    ],
)
def test_a_token_that_is_only_asked_for_need_not_be_declared(source):
    assert render(source, tokens={}) == ""


def test_the_clock_is_noted_once_and_only_when_it_is_read():
    reporter = Notes()
    source = "{{ strftime_now('%Y') }}{% if false %}{{ strftime_now('') }}{% endif %}"
    template = ChatTemplate(source, {}, reporter)
    texts = [template.render([USER], add_generation_prompt=True) for _ in range(2)]
    assert texts[0][0].isdigit()
    assert reporter.notes == [chat.READS_CLOCK]
    reporter = Notes()
    template = ChatTemplate(
        "{% if false %}{{ strftime_now('') }}{% endif %}", {}, reporter
    )
    template.render([USER], add_generation_prompt=True)
    assert reporter.notes == []


def test_many_conversations_render_in_their_order():
    """More than are sent together, and more text than the pipes hold both ways."""
    template = ChatTemplate("{{ messages[0].content * 2 }}", {}, Notes())
    contents = [f"{n} " + "x" * (500 * (n % 5)) for n in range(2 * chat.MAX_ASKED + 7)]
    users = [[{"role": "user", "content": content}] for content in contents]
    texts = template.render(users, add_generation_prompt=True)
    assert texts == [content * 2 for content in contents]


def test_one_refused_conversation_of_many_refuses_and_leaves_no_late_reply():
    source = "{% if messages[0].content == '3' %}{{ 1/0 }}{% endif %}{{ messages }}"
    template = ChatTemplate(source, {}, Notes())
    users = [[{"role": "user", "content": str(n)}] for n in range(9)]
    with pytest.raises(TemplateError, match="division by zero"):
        template.render(users, add_generation_prompt=True)
    (text,) = template.render([users[7]], add_generation_prompt=True)
    assert "'7'" in text


def test_random_choices_of_a_template_are_the_same_in_every_run():
    source = "{{ range(1000)|random }}"
    assert render(source) == render(source)


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("{% if x %}", "Unexpected end of template."),
        ("{{ x|nofilter }}", "No filter named 'nofilter'. (line 1)"),
        ("a\n{% do x %}", "Encountered unknown tag 'do'. (line 2)"),
        ("{{ " + "(" * 9999 + "1" + ")" * 9999 + " }}", "maximum recursion depth"),
        ("{% for a in [] %}" * 30 + "{% endfor %}" * 30, "too many statically nested"),
    ],
)
def test_a_template_that_does_not_parse_is_refused_with_the_reason(source, detail):
    sentence = refusal(source)
    assert sentence.startswith(f"this model's chat template does not parse: {detail}")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("{{ raise_exception('only a\n system turn') }}", "only a system turn"),
        ("{{ raise_exception('a\x1b[31mb\x07') }}", "a\ufffd[31mb\ufffd"),
        ("{{ x.y }}", "'x' is undefined"),
        ("{{ 'a' + 1 }}", 'can only concatenate str (not "int") to str'),
        ("{% include 'x' %}", "no loader for this environment specified"),
        (
            "{{ ''.__class__.mro() }}",
            "access to attribute '__class__' of 'str' object is unsafe.",
        ),
        (
            "{{ messages.append(1) }}",
            "access to attribute 'append' of 'list' object is unsafe.",
        ),
        (
            "{{ namespace(__init__=1) }}",
            "a namespace cannot hold the private name '__init__'",
        ),
    ],
)
def test_a_template_that_fails_is_refused_with_the_reason(source, detail):
    assert refusal(source) == FAILED + detail


def test_a_long_reason_is_cut():
    sentence = refusal("{{ raise_exception('x' * 5000) }}")
    assert sentence.endswith("x…")
    assert len(sentence) == len(FAILED) + chat.MAX_REASON


HOSTILE = {
    "endless loops": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "a gigabyte": "{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}",
    "a gigabyte set": (
        "{% set y %}{% for a in range(99999) %}{{ 'x' * 99999 }}{{ a }}{% endfor %}"
        "{% endset %}{{ y }}"
    ),
    "doubling": (
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}"
        "{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
    ),
    "doubling lists": (
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}"
        "{% set ns.s = ns.s + ns.s %}{% endfor %}"
    ),
    "powers": "{{ 9 ** (9 ** 9) }}",
    "squares": (
        "{% set ns = namespace(s=7) %}{% for i in range(60) %}"
        "{% set ns.s = ns.s * ns.s %}{% endfor %}"
    ),
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "lipsum": "{{ lipsum(10 ** 9) }}",
    "many lipsums": "{{ lipsum(n=7000000) }}",
    "repetition": "{{ 'x' * 10 ** 9 }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (10 ** 9, 1) }}",
    "percent filter": "{{ '%1000000000d'|format(1) }}",
    "format": "{{ '{:>1000000000}'.format(1) }}",
    "nested format": "{{ '{:>{}}'.format(1, 10 ** 9) }}",
    "center": "{{ 'x'|center(10 ** 9) }}",
    "methods": "{{ 'x'.ljust(10 ** 9) }}",
    "bytes": "{{ (5).to_bytes(10 ** 9, 'big') }}",
    "indent": "{{ [1]|tojson(indent=10 ** 9) }}",
    "replace": "{{ ('x' * 5000000).replace('x', 'y' * 5000000) }}",
    "join": "{{ (['x' * 5000000] * 5000000)|join }}",
    "range": "{{ range(10 ** 9)|list }}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_template_is_refused_within_seconds(source, monkeypatch):
    monkeypatch.setattr(template_process, "REPLY_SECONDS", 2.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    assert refusal(source).startswith(FAILED)
    assert time.monotonic() - start < 10
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 << (20 if sys.platform == "darwin" else 10)


def test_the_deadline_is_in_the_reason(monkeypatch):
    monkeypatch.setattr(template_process, "REPLY_SECONDS", 1.0)
    sentence = refusal(HOSTILE["endless loops"])
    assert sentence == FAILED + "it took longer than 1 seconds"


@pytest.fixture
def process() -> Iterator[TemplateProcess]:
    process = TemplateProcess("{{ messages[0].content }}", {})
    yield process
    process.close()


def ask(process: TemplateProcess, content: str = "a") -> object:
    messages = [{"role": "user", "content": content}]
    request = {"messages": messages, "add_generation_prompt": True}
    return process.ask([request])[0]["text"]


def child(process: TemplateProcess):
    started = process.confined._process
    assert started is not None
    return started


def test_one_process_answers_until_it_is_closed(process):
    assert ask(process) == "a"
    first = child(process)
    assert ask(process, "b") == "b"
    assert child(process) is first
    process.close()
    assert first.returncode == -signal.SIGKILL


def test_a_started_process_is_the_one_that_is_asked(process):
    process.start()
    first = child(process)
    assert ask(process) == "a"
    process.start()
    assert child(process) is first


def test_a_template_starts_its_process_before_it_is_checked():
    template = ChatTemplate("{% if %}", {}, Notes())
    assert child(template._process).poll() is None
    with pytest.raises(TemplateError, match="does not parse"):
        template.check()


@pytest.mark.parametrize("extra", ["{}\n", "{}"])
def test_a_process_that_says_more_than_it_is_asked_is_a_refusal(
    process, monkeypatch, extra
):
    answer = f"""
import sys
for _ in range(2): sys.stdin.readline(); print("{{}}", flush=True)
for _ in sys.stdin: sys.stdout.write("{{}}\\n" + {extra!r}); sys.stdout.flush()
"""
    monkeypatch.setattr(confined_process, "_BOOTSTRAP", answer)
    with pytest.raises(TemplateError, match="answered nonsense"):
        ask(process)


def test_a_process_that_was_killed_is_started_again(process):
    ask(process)
    child(process).kill()
    child(process).wait(60)
    assert ask(process) == "a"


def test_a_process_that_dies_while_it_is_asked_is_a_refusal(process, monkeypatch):
    ask(process)
    os.kill(child(process).pid, signal.SIGSTOP)
    threading.Timer(0.2, child(process).kill).start()
    with pytest.raises(TemplateError, match="ended with exit status -9"):
        ask(process)
    assert ask(process) == "a"


def test_a_process_that_hangs_is_a_refusal_even_when_it_reads_nothing(
    process, monkeypatch
):
    ask(process)
    monkeypatch.setattr(template_process, "REPLY_SECONDS", 0.2)
    os.kill(child(process).pid, signal.SIGSTOP)
    with pytest.raises(TemplateError, match="it took longer than 0 seconds"):
        ask(process, "x" * 1_000_000)


def test_ctrl_c_ends_the_process_and_leaves_no_late_reply(process):
    ask(process)
    first = child(process)
    os.kill(first.pid, signal.SIGSTOP)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        ask(process, "late")
    assert first.returncode == -signal.SIGKILL
    assert ask(process) == "a"


def test_the_process_ends_with_its_owner():
    process = TemplateProcess("{{ messages[0].content }}", {})
    ask(process)
    started = child(process)
    del process
    assert started.returncode == -signal.SIGKILL


def test_threads_get_their_own_answers(process):
    answers: dict[str, object] = {}

    def work(name: str) -> None:
        for i in range(20):
            answers[f"{name}{i}"] = ask(process, f"{name}{i}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 60
    assert all(asked == answered for asked, answered in answers.items())


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_starts_its_own_process_and_leaves_the_parents(process):
    ask(process)
    first = child(process)
    pid = os.fork()
    if pid == 0:
        good = ask(process) == "a" and child(process).pid != first.pid
        process.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert ask(process) == "a"
    assert child(process) is first


def test_secrets_of_the_environment_stay_outside(process, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    ask(process)
    if sys.platform == "linux":
        environment = Path(f"/proc/{child(process).pid}/environ").read_bytes()
        assert b"hf_secret" not in environment
    assert "HF_TOKEN" not in confined_process._NEEDED_VARIABLES


@pytest.mark.parametrize(
    ("executable", "reason"),
    [
        ("", "there is no Python interpreter to run it with"),
        ("/nowhere/python", "the process that renders it did not start"),
        ("/bin/cat", "ended with exit status"),
    ],
)
def test_a_process_that_cannot_start_is_a_refusal(executable, reason, monkeypatch):
    monkeypatch.setattr(sys, "executable", executable)
    assert reason in refusal("x")


def test_a_file_beside_the_config_wins_over_the_config(tmp_path):
    config = {"chat_template": "config {{ bos_token }}", "bos_token": "<s>"}
    template = load(tmp_path, jinja="file {{ bos_token }}\n", tokenizer_config=config)
    assert template is not None
    assert template.render([USER], add_generation_prompt=True) == ["file <s>"]


def test_a_file_needs_no_config_beside_it(tmp_path):
    template = load(tmp_path, jinja="{{ messages[0].content }}")
    assert template is not None
    assert template.render([USER], add_generation_prompt=True) == ["Hi é <b>"]


@pytest.mark.parametrize("config", [{}, {"chat_template": None}, {"chat_template": []}])
def test_a_checkpoint_may_publish_no_template(config, tmp_path):
    assert load(tmp_path, tokenizer_config=config) is None


def test_a_checkpoint_without_a_tokenizer_config_publishes_no_template(tmp_path):
    assert load(tmp_path) is None


def named(name: str, template: object) -> dict[str, object]:
    return {"name": name, "template": template}


@pytest.mark.parametrize(
    ("published", "chosen"),
    [
        ("text", "text"),
        ("", ""),
        ([named("tool_use", "no"), named("default", "yes")], "yes"),
        ([named("rag", "only")], "only"),
        ({"tool_use": "no", "default": "yes"}, "yes"),
        ({"rag": "only"}, "only"),
        ({}, None),
        ([{"template": "only"}], "only"),
        ([named("default", "first"), named("default", "last")], "last"),
    ],
)
def test_the_default_or_the_only_template_is_chosen(published, chosen):
    assert choose_template(published) == chosen


NO_TEMPLATE = "this model's chat template list has an entry with no template"
NO_DEFAULT = (
    "this model publishes several named chat templates and none of them is the default"
)
NEITHER = "this model's chat_template is neither a template nor a list of them"


@pytest.mark.parametrize(
    ("published", "sentence"),
    [
        ([named("default", "x"), {"name": "rag"}], NO_TEMPLATE),
        ([named("default", None)], NO_TEMPLATE),
        (["text"], NO_TEMPLATE),
        ([named("a", "x"), named("b", "y")], NO_DEFAULT),
        ({"default": 3}, NO_TEMPLATE),
        ({"a": "x", "b": "y"}, NO_DEFAULT),
        (3, NEITHER),
        (False, NEITHER),
    ],
)
def test_what_holds_no_template_is_refused(published, sentence, tmp_path):
    with pytest.raises(TemplateError) as refused:
        load(tmp_path, tokenizer_config={"chat_template": published})
    assert refused.value.sentence == sentence


def test_tokens_are_texts_or_objects_with_content():
    config = {
        "bos_token": "<s>",
        "eos_token": {"__type": "AddedToken", "content": "</s>"},
        "pad_token": None,
        "unk_token": {"lstrip": True},
        "add_bos_token": True,
        "image_token": "<image>",
        "extra_special_tokens": {"boi_token": "<boi>"},
        "model_max_length": 10**30,
    }
    assert TokenizerConfig(fields=config).special_tokens() == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": None,
        "image_token": "<image>",
        "boi_token": "<boi>",
    }


def test_the_config_wins_over_the_special_tokens_map(tmp_path):
    config = {
        "chat_template": "{{ bos_token }}{{ eos_token }}",
        "bos_token": "<s>",
        "eos_token": None,
        "model_max_length": 10**30,
    }
    legacy = {"bos_token": "<old>", "eos_token": {"content": "</old>"}}
    template = load(tmp_path, tokenizer_config=config, special_tokens_map=legacy)
    assert template is not None
    assert template.render([USER], add_generation_prompt=True) == ["<s></old>"]


@pytest.mark.parametrize("name", ["tokenizer_config", "special_tokens_map"])
@pytest.mark.parametrize("content", ["{", "[]", "3", "[" * 9999, ""])
def test_a_config_that_is_no_object_is_refused(name, content, tmp_path):
    with pytest.raises(TokenizerError) as refused:
        load(tmp_path, jinja="x", **{name: content})
    sentence = f"invalid tokenizer config {tmp_path / name}.json"
    assert refused.value.sentence == sentence
    assert refused.value.causes


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("tokenizer_config.json", TokenizerError),
        ("special_tokens_map.json", TokenizerError),
        ("chat_template.jinja", TemplateError),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(name, error, tmp_path):
    (tmp_path / "chat_template.jinja").write_text("x", encoding="utf-8")
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    with pytest.raises(error) as refused:
        load(tmp_path)
    assert refused.value.sentence == f"failed to read {tmp_path / name}"
    assert refused.value.causes == ("Is a directory (os error 21)",)


def test_a_template_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(TemplateError, match="^failed to read .*jinja"):
        load(tmp_path)
