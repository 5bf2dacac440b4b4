"""What a Hub that refuses, lacks a file or is not there makes a run say."""

from __future__ import annotations

import pytest

from ster.checkpoint.resolve import open_files
from ster.errors import HubError, WeightsError
from tests.hub_model import (
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
    serve_hub,
    set_client,
    set_environment,
)

pytestmark = pytest.mark.usefixtures("hub_client")


@pytest.mark.parametrize(
    ("fields", "token", "words"),
    [
        (None, None, ["token", "HF_TOKEN", "hf auth login", "name is wrong", "401"]),
        (None, "hf_x", ["no such model", "404"]),
        ({"token": "hf_y"}, None, ["token", "HF_TOKEN", "hf auth login", "401"]),
        ({"token": "hf_y"}, "hf_x", ["no such model", "private", "404"]),
        ({"token": "hf_y", "gated": True}, None, ["accept its licence", MODEL, "401"]),
        ({"token": "hf_y", "gated": True}, "hf_x", ["accept its licence", "403"]),
    ],
)
def test_a_model_that_may_not_be_read_says_what_it_takes(
    hub, monkeypatch, fields, token, words
):
    if fields is not None:
        hub.publish(MODEL, SINGLE, **fields)
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    error = refusal()
    assert isinstance(error, HubError)
    assert error.sentence == READ
    [cause] = error.causes
    assert [word for word in words if word not in cause] == []
    assert token is None or token not in cause


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "needs a token"),
        (403, "accept the licence"),
        (404, "no such model"),
        (418, "the Hub answered 418"),
        (429, "fewer requests"),
        (503, "the Hub answered 503"),
    ],
)
def test_a_bare_status_is_explained(hub, status, words):
    hub.publish(MODEL, SINGLE)
    hub.fail["/revision/main"] = status
    error = refusal()
    assert error.sentence == READ
    assert words in error.causes[0]


def test_an_unknown_revision_is_named(hub):
    hub.publish(MODEL, SINGLE)
    error = refusal("no-such")
    assert error.sentence == READ
    assert 'there is no revision "no-such"' in error.causes[0]


NO_REVISIONS = [
    *("", " ", "a\nb", "nul\0", "..", ".", "../..", "a/../b", "/etc/passwd", "a//b"),
    *("refs/..", "a/", "..\\a", ".hidden", "a/.b", "main..v1"),
]


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("revision", NO_REVISIONS)
def test_a_revision_that_cannot_be_one_is_not_asked_for(
    hub, hub_client, monkeypatch, revision, offline
):
    hub.publish(MODEL, SINGLE)
    if offline:
        go_offline(monkeypatch)
    error = refusal(revision)
    assert error.sentence == READ
    assert error.causes[0].startswith('there is no revision "')
    assert (error.field, error.found) == ("revision", revision)
    assert hub.asked == []
    assert not hub_client.exists()


def test_gated_files_of_an_open_listing_say_licence(hub):
    hub.publish(MODEL, SINGLE)
    hub.fail["/config.json"] = 403
    error = refusal()
    assert error.sentence == "failed to download config.json"
    assert "accept the licence" in error.causes[0]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_file_that_the_repository_lacks_is_named(hub, name):
    hub.publish(MODEL, {key: SINGLE[key] for key in SINGLE if key != name})
    error = refusal()
    assert isinstance(error, HubError)
    assert error.sentence == f"failed to download {name}"
    assert error.causes == ("the repository does not have it",)


def test_a_repository_with_a_sentencepiece_tokenizer_alone_says_so(hub):
    hub.publish(MODEL, {"config.json": b"{}", "tokenizer.model": b""})
    assert "tokenizer.model is there, but only tokenizer.json is" in refusal().causes[0]


def test_a_model_without_safetensors_is_refused_by_name(hub):
    hub.publish(
        MODEL, {**LIGHT, "pytorch_model.bin": b"", "optimizer.safetensors": b""}
    )
    error = refusal()
    assert isinstance(error, WeightsError)
    assert error.sentence == f"model {MODEL} publishes no safetensors weights"
    assert "pytorch_model.bin" in error.causes[0]
    assert not hub.asked_for("pytorch_model.bin", "HEAD")


def test_an_index_that_names_an_unpublished_shard_is_refused_before_downloads(hub):
    gone = "model-00002-of-00003.safetensors"
    hub.publish(MODEL, {key: SHARDED[key] for key in SHARDED if key != gone})
    error = refusal()
    assert error.sentence == "failed to map 3 model weight files"
    assert error.causes == (f"{gone} is missing",)
    assert not any(hub.asked_for(shard) for shard in SHARDS)


def test_a_server_that_is_no_hub_is_named(hub):
    hub.publish(MODEL, SINGLE)
    hub.fail["/revision/main"] = 200
    error = refusal()
    assert error.sentence == READ
    assert f"{hub.url} does not answer as a Hub does" in error.causes[0]


def test_a_commit_that_is_none_is_refused(hub, hub_client):
    hub.publish(MODEL, SINGLE)
    hub.repos[MODEL].references["main"] = "../../.."
    hub.repos[MODEL].commits["../../.."] = SINGLE
    assert refusal().sentence == READ
    assert not hub_client.exists()


def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_sécret")
    error = refusal()
    assert error.sentence == "failed to initialize Hugging Face Hub client"
    assert "cret" not in error.causes[0]
    assert hub.asked == []


def test_a_cache_that_cannot_be_written_is_named(hub, hub_client):
    hub.publish(MODEL, SINGLE)
    hub_client.parent.mkdir()
    hub_client.write_text("a file where the cache should be")
    error = refusal()
    assert error.sentence == "failed to download config.json"
    assert "(os error 20)" in error.causes[0] or "(os error 17)" in error.causes[0]


def test_ctrl_c_is_not_swallowed(hub, monkeypatch):
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_files(MODEL, None)


def test_no_network_says_so_and_uses_no_cache_silently(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    error = refusal()
    assert error.sentence == READ
    assert "no connection to http://127.0.0.1:1" in error.causes[0]
    assert "HF_HUB_OFFLINE" not in error.causes[0]


def test_no_network_points_to_the_cached_copy(hub, monkeypatch):
    hub.publish(MODEL, SINGLE)
    load()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    assert "HF_HUB_OFFLINE=1 uses it" in refusal().causes[0]


def test_a_hub_that_does_not_answer_is_given_up(hub, monkeypatch):
    import httpx2

    def time_out(*args: object, **kwargs: object) -> None:
        raise httpx2.ReadTimeout("")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", time_out)
    assert refusal().causes == (f"{hub.url} did not answer in time",)
