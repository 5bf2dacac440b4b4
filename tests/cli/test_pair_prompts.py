"""``ster vector`` with pairs that carry their own prompt."""

from __future__ import annotations

import json

from ster.cli import run
from tests.cli.user import User

ASKED = "describe the evening lake ."


def test_pairs_with_and_without_a_prompt_go_through_the_commands(user: User, capsys):
    pairs = [
        {"prompt": ASKED, "positive": "the sea is calm .", "negative": "the wind"},
        {"positive": "a soft breeze .", "negative": "thunder rolls ."},
    ]
    user.write("pairs.json", json.dumps({"pairs": pairs}))
    model = ["--model", "toy", "--pairs", "pairs.json"]
    assert run(["vector", "train", *model, "--output", "v.json"]) == 0
    first = (user.folder / "v.json").read_bytes()
    capsys.readouterr()
    trial = ["--strengths", "1", "--batch-size", "8", "--max-sequence", "99"]
    assert run(["vector", "evaluate", *model, "--vector", "v.json", *trial]) == 0
    strength = json.loads(capsys.readouterr().out)["strength"]
    assert strength["response_form_counts"] == {"after prompt": 1, "alone": 1}
    assert strength["response_forms"] == ["after prompt", "alone"]
    # The same texts without the prompt are read as other tokens.
    del pairs[0]["prompt"]
    user.write("pairs.json", json.dumps({"pairs": pairs}))
    assert run(["vector", "train", *model, "--output", "v.json"]) == 0
    assert (user.folder / "v.json").read_bytes() != first


def test_a_prompt_that_is_no_string_is_refused_with_its_pair(user: User, capsys):
    pair = {"prompt": 3, "positive": "a", "negative": "b"}
    user.write("pairs.json", json.dumps({"pairs": [pair]}))
    words = ["vector", "train", "--model", "toy", "--pairs", "pairs.json"]
    capsys.readouterr()
    assert run([*words, "--output", "v.json"]) == 1
    assert capsys.readouterr().err == (
        "Error: invalid pair set JSON in pairs.json\n\nCaused by:\n"
        "    `prompt` of pairs[0] is no string\n"
    )
