"""Downloads that break off, and what the process around them shows."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ster.errors import HubError
from tests.hub_model import MODEL, SINGLE, load, refusal
from tests.hub_server import (  # noqa: F401
    MAIN,
    serve_hub,
    set_client,
    set_environment,
)

pytestmark = pytest.mark.usefixtures("hub_client")


@pytest.mark.parametrize(
    ("sent", "ranges"),
    [
        ([300], [None, "bytes=300-"]),
        ([309], [None, "bytes=300-"]),
        ([10, 20, 30], [None, "bytes=10-", "bytes=30-", "bytes=60-"]),
        ([0, 5], [None, None, None]),
    ],
)
def test_a_body_that_breaks_off_is_resumed_in_the_same_run(
    hub, monkeypatch, sent, ranges
):
    # The client keeps what it received in chunks of this size, 10 MiB by itself.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10)
    hub.publish(MODEL, SINGLE)
    hub.breaks["model.safetensors"] = sent
    [path] = load()
    assert path.read_bytes() == SINGLE["model.safetensors"]
    assert [one.range for one in hub.asked_for("model.safetensors")] == ranges


def test_a_large_file_is_resumed_by_the_client_as_it_comes(hub):
    data = bytes(range(256)) * 48_000
    hub.publish(MODEL, {**SINGLE, "model.safetensors": data})
    hub.breaks["model.safetensors"] = [11_000_000]
    [path] = load()
    assert path.read_bytes() == data
    ranges = [one.range for one in hub.asked_for("model.safetensors")]
    assert ranges == [None, f"bytes={10 * 2**20}-"]


def test_a_connection_that_is_reset_is_tried_again(hub):
    hub.publish(MODEL, SINGLE)
    hub.reset = True
    hub.breaks["model.safetensors"] = [100, 200]
    [path] = load()
    assert path.read_bytes() == SINGLE["model.safetensors"]
    assert len(hub.asked_for("model.safetensors")) == 3


@pytest.mark.parametrize("reset", [False, True])
def test_a_body_that_breaks_off_for_good_is_refused_and_the_next_run_succeeds(
    hub, hub_client, reset
):
    hub.publish(MODEL, SINGLE)
    hub.reset = reset
    hub.breaks["model.safetensors"] = [0] * 6
    if reset:
        hub.breaks["model.safetensors"] = [0] * 3
    error = refusal()
    assert isinstance(error, HubError)
    assert error.sentence == "failed to download model.safetensors"
    assert f"the connection to {hub.url} broke off" in error.causes[0]
    assert not list(hub_client.rglob("model.safetensors"))
    assert not list(hub_client.rglob("*.incomplete"))
    [path] = load()
    assert path.read_bytes() == SINGLE["model.safetensors"]


def test_a_body_that_is_too_short_is_never_accepted(hub, hub_client):
    hub.publish(MODEL, SINGLE)
    hub.short["model.safetensors"] = 300
    for _ in range(2):
        error = refusal()
        assert error.sentence == "failed to download model.safetensors"
        assert "700" in error.causes[0]
        assert "300" in error.causes[0]
    assert not list(hub_client.rglob("model.safetensors"))


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", program],
        env={**os.environ, **environment},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


LOAD = f"""
from ster.checkpoint.resolve import open_files
files = open_files({MODEL!r}, None)
files.require_config(), files.require_tokenizer(), files.check_weights()
print(files.revision, *files.weight_files([]))
"""


def test_the_environment_is_heeded_and_nothing_leaks_onto_stderr(hub, tmp_path):
    hub.publish(MODEL, SINGLE, token="hf_secret")
    hub.breaks["model.safetensors"] = [300]  # the client logs a warning of this
    place = str(tmp_path / "elsewhere")
    online = run(LOAD, HF_TOKEN="hf_secret", HF_HUB_CACHE=place)
    assert online.stderr == ""
    assert online.stdout.startswith(f"{MAIN} {place}/models--org--tiny/snapshots/")
    hub.asked.clear()
    offline = run(LOAD, HF_HUB_OFFLINE="1", HF_HUB_CACHE=place)
    assert (offline.stdout, offline.stderr) == (online.stdout, "")
    assert hub.asked == []


@pytest.mark.parametrize(
    "setting",
    [{"HF_HUB_DOWNLOAD_TIMEOUT": "soon"}, {"HTTP_PROXY": "carrier-pigeon://"}],
)
def test_a_setting_that_the_client_cannot_read_is_refused(hub, setting):
    program = (
        "from ster.checkpoint.resolve import open_files\n"
        "from ster.errors import HubError\n"
        f"try: open_files({MODEL!r}, None)\n"
        "except HubError as error: print(error)\n"
    )
    done = run(program, **setting)
    assert done.stdout.startswith("failed to initialize Hugging Face Hub client: ")
    assert (done.stderr, done.returncode) == ("", 0)


def test_the_client_is_not_loaded_for_a_directory_nor_its_network_part_offline(
    hub, tmp_path
):
    hub.publish(MODEL, SINGLE)
    load()
    program = "import sys\n" + LOAD + "print(*sys.modules)\n"
    directory = program.replace(repr(MODEL), repr(str(tmp_path)))
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).touch()
    done = run(directory)
    assert done.returncode == 0, done.stderr
    assert "huggingface_hub" not in done.stdout.split()
    done = run(program, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert "huggingface_hub" in done.stdout.split()
    assert "httpx2" not in done.stdout.split()


def test_the_clients_own_settings_are_put_back(hub):
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled

    hub.publish(MODEL, SINGLE)
    level = logging.getLogger("huggingface_hub").level
    load()
    assert logging.getLogger("huggingface_hub").level == level
    assert not are_progress_bars_disabled()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
def test_on_a_terminal_weights_and_nothing_else_show_a_bar(hub):
    import pty
    import termios

    hub.publish(MODEL, SINGLE)
    reader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    program = [sys.executable, "-c", LOAD]
    subprocess.run(
        program, stderr=terminal, stdout=subprocess.DEVNULL, check=True, timeout=60
    )
    os.close(terminal)
    shown = os.read(reader, 10_000)
    os.close(reader)
    assert b"model.safetensors" in shown
    assert b"100%" in shown
    assert b"json" not in shown


def test_a_closed_stderr_does_not_disturb_a_download(hub):
    hub.publish(MODEL, SINGLE)
    done = run("import sys\nsys.stderr = None\n" + LOAD)
    assert done.stdout.startswith(MAIN)
    assert done.returncode == 0
