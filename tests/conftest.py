"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from ster import PairSet, Runtime, load, write_toy_checkpoint
from ster.decoder.devices import DEVICES, MLX_CPU, check_device
from ster.errors import DeviceError
from tests.golden import golden

# Before any test imports mlx, as ster itself would set it.
os.environ["MLX_ENABLE_TF32"] = "0"

# A job that a shell puts in the background ignores these, and so would every process
# that the tests start and then signal.
for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        handler = (
            signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL
        )
        signal.signal(ignored, handler)


@pytest.fixture(scope="session")
def published() -> dict[str, Any]:
    """Return what is published about the toy checkpoint."""
    return golden.published()


@pytest.fixture
def closed_figures() -> Iterator[None]:
    """Begin without figures, and leave none behind."""
    from matplotlib import pyplot as plt  # late: few tests draw

    assert plt.get_fignums() == []
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the toy checkpoint, which no test may change."""
    folder = tmp_path_factory.mktemp("models") / "toy"
    write_toy_checkpoint(folder)
    return folder


@pytest.fixture(scope="session")
def cpu(toy: Path) -> Runtime:
    """Return the toy checkpoint, open on the cpu."""
    return load(toy)


@pytest.fixture(scope="session")
def calm(published: dict[str, Any]) -> PairSet:
    """Return the pairs whose numbers are published."""
    return PairSet.of(published["pairs"], trait_name="calm")


@pytest.fixture(scope="session", autouse=True)
def command_line() -> Iterator[None]:
    """Build the commands once: for a line that is refused, that is most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``auto`` be the cpu, and no variable stand in for a flag.

    A person's machine may have a GPU, and then tests would run on it, or be told of it.
    """
    monkeypatch.setattr("ster.decoder.devices.find_gpu", lambda: None)
    for name in ("STER_MODEL", "STER_PRECISION", "_STER_COMPLETE"):
        monkeypatch.delenv(name, raising=False)
    # Processes of their own are not patched; this says the same to them.
    monkeypatch.setenv("STER_DEVICE", "cpu")


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """Return each device that this machine has, one after the other."""
    name: str = request.param
    return name


@pytest.fixture
def mlx(request: pytest.FixtureRequest) -> str:
    """Return each device of MLX that this machine has, one after the other."""
    name: str = request.param
    return name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for ``device`` on every one; only then look for them."""
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", devices(), indirect=True)
    if "mlx" in metafunc.fixturenames:
        of_mlx = [each for each in devices() if each != "cpu"]
        metafunc.parametrize("mlx", of_mlx, indirect=True)


@cache
def devices() -> tuple[str, ...]:
    """List the devices of this machine: cpu, MLX's own cpu backend, metal or cuda."""
    return tuple(name for name in (*DEVICES, MLX_CPU) if _is_here(name))


def _is_here(device: str) -> bool:
    try:
        check_device(device, "f32", known=(device,))
    except DeviceError:
        return False
    return True
