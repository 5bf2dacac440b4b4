"""What MLX raises where a command fails on the device, as refusals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from ster.errors import CapacityError, DeviceError

# What says that memory was short: MLX's allocators, CUDA, and Metal's command buffers.
_NO_MEMORY = ("allocate", "malloc", "out of memory", "insufficient memory")


@contextmanager
def device_failures() -> Iterator[None]:
    """Turn what MLX raises where a command fails into a refusal.

    Raises:
        CapacityError: There was no memory for it.
        DeviceError: It failed for another reason.
    """
    try:
        yield
    except RuntimeError as error:
        words = str(error).lower()
        if any(each in words for each in _NO_MEMORY):
            sentence = "the device has no memory left for this run"
            way = "allow less with --memory, so that the run is cut smaller"
            raise CapacityError(sentence, error, way) from error
        raise DeviceError("the device failed while it computed", error) from error


def wait_for(device: mx.Device) -> None:
    """Wait until a device has done all that this thread asked of it.

    Metal may say of a command only now that it failed: an evaluation waits for the last
    of its commands, and may miss what an earlier one says (ml-explore/mlx#4174).

    Raises:
        CapacityError: As for ``device_failures``.
        DeviceError: Likewise.
    """
    with device_failures():
        mx.synchronize(mx.default_stream(device))
