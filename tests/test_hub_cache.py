"""What is known offline of files that the cache does not hold."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub.utils._paths import filter_repo_objects

from ster.checkpoint.hub.cache import download_command
from ster.checkpoint.resolve import open_files
from ster.errors import HubError
from tests.hub_model import (
    INDEX,
    LIGHT,
    MODEL,
    SHARDED,
    SHARDS,
    SINGLE,
    go_offline,
    load,
    refusal,
)
from tests.hub_server import (  # noqa: F401
    MAIN,
    Hub,
    serve_hub,
    set_client,
    set_environment,
)

pytestmark = pytest.mark.usefixtures("hub_client")

TEMPLATE, CONFIG = "chat_template.jinja", "tokenizer_config.json"
BARE = {
    name: SINGLE[name]
    for name in ("config.json", "tokenizer.json", "model.safetensors")
}


@pytest.fixture
def cache(hub_client: Path) -> Path:
    """Return the cache's folder of the model, which another tool has filled."""
    return hub_client / f"models--{MODEL.replace('/', '--')}"


def fill(cache: Path, *names: str, without: tuple[str, ...] = ()) -> None:
    """Put files there as a tool that asks for each of them does.

    Args:
        cache: The model's folder.
        names: The files that are published and fetched, besides the needed ones.
        without: Those that it asked for in vain.
    """
    snapshot = cache / "snapshots" / MAIN
    snapshot.mkdir(parents=True)
    for name in (*BARE, *names):
        (snapshot / name).write_bytes({**SINGLE, **SHARDED}[name])
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text(MAIN)
    for name in without:
        mark = cache / ".no_exist" / MAIN / name
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def unknown(name: str) -> HubError:
    with pytest.raises(HubError) as caught:
        open_files(MODEL, None).find(name)
    return caught.value


@pytest.mark.parametrize("name", [TEMPLATE, CONFIG, "generation_config.json"])
def test_a_file_that_nobody_knows_of_is_refused_with_the_command(
    hub, monkeypatch, cache, name
):
    fill(cache)
    go_offline(monkeypatch)
    load()  # what is needed is there
    error = unknown(name)
    assert error.sentence == f"failed to download {name}"
    assert error.path == name
    [cause] = error.causes
    assert "whether the model has one is not known" in cause
    assert download_command(MODEL, MAIN) in cause


def test_a_file_that_another_tool_asked_for_in_vain_is_absent(monkeypatch, cache):
    fill(cache, without=(TEMPLATE, CONFIG))
    go_offline(monkeypatch)
    files = open_files(MODEL, None)
    assert files.find(TEMPLATE) is None
    assert files.find(CONFIG) is None
    assert unknown("generation_config.json")


def test_a_mark_of_another_commit_says_nothing(monkeypatch, cache):
    fill(cache, without=(TEMPLATE, CONFIG))
    (cache / ".no_exist" / MAIN).rename(cache / ".no_exist" / ("2" * 40))
    go_offline(monkeypatch)
    assert unknown(TEMPLATE)


def test_a_config_with_a_template_in_it_is_enough(monkeypatch, cache):
    fill(cache, CONFIG)
    path = cache / "snapshots" / MAIN / CONFIG
    go_offline(monkeypatch)
    assert unknown(TEMPLATE)
    path.write_bytes(b'{"chat_template": "{{ x }}"}')
    files = open_files(MODEL, None)
    assert files.find(TEMPLATE) is None
    assert files.find(CONFIG) == path


def test_files_that_are_not_needed_are_taken_for_absent(monkeypatch, cache):
    fill(cache)
    go_offline(monkeypatch)
    assert open_files(MODEL, None).find("special_tokens_map.json") is None


@pytest.mark.parametrize("published", [SINGLE, BARE])
def test_a_run_that_was_online_leaves_what_a_run_offline_has_to_know(
    hub, monkeypatch, published
):
    hub.publish(MODEL, published)
    load()
    go_offline(monkeypatch)
    hub.asked.clear()
    files = open_files(MODEL, None)
    for name in (TEMPLATE, CONFIG, "generation_config.json"):
        assert (files.find(name) is not None) == (name in published)
    assert hub.asked == []


def test_a_cache_that_cannot_be_marked_does_not_stop_a_run(hub, cache):
    hub.publish(MODEL, BARE)
    cache.mkdir(parents=True)
    (cache / ".no_exist").write_text("a file where a folder should be")
    load()


class TestCommand:
    """The one command that puts a model into the cache."""

    def test_takes_what_a_run_reads_and_nothing_twice(self):
        words = shlex.split(download_command(MODEL, "v1"))
        assert words[:5] == ["hf", "download", MODEL, "--revision", "v1"]
        options = list(zip(words[5::2], words[6::2], strict=True))
        assert {flag for flag, _ in options} == {"--include", "--exclude"}
        needed = [*LIGHT, INDEX, *SHARDS, "special_tokens_map.json", "a.safetensors"]
        others = [
            *("consolidated.safetensors", "consolidated-00001-of-00002.safetensors"),
            *(
                "onnx/model.safetensors",
                "original/params.json",
                "optimizer.safetensors",
            ),
            *("pytorch_model.bin", "README.md", "model.gguf", "tokenizer.model"),
        ]
        taken = filter_repo_objects(
            [*needed, *others],
            allow_patterns=[value for flag, value in options if flag == "--include"],
            ignore_patterns=[value for flag, value in options if flag == "--exclude"],
        )
        assert sorted(taken) == sorted(needed)

    @pytest.mark.parametrize("published", [SHARDED, BARE])
    def test_makes_a_run_offline_possible(self, hub: Hub, monkeypatch, published):
        hub.publish(MODEL, {**published, "consolidated.safetensors": b"a copy"})
        go_offline(monkeypatch)
        [cause] = refusal().causes
        command = shlex.split(cause[cause.index("hf download") :])
        run_hf(command)
        assert not hub.asked_for("consolidated.safetensors")
        hub.asked.clear()
        files = open_files(MODEL, None)
        for name in (TEMPLATE, CONFIG, "generation_config.json"):
            assert (files.find(name) is not None) == (name in published)
        names = SHARDS if published is SHARDED else ["model.safetensors"]
        paths = load(None, ("model.layers.0.w", "model.layers.1.w", "lm_head.weight"))
        assert [path.name for path in paths] == list(names)
        assert hub.asked == []

    def test_makes_absence_known_too(self, hub: Hub, monkeypatch, cache):
        hub.publish(MODEL, BARE)
        fill(cache)
        go_offline(monkeypatch)
        [cause] = unknown(TEMPLATE).causes
        run_hf(shlex.split(cause[cause.index("hf download") :]))
        assert open_files(MODEL, None).find(TEMPLATE) is None


def run_hf(command: list[str]) -> None:
    """Run the client's command, which reads its settings from the environment."""
    tool = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [tool, *command[1:]],
        env={**os.environ, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_UPDATE_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_file_that_the_list_has_and_the_cache_has_not_is_to_be_downloaded(
    monkeypatch, cache
):
    fill(cache)
    (cache / "trees").mkdir()
    entry = '{"size": 1, "blob_id": "0"}'
    listing = ", ".join(f'"{name}": {entry}' for name in (*BARE, TEMPLATE))
    path = cache / "trees" / f"{MAIN}.json"
    path.write_text(f'{{"format_version": 1, "files": {{{listing}}}}}')
    go_offline(monkeypatch)
    [cause] = unknown(TEMPLATE).causes
    assert f"hf download {MODEL} {TEMPLATE} --revision {MAIN}" in cause
    assert open_files(MODEL, None).find(CONFIG) is None
    for damage in ("", "[]", '{"format_version": 2, "files": {}}', '{"files": []}'):
        path.write_text(damage)
        assert "is not known" in unknown(CONFIG).causes[0]


def test_an_adapter_on_the_hub_is_named_with_its_base(hub):
    config = b'{"base_model_name_or_path": "org/base"}'
    files = {"adapter_config.json": config, "adapter_model.safetensors": b"x"}
    hub.publish(MODEL, files)
    error = refusal()
    assert error.sentence == "failed to download config.json"
    assert 'an adapter for "org/base"' in error.causes[0]
    hub.publish(MODEL, {**LIGHT, **files})
    error = refusal()
    assert error.sentence == f"model {MODEL} publishes no safetensors weights"
    assert 'an adapter for "org/base"' in error.causes[0]
    assert not hub.asked_for("adapter_model.safetensors")


def test_a_repository_of_gguf_alone_is_named(hub):
    hub.publish(MODEL, {"model-q4.gguf": b"GGUF", "README.md": b""})
    error = refusal()
    assert error.sentence == "failed to download config.json"
    assert "what is there is model-q4.gguf; GGUF is llama.cpp's" in error.causes[0]


def test_a_consolidated_copy_on_the_hub_is_not_downloaded(hub):
    hub.publish(MODEL, {**SINGLE, "consolidated.safetensors": b"a copy"})
    assert [path.name for path in load()] == ["model.safetensors"]
    assert not hub.asked_for("consolidated.safetensors")
