"""Taps around the layers of a model whose loop is not ster's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ster.errors import ConfigError

mx: Any = pytest.importorskip("mlx.core")
nn: Any = pytest.importorskip("mlx.nn")

from ster.decoder.mlx.taps import Taps  # noqa: E402

WIDTH = 4
SHAPE = (2, 3)


class Layer(nn.Module):  # type: ignore[misc] # mlx has no types for it
    """Adds one; ``kind`` is asked for by a model's loop."""

    kind = "plain"

    def __init__(self) -> None:
        super().__init__()
        self.weight = mx.ones((WIDTH,))

    def __call__(self, hidden: Any, mask: Any = None, *, extra: Any = None) -> Any:
        return hidden + self.weight


class Pair(Layer):
    def __call__(self, hidden: Any, mask: Any = None, *, extra: Any = None) -> Any:
        return hidden + self.weight, "keys"


def refuse(cause: str) -> ConfigError:
    return ConfigError("refused", cause)


def tapped(layers: list[Any]) -> Taps:
    return Taps(layers, WIDTH, refuse)


def start() -> Any:
    return mx.zeros((*SHAPE, WIDTH))


def test_a_stream_is_read_after_its_layer_and_before_it_is_steered():
    layers = [Layer() for _ in range(3)]
    taps = tapped(layers)
    vector = mx.array([10.0, 0, 0, 0])
    with taps.passing(SHAPE, layers=(0, 1, 2), vectors={1: vector}) as streams:
        hidden = start()
        for layer in layers:
            hidden = layer(hidden, None)
    assert np.array(streams[0])[0, 0].tolist() == [1, 1, 1, 1]
    assert np.array(streams[1])[1, 2].tolist() == [2, 2, 2, 2]
    assert np.array(streams[2])[1, 0].tolist() == [13, 3, 3, 3]
    assert np.array(hidden)[0, 0].tolist() == [13, 3, 3, 3]


def test_what_a_layer_returns_beside_the_stream_stays():
    layers = [Pair(), Pair()]
    taps = tapped(layers)
    vector = mx.ones((WIDTH,))
    with taps.passing(SHAPE, layers=(1,), vectors={0: vector}) as streams:
        hidden, keys = layers[0](start())
        layers[1](hidden, extra=keys)
    assert keys == "keys"
    assert np.array(streams[1])[0, 0].tolist() == [3, 3, 3, 3]


def test_a_stream_keeps_its_width_when_it_is_steered():
    layer = Layer()
    layer.weight = layer.weight.astype(mx.float16)
    taps = tapped([layer])
    vector = mx.ones((WIDTH,))
    with taps.passing(SHAPE, vectors={0: vector}):
        hidden = layer(start().astype(mx.float16))
    assert hidden.dtype == mx.float16


def test_a_tapped_layer_stays_what_it_was():
    layer = Layer()
    tapped([layer])
    assert isinstance(layer, Layer)
    assert layer.kind == "plain"
    assert list(layer.parameters()) == ["weight"]
    assert type(layer).__name__ == "Layer"


def test_one_pass_leaves_nothing_to_the_next():
    layers = [Layer()]
    taps = tapped(layers)
    with taps.passing(SHAPE, layers=(0,), vectors={0: mx.ones((WIDTH,))}):
        layers[0](start())
    with taps.passing(SHAPE) as streams:
        hidden = layers[0](start())
    assert streams == {}
    assert np.array(hidden)[0, 0].tolist() == [1, 1, 1, 1]


def in_order(layers: list[Any]) -> None:
    hidden = start()
    for layer in layers:
        hidden = layer(hidden)


def twice(layers: list[Any]) -> None:
    in_order(layers)
    layers[1](start())


def out_of_order(layers: list[Any]) -> None:
    layers[1](start())


def without_the_last(layers: list[Any]) -> None:
    layers[0](start())


def changed_between(layers: list[Any]) -> None:
    layers[1](layers[0](start()) * 2)


def with_many_streams(layers: list[Any]) -> None:
    layers[0](mx.zeros((3, *SHAPE, WIDTH)))


@pytest.mark.parametrize(
    ("loop", "cause"),
    [
        (twice, "it runs layer 1 more than once"),
        (out_of_order, "it runs layer 1 before layer 0"),
        (without_the_last, "it leaves out layer 1"),
        (changed_between, "layer 1 is not given what layer 0 returns"),
        (with_many_streams, "layer 0 returns an array of shape (3, 2, 3, 4)"),
    ],
)
def test_a_model_without_one_stream_is_refused(
    loop: Callable[[list[Any]], None], cause: str
):
    layers = [Layer(), Layer()]
    taps = tapped(layers)
    with pytest.raises(ConfigError) as refused, taps.passing(SHAPE):
        loop(layers)
    assert refused.value.causes[0].startswith(cause)
    # And the taps are free again.
    with taps.passing(SHAPE):
        in_order(layers)


def test_a_layer_that_stands_in_the_list_twice_is_refused():
    layer = Layer()
    with pytest.raises(ConfigError) as refused:
        tapped([layer, layer])
    assert refused.value.causes == ("it runs the same layer more than once",)
