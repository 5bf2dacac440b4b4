"""The commands as a person runs them, on the toy checkpoint."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster import __version__
from ster.cli import model, run
from ster.documents.activations.value import Activations
from tests.cli.user import ABSENT, APPLIED, CLOCK, OFF, PROGRESS, Ran, User

PROMPTS = Path(__file__).parents[2] / "assets" / "prompts.json"
KEYS = [
    "schema_version",
    "product",
    "model",
    "model_revision",
    "hidden_size",
    "records",
]
USER = "{{ messages[0].content }}"


def assert_same(rows: Any, expected: Any) -> None:
    """Compare rows that may come from waves of other shapes."""
    np.testing.assert_allclose(rows, expected, rtol=0, atol=2e-6)


def test_two_prompts_become_the_published_numbers(user: User):
    ran = user.starts(input=str(PROMPTS), output="made/on the way/o.json")
    assert ran == Ran(0, "made/on the way/o.json\n", ABSENT + PROGRESS)
    document = user.document("made/on the way/o.json")
    assert [record["prompt"] for record in document["records"]] == json.loads(
        PROMPTS.read_bytes()
    )["prompts"]
    layers = document["records"][0]["layers"]
    assert layers["0"][:3] == pytest.approx([0.0711, -0.0236, -0.0592], abs=5e-5)


def test_the_numbers_are_those_that_were_published_for_the_toy(user: User, published):
    user.prompts(*published["prompts"])
    assert user.runs().code == 0
    first, second = user.document()["records"]
    assert first["prompt"] == published["extract"]["prompt"]
    for record, layer, name in (
        (first, "0", "layer_0_first"),
        (first, "3", "layer_3_first"),
        (second, "0", "second_prompt_layer_0_first"),
    ):
        expected = published["extract"][name]
        assert record["layers"][layer][: len(expected)] == pytest.approx(
            expected, abs=1e-5
        )


def test_the_document_has_its_keys_in_order_and_not_a_byte_too_many(user: User):
    prompts = ['a "quoted" sea\n', "größer \N{WATER WAVE} \\ \x7f"]
    user.prompts(*prompts)
    assert user.runs("--revision", "v1 final").code == 0
    text = (user.folder / "o.json").read_bytes().decode("utf-8")
    document = json.loads(text)
    assert list(document) == KEYS
    head = {key: document[key] for key in KEYS[:-1]}
    assert head == {
        "schema_version": 1,
        "product": "ster",
        "model": "toy",
        "model_revision": "v1 final",
        "hidden_size": 64,
    }
    for record, prompt in zip(document["records"], prompts, strict=True):
        assert list(record) == ["prompt", "layers"]
        assert record["prompt"] == prompt
        assert list(record["layers"]) == ["0", "1", "2", "3"]
        assert {len(row) for row in record["layers"].values()} == {64}
    compact = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    number = re.compile(r"(?<=[\[,])-?\d[^,\]]*")
    assert number.sub("#", text) == number.sub("#", compact)
    for digits in number.findall(text):
        assert _significant(digits) == _significant(str(np.float32(digits)))


def _significant(number: str) -> str:
    """Return the digits of a number that count."""
    mantissa = re.sub(r"e.*", "", number.lower()).replace(".", "").strip("-")
    return mantissa.strip("0")


@pytest.mark.parametrize("form", ["npz", "safetensors"])
def test_a_binary_document_has_the_rows_of_the_json(user: User, form):
    assert user.runs(output="o.json").code == 0
    for name in ("a", "b"):
        ran = user.runs(output=f"new/{name}.{form}")
        assert (ran.code, ran.out) == (0, f"new/{name}.{form}\n")
    first = Path(f"new/a.{form}").read_bytes()
    assert first == Path(f"new/b.{form}").read_bytes()
    loaded = Activations.load(f"new/a.{form}")
    assert np.array_equal(loaded.array, user.rows("o.json").astype(np.float32))
    assert (loaded.precision, loaded.chat_template, loaded.read) == (
        *("f32", "absent"),
        "last",
    )
    assert loaded.tokens is not None
    assert loaded.tokens.text == tuple(p.split()[-1] for p in loaded.prompts)


@pytest.mark.parametrize("revision", [None, "main", "", "refs/pr/1", 'a"b'])
def test_the_revision_of_a_directory_is_recorded_as_it_is_given(user: User, revision):
    words = () if revision is None else ("--revision", revision)
    assert user.runs(*words).code == 0
    assert user.document()["model_revision"] == revision


@pytest.mark.parametrize("model", ["toy", "./toy", "toy/", "toy/../toy/"])
def test_the_model_is_recorded_as_it_is_given(user: User, model):
    assert user.runs(model=model).code == 0
    assert user.document()["model"] == model


@pytest.mark.parametrize("output", ["o.json", "./o.json", "a/../b/ö \n.json"])
def test_stdout_is_the_output_path_as_it_is_given(user: User, output):
    ran = user.runs(output=output)
    assert (ran.code, ran.out) == (0, f"{output}\n")
    assert len(user.document(output)["records"]) == 2


@pytest.mark.parametrize(
    ("layers", "keys"),
    [
        ("all", ["0", "1", "2", "3"]),
        ("0", ["0"]),
        ("3", ["3"]),
        ("+3, 0..2,,1", ["0", "1", "3"]),
        ("002..04", ["2", "3"]),
        (" 1 ,\t2..3\u3000", ["1", "2"]),
    ],
)
def test_chosen_layers_are_the_same_rows_as_among_all(user: User, layers, keys):
    assert user.runs(output="all.json").code == 0
    assert user.runs("--layers", layers).code == 0
    records = user.document()["records"]
    assert [list(record["layers"]) for record in records] == [keys, keys]
    chosen = user.rows("all.json")[:, [int(key) for key in keys]]
    assert_same(user.rows(), chosen)


def test_the_same_line_twice_writes_the_same_bytes(user: User):
    user.tokenizer_config(chat_template="<s> " + USER)
    for name in ("a.json", "b.json"):
        assert user.runs(output=name).code == 0
    assert user.starts(output="c.json").code == 0
    a, b, c = (
        (user.folder / name).read_bytes() for name in ("a.json", "b.json", "c.json")
    )
    assert a == b == c


def test_an_older_document_is_replaced_and_a_link_to_it_stays(user: User):
    user.write("real.json", b"old")
    (user.folder / "o.json").symlink_to("real.json")
    assert user.runs().code == 0
    assert (user.folder / "o.json").is_symlink()
    assert len(user.document("real.json")["records"]) == 2


def test_every_prompt_has_its_record_in_order_and_the_ends_their_line(user: User):
    words = ["the", "sea", "is", "calm", "and", "quiet", "tonight"]
    prompts = [" ".join(words[: 1 + n % 7]) for n in range(120)]
    user.prompts(*prompts)
    ran = user.runs("--layers", "1..3")
    lines = [f"extracting prompt {n}/120\n" for n in (1, 120)]
    assert ran == Ran(0, "o.json\n", ABSENT + "".join(lines))
    records = user.document()["records"]
    assert [record["prompt"] for record in records] == prompts
    assert records[0]["layers"] == records[7]["layers"]


def test_prompts_give_the_same_rows_alone_and_in_any_order(user: User):
    prompts = ["the sea", "the sea", "the sea is", "wind", "the"]
    user.prompts(*prompts)
    assert user.runs().code == 0
    together = user.rows()
    user.prompts(*reversed(prompts))
    assert user.runs().code == 0
    assert_same(user.rows(), together[::-1])
    for prompt, rows in zip(prompts, together, strict=True):
        user.prompts(prompt)
        assert user.runs().code == 0
        assert_same(user.rows()[0], rows)


def raw_rows(user: User, *texts: str) -> Any:
    """Read texts as they are."""
    user.prompts(*texts)
    assert user.runs("--chat-template", "off", output="raw.json").code == 0
    return user.rows("raw.json")


@pytest.mark.parametrize(
    ("template", "wrapped", "notes"),
    [
        ("wind " + USER + " sea", "wind {} sea", APPLIED),
        ([{"name": "x", "template": "wind " + USER}], "wind {}", APPLIED),
        (
            [
                {"name": "tool", "template": "{% if %}"},
                {"name": "default", "template": "calm " + USER},
            ],
            "calm {}",
            APPLIED,
        ),
        (
            USER + "{% if add_generation_prompt %} answer\n{% if enable_thinking is "
            "undefined or enable_thinking %}<s>\n{% endif %}{% endif %}",
            "{} answer <s>",
            APPLIED,
        ),
        (USER + "{{ strftime_now('')[:0] }} night", "{} night", APPLIED + CLOCK),
        ("{% generation %}" + USER + "{% endgeneration %} sky", "{} sky", APPLIED),
        ("{{ bos_token }} " + USER, "<s> {}", APPLIED),
        (None, "{}", ABSENT),
        ([], "{}", ABSENT),
    ],
)
def test_a_template_is_rendered_and_what_it_does_is_said(
    user: User, template, wrapped, notes
):
    prompts = ("the sea is calm .", "thunder rolls")
    expected = raw_rows(user, *map(wrapped.format, prompts))
    user.tokenizer_config(chat_template=template)
    user.prompts(*prompts)
    assert user.runs() == Ran(0, "o.json\n", notes + PROGRESS)
    assert_same(user.rows(), expected)
    assert user.document()["records"][0]["prompt"] == prompts[0]


def test_a_template_switched_off_is_not_even_parsed(user: User):
    plain = raw_rows(user, "the sea", "thunder rolls")
    user.tokenizer_config(chat_template="{% if %}")
    ran = user.runs("--chat-template", "off")
    assert ran == Ran(0, "o.json\n", OFF + PROGRESS)
    assert_same(user.rows(), plain)


def test_a_template_file_wins_over_the_config(user: User):
    expected = raw_rows(user, "<s> the sea")
    user.prompts("the sea")
    user.tokenizer_config(chat_template="{% if %}")
    user.write("toy/chat_template.jinja", "<s> " + USER)
    assert user.runs().code == 0
    assert_same(user.rows(), expected)


def test_there_is_one_bos_with_a_template_and_the_tokenizers_own_without(user: User):
    none, one = raw_rows(user, "the sea", "<s> the sea")
    user.prompts("the sea")

    def add_bos(document: dict[str, Any]) -> None:
        bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
        document["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        }

    user.tokenizer(add_bos)
    for template, expected in (
        (None, one),
        ("{{ bos_token }} " + USER, one),
        (USER, none),
    ):
        user.tokenizer_config(chat_template=template)
        assert user.runs().code == 0
        assert_same(user.rows()[0], expected)


def test_truncation_and_padding_of_the_tokenizer_are_switched_off(user: User):
    plain = raw_rows(user, "the sea is calm")
    user.prompts("the sea is calm")

    def cut_and_pad(document: dict[str, Any]) -> None:
        document["truncation"] = {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
        }
        document["padding"] = {
            "strategy": {"Fixed": 32},
            "direction": "Left",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[UNK]",
        }

    user.tokenizer(cut_and_pad)
    assert user.runs().code == 0
    assert_same(user.rows(), plain)


def test_a_prompt_past_the_trained_length_is_warned_of_and_read_whole(user: User):
    long = " ".join(["the sea is calm"] * 75)
    user.prompts("the sea", long)
    warning = (
        "warning: prompt 2 has 300 tokens, more than the model's "
        "max_position_embeddings of 256; its later positions are past what the model "
        "was trained on\n"
    )
    assert user.runs() == Ran(0, "o.json\n", ABSENT + warning + PROGRESS)
    read = user.rows()
    user.config(max_position_embeddings=300)
    assert user.runs() == Ran(0, "o.json\n", ABSENT + PROGRESS)
    assert_same(user.rows(), read)
    user.prompts("the sea", long.removesuffix(" calm"))
    assert user.runs().code == 0
    assert np.abs(user.rows()[1] - read[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("number", "others"),
    [(2, "; so has 1 other prompt"), (9, "; so have 8 other prompts")],
)
def test_of_many_long_prompts_one_warning_counts_them(user: User, number, others):
    user.prompts("the sea", *[" ".join(["the sea is calm"] * 75)] * number)
    said = user.runs().err
    assert said.count("warning: ") == 1
    assert "warning: prompt 2 has 300 tokens" in said
    assert f"was trained on{others}\n" in said


def test_verbose_adds_the_plan_and_nothing_else(user: User):
    ran = user.runs("--verbose", "--memory", "8G")
    assert (ran.code, ran.out) == (0, "o.json\n")
    *lines, closing = ran.err.splitlines(keepends=True)
    added = [line for line in lines if line.startswith("plan: ")]
    assert len(added) == 1
    assert "".join(lines).replace(added[0], "") == ABSENT + PROGRESS
    assert re.fullmatch(CLOSING, closing)


CLOSING = (
    r"2 prompts, \d+ tokens \(\d+ distinct\) in \d+\.\d s; peak \d+ MB; wrote o\.json\n"
)


def test_a_long_run_says_at_its_end_what_it_did(user: User, monkeypatch):
    assert not re.search(CLOSING, user.runs().err)
    monkeypatch.setattr(model, "LONG_SECONDS", 0.0)
    assert re.search(CLOSING, user.runs().err)


@pytest.mark.parametrize("words", [["--version"], ["-V"]])
def test_the_module_runs_as_a_command(words):
    command = [sys.executable, "-m", "ster", *words]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    expected = f"ster {__version__}\n".encode()
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")


def test_the_toy_model_can_be_written_over_itself(user: User):
    before = user.snapshot()
    assert run(["toy-model", "toy"]) == 0
    assert user.snapshot() == before
