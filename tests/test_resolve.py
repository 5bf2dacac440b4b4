"""``--model`` as a directory, and names that look like one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ster.checkpoint.resolve import CheckpointFiles, is_path, open_files
from ster.errors import (
    CheckpointError,
    ConfigError,
    HubError,
    SterError,
    TokenizerError,
    WeightsError,
)

INDEX = "model.safetensors.index.json"
NOT_A_FOLDER = "it is a file, and --model takes a checkpoint's folder"
NO_SUCH_FILE = "No such file or directory (os error 2)"


def checkpoint(directory: Path, *names: str, index: object = None) -> Path:
    """Make a directory of empty files, besides a config and a tokenizer."""
    directory.mkdir(exist_ok=True)
    for name in ("config.json", "tokenizer.json", *names):
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    if index is not None:
        (directory / INDEX).write_text(json.dumps(index))
    return directory


def refusal(files: CheckpointFiles) -> SterError:
    with pytest.raises(SterError) as caught:
        check(files)
    return caught.value


def check(files: CheckpointFiles) -> None:
    files.require_config()
    files.require_tokenizer()
    files.check_weights()


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_a_whole_directory_is_found(tmp_path):
    files = open_files(str(checkpoint(tmp_path / "m", "model.safetensors")), None)
    assert files.require_config() == tmp_path / "m/config.json"
    assert files.require_tokenizer() == tmp_path / "m/tokenizer.json"
    files.check_weights()
    assert files.weight_files(["anything"]) == [tmp_path / "m/model.safetensors"]
    assert files.find("generation_config.json") is None


def test_a_directory_records_the_revision_as_given(tmp_path):
    directory = str(checkpoint(tmp_path / "m"))
    assert open_files(directory, None).revision is None
    assert open_files(directory, "no such branch").revision == "no such branch"
    assert open_files(directory, "").revision == ""
    assert open_files(directory, None).model == directory


def test_missing_files_are_named_in_the_order_config_tokenizer_weights(tmp_path):
    files = open_files(str(tmp_path), None)
    error = refusal(files)
    assert error.sentence == f"model config is missing: {tmp_path}/config.json"
    assert isinstance(error, ConfigError)

    (tmp_path / "config.json").touch()
    error = refusal(open_files(str(tmp_path), None))
    assert error.sentence == f"tokenizer is missing: {tmp_path}/tokenizer.json"
    assert isinstance(error, TokenizerError)

    (tmp_path / "tokenizer.json").touch()
    error = refusal(open_files(str(tmp_path), None))
    assert error.sentence == "model directory contains no safetensors weights"
    assert error.causes == ()
    assert isinstance(error, WeightsError)


def test_a_sentencepiece_tokenizer_alone_is_named(tmp_path):
    (tmp_path / "config.json").touch()
    (tmp_path / "tokenizer.model").touch()
    [cause] = refusal(open_files(str(tmp_path), None)).causes
    assert cause.startswith("tokenizer.model is there, but only tokenizer.json is read")
    assert "save_pretrained" in cause


@pytest.mark.parametrize(
    ("present", "shown"),
    [
        (["pytorch_model.bin"], "pytorch_model.bin"),
        (["w.pt", "optimizer.safetensors"], "w.pt"),
        ([f"p-{i}.bin" for i in range(5)], "p-0.bin, p-1.bin, p-2.bin and others"),
    ],
)
def test_weights_of_other_formats_are_refused_by_name(tmp_path, present, shown):
    error = refusal(open_files(str(checkpoint(tmp_path / "m", *present)), None))
    assert error.sentence == "model directory contains no safetensors weights"
    assert error.causes == (f"only safetensors are read, and what is there is {shown}",)


def test_every_top_level_safetensors_file_is_weights_without_an_index(tmp_path):
    present = (
        "b.safetensors",
        "a.safetensors",
        "optimizer.safetensors",
        "my_optimizer_1.safetensors",
        "._a.safetensors",
        "deeper/c.safetensors",
        "training_args.safetensors",
    )
    files = open_files(str(checkpoint(tmp_path / "m", *present)), None)
    files.check_weights()
    assert names(files.weight_files([])) == [
        "a.safetensors",
        "b.safetensors",
        "training_args.safetensors",
    ]


def test_an_index_wins_and_only_the_shards_of_the_tensors_are_given(tmp_path):
    index = {
        "weight_map": {
            "x": "2.safetensors",
            "y": "1.safetensors",
            "z": "d/3.safetensors",
        }
    }
    present = ("model.safetensors", "1.safetensors", "2.safetensors", "d/3.safetensors")
    directory = checkpoint(tmp_path / "m", *present, index=index)
    files = open_files(str(directory), None)
    files.check_weights()
    assert names(files.weight_files(["x", "y"])) == ["1.safetensors", "2.safetensors"]
    assert files.weight_files({"z"}) == [directory / "d/3.safetensors"]
    assert files.weight_files(["not there"]) == []


@pytest.mark.parametrize("gone", ["missing", "dangling link", "directory"])
def test_a_shard_that_the_index_names_and_is_not_there_is_refused(tmp_path, gone):
    index = {"weight_map": {"x": "1.safetensors", "y": "2.safetensors"}}
    directory = checkpoint(tmp_path / "m", "1.safetensors", index=index)
    if gone == "dangling link":
        (directory / "2.safetensors").symlink_to(tmp_path / "nowhere")
    if gone == "directory":
        (directory / "2.safetensors").mkdir()
    error = refusal(open_files(str(directory), None))
    assert isinstance(error, WeightsError)
    assert error.sentence == "failed to map 2 model weight files"
    cause, *why = error.causes
    assert cause == "2.safetensors is missing"
    assert (
        why
        == {
            "missing": [],
            "dangling link": [
                f'it is a link to "{tmp_path}/nowhere", which is not there'
            ],
            "directory": ["it is a directory, not a file"],
        }[gone]
    )


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("{", None),
        ('{"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}}', None),
        ('{"weight_map": {"a": NaN}}', None),
        ("[]", "it has no weight_map"),
        ("{}", "it has no weight_map"),
        ('{"weight_map": []}', "it has no weight_map"),
        ('{"weight_map": {"a": 1}}', 'it names no file for "a"'),
        (
            '{"weight_map": {"a": "../1.safetensors"}}',
            'it names "../1.safetensors", which is outside the checkpoint',
        ),
        (
            '{"weight_map": {"a": "d/../../1.safetensors"}}',
            'it names "d/../../1.safetensors", which is outside the checkpoint',
        ),
        (
            '{"weight_map": {"a": "/etc/1.safetensors"}}',
            'it names "/etc/1.safetensors", which is outside the checkpoint',
        ),
        (
            '{"weight_map": {"a": "..\\\\1.safetensors"}}',
            'it names "..\\\\1.safetensors", which is outside the checkpoint',
        ),
        (
            '{"weight_map": {"a": "model.bin"}}',
            'it names "model.bin", but only safetensors files are read',
        ),
        (
            '{"weight_map": {"a": ""}}',
            'it names "", but only safetensors files are read',
        ),
    ],
)
def test_a_broken_index_is_refused_by_name(tmp_path, text, detail):
    directory = checkpoint(tmp_path / "m", "1.safetensors", "2.safetensors")
    (directory / INDEX).write_text(text)
    error = refusal(open_files(str(directory), None))
    assert isinstance(error, WeightsError)
    assert error.sentence == "failed to map 2 model weight files"
    place, why = error.causes
    assert place == f"{directory / INDEX} is no weight index"
    assert why
    assert "\n" not in why
    assert detail in (None, why)


def test_an_index_that_names_nothing_counts_as_no_weights(tmp_path):
    directory = checkpoint(tmp_path / "m", index={"weight_map": {}})
    error = refusal(open_files(str(directory), None))
    assert error.sentence == "model directory contains no safetensors weights"


def test_links_are_followed_and_dangling_ones_are_missing_files(tmp_path):
    blobs = checkpoint(tmp_path / "blobs", "w")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "config.json").symlink_to("../blobs/config.json")
    (snapshot / "tokenizer.json").symlink_to(blobs / "tokenizer.json")
    (snapshot / "model.safetensors").symlink_to("../blobs/w")
    link = tmp_path / "link"
    link.symlink_to(snapshot)
    files = open_files(str(link), None)
    assert files.require_config().read_bytes() == b""
    files.require_tokenizer()
    files.check_weights()
    assert files.weight_files([]) == [link / "model.safetensors"]

    (blobs / "config.json").unlink()
    error = refusal(open_files(str(link), None))
    assert error.sentence == f"model config is missing: {link}/config.json"


def test_a_directory_that_cannot_be_listed_says_why(tmp_path, monkeypatch):
    def listdir(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.listdir", listdir)
    with pytest.raises(CheckpointError) as caught:
        open_files(str(tmp_path), None)
    assert caught.value.sentence == f"failed to list {tmp_path}"
    assert caught.value.causes == ("Permission denied (os error 13)",)


@pytest.mark.parametrize(
    "model",
    [
        "./llama",
        "../llama",
        ".",
        "/no/such/place",
        "a/b/c",
        "models/llama",
        "models/",
        "llama/",
        "models\\llama",
        "~nobody",
    ],
)
def test_what_looks_like_a_path_is_one(tmp_path, monkeypatch, model):
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_path(model)


@pytest.mark.parametrize("model", ["gpt2", "org/name", "a.b/c-d_e", "https://x.y/a/b"])
def test_what_looks_like_a_model_id_is_no_path(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    assert not is_path(model)


@pytest.mark.parametrize(
    ("model", "cause"),
    [
        ("./llama", NO_SUCH_FILE),
        ("/no/such/place", NO_SUCH_FILE),
        ("models/llama", NO_SUCH_FILE),
        ("models/file", NOT_A_FOLDER),
        ("models/file/", NOT_A_FOLDER),
        ("models/file/x", "Not a directory (os error 20)"),
        ("loose", NOT_A_FOLDER),
        ("dangling", NO_SUCH_FILE),
        ("a/b/c", NO_SUCH_FILE),
    ],
)
def test_a_path_that_is_no_directory_is_never_asked_of_the_hub(
    tmp_path, monkeypatch, model, cause
):
    (tmp_path / "models").mkdir()
    (tmp_path / "models/file").touch()
    (tmp_path / "loose").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        open_files(model, None)
    assert caught.value.sentence == f"failed to list {model}"
    assert caught.value.causes == (cause,)
    assert not isinstance(caught.value, HubError)


def test_a_tilde_that_the_shell_did_not_expand_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    checkpoint(tmp_path / "m")
    with pytest.raises(CheckpointError) as caught:
        open_files("~/m", None)
    assert caught.value.sentence == "failed to list ~/m"
    [cause] = caught.value.causes
    assert "where the shell expands it" in cause


def test_a_directory_whose_name_begins_with_a_tilde_is_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint(tmp_path / "~m")
    assert open_files("~m", None).require_config() == Path("~m/config.json")


@pytest.mark.parametrize("model", ["", " ", "\t\n"])
def test_an_empty_model_is_refused(model):
    with pytest.raises(CheckpointError, match=r"^model must not be empty$"):
        open_files(model, None)


@pytest.mark.parametrize(
    "model",
    [
        "two words",
        "a--b",
        "a..b",
        "name.git",
        "-a",
        "a/-b",
        "café",
        "x" * 97,
        "https://huggingface.co/org/name",
        "hf://org/name",
        "org/name\nnext",
        "nul\0byte",
    ],
)
def test_a_name_that_is_no_model_id_is_refused_on_one_line(
    tmp_path, monkeypatch, model
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HubError) as caught:
        open_files(model, None)
    assert caught.value.sentence.startswith('failed to read model repository "')
    assert "neither a directory nor a model id" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\0" not in str(caught.value)
