"""How much memory there is, on a machine, in a container, and in words."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from ster import load, write_toy_checkpoint
from ster.decoder import memory
from ster.decoder.memory import SHARE, free_memory, held_memory, parse_memory
from ster.errors import CapacityError, UsageError
from tests.processes import finished

AVAILABLE = 4_096_000


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be a machine with little memory; tests write what its container says."""
    has = SimpleNamespace(total=2 * AVAILABLE, available=AVAILABLE)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: has)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    return tmp_path


def limit(machine: Path, limit: object, current: int, **stat: int) -> None:
    (machine / "memory.max").write_text(f"{limit}\n")
    (machine / "memory.current").write_text(f"{current}\n")
    lines = [f"{name} {count}" for name, count in {"anon": 5, **stat}.items()]
    (machine / "memory.stat").write_text("\n".join(lines) + "\n")


@pytest.mark.usefixtures("machine")
def test_a_share_of_what_the_system_could_give_is_free():
    assert free_memory() == SHARE * AVAILABLE


def test_a_container_has_what_its_limit_leaves(machine):
    limit(machine, 1_000_000, 400_000)
    assert free_memory() == SHARE * 600_000


def test_files_that_a_container_has_cached_do_not_count_against_it(machine):
    limit(machine, 1_000_000, 900_000, active_file=300_000, inactive_file=200_000)
    assert free_memory() == SHARE * 600_000


def test_a_container_that_is_full_leaves_nothing(machine):
    limit(machine, 1000, 2000)
    assert free_memory() == 0


def test_a_large_limit_does_not_make_a_machine_larger(machine):
    limit(machine, 2**50, 0)
    assert free_memory() == SHARE * AVAILABLE


def test_a_container_without_a_limit_is_the_machine(machine):
    limit(machine, "max", 900_000)
    assert free_memory() == SHARE * AVAILABLE


def test_what_the_process_holds_grows_and_shrinks_with_it():
    before = held_memory()
    held = bytearray(b"x") * 2**28  # more than any heap has to spare
    assert held_memory() - before >= 2**27
    del held
    assert held_memory() - before <= 2**27


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("123456", 123_456),
        ("800M", 800 * 10**6),
        ("800m", 800 * 10**6),
        ("4GB", 4 * 10**9),
        ("4 G", 4 * 10**9),
        (" 1.5 GiB ", 3 * 2**29),
        ("2Ki", 2048),
        ("3k", 3000),
        ("0.5T", 5 * 10**11),
        ("1TiB", 2**40),
        ("7b", 7),
        (4096, 4096),
    ],
)
def test_a_size_is_read(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "G",
        "0",
        "0G",
        "0.1",
        "-1",
        "+1",
        "1e9",
        "4GG",
        "4X",
        "1,5G",
        ".5G",
        "5.G",
        "inf",
        "nan",
        "1_0",
        "\u0664G",
        "4\u212a",  # the Kelvin sign is no k
        "9" * 400,
        "1 2",
        "4 i",
    ],
)
def test_what_is_no_size_is_a_usage_error(text):
    with pytest.raises(UsageError) as caught:
        parse_memory(text)
    assert str(caught.value) == (
        f'invalid memory size "{text}"; expected one such as 800M or 4G'
    )


@pytest.mark.parametrize("size", [0, -1, True, float("nan"), 0.5, [4], 10**400])
def test_what_is_no_size_in_a_notebook_is_refused_before_the_model(size):
    with pytest.raises(UsageError, match="^invalid memory size "):
        load("no such model", memory=size)


def test_a_size_in_words_is_taken_in_a_notebook(tmp_path):
    write_toy_checkpoint(tmp_path / "toy")
    with pytest.raises(CapacityError):
        load(tmp_path / "toy", memory="2k").activations(["the sea"])


def test_the_peak_is_this_process_and_not_its_parent():
    """A process that is started keeps its parent's peak in what getrusage says."""
    program = "from ster.decoder.memory import peak_memory; print(peak_memory())"
    held = bytearray(b"1") * 300_000_000
    ran = finished([sys.executable, "-c", program])
    assert len(held) > int(ran.stdout) > 1_000_000
