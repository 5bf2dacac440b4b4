"""What a person may have meant: near paths, models, commands and flags."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ster.cli import run
from ster.cli.suggestions import near_models, near_paths, suggest
from ster.errors import CheckpointError, HubError, OutputError, SterError
from tests.cli.user import User

UNKNOWN = "there is no such model on the Hub"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("prompt.json", ["prompts.json"]),
        ("Prompts.JSON", ["prompts.json"]),
        ("prompts.jsn", ["prompts.json"]),
        ("./promts.json", ["./prompts.json"]),
        ("data/pair.json", ["data/pairs.json"]),
        ("data/", []),
        ("zebra.json", []),
        ("nowhere/prompts.json", []),
        ("dta/pairs.json", ["data/pairs.json"]),
        ("./atad/pair.json", ["./data/pairs.json"]),
        ("v.josn", ["v.json"]),
        ("a\0b", []),
        ("", []),
    ],
)
def test_near_names_of_the_same_folder_are_found(
    folder: Path, path: str, near: list[str]
):
    (folder / "prompts.json").touch()
    (folder / "v.json").touch()
    (folder / "data").mkdir()
    (folder / "data" / "pairs.json").touch()
    assert [each for each in near_paths(path) if each != "data"] == near


def test_at_most_three_are_offered_and_none_can_forge_a_line(folder: Path):
    for name in ("prompts1", "prompts2", "prompts3", "prompts4"):
        (folder / name).touch()
    assert len(near_paths("prompts")) == 3
    (folder / "odd\x1b[2J\nnam").touch()
    (offered,) = suggest(SterError("failed to read odd", path="odd\x1b[2J\nname"))
    assert offered == r"did you mean odd\u{1b}[2J\nnam?"


def test_a_document_that_cannot_be_inspected_has_a_near_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "calm.json").touch()
    for line in (
        ["vector", "inspect", "calmm.json"],
        ["pairs", "inspect", "kalm.json"],
    ):
        assert run(line) == 1
        assert capsys.readouterr().err.endswith("did you mean calm.json?\n")


def test_what_is_there_or_is_to_be_written_is_left_alone(folder: Path):
    (folder / "prompts.json").touch()
    assert suggest(SterError("x", path="prompts.json")) == []
    assert suggest(OutputError("x", path="prompt.json")) == []
    assert suggest(SterError("x")) == []


def test_models_in_the_cache_and_directories_are_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    for name in ("models--org--SmolLM2-135M", "models--other--toy", "datasets--org--x"):
        (folder / "hub" / name).mkdir(parents=True)
    (folder / "toy").mkdir()
    assert near_models("org/SmolLM2-135") == ["org/SmolLM2-135M"]
    assert near_models("org/toy") == ["other/toy", "toy"]
    assert near_models("someone/else") == []
    error = HubError("failed to read model repository org/smollm2-135m", UNKNOWN)
    assert suggest(error) == ["did you mean org/SmolLM2-135M?"]
    (folder / "toy" / "config.json").touch()
    (folder / "tory").mkdir()  # which is no checkpoint
    for cause in ("no connection to https://hub", "https://hub did not answer in time"):
        unread = HubError("failed to read model repository toyy", cause)
        assert suggest(unread) == ["did you mean toy?"]
    gated = HubError("failed to read model repository org/toy", "it is gated")
    assert suggest(gated) == suggest(HubError("failed to download x")) == []


def test_a_model_in_a_folder_that_is_near_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    for name in ("checkpoints/toy", "checkpoints/small"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").touch()
    both = ["checkpoints/small", "checkpoints/toy"]
    assert near_models("chekpoints") == both
    assert near_models("chekpoints/toy") == ["checkpoints/toy"]
    assert near_models("chekpoints/tyo") == ["checkpoints/toy"]
    unlisted = CheckpointError("failed to list x", path="checkpoints/tyo")
    assert suggest(unlisted) == ["did you mean checkpoints/toy?"]


def test_a_dash_that_is_no_standard_input_is_explained(folder: Path, capsys):
    for line in (
        ["vector", "inspect", "-"],
        ["vector", "compare", "-", "v", "--clusters=1"],
    ):
        assert run(line) == 1
        assert "/dev/stdin" in capsys.readouterr().err.splitlines()[-1]
    (folder / "-").touch()
    assert run(["vector", "inspect", "-"]) == 1
    assert "/dev/stdin" not in capsys.readouterr().err


def test_files_within_a_checkpoint_are_not_what_a_person_typed(folder: Path):
    (folder / "tokenizer_config.json").touch()
    error = CheckpointError("tokenizer is missing: x", path="tokenizer.json")
    assert suggest(error) == []


def test_a_cache_that_is_not_there_offers_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "nowhere"))
    assert near_models("org/name") == []


@pytest.mark.parametrize(
    ("words", "first", "offered"),
    [
        ({"input": "prompt.json"}, "failed to read prompt.json", "prompts.json"),
        ({"model": "./toyy"}, "failed to list ./toyy", "./toy"),
    ],
)
def test_a_refusal_keeps_its_first_sentence_and_offers_the_near_name(
    user: User, words: dict[str, str], first: str, offered: str
):
    ran = user.runs(**words)
    assert ran.code == 1
    assert ran.err.splitlines()[0] == f"Error: {first}"
    assert ran.err.splitlines()[-1].endswith(f"did you mean {offered}?")
    assert not os.path.exists("o.json")
