"""``ster vector`` as a person runs it, on the toy checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ster.cli import run
from tests.cli.user import ABSENT, User

PAIRS = {
    "trait_name": "calm",
    "pairs": [
        {"positive": "the sea is calm .", "negative": "the storm waves crash ."},
        {"positive": "the air is still .", "negative": "the wind howls ."},
        {"positive": "a soft breeze .", "negative": "thunder rolls ."},
        {"positive": "the boat rests .", "negative": "the boat is broken ."},
    ],
}
READING = "".join(f"reading pair {number}/4\n" for number in (1, 4))
SUMMARY_KEYS = [
    "chat_template",
    "hidden_size",
    "layers",
    "metadata",
    "method",
    "model",
    "model_revision",
    "precision",
    "product",
    "schema_version",
    "trait_name",
]


@pytest.fixture
def folder(user: User) -> Path:
    """A folder with the toy checkpoint, pairs, and a vector of layer 2."""
    user.write("pairs.json", json.dumps(PAIRS))
    assert run(words("train", "--layers", "2", output="v.json")) == 0
    return user.folder


def words(command: str, *more: str, **flags: str | None) -> list[str]:
    """Spell a command with the flags it needs, each of which may be replaced."""
    own = {"evaluate": {"vector": "v.json"}}.get(command, {"output": "o.json"})
    values = {"model": "toy", "pairs": "pairs.json", **own, **flags}
    pairs = [(f"--{name}", word) for name, word in values.items() if word is not None]
    return ["vector", command, *(word for pair in pairs for word in pair), *more]


@pytest.fixture
def say(folder, capsys):
    """Run a line; return its exit code, stdout and stderr."""
    capsys.readouterr()

    def say(line: list[str]) -> tuple[int, str, str]:
        code = run(line)
        return code, *capsys.readouterr()

    return say


def test_train_prints_a_summary_and_writes_the_artifact(say):
    code, out, err = say(words("train", output="made/o.json"))
    assert (code, err) == (0, ABSENT + READING)
    summary = json.loads(out)
    assert out == json.dumps(summary, indent=2, sort_keys=True) + "\n"
    assert list(summary) == ["artifact", "chat_template"]
    assert list(summary["artifact"]) == SUMMARY_KEYS
    layers = summary["artifact"]["layers"]
    assert [layer["layer"] for layer in layers] == [0, 1, 2, 3]
    assert list(layers[0]) == [
        "layer",
        "norm",
        "train_accuracy",
        "train_margin",
        "width",
    ]
    document = json.loads(Path("made/o.json").read_bytes())
    assert document["method"] == summary["artifact"]["method"] == "caa"
    assert document["vectors"][0]["train_margin"] == layers[0]["train_margin"]


def test_the_same_line_twice_writes_the_same_bytes(say):
    for name in ("a.json", "b.json"):
        assert say(words("optimize", "--holdout=0.5", output=name))[0] == 0
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()


@pytest.mark.parametrize(
    ("word", "method"), [("mean-difference", "caa"), ("probe", "logistic")]
)
def test_a_method_may_be_called_otherwise(say, word, method):
    out = say(words("train", "--method", word))[1]
    assert json.loads(out)["artifact"]["method"] == method


def test_optimize_prints_its_selection(say):
    code, out, err = say(words("optimize", "--holdout", "0.25", "--layers", "1..3"))
    assert code == 0
    assert err == (
        ABSENT
        + READING
        + "fitting each candidate on 3 pairs and ranking on a 1-pair holdout\n"
        + "a one-pair holdout scores every candidate 0 or 1, so this ranking separates "
        "almost nothing; add pairs to make the choice mean something\n"
    )
    summary = json.loads(out)
    assert list(summary) == ["artifact", "chat_template", "selection"]
    selection = summary["selection"]
    assert selection["holdout"] == {
        "fit_pairs": 3,
        "fraction": 0.25,
        "holdout_pairs": 1,
    }
    assert len(selection["candidates"]) == 6
    assert {
        "holdout_accuracy",
        "holdout_effect_size",
        "holdout_margin",
        "layer",
        "method",
        "selected",
    } <= selection["candidates"][0].keys()
    assert selection["candidates"][0]["holdout_effect_size"] is None
    assert summary["artifact"]["metadata"]["selection"] == (
        "chosen over 6 candidates on a 1-pair holdout, then refitted on all 4 pairs"
    )


def test_evaluate_prints_a_report(say):
    code, out, err = say(words("evaluate"))
    assert (code, err) == (0, ABSENT + READING)
    report = json.loads(out)
    assert list(report) == [
        "chat_template",
        "confounds",
        "layers",
        "method",
        "model",
        "pair_count",
        "trait_name",
    ]
    assert report["confounds"] == []
    trained = json.loads(Path("v.json").read_bytes())["vectors"][0]
    layer = report["layers"][0]
    assert (layer["layer"], layer["accuracy"]) == (2, trained["train_accuracy"])
    assert layer["margin"] == trained["train_margin"]
    assert report["pair_count"] == 4


LIMITS = ("--batch-size", "2", "--max-sequence", "9")


@pytest.mark.parametrize(
    "strengths", [["--strengths", "-4,-2,0,2,4"], ["--strengths=-4,-2,0,2,4"]]
)
def test_strengths_may_be_negative_attached_and_detached(say, strengths):
    code, out, err = say(words("evaluate", *strengths, *LIMITS))
    assert code == 0
    strength = json.loads(out)["strength"]
    assert {
        "candidates",
        "layers",
        "method",
        "pairs",
        "scored_pairs",
        "selected_strength",
        "skipped_long",
    } <= strength.keys()
    measured = strength["candidates"]
    assert [each["strength"] for each in measured] == [-4, -2, 0, 2, 4]
    assert strength["layers"] == [2]
    random, *lines, warning = err.removeprefix(ABSENT + READING).splitlines()
    assert random == (
        "10 random directions at 2 strengths and both signs, on 4 of 4 pairs"
    )
    assert warning.startswith("warning: no strength is chosen: ")
    assert strength["selected_strength"] is None
    assert lines == [
        f"strength {each['strength']:g}: {each['ordered']:.3f} of pairs ordered, "
        f"mean shift {each['mean_shift']:.4f}"
        for each in measured
    ]


def test_strengths_need_no_limits_and_mean_the_same_with_them(say):
    code, out, _ = say(words("evaluate", "--strengths=-4,2"))
    assert code == 0
    alone = json.loads(out)["strength"]
    line = words("evaluate", "--strengths=-4,2", *LIMITS)
    limited = json.loads(say(line)[1])["strength"]
    one, other = alone.pop("candidates"), limited.pop("candidates")
    assert alone == limited
    assert alone["skipped_long"] == 0
    for measured, again in zip(one, other, strict=True):
        assert measured.keys() == again.keys()
        for key in ("mean_shift", "effect", "damage", "slope", "positive_rise"):
            assert measured[key] == pytest.approx(again[key], abs=1e-5)
        assert measured["ordered"] == again["ordered"]
        assert measured["random"] == pytest.approx(again["random"], abs=1e-3)


def test_inspect_shows_what_train_said_without_the_run(say):
    trained = json.loads(say(words("train"))[1])
    code, out, err = say(["vector", "inspect", "o.json"])
    assert (code, err) == (0, "")
    assert json.loads(out) == {"artifact": trained["artifact"]}


@pytest.mark.parametrize(
    "line",
    [
        ["vector", "inspect", "v.json", "--text"],
        ["--text", "vector", "inspect", "v.json"],
        ["vector", "--text", "inspect", "v.json"],
    ],
)
def test_text_prints_paths_and_values(say, line):
    out = say(line)[1].splitlines()
    assert out[0] == "artifact.chat_template: absent"
    assert "artifact.layers[0].layer: 2" in out
    assert "artifact.model_revision: -" in out


STRENGTHS = ("--strengths", "1")
HOLDOUT = "the held-out fraction must be above zero and below one"
SPLIT = (
    "a held-out fraction of 0.1 over 4 contrastive pairs leaves 4 pairs to fit and 0 "
    "to rank on; both need at least one"
)


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        (
            words("train", "--method", "x"),
            2,
            'unknown training method "x"; expected caa, pca, logistic, logreg, or '
            "pca-uncentred",
        ),
        (
            words("train", "--device=tpu", pairs="no"),
            2,
            'unknown device "tpu"; expected cpu, metal, or cuda',
        ),
        (
            words("evaluate", "--precision", "f8", pairs="no"),
            2,
            'unknown precision "f8"; expected f32, f16, or bf16',
        ),
        (
            words("optimize", "--chat-template", "on"),
            2,
            'unknown chat template mode "on"; expected auto or off',
        ),
        (words("optimize", "--holdout", "1", pairs="no"), 1, HOLDOUT),
        (words("optimize", "--holdout", "nan", pairs="no"), 1, HOLDOUT),
        (words("optimize", "--holdout", "-0.5", pairs="no"), 1, HOLDOUT),
        (words("optimize", "--holdout", "0.1", model="./no"), 1, SPLIT),
        (words("train", pairs="no"), 1, "failed to read pair set no"),
        (words("train", pairs="toy"), 1, "failed to read pair set toy"),
        (words("train", pairs="v.json"), 1, "invalid pair set JSON in v.json"),
        (words("train", output="pairs.json"), 1, "failed to write pairs.json"),
        (
            words("optimize", output="toy/config.json"),
            1,
            "failed to write toy/config.json",
        ),
        (
            words("train", "--layers", "9"),
            1,
            "layer 9 is outside the model's 0..3 range",
        ),
        (
            words("train", output="toy/config.json/x.json"),
            1,
            "failed to create toy/config.json",
        ),
        (
            words("optimize", "--holdout=0.5", output="toy"),
            1,
            "failed to write steering artifact toy",
        ),
        (
            words("evaluate", pairs="no", vector="v.json:2n"),
            2,
            "`evaluate` takes one vector as it is, without :2n",
        ),
        (words("evaluate", vector="no:x"), 1, "failed to read steering artifact no:x"),
        (words("evaluate", vector="no"), 1, "failed to read steering artifact no"),
        (
            words("evaluate", vector="pairs.json"),
            1,
            "invalid steering artifact JSON in pairs.json",
        ),
        (words("evaluate", pairs="no", vector="no"), 1, "failed to read pair set no"),
        (
            words("evaluate", vector="no", model="./no"),
            1,
            "failed to read steering artifact no",
        ),
        (
            words("evaluate", "--strengths=,", *LIMITS, pairs="no"),
            2,
            'invalid strength ""; expected a number, or one followed by n',
        ),
        (
            words("evaluate", "--strengths=", *LIMITS, pairs="no"),
            1,
            "strength selection needs at least one strength to measure",
        ),
        (
            words("evaluate", "--strengths", "1,-inf", *LIMITS, pairs="no"),
            1,
            "strength selection needs finite strengths, not -inf",
        ),
        (
            words("evaluate", *STRENGTHS, "--batch-size=0", "--max-sequence=9"),
            1,
            "strength selection requires batch size of at least one",
        ),
        (
            words("evaluate", *STRENGTHS, "--batch-size=1", "--max-sequence=0"),
            1,
            "strength selection requires maximum sequence of at least one",
        ),
        (
            words("evaluate", *STRENGTHS, "--batch-size=1", "--max-sequence=1"),
            1,
            "every pair exceeds the 1 token limit",
        ),
    ],
)
def test_a_refusal_is_one_sentence_and_nothing_is_written(say, line, code, sentence):
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    found, out, err = say(line)
    assert (found, out) == (code, "")
    assert f"Error: {sentence}\n" in err
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


@pytest.mark.parametrize(
    ("line", "words_of_usage"),
    [
        (["vector"], ""),
        (["vector", "tran"], "No such command 'tran'. Did you mean 'train'?"),
        (["vector", "train"], "Missing option '--model'."),
        (words("train", output=None), "Missing option '--output'."),
        (words("evaluate", vector=None), "Missing option '--vector'."),
        (["vector", "inspect"], "Missing argument 'ARTIFACT'."),
        (words("optimize", "--holdout", "x"), "Invalid value for '--holdout'"),
        (words("evaluate", "--batch-size", "1.5"), "Invalid value for '--batch-size'"),
        (words("train", "--holdout", "1"), "No such option: --holdout"),
        (words("evaluate", "--strengths", "--text"), "Option '--strengths' needs"),
    ],
)
def test_a_wrong_line_is_a_usage_error(say, line, words_of_usage):
    code, out, err = say(line)
    assert (code, out) == (2, "")
    assert words_of_usage in err
    assert "Usage: ster vector" in err


def change(name: str, **changes: object) -> None:
    document = json.loads(Path(name).read_bytes())
    Path(name).write_text(json.dumps(document | changes))


def test_inspect_wraps_what_is_wrong_with_the_artifact(say):
    change("v.json", schema_version=2)
    assert say(["vector", "inspect", "v.json"]) == (
        1,
        "",
        "Error: failed to inspect v.json\n\nCaused by:\n"
        "    artifact schema 2 is unsupported; this Ster build reads schema 1\n",
    )
    assert say(["vector", "inspect", "no.json"]) == (
        1,
        "",
        "Error: failed to inspect no.json\n\nCaused by:\n"
        "    0: failed to read steering artifact no.json\n"
        "    1: No such file or directory (os error 2)\n",
    )


def test_evaluate_refuses_another_width_and_layer(say):
    vector = {"layer": 7, "train_margin": 1, "train_accuracy": 1}
    change("v.json", vectors=[vector | {"values": [1.0] * 64}])
    err = say(words("evaluate"))[2]
    assert err.endswith("Error: layer 7 is outside the model's 0..3 range\n")
    change("v.json", hidden_size=3, vectors=[vector | {"values": [1, 0, 0]}])
    err = say(words("evaluate"))[2]
    assert err.endswith("Error: artifact width 3 does not match model width 64\n")


def test_evaluate_warns_of_another_encoding_and_width_and_goes_on(say):
    change("v.json", chat_template="applied", precision="bf16")
    code, out, err = say(words("evaluate", "--chat-template", "off"))
    assert code == 0
    assert json.loads(out)["chat_template"] == "off"
    assert (
        "warning: this direction was trained with chat template applied and this run "
        "encodes off, so the number below describes a format it was not trained in\n"
        "warning: this direction was trained at precision bf16 and this run maps the "
        "base weights at f32, so it is being read in a different space than it was "
        "fitted in\n"
    ) in err


@pytest.mark.parametrize("method", ["pca", "logistic"])
def test_a_direction_of_identical_sides_is_warned_of(say, user, method):
    pair = {"positive": "the sea", "negative": "the sea"}
    user.write("pairs.json", json.dumps({"pairs": [pair] * 6}))
    code, _, err = say(words("train", output="v.json", method=method))
    assert code == 0
    assert "warning: no layer's direction orders a single pair that" in err


@pytest.mark.parametrize(("asked", "said"), [(1, 0), (3, 1)])
def test_fewer_components_than_were_asked_for_are_said(say, user, asked, said):
    user.write("one.json", '{"pairs": [{"positive": "the", "negative": "sea"}]}')
    line = ["vector", "project", "-m", "toy", "-p", "one.json", "-v", "v.json"]
    code, out, err = say(
        [*line, "--layer", "1", "--strength", "1", "--components", str(asked)]
    )
    assert code == 0
    assert len(json.loads(out)["explained"]) == 1
    sentence = f"vary along 1 component and no more: {asked} were asked for\n"
    assert err.count(sentence) == said


def test_a_side_past_the_trained_length_is_named_by_its_pair(say, user):
    long = " ".join(["the sea is calm"] * 75)
    pairs = [["the sea", "a storm"], ["calm", long]]
    listed = [{"positive": up, "negative": down} for up, down in pairs]
    user.write("pairs.json", json.dumps({"pairs": listed}))
    code, _, err = say(words("train", output="v.json"))
    assert code == 0
    assert "warning: the negative side of pair 2 has 300 tokens, more than" in err
    assert "no layer's direction" not in err


def test_identical_sides_are_refused_and_the_old_artifact_stays(say, user):
    pair = {"positive": "the sea", "negative": "the sea"}
    user.write("pairs.json", json.dumps({"pairs": [pair]}))
    before = Path("v.json").read_bytes()
    code, _, err = say(words("train", output="v.json"))
    assert code == 1
    first, _, cause = err.partition("\n\nCaused by:\n")
    assert first.endswith("Error: training produced a zero or non-finite direction")
    assert cause.startswith("    both sides are alike at a layer, or some pairs undo")
    assert Path("v.json").read_bytes() == before
    assert not [name for name in os.listdir() if name.startswith(".ster")]


def test_the_output_is_tried_before_a_weight_is_read(say):
    Path("toy/model.safetensors").write_bytes(b"damaged")
    err = say(words("train", output="toy"))[2]
    assert err.startswith(ABSENT + "Error: failed to write steering artifact toy\n")
    err = say(words("train"))[2]
    assert "Error: failed to map 1 model weight files\n" in err
    assert not Path("o.json").exists()


def test_a_set_without_a_trait_is_named_after_its_file(say, user):
    user.write("kind.json", json.dumps({"pairs": PAIRS["pairs"]}))
    out = say(words("train", pairs="kind.json"))[1]
    assert json.loads(out)["artifact"]["trait_name"] == "kind"


@pytest.mark.parametrize("command", ["train", "optimize"])
@pytest.mark.parametrize("path", ["pairs.json", "./pairs.json", "toy/config.json"])
def test_an_artifact_over_what_the_run_reads_is_refused(folder, say, command, path):
    before = (folder / path).read_bytes()
    code, out, err = say(words(command, output=path))
    assert (code, out) == (1, "")
    said = ABSENT if path.startswith("toy") else ""
    assert err == (
        f"{said}Error: failed to write {path}\n\n"
        "Caused by:\n    it is this run's input\n"
    )
    assert (folder / path).read_bytes() == before


@pytest.mark.parametrize(
    "path", ["prompts.json", "./v.json", "s.txt", "toy/config.json"]
)
def test_answers_over_what_the_run_reads_are_refused(folder, say, path):
    (folder / "s.txt").write_text("be calm")
    before = (folder / path).read_bytes()
    flags = ["--model", "toy", "--prompts", "prompts.json", "--vector", "v.json"]
    if path == "s.txt":
        flags += ["--system", path]
    code, out, err = say(["generate", *flags, "--output", path])
    assert (code, out) == (1, "")
    assert err.endswith(
        f"Error: failed to write {path}\n\nCaused by:\n    it is this run's input\n"
    )
    assert (folder / path).read_bytes() == before
