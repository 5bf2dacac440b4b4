"""Fixtures of the conformance tests."""

from __future__ import annotations

import pytest

from tests.checkpoints import Checkpoint, write_checkpoint


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return write_checkpoint(tmp_path_factory.mktemp("llama"))
