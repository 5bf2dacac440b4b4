"""Which decoder runs on which device; the one place that knows both implementations."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Protocol, cast

from ster.architecture.spec import ModelSpec
from ster.architecture.wide import WideSpec
from ster.decoder.contract import Decoder, DeviceMemory, Footprint, Weights
from ster.errors import DeviceError, UsageError
from ster.reporting import QuietReporter
from ster.text import quoted

DEVICES = ("cpu", "metal", "cuda")
PRECISIONS = ("f32", "f16", "bf16")
# MLX's own cpu backend: the MLX decoder where there is no GPU. No command knows it.
MLX_CPU = "mlx-cpu"
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
        raise UsageError(
            f"unknown device {quoted(device)}; expected cpu, metal, or cuda",
            field="device",
            found=device,
            expected=DEVICES,
        )
    if precision not in PRECISIONS:
        raise UsageError(
            f"unknown precision {quoted(precision)}; expected f32, f16, or bf16",
            field="precision",
            found=precision,
            expected=PRECISIONS,
        )
    if device == "cpu" and precision == "bf16":
        raise DeviceError(
            "bf16 has no CPU matmul kernel in this Candle build; use --precision f16 "
            "for half precision on cpu, or --device metal for bf16",
            field="precision",
            found=precision,
            expected=("f32", "f16"),
        )
    implementation(device).check_available(device)


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
    return DeviceError(
        sentence, _WAYS[device], field="device", found=device, expected="cpu"
    )


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
