"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ster.toy import write_toy_checkpoint
from tests.cli.user import User, make_user


@pytest.fixture(scope="session")
def toy_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy checkpoint, to be copied."""
    folder = tmp_path_factory.mktemp("source") / "toy"
    write_toy_checkpoint(folder)
    return folder


@pytest.fixture
def user(
    toy_source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> User:
    """A person in a fresh folder with the toy checkpoint and two prompts."""
    return make_user(toy_source, tmp_path / "here", monkeypatch, capsys)
