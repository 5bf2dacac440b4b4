"""``ster vector`` with artifacts in every format, on the toy checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ster.cli import run
from ster.documents.gguf import dump_gguf
from ster.vectors.steering import SteeringVector
from tests.cli.user import ABSENT, User

PAIRS = {
    "trait_name": "calm",
    "pairs": [
        {"positive": "the sea is calm .", "negative": "the storm waves crash ."},
        {"positive": "the air is still .", "negative": "the wind howls ."},
    ],
}
TRAIN = ["vector", "train", "--model", "toy", "--pairs", "pairs.json"]
FORMS = ("json", "npz", "safetensors", "gguf")


@pytest.fixture
def say(user: User, capsys: pytest.CaptureFixture[str]):
    """Run a line; return its exit code, stdout and stderr."""
    user.write("pairs.json", json.dumps(PAIRS))
    assert run([*TRAIN, "--output", "v.json", "--layers", "1..3"]) == 0
    capsys.readouterr()

    def say(*line: str) -> tuple[int, str, str]:
        code = run([*line])
        return code, *capsys.readouterr()

    return say


@pytest.mark.parametrize("command", ["train", "optimize"])
@pytest.mark.parametrize("form", FORMS[1:])
def test_a_vector_is_written_in_the_format_of_its_suffix(say, command, form):
    line = ["vector", command, *TRAIN[2:], "--layers", "1..3"]
    if command == "optimize":
        line += ["--holdout", "0.5"]
    for path in ("o.json", f"o.{form}"):
        code, out, _ = say(*line, "--output", path)
        assert code == 0
    assert json.loads(out)["artifact"] == SteeringVector.load("o.json").summary
    one, other = SteeringVector.load("o.json"), SteeringVector.load(f"o.{form}")
    assert one.summary == other.summary
    assert np.array_equal(one.array, other.array)


@pytest.mark.parametrize("form", FORMS)
def test_an_exported_vector_is_the_same_everywhere(say, form):
    code, out, err = say("vector", "export", "v.json", "--output", f"new/o.{form}")
    assert (code, out, err) == (0, f"new/o.{form}\n", "")
    evaluate = ["vector", "evaluate", *TRAIN[2:], "--vector"]
    generate = ["generate", "--model", "toy", "--prompt", "the sea", "--strength", "9"]
    generate += ["--max-new-tokens", "4", "--vector"]
    for line in (["vector", "inspect"], evaluate, generate):
        expected = say(*line, "v.json")
        assert expected[0] == 0
        assert say(*line, f"new/o.{form}") == expected


def test_some_layers_can_be_exported(say):
    assert (
        say("vector", "export", "v.json", "--output", "o.npz", "--layers", "2")[0] == 0
    )
    whole, part = SteeringVector.load("v.json"), SteeringVector.load("o.npz")
    assert part.layers == (2,)
    assert np.array_equal(part.direction(2), whole.direction(2))
    assert part.train_margin == whole.train_margin[1:]
    assert part.train_accuracy == whole.train_accuracy[1:]
    assert whole.residual_norms is not None
    assert part.residual_norms == whole.residual_norms[1:]
    for layers, missing in (("0", 0), ("2,9", 9), ("1..5", 3)):
        code, _, err = say(
            "vector", "export", "v.json", "--output", "p.npz", "--layers", layers
        )
        sentence = f"the vector has no layer {missing}, only layers 1, 2"
        assert (code, err) == (1, f"Error: {sentence}\n")
        assert not Path("p.npz").exists()


def test_layer_0_has_no_place_in_a_control_vector(say):
    """Said before a weight is read, and by an export too."""
    Path("toy/model.safetensors").write_bytes(b"damaged")
    slot = (
        "a GGUF control vector has no slot for layer 0; llama.cpp adds after block 1 "
    )
    refusal = f"Error: failed to write o.gguf\n\nCaused by:\n    {slot}"
    for line in (TRAIN, ["vector", "optimize", *TRAIN[2:], "--holdout=0.5"]):
        code, out, err = say(*line, "--output", "o.gguf")
        assert (code, out) == (1, "")
        assert err.startswith(ABSENT + refusal)
    vector = SteeringVector.load("v.json")
    replace(vector, layers=(0, 1)).save("zero.json")
    code, _, err = say("vector", "export", "zero.json", "--output", "o.gguf")
    assert (code, err.startswith(refusal)) == (1, True)
    assert say("vector", "export", "zero.json", "--output=o.gguf", "--layers=1")[0] == 0


NOWHERE = ["--model", "./nowhere", "--pairs", "pairs.json"]


@pytest.mark.parametrize("output", ["o", "o.txt", "o.pt"])
@pytest.mark.parametrize(
    "line", [["train", *NOWHERE], ["optimize", *NOWHERE], ["export", "nowhere.json"]]
)
def test_another_suffix_is_refused_before_anything_is_read(say, line, output):
    code, out, err = say("vector", *line, "--output", output)
    assert (code, out) == (1, "")
    said = f"Error: failed to write {output}\n\nCaused by:\n    a suffix says how "
    assert err.startswith(said)
    assert ".json, .safetensors, .npz or .gguf; " in err
    assert not Path(output).exists()


def test_an_export_over_its_input_is_refused(say):
    code, _, err = say("vector", "export", "v.json", "--output", "./v.json")
    assert code == 1
    assert "it is this run's input" in err


def foreign(name: str, hint: str, width: int = 64) -> None:
    fields: dict[str, str] = {"general.architecture": "controlvector"}
    fields["controlvector.model_hint"] = hint
    row = np.ones(width, np.float32)
    Path(name).write_bytes(dump_gguf(fields, {"direction.2": row}))


def test_a_control_vector_from_elsewhere_steers(say):
    """It names an architecture at most, so width and layers decide."""
    generate = ["generate", "--model", "toy", "--prompt", "the sea", "--strength", "9"]
    foreign("llama.gguf", "llama")
    code, _, err = say(*generate, "--vector", "llama.gguf")
    assert (code, err) == (0, ABSENT)
    foreign("qwen.gguf", "qwen2")
    code, _, err = say(*generate, "--vector", "qwen.gguf")
    assert code == 0
    assert err == (
        f'{ABSENT}warning: this control vector says that it is for "qwen2", and this '
        'model is of type "llama"\n'
    )
    foreign("wide.gguf", "llama", width=65)
    code, _, err = say(*generate, "--vector", "wide.gguf")
    assert (code, "artifact width 65 does not match model width 64" in err) == (1, True)
