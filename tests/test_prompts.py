"""The prompt set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ster.documents.prompts import check_prompts, read_prompt_set
from ster.errors import DocumentError, PromptError, SterError


def refusal_of(path: Path, data: bytes) -> SterError:
    path.write_bytes(data)
    with pytest.raises(SterError) as refusal:
        read_prompt_set(path)
    return refusal.value


def test_prompts_are_read_verbatim_and_in_order(tmp_path: Path):
    prompts = ["b", " a\n", "b", "\x1c", "é\u0000🦙", "\ufeff", "\u200b", "\u180e"]
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps({"note": [1], "prompts": prompts}), encoding="utf-8")
    assert read_prompt_set(path) == prompts
    assert read_prompt_set(str(path)) == prompts


def test_a_byte_order_mark_is_accepted(tmp_path: Path):
    path = tmp_path / "prompts.json"
    path.write_bytes(b'\xef\xbb\xbf{"prompts":["a"]}')
    assert read_prompt_set(path) == ["a"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("missing.json", "No such file or directory (os error 2)"),
        (".", "Is a directory (os error 21)"),
        ("file/prompts.json", "Not a directory (os error 20)"),
        ("n" * 300, "File name too long (os error 36)"),
        ("nul\0", "embedded null byte"),
    ],
)
def test_an_unreadable_file_is_named_with_the_systems_words(
    tmp_path: Path, name: str, cause: str
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
    ("data", "cause"),
    [
        (b'{\n"prompts": NaN}', "line 2 column 12"),
        (b'{"prompts":["a"],"prompts":["b"]}', 'key "prompts" is given twice'),
        (b"null", "expected an object with the key `prompts`"),
        (b'["a"]', "expected an object with the key `prompts`"),
        (b"{}", "missing field `prompts`"),
        (b'{"Prompts":["a"]}', "missing field `prompts`"),
        (b'{"prompts":null}', "`prompts` is no list of strings"),
        (b'{"prompts":"a"}', "`prompts` is no list of strings"),
        (b'{"prompts":{"0":"a"}}', "`prompts` is no list of strings"),
        (b'{"prompts":["a",null]}', "`prompts[1]` is no string"),
        (b'{"prompts":[["a"]]}', "`prompts[0]` is no string"),
    ],
)
def test_what_is_no_prompt_set_is_refused_with_the_place(
    tmp_path: Path, data: bytes, cause: str
):
    path = tmp_path / "prompts.json"
    refusal = refusal_of(path, data)
    assert isinstance(refusal, DocumentError)
    assert refusal.sentence == f"invalid prompt JSON in {path}"
    assert len(refusal.causes) == 1
    assert cause in refusal.causes[0]
    assert "\n" not in refusal.causes[0]


def test_a_set_without_prompts_is_refused(tmp_path: Path):
    refusal = refusal_of(tmp_path / "p.json", b'{"prompts":[]}')
    assert str(refusal) == "prompt set contains no prompts"


@pytest.mark.parametrize("blank", ["", " ", "\t\r\n", "\u3000", "\u0085", "\u2028\v\f"])
def test_blank_prompts_are_refused(tmp_path: Path, blank: str):
    data = json.dumps({"prompts": ["a", blank]}).encode()
    assert str(refusal_of(tmp_path / "p.json", data)) == "prompt must not be empty"
    with pytest.raises(PromptError, match="^prompt must not be empty$"):
        check_prompts(["a", blank])


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        ([], "prompt set contains no prompts"),
        ("hello", "prompts must be a list of strings, not one string"),
        ([b"a"], "a prompt must be a string, not bytes"),
        ([None], "a prompt must be a string, not NoneType"),
        (["a\ud800"], "failed to tokenize prompt: lone surrogate at character 1"),
    ],
)
def test_library_callers_are_refused_too(prompts: list[str], sentence: str):
    with pytest.raises(PromptError) as refusal:
        check_prompts(prompts)
    assert str(refusal.value) == sentence


def test_library_callers_may_hand_over_any_iterable():
    assert check_prompts(p for p in ("a", "b")) == ["a", "b"]


@pytest.mark.parametrize(
    ("data", "prompt", "found"),
    [
        (b'{"prompts":["a", " "]}', 2, " "),
        (b'{"prompts":[]}', None, None),
        (b'{"prompts":[1]}', None, None),
        (b"[", None, None),
    ],
)
def test_a_refused_document_says_which_file_and_which_prompt(
    tmp_path: Path, data: bytes, prompt: int | None, found: str | None
):
    refusal = refusal_of(tmp_path / "p.json", data)
    assert refusal.path == str(tmp_path / "p.json")
    assert (refusal.prompt, refusal.found) == (prompt, found)
