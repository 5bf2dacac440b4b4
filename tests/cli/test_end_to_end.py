"""The commands as a person runs them, on the toy checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ster.cli import run

PROMPTS = Path(__file__).parents[2] / "assets" / "prompts.json"
KEYS = [
    "schema_version",
    "product",
    "model",
    "model_revision",
    "hidden_size",
    "records",
]


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["toy-model", "toy"]) == 0
    return tmp_path


def extract(*words: str) -> list[str]:
    return ["extract", "--model", "toy", "--input", str(PROMPTS), *words]


def test_two_prompts_become_the_published_numbers(toy):
    words = extract("--output", "made/on the way/o.json")
    result = subprocess.run(
        [sys.executable, "-m", "ster", *words],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert result.stderr.decode() == (
        "this model publishes no chat template, so prompts and completions are "
        "encoded as raw text\n"
        "extracting prompt 1/2\nextracting prompt 2/2\n"
    )
    assert (result.returncode, result.stdout) == (0, b"made/on the way/o.json\n")
    document = json.loads(Path("made/on the way/o.json").read_bytes())
    assert list(document) == KEYS
    assert document["model"] == "toy"
    assert [record["prompt"] for record in document["records"]] == json.loads(
        PROMPTS.read_bytes()
    )["prompts"]
    layers = document["records"][0]["layers"]
    assert list(layers) == ["0", "1", "2", "3"]
    assert layers["0"][:3] == pytest.approx([0.0711, -0.0236, -0.0592], abs=5e-5)


def test_the_same_line_twice_writes_the_same_bytes(toy):
    assert run(extract("--output", "a.json")) == 0
    assert run(extract("--output", "b.json")) == 0
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ["--device", "tpu", "--precision", "f8"],
            2,
            'unknown device "tpu"; expected cpu, metal, or cuda',
        ),
        (
            ["--precision", "f8"],
            2,
            'unknown precision "f8"; expected f32, f16, or bf16',
        ),
        (
            ["--precision", "bf16"],
            1,
            "bf16 has no CPU matmul kernel in this Candle build; use --precision f16 "
            "for half precision on cpu, or --device metal for bf16",
        ),
        (["--layers", "9"], 1, "layer 9 is outside the model's 0..3 range"),
        (["--layers", "a"], 1, 'invalid layer "a"'),
    ],
)
def test_a_refused_word_leaves_no_file(toy, capsys, words, code, sentence):
    capsys.readouterr()
    assert run(extract("--output", "o.json", *words)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == f"Error: {sentence}"
    assert not Path("o.json").exists()


def test_the_prompts_are_read_before_the_checkpoint_is_looked_for(toy, capsys):
    capsys.readouterr()
    words = ["--model", "./nowhere", "--input", "nothing.json", "--output", "o.json"]
    assert run(["extract", *words]) == 1
    assert capsys.readouterr().err == (
        "Error: failed to read nothing.json\n\n"
        "Caused by:\n    No such file or directory (os error 2)\n"
    )
