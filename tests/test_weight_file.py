"""Weight files that are written to, cut or replaced while they are read."""

from __future__ import annotations

import gc
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster.checkpoint.stored import RAW_TYPES, StoredTensor
from ster.checkpoint.weight_file import WeightFile
from ster.errors import WeightsError
from tests.test_weights import open_tensors, write

SHAPE = (64, 512)


def make(path: Path, dtype: str = "BF16", seed: int = 1) -> Path:
    """Write a file of one tensor that was last changed long ago."""
    bits = np.random.default_rng(seed).integers(0, 2**14, SHAPE)
    write(path, {"a": (dtype, SHAPE, bits.astype(RAW_TYPES[dtype]).tobytes())})
    # Else a change in the same tick of the clock could not be told.
    os.utime(path, ns=(0, 0))
    return path


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(b"x" * 10)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def copy_over(path: Path) -> None:
    """Write another file of the same size into this one, as ``cp`` does."""
    path.write_bytes(make(path.with_name("other"), seed=2).read_bytes())


def write_through_a_mapping(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[-1000] ^= 1
        mapped.flush()


def cut_what_was_renamed(path: Path) -> None:
    """Change the file that is mapped, under another name than the one it had."""
    moved = path.rename(path.with_name("moved"))
    make(path)
    truncate(moved)


CHANGES: list[Callable[[Path], None]] = [
    overwrite,
    append,
    truncate,
    empty,
    copy_over,
    write_through_a_mapping,
    cut_what_was_renamed,
]


def replace(path: Path) -> None:
    make(path.with_name("new"), seed=2).replace(path)


def remove(path: Path) -> None:
    path.unlink()


def change_permissions(path: Path) -> None:
    path.chmod(0o400)


def read_only(path: Path) -> None:
    path.read_bytes()


HARMLESS: list[Callable[[Path], None]] = [
    replace,
    remove,
    change_permissions,
    read_only,
]


@pytest.fixture(params=["F32", "F16", "BF16"])
def dtype(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def tensor(tmp_path: Path, dtype: str) -> StoredTensor:
    path = make(tmp_path / "model.safetensors", dtype)
    return open_tensors([path], {"a": SHAPE})["a"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_is_refused_by_name(tmp_path, tensor, change):
    path = tmp_path / "model.safetensors"
    tensor.file.check_unchanged()
    change(path)
    for use in (
        tensor.file.check_unchanged,
        lambda: tensor.rows_as_float32(np.array([60, 2])),
        lambda: tensor.rows_as_float32(np.array([40, 41, 42])),
    ):
        with pytest.raises(WeightsError) as caught:
            use()
        error = caught.value
        assert error.sentence == f"the weight file {path} changed while it was read"
        assert error.path == str(path)
        assert error.causes[0].endswith("run again when the file is whole")


@pytest.mark.parametrize("change", CHANGES)
def test_values_of_a_file_that_changed_are_never_copied(tmp_path, tensor, change):
    np.testing.assert_array_equal(tensor.part(5, 4).read(), tensor.read()[5:9])
    change(tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="changed while it was read"):
        tensor.part(5, 4).read()
    with pytest.raises(WeightsError, match="changed while it was read"):
        tensor.part(40, 24).as_float32()


@pytest.mark.parametrize("change", HARMLESS)
def test_a_file_that_another_takes_the_place_of_is_read_on(tmp_path, tensor, change):
    before = tensor.as_float32().copy()
    change(tmp_path / "model.safetensors")
    tensor.file.check_unchanged()
    np.testing.assert_array_equal(tensor.as_float32(), before)
    np.testing.assert_array_equal(tensor.rows_as_float32(np.array([63])), before[63:])


@pytest.mark.parametrize("call", ["preadv", "pread"])
def test_a_file_that_is_cut_while_its_values_are_read_ends_no_process(
    tmp_path, tensor, monkeypatch, call
):
    """A mapping would end it: the bytes are copied out by a call that can fail."""
    if call == "pread":  # where a system has no other
        monkeypatch.delattr("os.preadv")
    real: Any = getattr(os, call)

    def cut(*arguments: Any) -> Any:
        empty(tmp_path / "model.safetensors")
        return real(*arguments)

    monkeypatch.setattr(f"os.{call}", cut)
    with pytest.raises(WeightsError, match="changed while it was read"):
        tensor.as_float32()


def test_the_size_it_had_and_has_are_facts_of_the_error(tmp_path):
    path = make(tmp_path / "model.safetensors")
    file, size = WeightFile.open(path), path.stat().st_size
    truncate(path)
    with pytest.raises(WeightsError) as caught:
        file.check_unchanged()
    assert (caught.value.expected, caught.value.found) == (size, size // 2)
    assert f"it had {size} bytes and has {size // 2} now" in caught.value.causes[0]


def test_large_pieces_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("ster.checkpoint.weight_file._READ_BYTES", 100)
    path = make(tmp_path / "model.safetensors")
    file = WeightFile.open(path)
    assert file.read(3, 1234) == path.read_bytes()[3:1237]
    assert file.read(5, 0) == b""
    filled = np.empty(1234, np.uint8)
    file.read_into(3, filled)
    assert filled.tobytes() == path.read_bytes()[3:1237]


def test_a_disk_that_fails_is_named(tmp_path, monkeypatch):
    file = WeightFile.open(make(tmp_path / "model.safetensors"))

    def fail(*args: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.pread", fail)
    with pytest.raises(WeightsError) as caught:
        file.read(0, 8)
    assert caught.value.sentence == "model.safetensors is damaged or cannot be read"
    assert caught.value.causes == ("Input/output error (os error 5)",)


def test_too_many_open_files_say_what_helps(tmp_path, monkeypatch):
    def fail(*args: object) -> int:
        raise OSError(24, "Too many open files")

    path = make(tmp_path / "model.safetensors")
    monkeypatch.setattr("os.open", fail)
    with pytest.raises(WeightsError) as caught:
        WeightFile.open(path)
    assert "ulimit -n" in caught.value.causes[1]


@pytest.mark.skipif(sys.platform != "linux", reason="the system lists descriptors")
def test_files_are_closed_when_nothing_refers_to_them(tmp_path):
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    path = make(tmp_path / "model.safetensors")
    before = count()
    tensor = open_tensors([path], {"a": SHAPE})["a"]
    assert count() > before
    part = tensor.part(0, 1)
    del tensor
    part.file.check_unchanged()
    del part
    assert count() == before

    (tmp_path / "damaged.safetensors").write_bytes(b"x" * 50)
    for name in ("damaged.safetensors", "."):
        with pytest.raises(WeightsError):
            open_tensors([tmp_path / name], {"a": SHAPE})
    assert count() == before
