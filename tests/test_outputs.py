"""Outputs that are a descriptor of the run, and what killed runs leave."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ster.documents.descriptors import find_descriptor, is_standard_output
from ster.documents.temporary_files import hidden_directory, hidden_name_beside
from ster.documents.whole_files import AtomicFile
from ster.errors import OutputError

WRITE = """
import sys
from ster.documents.whole_files import AtomicFile
with AtomicFile(sys.argv[1]) as file:
    file.write(b"new")
"""
# A run that is killed while it writes.
KILLED = """
import os, signal, sys
from ster.documents.temporary_files import hidden_directory
from ster.documents.whole_files import AtomicFile
with AtomicFile(sys.argv[1]) as file, hidden_directory(sys.argv[1] + ".d") as made:
    open(made + "/part", "w").close()
    file.write(b"x" * 1_000_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def shell(script: str, place: Path, *arguments: str) -> bytes:
    """Run a line of the shell, where ``$W PATH`` writes ``new`` to a path."""
    writer = f"\"{sys.executable}\" -c '{WRITE}'"
    result = subprocess.run(
        ["sh", "-c", script.replace("$W", writer), *arguments],
        cwd=place,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert result.stderr == b""
    return result.stdout


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_what_is_written_to_standard_output_is_appended_where_asked(
    tmp_path: Path, path: str
):
    (tmp_path / "log").write_bytes(b"old ")
    shell(f"$W {path} >> log; echo end >> log", tmp_path)
    assert (tmp_path / "log").read_bytes() == b"old newend\n"


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "link"])
def test_what_is_written_to_standard_output_goes_through_pipes(
    tmp_path: Path, path: str
):
    (tmp_path / "link").symlink_to("second")
    (tmp_path / "second").symlink_to("/dev/stdout")
    assert shell(f"$W {path} | cat; echo end", tmp_path) == b"newend\n"


def test_what_is_written_to_standard_output_begins_where_it_stands(tmp_path: Path):
    shell("{ echo before; $W /dev/stdout; echo after; } > log", tmp_path)
    assert (tmp_path / "log").read_bytes() == b"before\nnewafter\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "log"]


def test_another_descriptor_is_written_likewise(tmp_path: Path):
    (tmp_path / "log").write_bytes(b"old ")
    assert shell("$W /dev/fd/3 3>> log; echo out", tmp_path) == b"out\n"
    assert (tmp_path / "log").read_bytes() == b"old new"


@pytest.mark.parametrize("name", ["/dev/fd/99", "/dev/fd/{}"])
def test_a_descriptor_that_cannot_be_written_is_refused_at_once(
    tmp_path: Path, name: str
):
    (tmp_path / "read").touch()
    with open(tmp_path / "read", "rb") as file:
        path = name.format(file.fileno())
        with pytest.raises(OutputError) as refusal, AtomicFile(path):
            pytest.fail("it was opened")
    assert refusal.value.sentence == f"failed to write {path}"
    assert refusal.value.path == path
    assert "os error 9" in refusal.value.causes[0]


@pytest.mark.parametrize("path", ["/dev/null", "/dev/fd", "/dev/fd/x", "/tmp/1", "/1"])
def test_other_paths_are_no_descriptors(path: str):
    assert find_descriptor(path) is None


def test_a_link_to_itself_is_no_descriptor(tmp_path: Path):
    (tmp_path / "loop").symlink_to("loop")
    assert find_descriptor(str(tmp_path / "loop")) is None


def test_a_file_that_stdout_goes_to_is_standard_output(tmp_path: Path):
    script = (
        "import sys; from ster.documents.descriptors import is_standard_output; "
        "print(*map(is_standard_output, sys.argv[1:]), file=sys.stderr)"
    )
    with open(tmp_path / "log", "wb") as log:
        result = subprocess.run(
            [sys.executable, "-c", script, "log", "other", "/dev/stdout", "", "\n"],
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.PIPE,
            timeout=60,
            check=True,
        )
    assert result.stderr.split() == [b"True", b"False", b"True", b"False", b"False"]
    assert not is_standard_output(tmp_path / "nul\0")


def killed(place: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", KILLED, str(place)], timeout=60, check=False
    )
    assert result.returncode == -signal.SIGKILL


def test_what_a_killed_run_left_is_removed_by_the_next_one(tmp_path: Path):
    path = tmp_path / "out.json"
    killed(path)
    assert len(list(tmp_path.glob(".ster-*"))) == 2
    with AtomicFile(path) as file:
        file.write(b"new")
    assert list(tmp_path.iterdir()) == [path]
    killed(path)
    with hidden_directory(str(tmp_path / "other")):
        pass
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_running_one_writes_is_not_removed(tmp_path: Path):
    with AtomicFile(tmp_path / "one") as one, hidden_directory(str(tmp_path / "two")):
        one.write(b"1")
        with AtomicFile(tmp_path / "three") as three:
            three.write(b"3")
        assert len(list(tmp_path.glob(".ster-*"))) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "three"]
    assert (tmp_path / "one").read_bytes() == b"1"


def test_a_stranger_of_a_similar_name_stays(tmp_path: Path):
    names = {".ster-x.tmp", ".ster-0123456789abcdef.tmp.json", ".ster-0123456789abcdef"}
    for name in names:
        (tmp_path / name).touch()
    link = tmp_path / ".ster-0123456789abcdef.tmp"
    link.symlink_to(tmp_path / ".ster-x.tmp")
    os.mkfifo(tmp_path / ".ster-fedcba9876543210.tmp")
    with AtomicFile(tmp_path / "out") as file:
        file.write(b"new")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*names, link.name, ".ster-fedcba9876543210.tmp", "out"}


def test_a_file_that_another_run_tidied_away_at_its_birth_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    locked = fcntl.flock
    removed: list[Path] = []

    def remove_first(descriptor: int, operation: int) -> None:
        if not removed:
            removed.extend(tmp_path.glob(".ster-*"))
            removed[0].unlink()
        locked(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with AtomicFile(tmp_path / "out") as file:
        file.write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"


def test_without_locks_files_are_written_and_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    left = Path(hidden_name_beside(str(tmp_path / "out")))
    left.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    with AtomicFile(tmp_path / "out") as file:
        file.write(b"new")
    assert sorted(tmp_path.iterdir()) == sorted([left, tmp_path / "out"])


def test_a_file_can_be_set_aside_under_a_longer_name(tmp_path: Path):
    (tmp_path / "out").write_bytes(b"old")
    (tmp_path / "link").symlink_to("out")
    for path in (tmp_path / "out", tmp_path / "link"):
        file = AtomicFile(path)
        file.__enter__()
        file.write(b"part")
        assert file.set_aside(b" end", ".partial") == str(tmp_path / "out.partial")
        assert (tmp_path / "out.partial").read_bytes() == b"part end"
        (tmp_path / "out.partial").unlink()
    assert (tmp_path / "out").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


@pytest.mark.parametrize("path", ["/dev/null", "a/" + "n" * 255])
def test_what_cannot_be_set_aside_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
):
    monkeypatch.chdir(tmp_path)
    file = AtomicFile(path)
    file.__enter__()
    file.write(b"part")
    assert file.set_aside(b" end", ".partial") is None
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_be_bytes(tmp_path: Path):
    path = os.fsencode(tmp_path / "out")
    wanted: Any = path
    with AtomicFile(wanted) as file:
        file.write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"
