"""What a person sees who has make, and a Python that is not new enough."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import finished

ROOT = Path(__file__).parent.parent
# Runs what `-c` is given with another version than its own.
OLD = """#!/bin/sh
exec "{python}" -c 'import sys; sys.version_info = (3, 9, 6); exec(sys.argv[2])' "$@"
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_an_old_python_is_named_and_nothing_is_made_of_it(tmp_path: Path):
    old = tmp_path / "python3.9"
    old.write_text(OLD.format(python=sys.executable), encoding="utf-8")
    old.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    for name in ("Makefile", "pyproject.toml", ".ci/constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    ended = finished(["make", "-C", str(tmp_path), "run", f"PYTHON={old}"])
    assert ended.returncode != 0
    first, *rest = ended.stderr.decode().splitlines()
    assert first == (
        f"ster needs Python 3.11 or newer, and {old} is 3.9; "
        "another: make PYTHON=python3.12"
    )
    assert all(line.startswith("make") for line in rest)
    assert not (tmp_path / ".venv").exists()
