"""Refusals of devices, widths and sizes carry what was found and what was expected."""

from __future__ import annotations

import pytest

from ster.decoder.devices import DEVICES, PRECISIONS, check_device, not_built
from ster.decoder.memory import parse_memory
from ster.errors import DeviceError, SterError, UsageError


def facts(error: SterError) -> tuple[object, object, object]:
    return error.field, error.found, error.expected


def test_an_unknown_device_is_named_beside_those_that_are_known():
    with pytest.raises(UsageError) as refused:
        check_device("gpu", "f32")
    assert facts(refused.value) == ("device", "gpu", DEVICES)
    assert refused.value.causes == ("auto is the best of them that is here",)


def test_an_unknown_precision_is_named_beside_those_that_are_known():
    with pytest.raises(UsageError) as refused:
        check_device("cpu", "f64")
    assert facts(refused.value) == ("precision", "f64", PRECISIONS)


def test_a_precision_that_cpu_lacks_is_named_beside_those_that_it_has():
    with pytest.raises(DeviceError) as refused:
        check_device("cpu", "bf16")
    assert facts(refused.value) == ("precision", "bf16", ("f32", "f16"))


@pytest.mark.parametrize("name", ["metal", "cuda"])
def test_a_device_that_is_not_here_is_named(name: str):
    assert facts(not_built(name)) == ("device", name, "cpu")


@pytest.mark.parametrize("size", ["none", "-1", 0])
def test_a_size_of_memory_that_is_none_is_named(size: str | int):
    with pytest.raises(UsageError) as refused:
        parse_memory(size)
    assert (refused.value.field, refused.value.found) == ("memory", size)
    assert refused.value.expected is not None
