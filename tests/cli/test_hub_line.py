"""Models by id at the command line: the real client against a Hub on 127.0.0.1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.user import ABSENT, PROGRESS, Ran, User
from tests.hub_server import (  # noqa: F401
    MAIN,
    OLD,
    Hub,
    serve_hub,
    set_client,
    set_environment,
)

MODEL = "org/toy"
READ = f"failed to read model repository {MODEL}"


@pytest.fixture
def published(user: User, hub: Hub, hub_client: Path) -> Hub:
    """A Hub with the toy checkpoint, and a client that is pointed at it."""
    files = {path.name: path.read_bytes() for path in Path("toy").iterdir()}
    hub.publish(MODEL, {**files, "README.md": b"# toy", "pytorch_model.bin": b"x"})
    return hub


def test_a_model_is_downloaded_and_its_commit_recorded(user: User, published):
    assert user.runs(output="local.json").code == 0
    assert user.runs(model=MODEL) == Ran(0, "o.json\n", ABSENT + PROGRESS)
    document, local = user.document(), user.document("local.json")
    assert (document["model"], document["model_revision"]) == (MODEL, MAIN)
    assert document["records"] == local["records"]
    assert not published.asked_for("README.md")
    assert not published.asked_for("pytorch_model.bin")


def test_a_second_run_downloads_nothing_and_writes_the_same_bytes(
    user: User, published
):
    assert user.runs(model=MODEL, output="a.json").code == 0
    published.asked.clear()
    assert user.runs(model=MODEL, output="b.json").code == 0
    assert [one.path for one in published.asked] == [
        f"/api/models/{MODEL}/revision/main"
    ]
    a, b = ((user.folder / name).read_bytes() for name in ("a.json", "b.json"))
    assert a == b


@pytest.mark.parametrize("revision", [None, "main", MAIN])
def test_offline_the_cache_answers_without_a_request(
    user: User, published, monkeypatch, revision
):
    assert user.runs(model=MODEL, output="online.json").code == 0
    online = (user.folder / "online.json").read_bytes()
    published.asked.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    words = () if revision is None else ("--revision", revision)
    assert user.runs(*words, model=MODEL) == Ran(0, "o.json\n", ABSENT + PROGRESS)
    assert (user.folder / "o.json").read_bytes() == online
    assert published.asked == []


def test_a_revision_selects_and_its_commit_is_recorded(user: User, published):
    repo = published.repos[MODEL]
    config = json.loads(repo.commits[MAIN]["config.json"]) | {"num_hidden_layers": 2}
    repo.commits[OLD] = {
        **repo.commits[MAIN],
        "config.json": json.dumps(config).encode(),
    }
    repo.references["v1"] = OLD
    assert user.runs("--revision", "v1", model=MODEL).code == 0
    document = user.document()
    assert document["model_revision"] == OLD
    assert list(document["records"][0]["layers"]) == ["0", "1"]


def test_offline_a_model_that_is_not_cached_says_what_to_download(
    user: User, published, monkeypatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    ran = user.runs(model=MODEL)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"Error: {READ}\n\nCaused by:\n    ")
    assert f"hf download {MODEL} --revision main" in ran.err
    assert published.asked == []
    assert not Path("o.json").exists()


@pytest.mark.parametrize(
    ("token", "gated", "status", "says"),
    [
        (
            None,
            False,
            404,
            "there is no such model on {url}, or it is private, and no "
            "directory of this name here (404)",
        ),
        ("secret", False, 401, "needs a token, or the name is wrong"),
        ("secret", True, 401, "it is gated (401): accept its licence at {url}"),
    ],
)
def test_a_model_that_may_not_be_read_says_what_helps(
    user: User, published, token, gated, status, says
):
    if token is None:
        published.fail[f"/api/models/{MODEL}/revision/main"] = status
    published.repos[MODEL].token, published.repos[MODEL].gated = token, gated
    ran = user.runs(model=MODEL)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"Error: {READ}\n\nCaused by:\n    ")
    assert says.format(url=published.url) in ran.err
    # A mistyped name is answered with the directory of its last part.
    assert ran.err.endswith("did you mean toy?\n") == (not gated)
    assert ran.err.count("\n") == (4 if gated else 5)
    assert not Path("o.json").exists()


def test_a_revision_that_is_not_there_is_named(user: User, published):
    ran = user.runs("--revision", 'v"9', model=MODEL)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[0] == f"Error: {READ}"
    assert r'there is no revision "v\"9" (404)' in ran.err


@pytest.mark.parametrize(
    ("name", "says", "cause"),
    [
        (
            "config.json",
            "failed to download config.json",
            "the repository does not have it",
        ),
        (
            "tokenizer.json",
            "failed to download tokenizer.json",
            "the repository does not have it",
        ),
        (
            "model.safetensors",
            f"model {MODEL} publishes no safetensors weights",
            "only safetensors are read, and what is there is pytorch_model.bin",
        ),
    ],
)
def test_a_repository_without_a_needed_file_is_refused(
    user: User, published, name, says, cause
):
    del published.repos[MODEL].commits[MAIN][name]
    user.is_refused(says, cause, model=MODEL)


def test_a_bad_layer_is_refused_before_the_weights_are_downloaded(
    user: User, published
):
    user.is_refused(
        "layer 9 is outside the model's 0..3 range",
        words=("--layers", "9"),
        model=MODEL,
    )
    assert not published.asked_for("model.safetensors")


def test_an_output_that_cannot_be_written_is_refused_before_the_download(
    user: User, published
):
    ran = user.runs(model=MODEL, output="toy")
    assert ran.err.splitlines()[1] == "Error: failed to write toy"
    assert not published.asked_for("model.safetensors")


def test_a_download_that_breaks_off_for_good_is_refused_and_can_be_repeated(
    user: User, published
):
    published.fail["model.safetensors"] = 503
    ran = user.runs(model=MODEL)
    assert (ran.code, ran.out) == (1, "")
    assert "Error: failed to download model.safetensors" in ran.err.splitlines()
    assert not Path("o.json").exists()
    published.fail.clear()
    assert user.runs(model=MODEL).code == 0


def test_a_real_process_downloads_too(user: User, published, monkeypatch):
    ran = user.starts(model=MODEL)
    assert ran == Ran(0, "o.json\n", ABSENT + PROGRESS)
    assert user.document()["model_revision"] == MAIN
    published.asked.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert user.starts(model=MODEL) == Ran(0, "o.json\n", ABSENT + PROGRESS)
    assert published.asked == []
