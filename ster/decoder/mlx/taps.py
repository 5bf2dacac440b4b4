"""Taps around the layers of a model whose loop is not ster's own.

A layer keeps its weights, its attributes and its place in the model's list; only its
class becomes one whose call goes past a ``Taps``, which sees what the layer is given
and what it returns, and may add to that. Whether there is one residual stream, handed
from layer to layer, is checked at every pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from ster.errors import ConfigError

Change = Callable[[int, mx.array], mx.array]


class Taps:
    """The taps of one model; one pass at a time goes through them.

    Args:
        layers: The model's own modules, in order. They are changed.
        hidden_size: Width of the residual stream.
        refuse: Makes the refusal of a model whose stream is not there to be read.
    """

    def __init__(
        self,
        layers: Sequence[Any],
        hidden_size: int,
        refuse: Callable[[str], ConfigError],
    ) -> None:
        self._hidden_size = hidden_size
        self._refuse = refuse
        self._num_layers = len(layers)
        self._lock = threading.Lock()  # threads may share a runtime
        self._done = 0
        self._handed: mx.array | None = None
        self._shape: tuple[int, ...] = ()
        self._wanted: Collection[int] = ()
        self._vectors: Mapping[int, mx.array] = {}
        self._change: Change | None = None
        self._streams: dict[int, mx.array] = {}
        if len({id(layer) for layer in layers}) < len(layers):
            raise refuse("it runs the same layer more than once")
        for index, layer in enumerate(layers):
            _tap(layer, index, self)

    @contextmanager
    def passing(
        self,
        shape: tuple[int, ...],
        *,
        layers: Collection[int] = (),
        vectors: Mapping[int, mx.array] | None = None,
        change: Change | None = None,
    ) -> Iterator[dict[int, mx.array]]:
        """Let one pass through.

        Args:
            shape: Of the token ids that the model is called with.
            layers: Whose output is kept.
            vectors: Added after their layer, once that has been read.
            change: Takes a layer and the stream after it, and returns another stream.

        Yields:
            The kept streams, (batch, num_tokens, hidden_size), when it is over.

        Raises:
            ConfigError: Its layers do not hand one residual stream on.
        """
        with self._lock:
            self._done, self._handed = 0, None
            self._shape = (*shape, self._hidden_size)
            self._wanted, self._vectors = layers, vectors or {}
            self._change = change
            streams: dict[int, mx.array] = {}
            self._streams = streams
            try:
                yield streams
                if self._done < self._num_layers:
                    raise self._refuse(f"it leaves out layer {self._done}")
            finally:
                self._handed, self._streams, self._vectors = None, {}, {}
                self._change = None

    def take(self, index: int, given: Sequence[Any], output: Any) -> Any:
        """Look at one layer's call, and return its output, steered."""
        if index < self._done:
            raise self._refuse(f"it runs layer {index} more than once")
        if index > self._done:
            raise self._refuse(f"it runs layer {index} before layer {self._done}")
        self._done += 1
        self._check_given(index, given)
        hidden = output[0] if isinstance(output, (tuple, list)) else output
        self._check_shape(index, hidden)
        if index in self._wanted:
            self._streams[index] = hidden
        if index in self._vectors:
            # In the stream's own width, or it would be widened from here on.
            hidden = hidden + self._vectors[index].astype(hidden.dtype)
        if self._change is not None:
            hidden = self._change(index, hidden)
        self._handed = hidden
        if isinstance(output, (tuple, list)):
            return type(output)((hidden, *output[1:]))
        return hidden

    def _check_given(self, index: int, given: Sequence[Any]) -> None:
        if self._handed is None or any(each is self._handed for each in given):
            return
        raise self._refuse(f"layer {index} is not given what layer {index - 1} returns")

    def _check_shape(self, index: int, hidden: Any) -> None:
        shape = tuple(hidden.shape) if isinstance(hidden, mx.array) else None
        if shape != self._shape:
            found = "no array" if shape is None else f"an array of shape {shape}"
            raise self._refuse(
                f"layer {index} returns {found}, not one stream of shape {self._shape}"
            )


def _tap(layer: Any, index: int, taps: Taps) -> None:
    kind = type(layer)

    def call(self: Any, *args: Any, **named: Any) -> Any:
        output = kind.__call__(self, *args, **named)
        return taps.take(index, (*args, *named.values()), output)

    layer.__class__ = type(kind.__name__, (kind,), {"__call__": call})
