"""``ster extract`` at other tokens and points: what is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ster
from ster.cli import run

PROMPTS = ["the sea is calm .", "thunder rolls"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ster.write_toy_checkpoint("toy")
    prompts = [{"prompt": text, "topic": text[-1]} for text in PROMPTS]
    Path("prompts.json").write_text(json.dumps(prompts))
    return tmp_path


def extract(*words: str) -> int:
    return run(["extract", "--model", "toy", "--input", "prompts.json", *words])


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
@pytest.mark.parametrize("tokens", ["last", "text", "all", "mean", "0,-1"])
def test_a_document_is_what_the_library_reads(model, suffix, tokens):
    output = f"out.{suffix}"
    assert extract("--tokens", tokens, "--layers", "1,3", "--output", output) == 0
    read = ster.Activations.load(output)
    expected = ster.load("toy").activations(PROMPTS, [1, 3], tokens=tokens)
    assert np.array_equal(read.array, expected.array)
    assert read.read == expected.read
    assert read.tokens is not None
    assert expected.tokens is not None
    assert read.tokens.text == expected.tokens.text
    assert read.tokens.position.tolist() == expected.tokens.position.tolist()
    assert read.labels == {"topic": (".", "s")}


def test_points_are_written_beside_each_other(model):
    words = ["--points", "attn_out,resid_post", "--tokens", "all", "--store", "f16"]
    assert extract(*words, "--output", "out.npz") == 0
    read = ster.Activations.load("out.npz")
    points = ["attn_out", "resid_post"]
    expected = ster.load("toy").activations(PROMPTS, points=points, tokens="all")
    assert read.points == expected.points == ("attn_out", "resid_post")
    for point in points:
        wide = expected.at_point(point).array
        assert np.array_equal(
            read.at_point(point).array, wide.astype("f2").astype("f4")
        )


def test_json_holds_any_one_row_of_each_prompt(model):
    assert extract("--tokens", "0", "--output", "out.json") == 0
    read = ster.Activations.load("out.json")
    expected = ster.load("toy").activations(PROMPTS, tokens=0)
    assert np.array_equal(read.array, expected.array)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--tokens", "first"], 2, 'unknown tokens "first"; expected last, text, all'),
        (
            ["--points", "resid_pre"],
            2,
            'unknown point "resid_pre"; expected resid_post',
        ),
        (["--points", ","], 2, "no points selected"),
        (["--role", "system"], 2, 'unknown role "system"; expected user or assistant'),
        (["--store", "f64"], 2, 'unknown store "f64"; expected f32 or f16'),
        (["--tokens", "all"], 1, "a .json document holds one row for each prompt"),
        (["--points", "attn_out"], 1, "at the point resid_post; use .safetensors"),
        (["--store", "f16"], 1, "a .json document holds f32, not f16"),
        (["--tokens", "4"], 1, "prompt 2 has 2 tokens, so there is no token 4"),
    ],
)
def test_what_cannot_be_is_refused_before_weights(
    model, monkeypatch, capsys, words, code, said
):
    monkeypatch.setattr(
        "ster.runs.session.open_weights", lambda *_: pytest.fail("weights were opened")
    )
    assert extract(*words, "--output", "out.json") == code
    assert said in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in model.iterdir()) == ["prompts.json", "toy"]


def test_all_tokens_of_many_prompts_take_the_memory_of_a_wave(model, monkeypatch):
    """Rows go to the disk as they come; nothing but a wave of them is held."""
    from ster.runs import wave

    sizes: list[int] = []
    read_rows = wave.read_rows

    def watched(*arguments: object, **named: object) -> object:
        rows = read_rows(*arguments, **named)  # type: ignore[arg-type]
        sizes.append(sum(len(each) for each in rows))
        return rows

    monkeypatch.setattr("ster.runs.reading.read_rows", watched)
    monkeypatch.setattr("ster.runs.plan.MAX_ROW_BYTES", 1 << 16)
    prompts = "\n".join(
        f"the sea is calm and quiet {'sea ' * (n % 50)}." for n in range(300)
    )
    Path("many.txt").write_text(prompts)
    words = ["--model", "toy", "--input", "many.txt", "--output", "out.safetensors"]
    assert run(["extract", *words, "--tokens", "all"]) == 0
    assert len(ster.Activations.load("out.safetensors")) == sum(sizes)
    assert max(sizes) <= (1 << 16) // (4 * 64 * 4)
