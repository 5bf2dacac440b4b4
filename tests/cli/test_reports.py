"""``ster vector compare``, ``project`` and ``curve`` as a person runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ster
from ster.cli import run
from tests.cli.test_vector import PAIRS, READING
from tests.cli.user import ABSENT, User, refusal

PROJECT = {"vector": "calm.json", "layer": "3", "strength": "2", "components": "2"}
CURVE = {"method": "caa", "holdout": "0.25", "sizes": "3,1"}


@pytest.fixture
def folder(user: User) -> Path:
    """A folder with the toy checkpoint, pairs, and two vectors of all layers."""
    user.write("pairs.json", json.dumps(PAIRS))
    runtime = ster.load("toy")
    pairs = ster.PairSet.load("pairs.json")
    runtime.train(pairs, output="calm.json")
    loud = runtime.train(pairs, method="pca", layers=[1, 2]).replaced(trait_name="loud")
    loud.save("loud.json")
    return user.folder


@pytest.fixture
def say(folder, capsys):
    """Run a line; return its exit code, stdout and stderr."""
    capsys.readouterr()

    def say(line: list[str]) -> tuple[int, str, str]:
        code = run(line)
        return code, *capsys.readouterr()

    return say


def words(command: str, **flags: str | None) -> list[str]:
    """Spell a command with the flags it needs; None leaves one out."""
    own = {"project": PROJECT, "curve": CURVE}[command]
    values = {"model": "toy", "pairs": "pairs.json", **own, **flags}
    pairs = [(f"--{name}", word) for name, word in values.items() if word is not None]
    return ["vector", command, *(word for pair in pairs for word in pair)]


def compare(*paths: str, clusters: str = "1", layers: str = "all") -> list[str]:
    flags = ("--clusters", clusters, "--layers", layers)
    return ["vector", "compare", *paths, *flags]


def test_compare_prints_its_report_and_nothing_else(say):
    code, out, err = say(compare("calm.json", "loud.json", clusters="2"))
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert out == json.dumps(report, indent=2, sort_keys=True) + "\n"
    one, other = map(ster.SteeringVector.load, ("calm.json", "loud.json"))
    assert report == one.compare(other, clusters=2).document
    assert report["layers"] == [1, 2]


def test_compare_takes_layers(say):
    _, out, _ = say(compare("calm.json", "loud.json", layers="2,2"))
    assert json.loads(out)["layers"] == [2]


def test_project_prints_its_report(say):
    code, out, err = say(words("project"))
    assert (code, err) == (0, ABSENT + READING)
    report = json.loads(out)
    assert out == json.dumps(report, indent=2, sort_keys=True) + "\n"
    runtime, pairs = ster.load("toy"), ster.PairSet.load("pairs.json")
    vector = ster.SteeringVector.load("calm.json")
    found = runtime.project(pairs, vector, layer=3, strength=2.0, components=2)
    assert report == found.document
    assert report["chat_template"] == "absent"
    assert len(report["points"]) == 16


@pytest.mark.parametrize(("strength", "number"), [("-0.5", -0.5), ("0.25n", None)])
def test_project_takes_any_strength(say, strength, number):
    code, out, _ = say(words("project", strength=strength))
    report = json.loads(out)
    assert (code, report["strength"]) == (0, number)
    assert report.get("strength_word") == (None if number else strength)


def test_project_says_when_nothing_can_move(say):
    code, out, err = say(words("project", vector="loud.json", layer="1"))
    assert code == 0
    assert json.loads(out)["shift_along_direction"] == 0
    assert (
        "warning: rows of layer 1 are read before anything is done there, and the "
        "vector begins at layer 1: nothing moves\n"
    ) in err


def test_curve_prints_its_report(say):
    code, out, err = say(words("curve"))
    assert (code, err) == (
        0,
        ABSENT
        + READING
        + "fitting caa on 2 numbers of pairs and measuring each on 1 held-out pair\n"
        + "one held-out pair makes every accuracy 0 or 1, which tells sizes hardly "
        "apart; hold out more\n",
    )
    report = json.loads(out)
    assert out == json.dumps(report, indent=2, sort_keys=True) + "\n"
    assert [*report] == [
        *("chat_template", "enough", "holdout", "method", "points", "trait_name")
    ]
    assert report["holdout"] == {"fit_pairs": 3, "fraction": 0.25, "holdout_pairs": 1}
    assert [(each["layer"], each["size"]) for each in report["points"]] == [
        (layer, size) for layer in range(4) for size in (3, 1)
    ]


def test_curve_takes_layers_and_another_name_of_a_method(say):
    _, out, _ = say(words("curve", layers="2", method="mean-difference"))
    report = json.loads(out)
    assert report["method"] == "caa"
    assert {each["layer"] for each in report["points"]} == {2}


def test_project_and_curve_take_labelled_prompts_and_other_tokens(say, user):
    sides = ster.PairSet.load("pairs.json").prompts
    prompts = [
        {"prompt": text, "mood": "calm" if index % 2 == 0 else "loud"}
        for index, text in enumerate(sides)
    ]
    user.write("prompts.jsonl", "\n".join(map(json.dumps, prompts)))
    labelled = {"pairs": "prompts.jsonl", "label": "mood", "positive": "calm"}
    reports = []
    for tokens in ("text", "mean"):
        code, out, err = say(words("project", **labelled, tokens=tokens))
        assert (code, json.loads(out)["pair_count"]) == (0, 4)
        warned = (
            "warning: this direction was trained on tokens last of the user's turn "
        )
        assert f"{warned}and this run reads tokens {tokens}" in err
        code, out, _ = say(words("curve", **labelled, tokens=tokens))
        reports.append(json.loads(out))
        assert code == 0
    assert reports[0]["points"] != reports[1]["points"]


def test_text_prints_lines(say):
    _, out, _ = say([*compare("calm.json", "loud.json"), "--text"])
    assert "layers[0]: 1\n" in out
    assert "silhouette: -\n" in out


@pytest.mark.parametrize(
    ("line", "sentence", "causes"),
    [
        (compare("calm.json"), "a comparison needs at least two vectors, not 1", []),
        (
            compare("calm.json", "loud.json", clusters="3"),
            "2 vectors make no 3 clusters",
            ["clusters may be 1 to 2"],
        ),
        (
            compare("calm.json", "lout.json"),
            "failed to compare lout.json",
            [
                "failed to read steering artifact lout.json",
                "No such file or directory (os error 2)",
                "did you mean loud.json?",
            ],
        ),
        (
            compare("pairs.json", "calm.json"),
            "failed to compare pairs.json",
            ["invalid steering artifact JSON in pairs.json", ...],
        ),
        (
            compare("calm.json", "zero.json"),
            "failed to compare zero.json",
            ["layer 1 contains only zeros"],
        ),
        (
            compare("calm.json", "other.json"),
            "vectors of different models have no directions in common",
            [
                '"calm (caa) calm.json" is of model "toy", "calm (caa) other.json" of '
                '"other"'
            ],
        ),
        (
            compare("calm.json", "loud.json", layers="1,3"),
            '"loud" has no layer 3, only layers 1, 2',
            [],
        ),
        (compare("calm.json", "loud.json", layers="1-2"), 'invalid layer "1-2"', [...]),
        (
            words("project", layer="4"),
            "layer 4 is outside the model's 0..3 range",
            [],
        ),
        (
            words("project", vector="other.json"),
            'artifact was trained for model "other", current model is "toy"',
            [],
        ),
        (
            words("project", pairs="pair.json"),
            "failed to read pair set pair.json",
            [
                "No such file or directory (os error 2)",
                "did you mean pairs.json?",
            ],
        ),
        (
            words("project", vector="clam.json"),
            "failed to read steering artifact clam.json",
            [
                "No such file or directory (os error 2)",
                "did you mean calm.json?",
            ],
        ),
        (
            words("curve", sizes="1,4"),
            "size 4 is more than the 3 pairs that may be fitted on",
            ["1 of 4 pairs are held out"],
        ),
        (
            words("curve", holdout="1"),
            "the held-out fraction must be above zero and below one",
            [],
        ),
        (
            words("curve", holdout="0.01"),
            "a held-out fraction of 0.01 over 4 contrastive pairs leaves 4 pairs to "
            "fit and 0 to rank on; both need at least one",
            [],
        ),
        (
            words("curve", layers="4"),
            "layer 4 is outside the model's 0..3 range",
            [],
        ),
    ],
)
def test_what_is_refused_is_one_sentence_before_weights(
    say, folder, user, line, sentence, causes
):
    calm = json.loads(Path("calm.json").read_bytes())
    Path("other.json").write_text(json.dumps(calm | {"model": "other"}))
    calm["vectors"][1]["values"] = [0] * 64
    Path("zero.json").write_text(json.dumps(calm))
    user.damage_weights()
    before = user.snapshot()
    code, out, err = say(line)
    assert (code, out) == (1, "")
    said = err.removeprefix(ABSENT)
    assert re.fullmatch(refusal(sentence, *causes), said), said
    assert user.snapshot() == before


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            compare("calm.json", "loud.json", clusters="0"),
            "--clusters must be at least",
        ),
        (["vector", "compare", "--clusters", "1"], "Missing argument 'ARTIFACT...'"),
        (
            ["vector", "compare", "calm.json", "loud.json"],
            "Missing option '--clusters'",
        ),
        *(
            (words("project", **{name: None}), f"Missing option '--{name}'")
            for name in ("pairs", "vector", "layer", "strength", "components")
        ),
        *(
            (words("curve", **{name: None}), f"Missing option '--{name}'")
            for name in ("pairs", "method", "holdout", "sizes")
        ),
        (words("project", components="0"), "--components must be at least 1, not 0"),
        (words("project", layer="x"), "Invalid value for '--layer'"),
        (words("project", strength="much"), "invalid strength"),
        (words("project", strength="inf"), "strength must be finite, not inf"),
        (
            words("project", vector="calm.json:2"),
            "`project` takes one vector as it is, without :2",
        ),
        (words("curve", sizes="1,x"), 'invalid size "x"; expected numbers of pairs'),
        (words("curve", sizes="0"), 'invalid size "0"'),
        (words("curve", sizes="-1"), 'invalid size "-1"'),
        (words("curve", sizes="9" * 30), 'invalid size "999'),
        (words("curve", sizes=","), "there is no size to fit on"),
        (words("curve", method="x"), 'unknown training method "x"'),
        (words("curve", label="mood"), "--label needs --positive"),
        (words("project", positive="calm"), "--positive needs --label"),
        (words("project", tokens="x"), 'unknown tokens "x"'),
        (words("curve", role="x"), 'unknown role "x"'),
    ],
)
def test_a_line_that_cannot_be_meant_is_told_so(say, line, sentence):
    code, out, err = say(line)
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: {sentence}"), err
