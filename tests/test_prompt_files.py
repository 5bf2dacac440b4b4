"""Files of prompts: every format, and what is refused of each."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ster import PromptSet
from ster.documents.prompt_sets.files import read_prompt_set
from ster.errors import DocumentError, PromptError, SterError

BOM = b"\xef\xbb\xbf"
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
JSON, CSV = "invalid prompt JSON in", "invalid prompt CSV in"
# Every text that is a prompt; files have no lone surrogates.
PROMPTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: bool(text.strip())
)


def read(path: Path, data: bytes | str) -> PromptSet:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return PromptSet.load(path)


def piped(data: bytes | str) -> PromptSet:
    stream = io.BytesIO(data.encode() if isinstance(data, str) else data)
    return PromptSet.load("-", stream=stream)


def refusal_of(path: Path, data: bytes | str) -> SterError:
    with pytest.raises(SterError) as refusal:
        read(path, data)
    return refusal.value


class TestEveryFile:
    @pytest.mark.parametrize(
        ("name", "cause"),
        [
            ("missing.json", "No such file or directory (os error 2)"),
            ("missing.csv", "No such file or directory (os error 2)"),
            (".", "Is a directory (os error 21)"),
            ("file/prompts.json", "Not a directory (os error 20)"),
            ("n" * 300, "File name too long (os error 36)"),
            ("nul\0", "embedded null byte"),
        ],
    )
    def test_an_unreadable_one_is_named_with_the_systems_words(
        self, tmp_path: Path, name: str, cause: str
    ):
        (tmp_path / "file").touch()
        path = f"{tmp_path}/{name}"
        with pytest.raises(DocumentError) as refusal:
            read_prompt_set(path)
        assert refusal.value.sentence == f"failed to read {path}"
        shown = refusal.value.causes[0]
        # The numbers differ between systems, the words do not.
        assert shown.partition(" (")[0] == cause.partition(" (")[0]

    @pytest.mark.parametrize(
        ("name", "data"),
        [
            ("p.json", '{"prompts":["a"]}'),
            ("p.json", '["a"]'),
            ("p", '["a"]'),
            ("p.JSONL", '"a"'),
            ("p.csv", "prompt\na"),
            ("p.tsv", "text\na"),
            ("p.Txt", "a"),
        ],
    )
    def test_a_byte_order_mark_is_accepted(self, tmp_path: Path, name: str, data: str):
        assert read(tmp_path / name, BOM + data.encode()) == PromptSet.of(["a"])

    @pytest.mark.parametrize(
        ("name", "data"),
        [
            ("p.json", '{"prompts": []}'),
            ("p.json", "[]"),
            ("p.jsonl", "\n \n"),
            ("p.jsonl", ""),
            ("p.csv", "prompt,x\n"),
            ("p.csv", ""),
            ("p.tsv", "\ufeff\n"),
            ("p.txt", " \n\t\r\n\u3000"),
            ("p.txt", ""),
        ],
    )
    def test_one_without_prompts_is_refused(self, tmp_path: Path, name: str, data: str):
        refusal = refusal_of(tmp_path / name, data)
        assert isinstance(refusal, PromptError)
        is_empty = not data.strip("\ufeff \n")
        assert (refusal.sentence, refusal.causes) == (
            "prompt set contains no prompts",
            (f"{tmp_path / name} is empty",) if is_empty else (),
        )
        assert refusal.path == str(tmp_path / name)

    @pytest.mark.parametrize(
        ("name", "data", "prompt", "cause"),
        [
            ("p.json", '{"prompts":["a", "\\u0085"]}', 2, "prompt 2 is blank"),
            ("p.json", '["a", {"text": ""}]', 2, "prompt 2 is blank"),
            ("p.jsonl", '"a"\n\n{"prompt":" "}', 2, "prompt 2, on line 3, is blank"),
            (
                "p.jsonl",
                '{"messages":[{"role":"user","content":"\\n"}]}',
                1,
                "prompt 1, on line 1, is blank",
            ),
            ("p.csv", 'text,n\n"a\nb",1\n\n"",2\n', 2, "prompt 2, on line 5, is blank"),
        ],
    )
    def test_a_blank_prompt_is_refused_with_its_number_and_line(
        self, tmp_path: Path, name: str, data: str, prompt: int, cause: str
    ):
        refusal = refusal_of(tmp_path / name, data)
        assert isinstance(refusal, PromptError)
        assert refusal.sentence == "prompt must not be empty"
        assert (refusal.prompt, refusal.causes) == (prompt, (cause,))
        assert refusal.path == str(tmp_path / name)

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("p.json", JSON),
            ("p.jsonl", JSON),
            ("p.csv", CSV),
            ("p.txt", "failed to read"),
        ],
    )
    def test_what_is_not_utf_8_is_refused_with_the_byte(
        self, tmp_path: Path, name: str, sentence: str
    ):
        refusal = refusal_of(tmp_path / name, b'"a"\n"\xe9"')
        assert refusal.sentence == f"{sentence} {tmp_path / name}"
        assert "invalid UTF-8 at byte 5" in refusal.causes[0]


class TestJson:
    def test_prompts_are_verbatim_and_in_order_and_other_keys_are_ignored(
        self, tmp_path: Path
    ):
        prompts = ["b", " a\n", "b", "\x1c", "é\u0000🦙", "\ufeff", "\u200b", "\u180e"]
        document = json.dumps({"note": [1], "prompts": prompts})
        assert read(tmp_path / "p.json", document).prompts == tuple(prompts)
        assert read(tmp_path / "p.json", json.dumps(prompts)) == PromptSet.of(prompts)

    def test_a_list_may_hold_what_a_line_may(self, tmp_path: Path):
        listed = ["a", {"text": "b", "n": 1}, {"messages": TURNS}]
        made = read(tmp_path / "p.json", json.dumps(listed))
        lines = "\n".join(map(json.dumps, listed))
        assert made == read(tmp_path / "p.jsonl", lines)
        assert made.prompts == ("a", "b", "Hi")

    @pytest.mark.parametrize(
        ("data", "cause"),
        [
            ('{\n"prompts": NaN}', "line 2 column 12"),
            ('{"prompts":["a"],"prompts":["b"]}', 'key "prompts" is given twice'),
            ("null", "expected an object with the key `prompts`, or a list of prompts"),
            ("{}", "missing field `prompts`"),
            ('{"Prompts":["a"]}', "missing field `prompts`"),
            ('{"prompts":null}', "`prompts` is no list of strings"),
            ('{"prompts":"a"}', "`prompts` is no list of strings"),
            ('{"prompts":{"0":"a"}}', "`prompts` is no list of strings"),
            ('{"prompts":["a",null]}', "`prompts[1]` is no string"),
            ('{"prompts":[["a"]]}', "`prompts[0]` is no string"),
            ('{"prompts":[{"text":"a"}]}', "`prompts[0]` is no string"),
            ('["a", 1]', "prompt 2: neither a string nor an object with `prompt`"),
            ('["a", {"n": 1}]', "prompt 2: missing field `prompt`, `text` or"),
            ('"a"\n"b"', "line 2 column 1"),
        ],
    )
    @pytest.mark.parametrize("name", ["p.json", "p", "p.prompts"])
    def test_what_is_no_prompt_set_is_refused_with_the_place(
        self, tmp_path: Path, name: str, data: str, cause: str
    ):
        refusal = refusal_of(tmp_path / name, data)
        assert isinstance(refusal, DocumentError)
        assert refusal.sentence == f"{JSON} {tmp_path / name}"
        assert len(refusal.causes) == 1
        assert cause in refusal.causes[0]
        assert "\n" not in refusal.causes[0]


class TestJsonLines:
    def test_a_line_is_a_text_an_object_with_labels_or_a_chat(self, tmp_path: Path):
        made = read(
            tmp_path / "p.jsonl",
            '"a"\r\n'
            "\n"
            '{"prompt": "b", "text": "kept", "n": 1, "tags": ["x"]}\n'
            '{"text": "c\\nd", "n": null, "ok": true}\n'
            f'{{"messages": {json.dumps(TURNS)}, "n": 2.5}}',
        )
        assert made.prompts == ("a", "b", "c\nd", "Hi")
        assert made.labels == {
            "text": (None, "kept", None, None),
            "n": (None, 1, None, 2.5),
            "tags": (None, ["x"], None, None),
            "ok": (None, None, True, None),
        }
        assert made.chats == (None, None, None, tuple(TURNS))

    @pytest.mark.parametrize(
        ("line", "cause"),
        [
            ('{"prompt": "a"', "unexpected end of data at column 15"),
            ('{"prompt": "a"} x', "at column"),
            ('{"n": 1, "n": 2}', 'key "n" is given twice'),
            ("1", "neither a string nor an object with `prompt`, `text` or `messages`"),
            ("[1]", "`messages[0]` is no object with `role` and `content`"),
            ("[]", "`messages` is no list of turns"),
            (
                '{"n": 1, "é": 2}',
                'missing field `prompt`, `text` or `messages`; there is "n", "é"',
            ),
            ("{}", "missing field `prompt`, `text` or `messages`"),
            ('{"prompt": null}', "missing field `prompt`, `text` or `messages`"),
            (
                '{"role": "user", "content": "a"}',
                "missing field `prompt`, `text` or `messages`; a chat is a list of "
                "turns, and prompts are a list of chats",
            ),
            ('{"prompt": 1, "text": "a"}', "`prompt` is no string"),
            (
                '{"prompt": [{"role": "user", "content": "a"}]}',
                "`prompt` is no string; a chat goes under `messages`",
            ),
            ('{"messages": "a"}', "`messages` is no list of turns"),
            ('{"messages": []}', "`messages` is no list of turns"),
            (
                '{"messages": [{"role": "user"}]}',
                "missing field `content` of `messages[0]`",
            ),
            (
                '{"messages": [{"role": " ", "content": "a"}]}',
                "`role` of `messages[0]` is empty",
            ),
            (
                '{"messages": [{"role": "user", "content": [{"type": "text"}]}]}',
                '"content" of `messages[0]` is no string',
            ),
            (
                '{"messages": [{"role": "user", "content": "a", "tool_calls": [1]}]}',
                '"tool_calls" of `messages[0]` is no string',
            ),
        ],
    )
    def test_a_line_that_is_no_prompt_is_refused_with_its_number(
        self, tmp_path: Path, line: str, cause: str
    ):
        refusal = refusal_of(tmp_path / "p.jsonl", f'"a"\n\n{line}\n"b"')
        assert isinstance(refusal, DocumentError)
        assert refusal.sentence == f"{JSON} {tmp_path / 'p.jsonl'}"
        assert len(refusal.causes) == 1
        assert refusal.causes[0].startswith("line 3: ")
        assert cause in refusal.causes[0]

    @given(
        st.lists(st.tuples(PROMPTS, st.text(st.characters(codec="utf-8"))), min_size=1)
    )
    def test_what_python_writes_comes_back(self, rows):
        lines = [json.dumps({"prompt": a, "b": b}, ensure_ascii=False) for a, b in rows]
        made = piped("\r\n".join(lines))
        assert made.prompts == tuple(a for a, _ in rows)
        assert made.labels == {"b": tuple(b for _, b in rows)}


class TestTables:
    def test_one_column_is_the_prompt_and_the_others_are_labels(self, tmp_path: Path):
        made = read(
            tmp_path / "p.csv",
            ",topic,prompt,text,messages\n"
            '0,sea,"one, ""two""\nthree",a,x\n'
            "1,, four ,b,y\r\n"
            "\n",
        )
        assert made.prompts == ('one, "two"\nthree', " four ")
        assert made.labels == {
            "topic": ("sea", ""),
            "text": ("a", "b"),
            "messages": ("x", "y"),
        }
        assert made.chats is None

    def test_tabs_separate_too(self, tmp_path: Path):
        made = read(tmp_path / "p.tsv", 'text\tn\na, b\t1\n"c\td"\t2\n')
        assert made == PromptSet(prompts=("a, b", "c\td"), labels={"n": (1, 2)})

    @pytest.mark.parametrize(
        ("values", "labels"),
        [
            (["0", "-12", "9223372036854775807"], (0, -12, 2**63 - 1)),
            (["1", "9223372036854775808"], ("1", "9223372036854775808")),
            (["1", "2.50", "-1e-3"], (1.0, 2.5, -0.001)),
            (["1", ""], ("1", "")),
            (["1", "x"], ("1", "x")),
            (["007", "008"], ("007", "008")),
            (["1", " 2"], ("1", " 2")),
            (["nan", "1"], ("nan", "1")),
            (["1e999", "1.5"], ("1e999", "1.5")),
            (["1_0", "2"], ("1_0", "2")),
            (["٣", "2"], ("٣", "2")),
            (["9" * 5000, "2"], ("9" * 5000, "2")),
            (["true"], ("true",)),
        ],
    )
    def test_a_column_becomes_numbers_where_every_value_is_one(
        self, tmp_path: Path, values: list[str], labels: tuple[object, ...]
    ):
        rows = "".join(f"a,{value}\n" for value in values)
        made = read(tmp_path / "p.csv", f"prompt,n\n{rows}")
        assert made.labels == {"n": labels}
        assert list(map(type, made.labels["n"])) == list(map(type, labels))

    @pytest.mark.parametrize(
        ("data", "cause"),
        [
            (
                "Prompt,n\na,1\n",
                "no column `prompt` or `text` in the first line; the columns are "
                '"Prompt", "n"',
            ),
            ("messages\na\n", "no column `prompt` or `text` in the first line; "),
            ("text,n,n\na,1,2\n", 'the column "n" is there twice'),
            ("text,n\na,1\nb\n", "line 3 has 1 field for 2 columns"),
            ('text,n\n"a\n\n",1\nb,2,3\n', "line 5 has 3 fields for 2 columns"),
            ('text\na\n"b" c\n', "line 3: ',' expected after '\"'"),
            ('text\na\n"b\nc\n', "line 3: unexpected end of data"),
        ],
    )
    def test_what_is_no_table_of_prompts_is_refused_with_its_line(
        self, tmp_path: Path, data: str, cause: str
    ):
        refusal = refusal_of(tmp_path / "p.csv", data)
        assert isinstance(refusal, DocumentError)
        assert refusal.sentence == f"{CSV} {tmp_path / 'p.csv'}"
        assert len(refusal.causes) == 1
        assert refusal.causes[0].startswith(cause)

    def test_a_long_prompt_is_read_and_the_process_keeps_its_limit(
        self, tmp_path: Path
    ):
        before = csv.field_size_limit()
        long = "a" * (before + 1)
        assert read(tmp_path / "p.csv", f"text\n{long}\n").prompts == (long,)
        refusal_of(tmp_path / "p.csv", 'text\n"')
        assert csv.field_size_limit() == before

    @given(st.lists(st.tuples(PROMPTS, PROMPTS), min_size=1))
    def test_what_python_writes_comes_back(self, tmp_path_factory, rows):
        path = tmp_path_factory.getbasetemp() / "odd.csv"
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["prompt", "label"])
            writer.writerows((a, f"label {b}") for a, b in rows)
        made = PromptSet.load(path)
        assert made.prompts == tuple(a for a, _ in rows)
        assert made.labels == {"label": tuple(f"label {b}" for _, b in rows)}


def test_a_text_file_has_a_prompt_a_line(tmp_path: Path):
    made = read(
        tmp_path / "p.txt", ' a\u2028b\r\n\n\t\n{"prompt": "x"}\nc\rd\r\r\n\x1c'
    )
    assert made == PromptSet.of(
        [" a\u2028b", '{"prompt": "x"}', "c\rd\r", "\x1c"],
    )


class TestStandardInput:
    @pytest.mark.parametrize(
        ("data", "prompts"),
        [
            ('{"prompts": ["a", "b"]}', ["a", "b"]),
            ('\n{\n"prompts":\n["a"], "x": 1}\n', ["a"]),
            ('["a",\n"b"]', ["a", "b"]),
            ('[\n{"text": "a"}]', ["a"]),
            ('{"prompt": "a"}', ["a"]),
            ('{"text": "a"}\n\n{"prompt": "b"}\n', ["a", "b"]),
            ("a\r\nb\n\n", ["a", "b"]),
            ("prompt,n\na,1", ["a"]),
            ('"a"\n"b"', ['"a"', '"b"']),
            ("[INST] a [/INST]\n{b}", ["[INST] a [/INST]", "{b}"]),
        ],
    )
    def test_its_form_is_told_from_its_content(self, data: str, prompts: list[str]):
        assert piped(data).prompts == tuple(prompts)
        assert piped(BOM + data.encode()).prompts == tuple(prompts)

    @pytest.mark.parametrize(
        ("data", "sentence", "cause"),
        [
            ('{"prompts": ["a",', f"{JSON} standard input", "unexpected end"),
            ('["a"', f"{JSON} standard input", "unexpected end"),
            ("{}", f"{JSON} standard input", "line 1: missing field `prompt`"),
            ('{"prompt": "a"}\nb', f"{JSON} standard input", "line 2: "),
            ('{"prompt":\n"a"}', f"{JSON} standard input", "missing field `prompts`"),
            ("a\n\xff".encode("latin-1"), "failed to read standard input", "byte 2"),
        ],
    )
    def test_what_only_begins_like_json_is_refused_and_no_prompt(
        self, data: Any, sentence: str, cause: str
    ):
        with pytest.raises(DocumentError) as refusal:
            piped(data)
        assert refusal.value.sentence == sentence
        assert cause in refusal.value.causes[0]

    def test_it_is_refused_where_there_is_none(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(DocumentError, match="^failed to read standard input: "):
            PromptSet.load("-")

    def test_it_is_what_dash_reads(self, monkeypatch: pytest.MonkeyPatch):
        stdin = io.TextIOWrapper(io.BytesIO("ü\n".encode()), "ascii")
        monkeypatch.setattr(sys, "stdin", stdin)
        assert PromptSet.load("-").prompts == ("ü",)


@pytest.mark.parametrize(
    ("data", "prompts", "labels"),
    [
        ("prompt,mood\na b,1\nc,2\n", ("a b", "c"), {"mood": (1, 2)}),
        (BOM + b"mood\ttext\r\njoy\ta, b\r\n", ("a, b",), {"mood": ("joy",)}),
        ('"id","prompt"\n7,a\n', ("a",), {"id": (7,)}),
        # What may be a text stays one.
        ("text, and more\nb\n", ("text, and more", "b"), {}),
        ("prompt\na\n", ("prompt", "a"), {}),
        ("calm,sea\na,b\n", ("calm,sea", "a,b"), {}),
    ],
)
def test_a_table_on_standard_input_is_told_by_its_first_line(data, prompts, labels):
    found = piped(data)
    assert (found.prompts, dict(found.labels)) == (prompts, labels)


def test_a_broken_table_on_standard_input_does_not_become_prompts():
    with pytest.raises(DocumentError) as refusal:
        piped("prompt,mood\na\n")
    assert refusal.value.sentence == f"{CSV} standard input"
    assert refusal.value.causes == ("line 2 has 1 field for 2 columns",)
