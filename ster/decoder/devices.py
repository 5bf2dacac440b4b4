"""Which decoder runs on which device; the one place that knows both implementations."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from ster.architecture.spec import ModelSpec
from ster.architecture.wide import WideSpec
from ster.decoder.contract import Decoder, DeviceMemory, Footprint, Weights
from ster.errors import DeviceError, UsageError, check_word
from ster.reporting import QuietReporter

DEVICES = ("cpu", "metal", "cuda")
PRECISIONS = ("f32", "f16", "bf16")
# MLX's own cpu backend: the MLX decoder where there is no GPU. No command knows it.
MLX_CPU = "mlx-cpu"
# Not a device: the best one that is here.
AUTO = "auto"
_MLX_DECODER = "ster.decoder.mlx.decoder"
# The same for families that ster does not own.
_WHOLE_DECODER = "ster.decoder.mlx_lm"
# What to do where MLX, or its backend for a device, is not there.
_WAYS = {
    "metal": "there is no MLX with Metal here, which is on Apple silicon only; use "
    "--device cpu",
    "cuda": "there is no MLX with CUDA here; where there is an NVIDIA card, install "
    "ster-mlx with its extra `cuda`, else use --device cpu",
    MLX_CPU: "MLX is not installed; on Linux `mlx[cpu]` is it without a GPU",
}
_INTEL_PYTHON = (
    "this Python is built for Intel processors, as MLX is not; on Apple silicon take "
    "one that is built for arm64, else use --device cpu"
)
# What a run says that goes on without Metal all the same.
TRANSLATED = (
    "this machine has Metal, but this Python is built for Intel processors; with one "
    "that is built for arm64 ster would use it"
)
# How a driver for NVIDIA cards shows on Linux; the last is Windows' own.
_NVIDIA = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")


Spec = ModelSpec | WideSpec


class Implementation(Protocol):
    """What a decoder's module offers beside its classes."""

    def check_available(self, device: str) -> None:
        """Refuse a device that is not here."""

    def device_memory(self, device: str) -> DeviceMemory:
        """Say what the process holds on the device, and what it may hold."""

    def footprint(
        self, model: Spec, *, precision: str, longest_prompt: int
    ) -> Footprint:
        """Say what a decoder takes."""

    def hold_weights(self, model: Spec, *, device: str, precision: str) -> Weights:
        """Make what will hold a checkpoint's weights, none of them yet."""

    def open_decoder(self, weights: Weights, *, keep: bool) -> Decoder[Any]:
        """Open a decoder for one run over weights of this implementation.

        Args:
            weights: What is held of the checkpoint.
            keep: Blocks and head stay once they are made, for the next run too. Those
                that stayed from an earlier one are used in any case.
        """


def check_device(
    device: str, precision: str, *, known: Sequence[str] = DEVICES
) -> None:
    """Refuse words that ster does not know, and devices that are not here.

    Raises:
        UsageError: An unknown word.
        DeviceError: The device, or the precision on it, is not here.
    """
    if device not in known:
        try:
            check_word("device", device, DEVICES)
        except UsageError as error:
            error.causes = (f"{AUTO} is the best of them that is here",)
            raise
    check_word("precision", precision, PRECISIONS)
    if device == "cpu" and precision == "bf16":
        raise DeviceError(
            "bf16 has no CPU matmul kernel in this Candle build; use --precision f16 "
            "for half precision on cpu, or --device metal for bf16",
            field="precision",
            found=precision,
            expected=("f32", "f16"),
        )
    implementation(device).check_available(device)


def choose_device(word: str) -> str:
    """Return the device that a word stands for: of ``auto`` the best one that is here.

    Any other word is returned as it is, whether ster knows it or not.
    """
    if word != AUTO:
        return word
    gpu = find_gpu()
    if gpu is None:
        return "cpu"
    try:
        implementation(gpu).check_available(gpu)
    except DeviceError:
        return "cpu"
    return gpu


def find_gpu() -> str | None:
    """Name the GPU that this machine seems to have, ``metal`` or ``cuda``.

    MLX is looked for and not imported, which would cost a run on cpu a tenth of a
    second: whether the GPU answers shows when it is used.
    """
    if (sys.platform, platform.machine()) == ("darwin", "arm64"):
        gpu = "metal"
    elif sys.platform == "linux" and any(map(os.path.exists, _NVIDIA)):
        gpu = "cuda"
    else:
        return None
    found = importlib.util.find_spec("mlx")
    places = None if found is None else found.submodule_search_locations
    if not places:
        return None
    # On Linux MLX is there without CUDA too, which has a distribution of its own.
    built = gpu == "metal" or any(
        any(Path(place).parent.glob("mlx_cuda*")) for place in places
    )
    return gpu if built else None


def implementation(device: str, *, whole: bool = False) -> Implementation:
    """Import the decoder of a device, so that only a run on it waits for its library.

    Args:
        device: Where to compute.
        whole: The model runs as a whole, through mlx-lm; not on cpu.

    Raises:
        DeviceError: MLX is not installed here.
    """
    if device == "cpu":
        module = importlib.import_module("ster.decoder.numpy.decoder")
        return cast("Implementation", module)
    # f32 means f32: on CUDA and on M5-class chips MLX would otherwise multiply in TF32.
    # It reads this at its first product.
    _warn_of_tf32(device)
    os.environ["MLX_ENABLE_TF32"] = "0"
    try:
        module = importlib.import_module(_WHOLE_DECODER if whole else _MLX_DECODER)
    except ImportError as error:
        raise not_built(device) from error
    return cast("Implementation", module)


def not_built(device: str) -> DeviceError:
    """Make the refusal of a device that the MLX here lacks, with the way out."""
    sentence = f"this Ster binary was built without the {device} feature"
    of_python = device == "metal" and _seems_an_intel_mac()
    way = _INTEL_PYTHON if of_python else _WAYS[device]
    return DeviceError(sentence, way, field="device", found=device, expected="cpu")


def is_translated() -> bool:
    """Tell whether Metal is out of reach only because of the Python that was taken.

    Rosetta tells a program that the processor is an Intel one; the kernel's version
    still names the chip.
    """
    return _seems_an_intel_mac() and "ARM64" in platform.version()


def _seems_an_intel_mac() -> bool:
    return (sys.platform, platform.machine()) == ("darwin", "x86_64")


def _warn_of_tf32(device: str) -> None:
    """Warn where MLX may have multiplied already, and so read its settings."""
    if device == MLX_CPU or _MLX_DECODER in sys.modules:
        return
    unset = os.environ.get("MLX_ENABLE_TF32") != "0"
    if unset and sys.modules.get("mlx.core") is not None:
        QuietReporter().warn(
            "mlx was imported before ster could set MLX_ENABLE_TF32=0, so f32 may mean "
            "TF32 in this process: use ster first, or set it before mlx is imported"
        )
