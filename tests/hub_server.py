"""A Hub on 127.0.0.1: as much of its API as the real client asks for.

Any test may import the fixtures ``hub`` and ``hub_env``::

    from tests.hub_server import serve_hub, set_environment  # noqa: F401

and ``set_client`` besides them where the client runs in the test's own process.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

MAIN = "1" * 40
OLD = "2" * 40
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
HF_VARIABLES = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_TOKEN_PATH",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "HF_HUB_DISABLE_PROGRESS_BARS",
)


@dataclass
class Repo:
    """One model: its commits, the names that point at them, and who may read it."""

    commits: dict[str, dict[str, bytes]]
    references: dict[str, str] = field(default_factory=lambda: {"main": MAIN})
    token: str | None = None
    gated: bool = False


@dataclass(frozen=True)
class Asked:
    """One request that came in."""

    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class Hub:
    """The server's state. Tests change it between requests."""

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    # How many bytes of a file's next bodies are sent before the connection ends.
    breaks: dict[str, list[int]] = field(default_factory=dict)
    reset: bool = False  # end it with a reset, not with an orderly close
    short: dict[str, int] = field(default_factory=dict)  # bodies that claim to be whole
    fail: dict[str, int] = field(default_factory=dict)  # path ending -> status
    # Headers of a file's answers, in place of those that a Hub would send.
    headers: dict[str, dict[str, str]] = field(default_factory=dict)

    def publish(self, model: str, files: dict[str, bytes], **fields: object) -> Repo:
        """Put files on ``main`` of a new model."""
        repo = Repo(commits={MAIN: dict(files)}, **fields)  # type: ignore[arg-type]
        self.repos[model] = repo
        return repo

    def asked_for(self, name: str, method: str = "GET") -> list[Asked]:
        """Return the requests for a file."""
        return [
            one
            for one in self.asked
            if one.method == method and one.path.endswith("/" + name)
        ]


class Handler(BaseHTTPRequestHandler):
    """Answers for one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = urlsplit(self.path).path
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ") or None
        if path == "/api/agent-harnesses":  # the client's own, not part of a model
            return self.reply(200, b"{}")
        span = self.headers["Range"]
        self.hub.asked.append(Asked(self.command, unquote(path), span, token))
        for ending, status in self.hub.fail.items():
            if unquote(path).endswith(ending):
                return self.reply(status, b"")
        if match := re.fullmatch(
            r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path
        ):
            return self.model(match[1], unquote(match[2] or "main"), token)
        if match := re.fullmatch(r"/api/models/(.+?)/tree/([^/]+)", path):
            return self.tree(match[1], unquote(match[2]), token)
        if match := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
            return self.file(match[1], unquote(match[2]), unquote(match[3]), token)
        return self.reply(404, b"Not Found")

    def open(self, model: str, revision: str, token: str | None) -> str | None:
        """Return the commit, or refuse and return None."""
        repo = self.hub.repos.get(model)
        if repo is None:
            # As the Hub does: who is unknown is not told what exists.
            self.refuse(401 if token is None else 404, "RepoNotFound")
        elif repo.gated and token != repo.token:
            self.refuse(401 if token is None else 403, "GatedRepo")
        elif repo.token is not None and token != repo.token:
            self.refuse(401 if token is None else 404, "RepoNotFound")
        else:
            commit = repo.references.get(revision, revision)
            if commit in repo.commits:
                return commit
            self.refuse(404, "RevisionNotFound")
        return None

    def model(self, model: str, revision: str, token: str | None) -> None:
        commit = self.open(model, revision, token)
        if commit is not None:
            files = [
                {"rfilename": name} for name in self.hub.repos[model].commits[commit]
            ]
            body = json.dumps({"id": model, "sha": commit, "siblings": files})
            self.reply(200, body.encode(), {"Content-Type": "application/json"})

    def tree(self, model: str, revision: str, token: str | None) -> None:
        commit = self.open(model, revision, token)
        if commit is not None:
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
                for name, data in self.hub.repos[model].commits[commit].items()
            ]
            headers = {"Content-Type": "application/json"}
            self.reply(200, json.dumps(entries).encode(), headers)

    def file(self, model: str, revision: str, name: str, token: str | None) -> None:
        commit = self.open(model, revision, token)
        if commit is None:
            return None
        data = self.hub.repos[model].commits[commit].get(name)
        if data is None:
            return self.refuse(404, "EntryNotFound", commit)
        etag = hashlib.sha256(data).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit}
        headers |= self.hub.headers.get(name, {})
        if self.command == "HEAD":
            return self.reply(200, data, headers)
        status, start = 200, 0
        if match := re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or ""):
            status, start = 206, int(match[1])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        body = data[start:]
        if name in self.hub.short:
            body = body[: self.hub.short[name]]
        if self.hub.breaks.get(name):
            return self.break_off(status, body, headers, self.hub.breaks[name].pop(0))
        return self.reply(status, body, headers)

    def refuse(self, status: int, code: str, commit: str | None = None) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": f"{code} said the server"}
        if commit is not None:
            headers["X-Repo-Commit"] = commit
        self.reply(status, b"", headers)

    def reply(
        self, status: int, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def break_off(
        self, status: int, body: bytes, headers: dict[str, str], num_bytes: int
    ) -> None:
        """Announce the whole body, send its beginning, and hang up."""
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body[:num_bytes])
        self.wfile.flush()
        self.close_connection = True
        if self.hub.reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)


class Server(ThreadingHTTPServer):
    """Serves until its test is over."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of connections that were meant to break."""


@pytest.fixture(name="hub")
def serve_hub() -> Iterator[Hub]:
    """An empty Hub."""
    state = Hub()
    handler = type("HubHandler", (Handler,), {"hub": state})
    with Server(("127.0.0.1", 0), handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield state
        server.shutdown()
        thread.join(60)


@pytest.fixture(name="hub_env")
def set_environment(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the environment at the Hub and at an empty cache, for subprocesses."""
    for name in (*HF_VARIABLES, *PROXIES, *(name.upper() for name in PROXIES)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    return tmp_path / "hf"


@pytest.fixture(name="hub_client")
def set_client(
    hub_env: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Point the client of this process there too: it reads its environment once."""
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HOME", str(hub_env))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub_env / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(hub_env / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    # The client waits between tries; the tests need not.
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    huggingface_hub.close_session()
    assert _http._GLOBAL_CLIENT is None
    yield hub_env / "hub"
    huggingface_hub.close_session()
