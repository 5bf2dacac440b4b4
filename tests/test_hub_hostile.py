"""Endpoints that mean harm, passwords in addresses, and what a notebook shows."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from ster.checkpoint.hub.passwords import hide_passwords
from ster.checkpoint.hub.repository import ETAG
from ster.errors import HubError
from tests.hub_model import MODEL, READ, SINGLE, load, refusal
from tests.hub_server import (  # noqa: F401
    MAIN,
    OLD,
    serve_hub,
    set_client,
    set_environment,
)

pytestmark = pytest.mark.usefixtures("hub_client")

SECRET = "s3cr3t"


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag"])
@pytest.mark.parametrize(
    "etag",
    [
        '"{outside}/escaped"',
        '"../../../../escaped"',
        '""',
        '"."',
        '".."',
        "W/",
        "W",
        '"a/b"',
        '"a\\b"',
        '" "',
        f'"{"a" * 300}"',
    ],
)
def test_an_etag_that_cannot_name_a_file_is_refused_and_nothing_is_written(
    hub, hub_client, tmp_path, header, etag
):
    hub.publish(MODEL, SINGLE)
    hub.headers["config.json"] = {header: etag.format(outside=tmp_path)}
    before = written(tmp_path)
    error = refusal()
    assert isinstance(error, HubError)
    assert error.sentence == "failed to download config.json"
    assert f"{hub.url} does not answer as a Hub does" in error.causes[0]
    # The branch's commit is noted, as ever.
    new = {name for name in written(tmp_path) - before if "refs" not in name}
    assert new <= {"hf", "hf/hub", f"hf/hub/models--{MODEL.replace('/', '--')}"}
    hub.headers.clear()
    assert load()


@pytest.mark.parametrize("commit", ["../../../../escaped", OLD, "", ".."])
@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja"])
def test_a_commit_that_was_not_asked_for_is_refused(hub, tmp_path, commit, name):
    hub.publish(MODEL, SINGLE)
    hub.headers[name] = {"X-Repo-Commit": commit}
    error = refusal()
    assert error.sentence == f"failed to download {name}"
    assert not [path for path in written(tmp_path) if "escaped" in path or OLD in path]


@pytest.mark.parametrize(
    "etag",
    [
        f'"{hashlib.sha256(b"").hexdigest()}"',
        f'W/"{hashlib.sha1(b"").hexdigest()}"',
        hashlib.sha256(b"").hexdigest(),
        '"5d41402abc4b2a76b9719d911017c592-12"',
        '"5d8c72a5-264f2"',
    ],
)
def test_etags_of_hubs_and_mirrors_are_taken(etag):
    assert ETAG.fullmatch(etag)


def test_the_clients_own_hooks_are_as_they_were(hub):
    from huggingface_hub import get_session

    hub.publish(MODEL, SINGLE)
    before = {key: list(hooks) for key, hooks in get_session().event_hooks.items()}
    load()
    hub.headers["model.safetensors"] = {"ETag": '""'}
    assert {k: list(v) for k, v in get_session().event_hooks.items()} == before


class TestPasswords:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("https://user:s3cr3t@host/a", "https://host/a"),
            ("no connection to http://u:s@cr@h:1: x", "no connection to http://h:1: x"),
            ("https://token@host, ftp://a:b@c", "https://host, ftp://c"),
            ("mail me@host", "mail me@host"),
            ("https://host/a", "https://host/a"),
        ],
    )
    def test_are_taken_out_of_addresses(self, text, shown):
        assert hide_passwords(text) == shown

    @pytest.mark.parametrize("kind", ["unreachable", "broken", 401, 403, 404, 418, 200])
    @pytest.mark.parametrize("ending", ["/revision/main", "/config.json"])
    def test_in_the_endpoint_are_not_printed(self, hub, monkeypatch, kind, ending):
        hub.publish(MODEL, SINGLE)
        url = hub.url.replace("http://", f"http://user:{SECRET}@")
        if kind == "unreachable":
            url = f"http://user:{SECRET}@127.0.0.1:1"
        elif kind == "broken":
            url = f"http://user:{SECRET}@127.0.0.1:port"
        else:
            hub.fail[ending] = kind
        set_endpoint(monkeypatch, url)
        shown = "".join(traceback.format_exception(refusal()))
        assert SECRET not in shown
        assert "user" not in shown

    def test_are_sent_all_the_same(self, hub, monkeypatch):
        hub.publish(MODEL, SINGLE)
        set_endpoint(monkeypatch, hub.url.replace("http://", f"http://user:{SECRET}@"))
        assert load()

    @pytest.mark.parametrize("proxy", [None, f"nonsense://user:{SECRET}@proxy"])
    def test_of_a_process_are_not_printed_either(self, hub, tmp_path, proxy):
        (tmp_path / "i.json").write_text('{"prompts": ["a"]}')
        words = ["--model", MODEL, "--input", "i.json", "--output", "o.json"]
        settings = {"HF_ENDPOINT": f"http://user:{SECRET}@127.0.0.1:1"}
        done = subprocess.run(
            [sys.executable, "-m", "ster", "extract", *words],
            env={**os.environ, **settings, **({"HTTP_PROXY": proxy} if proxy else {})},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        failed = "failed to initialize Hugging Face Hub client" if proxy else READ
        assert f"Error: {failed}\n\nCaused by:\n" in done.stderr
        assert SECRET not in done.stdout + done.stderr


def set_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template
    )


@pytest.mark.parametrize("ending", ["/revision/main", "/model.safetensors"])
@pytest.mark.parametrize("status", [401, 404, 503, None])
def test_a_notebook_shows_the_sentence_without_the_clients_frames(
    hub, monkeypatch, ending, status
):
    hub.publish(MODEL, SINGLE)
    if status is None:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    else:
        hub.fail[ending] = status
    error = refusal()
    shown = "".join(traceback.format_exception(error))
    assert shown.rstrip().endswith(str(error))
    assert READ in shown or "failed to download model.safetensors" in shown
    for word in ("huggingface_hub/", "httpx", "direct cause", "another exception"):
        assert word not in shown
