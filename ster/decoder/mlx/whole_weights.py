"""What is held of a checkpoint that runs as a whole: mlx-lm's module, filled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from ster.architecture.wide import WideSpec
from ster.checkpoint.weight_file import WeightFile
from ster.decoder.mlx.failures import device_failures
from ster.decoder.mlx.taps import Taps
from ster.decoder.mlx.whole_filling import fill
from ster.decoder.whole import WholeWeights
from ster.errors import WeightsError


class MLXWholeWeights(WholeWeights):
    """mlx-lm's module with its weights; see ``contract.Weights``.

    Args:
        spec: What the model is.
        dtype: The width of weights and stream.
        device: Where everything runs.
        make: Builds the module, without its weights.
        tap: Puts taps on its layers.
    """

    def __init__(
        self,
        spec: WideSpec,
        dtype: mx.Dtype,
        device: mx.Device,
        *,
        make: Callable[[], Any],
        tap: Callable[[Any], Taps],
    ) -> None:
        self.spec = spec
        self.device = device
        self._dtype = dtype
        self._make = make
        self._tap = tap
        self._files: Sequence[Path] = ()
        self._making = threading.Lock()
        self._made: tuple[Any, Taps] | None = None

    @property
    def held_bytes(self) -> int:
        """Return the memory of the weights, where they are there."""
        if self._made is None:
            return 0
        return sum(each.nbytes for each in flat_arrays(self._made[0]))

    def add(self, tensors: Mapping[str, Any]) -> None:
        """Take no tensors: the module reads the files itself."""

    def add_files(self, files: Sequence[Path]) -> None:
        """Give it the weight files."""
        self._files = files

    def release(self) -> None:
        """Let go of the weights."""
        self._made = None

    def take(self) -> tuple[Any, Taps]:
        """Return the module and its taps, reading its weights where that is needed.

        Raises:
            WeightsError: A file is damaged, or does not hold what the module needs.
        """
        with self._making:
            if self._made is None:
                with mx.stream(self.device), device_failures():
                    self._made = self._read()
            return self._made

    def _read(self) -> tuple[Any, Taps]:
        opened = _check_files(self._files)
        try:
            weights = _load(self._files)
            model = fill(self._make, weights, self.spec.config, self._dtype)
        except WeightsError as error:
            raise WeightsError(self._failed, error) from error
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise self._unfit(error) from error
        # Layer by layer, or all of them would be there as stored and as converted.
        for layer in model.layers:
            mx.eval(layer.parameters())
        # Its other arrays too, such as rotary angles: what waits to be computed belongs
        # to this thread.
        mx.eval([list(module.values()) for _, module in model.named_modules()])
        for each in opened:
            each.check_unchanged()
        return model, self._tap(model)

    @property
    def _failed(self) -> str:
        return f"failed to map {len(self._files)} model weight files"

    def _unfit(self, error: Exception) -> WeightsError:
        return WeightsError(
            self._failed,
            f"they do not hold what mlx-lm's {self.spec.model_type} reads",
            _first_line(error),
        )


def flat_arrays(module: Any) -> list[mx.array]:
    """List the arrays of a module."""
    flat: Any = tree_flatten(module.parameters())
    return [each for _, each in flat]


def _load(files: Sequence[Path]) -> dict[str, mx.array]:
    """Open all tensors; nothing is read yet.

    Raises:
        WeightsError: Two files have a tensor of the same name.
    """
    weights: dict[str, mx.array] = {}
    for file in files:
        opened: Any = mx.load(str(file), format="safetensors")
        if twice := sorted(opened.keys() & weights.keys()):
            raise WeightsError(
                f"the tensor {twice[0]} is in {file.name} and in another weight file",
                path=file,
                field=twice[0],
            )
        weights |= opened
    return weights


def _check_files(files: Sequence[Path]) -> list[WeightFile]:
    """Open the files, each a whole safetensors file.

    Raises:
        WeightsError: One is damaged.
    """
    opened = []
    try:
        for path in files:
            file = WeightFile.open(path)
            file.read_header()
            opened.append(file)
    except WeightsError as error:
        sentence = f"failed to map {len(files)} model weight files"
        raise WeightsError(sentence, error) from error
    return opened


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines() or [type(error).__name__]
    return text[0] if len(text) == 1 else f"{text[0]} {text[1]}"
