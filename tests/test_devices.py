"""Devices and precisions: which words are known, and what is refused."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import types
import warnings

import pytest

import ster
from ster.decoder import devices
from ster.decoder.devices import MLX_CPU, check_device, implementation
from ster.errors import DeviceError, UsageError
from ster.reporting import SterWarning

FIND_GPU = devices.find_gpu  # before a fixture replaces it


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_the_cpu_has_both_widths(precision):
    check_device("cpu", precision)


@pytest.mark.parametrize(
    ("word", "shown"),
    [("gpu", "gpu"), ("CPU", "CPU"), ("", ""), (MLX_CPU, MLX_CPU), ('a"', r"a\"")],
)
def test_an_unknown_device_is_a_usage_error(word, shown):
    with pytest.raises(UsageError) as caught:
        check_device(word, "f32")
    assert str(caught.value) == (
        f'unknown device "{shown}"; expected cpu, metal, or cuda: '
        "auto is the best of them that is here"
    )


@pytest.mark.parametrize("precision", ["fp16", "F32", "", "int8"])
def test_an_unknown_precision_is_a_usage_error(precision):
    with pytest.raises(UsageError) as caught:
        check_device("metal", precision)
    assert str(caught.value) == (
        f'unknown precision "{precision}"; expected f32, f16, or bf16'
    )


def test_the_device_is_checked_before_the_precision():
    with pytest.raises(UsageError, match="unknown device"):
        check_device("gpu", "fp16")


def test_bf16_is_refused_on_the_cpu():
    with pytest.raises(DeviceError) as caught:
        check_device("cpu", "bf16")
    assert str(caught.value) == (
        "bf16 has no CPU matmul kernel in this Candle build; use --precision f16 for "
        "half precision on cpu, or --device metal for bf16"
    )


@pytest.mark.parametrize("name", ["metal", "cuda"])
def test_a_device_without_its_library_is_refused(name, monkeypatch):
    monkeypatch.delitem(sys.modules, "ster.decoder.mlx.decoder", raising=False)
    monkeypatch.setitem(sys.modules, "mlx", None)
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(DeviceError) as caught:
        check_device(name, "f32")
    assert caught.value.sentence == (
        f"this Ster binary was built without the {name} feature"
    )
    assert "--device cpu" in caught.value.causes[0]


@pytest.mark.parametrize("name", ["metal", "cuda"])
def test_a_device_that_this_mlx_lacks_is_refused(name, monkeypatch):
    mx = pytest.importorskip("mlx.core")
    monkeypatch.setattr(getattr(mx, name), "is_available", lambda: False)
    with pytest.raises(DeviceError) as caught:
        check_device(name, "f32")
    assert caught.value.sentence == (
        f"this Ster binary was built without the {name} feature"
    )
    assert "--device cpu" in caught.value.causes[0]


@pytest.mark.parametrize(("name", "spelled"), [("metal", "Metal"), ("cuda", "CUDA")])
def test_a_device_that_does_not_start_is_refused(name, spelled, monkeypatch):
    mx = pytest.importorskip("mlx.core")
    monkeypatch.setattr(getattr(mx, name), "is_available", lambda: True)

    def fail(*args):
        raise RuntimeError("no such stream")

    monkeypatch.setattr(mx, "stream", fail)
    with pytest.raises(DeviceError) as caught:
        check_device(name, "f32")
    assert caught.value.sentence == f"failed to initialize {spelled} device"
    assert caught.value.causes == ("no such stream",)


def test_mlx_does_not_round_products_to_tf32(monkeypatch):
    pytest.importorskip("mlx.core")
    monkeypatch.setenv("MLX_ENABLE_TF32", "1")
    check_device(MLX_CPU, "bf16", known=(*devices.DEVICES, MLX_CPU))
    assert os.environ["MLX_ENABLE_TF32"] == "0"


def test_an_implementation_has_all_that_the_protocol_names(device):
    module = implementation(device)
    wanted = [n for n in vars(devices.Implementation) if not n.startswith("_")]
    assert wanted
    assert [name for name in wanted if not callable(getattr(module, name, None))] == []
    memory = module.device_memory(device)
    assert 0 <= memory.held < memory.limit


@pytest.fixture
def mlx_before_ster(monkeypatch) -> None:
    """A process that uses MLX by itself, and ster only now."""
    decoder = types.ModuleType("ster.decoder.mlx.decoder")
    monkeypatch.delitem(sys.modules, decoder.__name__, raising=False)
    monkeypatch.setitem(sys.modules, "mlx.core", types.ModuleType("mlx.core"))
    monkeypatch.setattr("importlib.import_module", lambda name: decoder)
    monkeypatch.delenv("MLX_ENABLE_TF32", raising=False)


@pytest.mark.parametrize("name", ["metal", "cuda"])
def test_mlx_that_was_there_before_is_warned_of(name, mlx_before_ster, monkeypatch):
    monkeypatch.setenv("MLX_ENABLE_TF32", "1")
    with pytest.warns(SterWarning, match="f32 may mean TF32 in this process"):
        implementation(name)
    assert os.environ["MLX_ENABLE_TF32"] == "0"


@pytest.mark.parametrize("why", ["the cpu", "set", "mlx is not there", "ster was"])
def test_mlx_whose_products_are_f32_is_not_warned_of(why, mlx_before_ster, monkeypatch):
    if why == "set":
        monkeypatch.setenv("MLX_ENABLE_TF32", "0")
    elif why == "mlx is not there":
        monkeypatch.delitem(sys.modules, "mlx.core")
    elif why == "ster was":
        name = "ster.decoder.mlx.decoder"
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        implementation(MLX_CPU if why == "the cpu" else "metal")


def pretend(monkeypatch, tmp_path, *, system, machine="x86_64", built=True, card=True):
    """Let the machine be another one, with MLX in a folder."""
    places = types.SimpleNamespace(submodule_search_locations=[str(tmp_path / "mlx")])
    monkeypatch.setattr(devices, "find_gpu", FIND_GPU)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: places)
    (tmp_path / "card").touch()
    there = str(tmp_path / ("card" if card else "no card"))
    monkeypatch.setattr(devices, "_NVIDIA", (there,))
    if built:
        (tmp_path / "mlx_cuda_13-1.dist-info").mkdir()


@pytest.mark.parametrize(
    ("machine", "gpu"),
    [
        ({"system": "darwin", "machine": "arm64"}, "metal"),
        ({"system": "darwin", "machine": "x86_64"}, None),
        ({"system": "linux"}, "cuda"),
        ({"system": "linux", "built": False}, None),
        ({"system": "linux", "card": False}, None),
        ({"system": "win32"}, None),
    ],
)
def test_a_gpu_is_found_without_importing_mlx(monkeypatch, tmp_path, machine, gpu):
    pretend(monkeypatch, tmp_path, **machine)
    assert devices.find_gpu() == gpu


def test_there_is_no_gpu_where_there_is_no_mlx(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, system="darwin", machine="arm64")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert devices.find_gpu() is None


# What the kernel says of itself on one chip and on the other, whoever asks.
ARM_KERNEL = "Darwin Kernel Version 24.1.0: root:xnu-11215.41.3~2/RELEASE_ARM64_T6000"
INTEL_KERNEL = "Darwin Kernel Version 24.1.0: root:xnu-11215.41.3~2/RELEASE_X86_64"


@pytest.mark.parametrize(
    ("system", "kernel", "translated"),
    [
        ("darwin", ARM_KERNEL, True),
        ("darwin", INTEL_KERNEL, False),
        ("linux", ARM_KERNEL, False),
    ],
)
def test_an_intel_python_on_apple_silicon_is_known(
    monkeypatch, tmp_path, system, kernel, translated
):
    pretend(monkeypatch, tmp_path, system=system, built=False)
    monkeypatch.setattr(platform, "version", lambda: kernel)
    assert devices.choose_device("auto") == "cpu"
    assert devices.is_translated() is translated
    (way,) = devices.not_built("metal").causes
    of_python = way.startswith("this Python is built for Intel processors")
    assert of_python is (system == "darwin")


def test_the_library_says_what_auto_may_not_take(monkeypatch, tmp_path):
    ster.write_toy_checkpoint(tmp_path / "toy")
    monkeypatch.setattr("ster.loading.is_translated", lambda: True)
    assert ster.load(tmp_path / "toy", device="cpu").device == "cpu"
    with pytest.warns(SterWarning, match="this Python is built for Intel"):
        assert ster.load(tmp_path / "toy").device == "cpu"


@pytest.mark.parametrize("word", ["cpu", "metal", "gpu", "", "AUTO", MLX_CPU])
def test_only_auto_stands_for_another_device(monkeypatch, word):
    monkeypatch.setattr(devices, "find_gpu", lambda: "metal")
    assert devices.choose_device(word) == word


def test_auto_is_the_gpu_where_it_answers_and_else_the_cpu(monkeypatch):
    assert devices.choose_device("auto") == "cpu"
    asked: list[str] = []
    found = types.SimpleNamespace(check_available=asked.append)
    monkeypatch.setattr(devices, "find_gpu", lambda: "metal")
    monkeypatch.setattr(devices, "implementation", lambda _: found)
    assert (devices.choose_device("auto"), asked) == ("metal", ["metal"])

    def refuse(_):
        raise devices.not_built("metal")

    found.check_available = refuse
    assert devices.choose_device("auto") == "cpu"


def test_auto_is_what_the_library_takes_and_no_document_says_auto(tmp_path):
    ster.write_toy_checkpoint(tmp_path / "toy")
    runtime = ster.load(tmp_path / "toy")
    assert runtime.device == "cpu"
    assert "device='cpu'" in repr(runtime)
    assert ster.load(tmp_path / "toy", device="auto").device == "cpu"
