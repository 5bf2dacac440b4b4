"""Models on the Hub: the real client against a Hub on 127.0.0.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from ster.checkpoint.resolve import open_files
from ster.errors import HubError
from tests.hub_model import (
    INDEX,
    LIGHT,
    MODEL,
    READ,
    SHARDED,
    SHARDS,
    SINGLE,
    go_offline,
    load,
    refusal,
)
from tests.hub_server import (  # noqa: F401
    MAIN,
    OLD,
    serve_hub,
    set_client,
    set_environment,
)

pytestmark = pytest.mark.usefixtures("hub_client")


def test_a_branch_is_resolved_to_its_commit_and_that_is_recorded(hub):
    repo = hub.publish(MODEL, SINGLE)
    repo.commits[OLD] = SINGLE
    repo.references["v1.0"] = OLD
    repo.references["refs/pr/1"] = OLD
    assert open_files(MODEL, None).revision == MAIN
    assert open_files(MODEL, "v1.0").revision == OLD
    assert open_files(MODEL, "refs/pr/1").revision == OLD
    assert open_files(MODEL, OLD).revision == OLD
    assert open_files(MODEL, None).model == MODEL


def test_files_are_those_of_the_revision(hub):
    repo = hub.publish(MODEL, SINGLE)
    repo.commits[OLD] = {**SINGLE, "config.json": b"old"}
    assert open_files(MODEL, OLD).require_config().read_bytes() == b"old"
    assert open_files(MODEL, None).require_config().read_bytes() != b"old"


def test_only_the_shards_of_the_asked_tensors_are_downloaded(hub):
    hub.publish(MODEL, SHARDED)
    paths = load(tensors=("model.embed_tokens.weight", "model.layers.1.w"))
    assert [path.read_bytes() for path in paths] == list(SHARDS.values())[:2]
    downloaded = {one.path.rsplit("/", 1)[1] for one in hub.asked}
    assert downloaded - {"main"} == {*LIGHT, INDEX, *list(SHARDS)[:2]}


def test_every_weight_file_is_downloaded_without_an_index(hub):
    others = ("optimizer.safetensors", "training_args.safetensors", "x/y.safetensors")
    hub.publish(MODEL, {**SINGLE, "b.safetensors": b"b", **dict.fromkeys(others, b"x")})
    assert [path.name for path in load()] == ["b.safetensors", "model.safetensors"]
    assert not any(hub.asked_for(Path(name).name) for name in others)


def test_no_weight_is_downloaded_before_it_is_asked_for(hub):
    hub.publish(MODEL, SHARDED)
    files = open_files(MODEL, None)
    files.check_weights()
    assert [one.path for one in hub.asked if one.method == "GET"] == [
        f"/api/models/{MODEL}/revision/main",
        f"/{MODEL}/resolve/{MAIN}/{INDEX}",
    ]


def test_a_second_run_asks_only_what_the_branch_is(hub):
    hub.publish(MODEL, SINGLE)
    first = load()
    hub.asked.clear()
    assert load() == first
    assert [one.path for one in hub.asked] == [f"/api/models/{MODEL}/revision/main"]


def test_a_branch_that_moved_is_downloaded_anew(hub):
    repo = hub.publish(MODEL, SINGLE)
    load()
    repo.commits[OLD] = {**SINGLE, "model.safetensors": b"others"}
    repo.references["main"] = OLD
    assert [path.read_bytes() for path in load()] == [b"others"]


def test_files_that_the_repository_does_not_list_are_not_asked_for(hub):
    hub.publish(MODEL, SINGLE)
    files = open_files(MODEL, None)
    assert files.find("special_tokens_map.json") is None
    files.require_tokenizer()
    assert not hub.asked_for("special_tokens_map.json", "HEAD")


def test_the_token_is_sent(hub, monkeypatch):
    hub.publish(MODEL, SINGLE, token="hf_secret")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    load()
    assert {one.token for one in hub.asked} == {"hf_secret"}


@pytest.mark.parametrize(
    ("asked", "cached"),
    [
        (None, None),
        ("main", None),
        (None, "main"),
        (MAIN, None),
        ("v1", "v1"),
        ("r/1", "r/1"),
    ],
)
def test_offline_the_cache_answers_for_branch_tag_and_commit(
    hub, monkeypatch, asked, cached
):
    repo = hub.publish(MODEL, SHARDED)
    repo.references |= {"v1": MAIN, "r/1": MAIN}
    online = load(cached, ("model.layers.0.w",))
    go_offline(monkeypatch)
    hub.asked.clear()
    assert load(asked, ("model.layers.0.w",)) == online
    assert open_files(MODEL, asked).revision == MAIN
    assert hub.asked == []


def test_offline_the_template_is_there_even_if_no_run_has_read_it(hub, monkeypatch):
    hub.publish(MODEL, SINGLE)
    load()
    go_offline(monkeypatch)
    files = open_files(MODEL, None)
    template = files.find("chat_template.jinja")
    assert template is not None
    assert template.read_bytes() == b"{{ x }}"
    assert files.find("special_tokens_map.json") is None


@pytest.mark.parametrize("asked", [None, "v2", OLD])
def test_offline_what_is_not_cached_says_what_to_download(hub, monkeypatch, asked):
    if asked is not None:
        hub.publish(MODEL, SINGLE)
        load()
        hub.asked.clear()
    go_offline(monkeypatch)
    error = refusal(asked)
    assert isinstance(error, HubError)
    assert error.sentence == READ
    [cause] = error.causes
    assert f"hf download {MODEL} --revision {asked or 'main'}" in cause
    assert "HF_HUB_OFFLINE is set" in cause
    assert "config, tokenizer and safetensors files" in cause
    assert hub.asked == []


def test_offline_a_shard_that_is_needed_and_not_cached_is_named(hub, monkeypatch):
    hub.publish(MODEL, SHARDED)
    load(None, ("model.layers.0.w",))
    go_offline(monkeypatch)
    with pytest.raises(HubError) as caught:
        load(None, ("model.layers.0.w", "model.layers.1.w"))
    name = "model-00002-of-00003.safetensors"
    assert caught.value.sentence == f"failed to download {name}"
    [cause] = caught.value.causes
    assert "HF_HUB_OFFLINE is set" in cause
    assert f"hf download {MODEL} {name} --revision {MAIN}" in cause


def test_offline_weights_that_are_not_cached_are_not_said_to_be_unpublished(
    hub, monkeypatch
):
    hub.publish(MODEL, SINGLE)
    files = open_files(MODEL, None)
    files.require_config()
    files.require_tokenizer()
    go_offline(monkeypatch)
    assert refusal().sentence == "failed to download model.safetensors"
