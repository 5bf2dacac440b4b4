"""What is given in place of a checkpoint is named for what it is, with the way out."""

from __future__ import annotations

import builtins
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ster.checkpoint.resolve import open_files
from ster.errors import (
    CheckpointError,
    ConfigError,
    SterError,
    TokenizerError,
    WeightsError,
)
from tests.test_weights import names as f32_tensors
from tests.test_weights import open_tensors
from tests.test_weights import write as write_weights

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4000000000\n"
NO_CONFIG = "model config is missing: {}/config.json"
NO_WEIGHTS = "model directory contains no safetensors weights"


def folder(path: Path, **files: bytes) -> Path:
    """Make a directory of files; two underscores in a name stand for the dot."""
    path.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (path / name.replace("__", ".")).write_bytes(data)
    return path


def whole(path: Path, **files: bytes) -> Path:
    light: dict[str, bytes] = {"config__json": b"{}", "tokenizer__json": b"{}"}
    return folder(path, **{**light, **files})


def check(model: str | Path, revision: str | None = None) -> list[Path]:
    files = open_files(str(model), revision)
    files.require_config()
    files.require_tokenizer()
    files.find("tokenizer_config.json")
    files.find("chat_template.jinja")
    files.check_weights()
    return files.weight_files([])


def refusal(model: str | Path, revision: str | None = None) -> SterError:
    with pytest.raises(SterError) as caught:
        check(model, revision)
    assert "\n" not in str(caught.value)
    return caught.value


class TestFiles:
    @pytest.mark.parametrize("name", ["model-q4.gguf", "sha256-0123"])
    def test_a_gguf_file_is_named_by_its_name_or_its_first_bytes(self, tmp_path, name):
        path = tmp_path / name
        path.write_bytes(b"GGUF\3\0\0\0")
        error = refusal(path)
        assert error.sentence == f"failed to list {path}"
        assert error.path == str(path)
        [cause] = error.causes
        assert "a GGUF file" in cause
        assert "converted from" in cause

    def test_a_weight_file_names_the_folder_to_give(self, tmp_path, monkeypatch):
        whole(tmp_path / "m", model__safetensors=b"")
        error = refusal(tmp_path / "m/model.safetensors")
        assert error.causes[0].endswith(f"the folder it lies in: {tmp_path}/m")
        monkeypatch.chdir(tmp_path / "m")
        assert refusal("model.safetensors").causes[0].endswith("lies in: .")

    def test_a_trailing_slash_changes_nothing(self, tmp_path):
        whole(tmp_path / "m", model__safetensors=b"")
        assert check(f"{tmp_path}/m/") == [tmp_path / "m/model.safetensors"]
        assert "a GGUF" in refusal(f"{folder(tmp_path, a__gguf=b'')}/a.gguf/").causes[0]


class TestFolders:
    def test_of_gguf_alone_are_named(self, tmp_path):
        folder(tmp_path / "m", **{"b-q8__gguf": b"", "a-q4__gguf": b""})
        error = refusal(tmp_path / "m")
        assert isinstance(error, ConfigError)
        assert error.sentence == NO_CONFIG.format(tmp_path / "m")
        assert error.causes[0].startswith("what is there is a-q4.gguf, b-q8.gguf; GGUF")
        whole(tmp_path / "m")
        error = refusal(tmp_path / "m")
        assert error.sentence == NO_WEIGHTS
        assert error.causes[0].startswith("what is there is a-q4.gguf, b-q8.gguf; GGUF")

    @pytest.mark.parametrize("light", [False, True])
    def test_of_an_adapter_name_its_base(self, tmp_path, light):
        config = json.dumps({"base_model_name_or_path": "org/base", "r": 8}).encode()
        make = whole if light else folder
        make(
            tmp_path / "m", adapter_config__json=config, adapter_model__safetensors=b""
        )
        error = refusal(tmp_path / "m")
        sentence = NO_WEIGHTS if light else NO_CONFIG.format(tmp_path / "m")
        assert error.sentence == sentence
        [cause] = error.causes
        assert 'an adapter for "org/base", not a model' in cause
        assert "merge" in cause

    def test_of_a_model_and_an_adapter_are_not_read_without_the_adapter(self, tmp_path):
        config = b'{"base_model_name_or_path": "org/base"}'
        whole(tmp_path / "m", adapter_config__json=config, model__safetensors=b"")
        error = refusal(tmp_path / "m")
        assert error.sentence == "failed to map 1 model weight files"
        assert 'an adapter for "org/base"' in error.causes[0]
        assert error.field == "adapter_config.json"

    @pytest.mark.parametrize("config", [b"", b"[]", b'{"base_model_name_or_path": 1}'])
    def test_of_an_adapter_that_names_no_base_are_refused_too(self, tmp_path, config):
        folder(tmp_path / "m", adapter_config__json=config)
        assert "an adapter for another model" in refusal(tmp_path / "m").causes[0]

    def test_that_hold_the_model_one_level_down_say_where(self, tmp_path):
        whole(tmp_path / "m/final", model__safetensors=b"")
        error = refusal(tmp_path / "m")
        assert error.causes[0].endswith(f"--model {tmp_path}/m/final")

    def test_with_a_consolidated_copy_give_the_other_alone(self, tmp_path):
        whole(tmp_path / "m", model__safetensors=b"", consolidated__safetensors=b"")
        assert check(tmp_path / "m") == [tmp_path / "m/model.safetensors"]
        (tmp_path / "m/model.safetensors").unlink()
        assert check(tmp_path / "m") == [tmp_path / "m/consolidated.safetensors"]


@pytest.mark.parametrize(
    ("files", "word"),
    [
        (["tokenizer.model"], "tokenizer.model is there"),
        (["vocab.json", "merges.txt"], "vocab.json and merges.txt are there"),
        (["tekken.json"], "tekken.json is there"),
    ],
)
def test_a_tokenizer_of_another_format_is_named_with_the_way_out(tmp_path, files, word):
    folder(tmp_path / "m", config__json=b"{}")
    for name in files:
        (tmp_path / "m" / name).touch()
    error = refusal(tmp_path / "m")
    assert isinstance(error, TokenizerError)
    assert error.sentence == f"tokenizer is missing: {tmp_path}/m/tokenizer.json"
    [cause] = error.causes
    assert cause.startswith(f"{word}, but only tokenizer.json is read")
    assert "transformers" in cause


class TestPointers:
    @pytest.mark.parametrize(
        ("name", "sentence", "kind"),
        [
            ("config.json", "invalid model config {}", ConfigError),
            ("tokenizer.json", "failed to load tokenizer {}: ", TokenizerError),
            ("tokenizer_config.json", "failed to read {}", CheckpointError),
            ("chat_template.jinja", "failed to read {}", CheckpointError),
            (
                "model.safetensors",
                "failed to map 1 model weight files",
                WeightsError,
            ),
        ],
    )
    def test_are_named_wherever_they_lie(self, tmp_path, name, sentence, kind):
        path = whole(tmp_path / "m", model__safetensors=b"weights") / name
        path.write_bytes(POINTER)
        error = refusal(tmp_path / "m")
        assert isinstance(error, kind)
        assert error.sentence.startswith(sentence.format(path))
        assert error.path == str(path)
        assert "Git LFS pointer" in str(error)
        assert "git lfs pull" in str(error)

    def test_that_come_in_place_of_weights_later_are_named_when_mapped(self, tmp_path):
        (tmp_path / "model.safetensors").write_bytes(POINTER)
        with pytest.raises(
            WeightsError, match="model.safetensors is damaged"
        ) as caught:
            open_tensors([tmp_path / "model.safetensors"], {"a": (1,)})
        assert "Git LFS pointer" in caught.value.causes[1]


class TestThingsThatAreNoFiles:
    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("config.json", NO_CONFIG),
            ("tokenizer.json", "tokenizer is missing: {}/tokenizer.json"),
            ("model.safetensors", NO_WEIGHTS),
        ],
    )
    @pytest.mark.parametrize(
        ("make", "cause"),
        [
            (Path.mkdir, "it is a directory, not a file"),
            (os.mkfifo, "it is a pipe, not a file"),
            (
                lambda path: path.symlink_to("gone"),
                'it is a link to "gone", which is not there',
            ),
            (
                lambda path: path.symlink_to(path.name),
                "Too many levels of symbolic links (os error ",
            ),
        ],
    )
    def test_are_named(self, tmp_path, name, sentence, make, cause):
        path = whole(tmp_path / "m", model__safetensors=b"") / name
        path.unlink()
        make(path)
        error = refusal(tmp_path / "m")
        assert error.sentence == sentence.format(tmp_path / "m")
        assert error.causes[0].startswith(cause)

    def test_a_model_that_is_a_loop_of_links_is_refused(self, tmp_path):
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        error = refusal(tmp_path / "a")
        assert error.sentence == f"failed to list {tmp_path}/a"
        assert error.causes[0].startswith("Too many levels of symbolic links")

    def test_a_pipe_is_not_waited_for_when_weights_are_mapped(self, tmp_path):
        os.mkfifo(tmp_path / "model.safetensors")
        with pytest.raises(WeightsError) as caught:
            open_tensors([tmp_path / "model.safetensors"], {"a": (1,)})
        assert caught.value.causes[1] == "it is a pipe, not a file"


class TestCacheFolders:
    A, B = "a" * 40, "b" * 40

    @pytest.fixture
    def cache(self, tmp_path: Path) -> Path:
        """Return the cache's folder of a model with one snapshot, A."""
        cache = tmp_path / "models--org--name"
        whole(
            cache / "snapshots" / self.A,
            model__safetensors=b"",
            tokenizer_config__json=b'{"chat_template": "x"}',
        )
        return cache

    def note(self, cache: Path, reference: str, commit: str) -> None:
        path = cache / "refs" / reference
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)

    def test_stand_for_their_only_snapshot(self, cache):
        assert check(cache) == [cache / "snapshots" / self.A / "model.safetensors"]
        assert check(f"{cache}/") == check(cache)
        files = open_files(str(cache), None)
        assert (files.model, files.revision) == (str(cache), self.A)

    def test_stand_for_the_snapshot_of_main_or_of_the_revision(self, cache):
        whole(
            cache / "snapshots" / self.B,
            tokenizer_config__json=b'{"chat_template": "x"}',
        )
        self.note(cache, "main", self.B)
        self.note(cache, "v1", self.A)
        assert open_files(str(cache), None).revision == self.B
        assert open_files(str(cache), "v1").revision == self.A
        assert open_files(str(cache), self.A).revision == self.A

    @pytest.mark.parametrize("revision", [None, "v2", "../x", "c" * 40])
    def test_of_several_snapshots_and_no_main_say_which_there_are(
        self, cache, revision
    ):
        whole(cache / "snapshots" / self.B)
        error = refusal(cache, revision)
        assert isinstance(error, ConfigError)
        assert error.sentence == NO_CONFIG.format(cache)
        assert f"{self.A}, {self.B}" in error.causes[0]
        assert error.expected == (self.A, self.B)

    def test_without_a_snapshot_say_so(self, tmp_path):
        (tmp_path / "models--org--name/snapshots").mkdir(parents=True)
        assert "there is none" in refusal(tmp_path / "models--org--name").causes[0]

    def test_that_lack_a_file_say_what_to_download(self, cache):
        (cache / "snapshots" / self.A / "tokenizer.json").unlink()
        error = refusal(cache)
        assert error.sentence == "failed to download tokenizer.json"
        assert error.causes[0].startswith(f"it is not in {cache}; download it")
        assert f"hf download org/name tokenizer.json --revision {self.A}" in str(error)


class TestTensors:
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("base_model.model.model.layers.0.w", "PEFT adapter"),
            ("language_model.model.layers.0.w", "text part of a larger model"),
            ("_orig_mod.model.layers.0.w", "torch.compile"),
            ("layers.0.attention.wq.weight", "Mistral's own names"),
        ],
    )
    def test_of_other_names_are_explained_where_one_is_missing(
        self, tmp_path, name, words
    ):
        path = write_weights(tmp_path / "m", f32_tensors(name))
        with pytest.raises(WeightsError) as caught:
            open_tensors([path], {"embed_tokens.weight": (4, 3)})
        missing, why = caught.value.causes
        assert missing.endswith("embed_tokens.weight is missing")
        assert words in why
        assert caught.value.field is not None


class TestPermissions:
    """Root may read everything, so the system's own refusal is stood in for."""

    def test_of_weights_are_not_taken_for_their_absence(self, tmp_path, monkeypatch):
        path = write_weights(tmp_path / "model.safetensors", f32_tensors("a"))
        refuse_to_open(monkeypatch, path)
        with pytest.raises(WeightsError) as caught:
            open_tensors([path], {"a": (4, 3)})
        assert caught.value.causes == (
            "model.safetensors is damaged or cannot be read",
            "Permission denied (os error 13)",
        )

    def test_of_weights_are_found_before_anything_is_read(self, tmp_path, monkeypatch):
        whole(tmp_path / "m", model__safetensors=b"")
        refuse_to_open(monkeypatch, tmp_path / "m/model.safetensors")
        error = refusal(tmp_path / "m")
        assert error.sentence == "failed to map 1 model weight files"
        assert error.causes[1] == "Permission denied (os error 13)"

    def test_of_the_folder_are_not_taken_for_an_empty_one(self, tmp_path, monkeypatch):
        whole(tmp_path / "m", model__safetensors=b"")
        real = os.stat

        def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
            if str(path).startswith(f"{tmp_path}/m/"):
                raise PermissionError(13, "Permission denied", path)
            return real(path, *args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr("os.stat", stat)
            files = open_files(str(tmp_path / "m"), None)
        assert "config.json" in files.source.names

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_that_are_really_missing_are_said(self, tmp_path):
        whole(tmp_path / "m", model__safetensors=b"")
        (tmp_path / "m/model.safetensors").chmod(0)
        assert refusal(tmp_path / "m").causes[1] == "Permission denied (os error 13)"


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Have the system refuse to open one file, however it is opened."""

    def refusing(real: Any) -> Any:
        def open_it(name: Any, *args: Any, **kwargs: Any) -> Any:
            if str(name) == str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return real(name, *args, **kwargs)

        return open_it

    monkeypatch.setattr(builtins, "open", refusing(builtins.open))
    monkeypatch.setattr("os.open", refusing(os.open))
