"""The wide path: families that ster does not own, run by mlx-lm's own modules.

The only file that imports mlx_lm, which takes seconds, so it is imported late. Rows are
what mlx-lm computes; ``architecture.wide_families`` says for which families they were
checked.
"""

from __future__ import annotations

import inspect
import os
import resource
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from ster.architecture.wide import (
    WideSpec,
    check_config,
    check_read,
    inner_config,
    normalise_config,
    read_length,
)
from ster.checkpoint.weight_file import WeightFile
from ster.decoder.contract import Footprint
from ster.decoder.devices import MLX_CPU
from ster.decoder.mlx.decoder import DTYPES, check_available, device_memory
from ster.decoder.mlx.taps import Taps
from ster.decoder.mlx.weights import device_failures
from ster.decoder.whole import F32, Deltas, WholeModel, WholeWeights
from ster.errors import ConfigError, SterError, WeightsError
from ster.stream.packing import Tokens

__all__ = ["check_available", "device_memory"]

# Rows of logits that are widened at once.
LOGIT_ROWS = 32


class NoMLXLM(Exception):
    """mlx-lm is not installed, or does not have the family.

    Args:
        sentence: What is missing.
        installed: mlx-lm itself is there.
    """

    def __init__(self, sentence: str, *, installed: bool) -> None:
        super().__init__(sentence)
        self.installed = installed


@cache
def import_mlx_lm() -> Any:
    """Import mlx-lm without what its import does to the process.

    Raises:
        NoMLXLM: It is not installed.
    """
    # It lowers the process's limit of open files.
    keep, told = resource.setrlimit, os.environ.get("TRANSFORMERS_VERBOSITY")
    resource.setrlimit = lambda *_: None  # type: ignore[assignment]
    # transformers would say on stderr that there is no torch.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import mlx_lm
        import mlx_lm.models.cache
        import mlx_lm.utils
    except ImportError as error:
        raise NoMLXLM(str(error), installed=False) from error
    finally:
        resource.setrlimit = keep
        if told is None:
            os.environ.pop("TRANSFORMERS_VERBOSITY", None)
    return mlx_lm


def version() -> str:
    """Return mlx-lm's version."""
    return str(import_mlx_lm().__version__)


def read_wide(document: Mapping[str, Any], path: str) -> WideSpec:
    """Turn config.json of a family that mlx-lm has into what ster needs to know.

    The model is built, without weights, and passed through once without computing
    anything, so that a stream that cannot be read is refused here.

    Raises:
        NoMLXLM: mlx-lm is not installed, or does not have the family.
        ConfigError: A field is refused, or there is no stream to be read.
    """
    import_mlx_lm()
    check_config(document, path)
    config = normalise_config(document, path)
    model = make_model(config, path)
    values = inner_config(config)
    args = find_args(model)
    reads = inspect.signature(type(args)).parameters.keys()
    window = check_read(values, reads, path)
    layers = find_layers(model, path)
    shapes = _shapes(model)
    first = _embedding(model)
    vocab_size, hidden_size = first.weight.shape
    spec = WideSpec(
        model_type=str(config["model_type"]),
        hidden_size=int(hidden_size),
        vocab_size=int(vocab_size),
        num_hidden_layers=len(layers),
        max_position_embeddings=min(read_length(values), window or 2**31 - 1),
        max_tokens=window,
        config=config,
        path=path,
        num_values=sum(map(_size, shapes)),
        layer_values=max(sum(map(_size, _shapes(layer))) for layer in layers),
        token_values=max(map(_token_values, layers)) + 24 * int(hidden_size),
        cache_values=len(layers) * _key_values(values, int(hidden_size)),
        num_heads=int(values.get("num_attention_heads") or 1),
    )
    _try_layers(model, spec)
    return spec


def make_model(config: Mapping[str, Any], path: str) -> nn.Module:
    """Build mlx-lm's module for a config, its weights still to come.

    Raises:
        NoMLXLM: mlx-lm does not have the family.
        ConfigError: It does not take the config.
    """
    family = str(config["model_type"])
    try:
        kind, args = import_mlx_lm().utils._get_classes(dict(config))
    except (ValueError, AttributeError, TypeError, ImportError) as error:
        sentence = f"mlx-lm {version()} does not have {family} either"
        raise NoMLXLM(sentence, installed=True) from error
    try:
        model: nn.Module = kind(args.from_dict(dict(config)))
    except Exception as error:  # whatever a family's code trips over
        raise ConfigError(
            f"invalid {family} config {path}",
            f"mlx-lm's {family} does not take it",
            f"{type(error).__name__}: {error}",
            path=path,
        ) from error
    return model


def find_args(model: nn.Module) -> Any:
    """Return the fields that the language model was made from."""
    for name in ("language_model", "model"):
        inner = getattr(model, name, None)
        if name == "language_model" and hasattr(inner, "args"):
            return inner.args
    return getattr(model, "args", getattr(model, "config", model))


def find_layers(model: Any, path: str) -> list[nn.Module]:
    """Return the model's own layers, in the order in which it runs them.

    Raises:
        ConfigError: They are no list of modules.
    """
    layers = getattr(model, "layers", None)
    if layers and all(isinstance(layer, nn.Module) for layer in layers):
        return list(layers)
    raise _untapped(str(getattr(model, "model_type", "")), path)("it lists no layers")


def _untapped(family: str, path: str) -> Callable[[str], ConfigError]:
    def refuse(cause: str) -> ConfigError:
        return ConfigError(
            f"the residual stream of {family} cannot be read: {cause} in mlx-lm "
            f"{version()}",
            "there is no single stream that each layer hands on to the next; use a "
            "checkpoint of another family",
            path=path,
            field="model_type",
            found=family,
        )

    return refuse


def _try_layers(model: nn.Module, spec: WideSpec) -> None:
    """Pass through once; nothing is computed, since nothing is asked of the result."""
    layers = find_layers(model, spec.path)
    taps = Taps(layers, spec.hidden_size, _untapped(spec.model_type, spec.path))
    caches: Any = import_mlx_lm().models.cache
    try:
        with taps.passing((1, 2)):
            model(mx.array([[0, 1]]))
        with taps.passing((1, 2)):
            model(mx.array([[0, 1]]), cache=caches.make_prompt_cache(model))
    except SterError:
        raise
    except Exception as error:  # whatever a family's code trips over
        cause = f"its own code fails ({type(error).__name__}: {error})"
        raise _untapped(spec.model_type, spec.path)(cause) from error


def _embedding(model: nn.Module) -> Any:
    kinds = (nn.Embedding, nn.QuantizedEmbedding)
    found = [m for _, m in model.named_modules() if isinstance(m, kinds)]
    # The largest; others are of positions, or belong to single layers.
    return max(found, key=lambda each: each.weight.shape[-2])


def _shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for _, each in tree_flatten(module.parameters())]


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _token_values(layer: nn.Module) -> int:
    """Count generously what a token has in a layer: every product's row, four times."""
    # Of stacked experts, a token goes through few; each of 16 is counted.
    rows = [
        min(_size(shape[:-2]), 16) * shape[-2]
        for shape in _shapes(layer)
        if len(shape) > 1
    ]
    return 4 * sum(rows)


def _key_values(values: Mapping[str, Any], hidden_size: int) -> int:
    heads = int(values.get("num_attention_heads") or 1)
    kv_heads = int(values.get("num_key_value_heads") or heads)
    head_dim = int(values.get("head_dim") or hidden_size // heads)
    return 2 * max(kv_heads * head_dim, hidden_size)


def footprint(model: WideSpec, *, precision: str, longest_prompt: int) -> Footprint:
    """Count what the model takes: all weights, and generously what is computed."""
    width = DTYPES[precision].size
    weight = float(width)
    if (quantization := model.config.get("quantization")) is not None:
        bits, group = quantization.get("bits", 8), quantization.get("group_size", 32)
        weight = max(1.0, bits / 8 + 8 / group)
    embedding = 2 * width * model.vocab_size * model.hidden_size
    weights = int(weight * model.num_values) + (embedding if weight < width else 0)
    # A layer as stored, and as it becomes, while weights are read.
    opening = (width + 4) * model.layer_values
    scores = 8 * longest_prompt * model.num_heads
    return Footprint(
        # They come and go together.
        blocks=(0,) * model.num_hidden_layers,
        open_bytes=0,
        head_bytes=0,
        token_bytes=4 * model.token_values + scores,
        key_bytes=8,
        row_bytes=4 * model.hidden_size,
        logit_bytes=28 * model.vocab_size,
        cache_bytes=4 * model.cache_values,
        fixed_bytes=weights + opening,
    )


def hold_weights(model: WideSpec, *, device: str, precision: str) -> MLXLMWeights:
    """Make what will hold the model's weights."""
    place = mx.Device(mx.cpu if device == MLX_CPU else mx.gpu)
    return MLXLMWeights(model, DTYPES[precision], place)


def open_decoder(weights: MLXLMWeights, *, keep: bool) -> MLXLMModel:
    """Open the model for one run."""
    return MLXLMModel(weights, keep=keep)


class MLXLMWeights(WholeWeights):
    """mlx-lm's module with its weights; see ``contract.Weights``.

    Args:
        model: What the model is.
        dtype: The width of weights and stream.
        device: Where everything runs.
    """

    names: Collection[str] = ()

    def __init__(self, model: WideSpec, dtype: mx.Dtype, device: mx.Device) -> None:
        self.spec = model
        self.device = device
        self._dtype = dtype
        self._files: Sequence[Path] = ()
        self._making = threading.Lock()
        self._made: tuple[Any, Taps] | None = None

    @property
    def held_bytes(self) -> int:
        """Return the memory of the weights, where they are there."""
        if self._made is None:
            return 0
        return sum(each.nbytes for _, each in tree_flatten(self._made[0].parameters()))

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
        spec = self.spec
        model: Any = make_model(spec.config, spec.path)
        opened = _check_files(self._files)
        weights: dict[str, mx.array] = {}
        for file in self._files:
            weights |= mx.load(str(file), format="safetensors")  # type: ignore[arg-type]
        try:
            _fill(model, weights, spec.config, self._dtype)
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            raise self._unfit(error) from error
        layers = find_layers(model, spec.path)
        # Layer by layer, or all of them would be there as stored and as converted.
        for layer in layers:
            mx.eval(layer.parameters())
        mx.eval(model.parameters())
        for each in opened:
            each.check_unchanged()
        refuse = _untapped(spec.model_type, spec.path)
        return model, Taps(layers, spec.hidden_size, refuse)

    def _unfit(self, error: Exception) -> WeightsError:
        return WeightsError(
            f"failed to map {len(self._files)} model weight files",
            f"they do not hold what mlx-lm's {self.spec.model_type} reads",
            _first_line(error),
        )


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


def _fill(
    model: Any, weights: dict[str, mx.array], config: Mapping[str, Any], dtype: mx.Dtype
) -> None:
    """Give the module its weights, as mlx-lm's own loading does; nothing is read yet."""
    if hasattr(model, "sanitize"):
        weights = model.sanitize(weights)
    quantization = config.get("quantization")
    if quantization is not None:

        def is_quantized(name: str, module: Any) -> Any:
            if name in quantization:
                return quantization[name]
            return hasattr(module, "to_quantized") and f"{name}.scales" in weights

        nn.quantize(
            model,
            group_size=quantization["group_size"],
            bits=quantization["bits"],
            mode=quantization.get("mode", "affine"),
            class_predicate=is_quantized,
        )
    casts = getattr(model, "cast_predicate", lambda _: True)
    for name, values in weights.items():
        if mx.issubdtype(values.dtype, mx.floating):
            wide = dtype if casts(name) else mx.float32
            weights[name] = values.astype(wide)
    model.eval()
    model.load_weights(list(weights.items()), strict=True)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines() or [type(error).__name__]
    return text[0] if len(text) == 1 else f"{text[0]} {text[1]}"


class MLXLMModel(WholeModel):
    """A model of mlx-lm at work in one run; see ``WholeModel``.

    Args:
        weights: What is held of the checkpoint.
        keep: The weights stay when the run is over.
    """

    def __init__(self, weights: MLXLMWeights, *, keep: bool) -> None:
        self._weights = weights
        self._keep = keep

    def read_rows(
        self,
        prompts: Sequence[Tokens],
        layers: Sequence[int],
        deltas: Deltas,
        on_block: Callable[[int], None],
    ) -> F32:
        """Read prompt by prompt; what is above the top layer is never computed."""
        width = self._weights.spec.hidden_size
        read = np.empty((len(prompts), len(layers), width), np.float32)
        with self._working():
            vectors = _bring(deltas)
            for number, ids in enumerate(prompts):
                _, streams = self._run(ids, layers=layers, vectors=vectors)
                rows = [streams[layer][0, -1].astype(mx.float32) for layer in layers]
                read[number] = np.array(mx.stack(rows))
        on_block(layers[-1])
        return read

    def score_responses(
        self, responses: Sequence[Tokens], deltas: Deltas
    ) -> list[float]:
        """Score response by response."""
        with self._working():
            vectors = _bring(deltas)
            return [
                _score(self._run(ids, vectors=vectors)[0][0], ids) for ids in responses
            ]

    def write_tokens(
        self,
        prompt: Tokens,
        *,
        deltas: Deltas,
        sample: Callable[[F32], int],
        stop_ids: Collection[int],
        max_new_tokens: int,
    ) -> Iterator[int]:
        """Write with mlx-lm's own cache."""
        limit = self._weights.spec.max_position_embeddings - len(prompt)
        with self._working():
            model, _ = self._weights.take()
            caches = import_mlx_lm().models.cache.make_prompt_cache(model)
            vectors = _bring(deltas)
        following = prompt
        for _ in range(min(max_new_tokens, limit)):
            with self._working():
                logits, _ = self._run(following, vectors=vectors, cache=caches)
                row = np.array(logits[0, -1].astype(mx.float32))
            token = sample(row)
            if token in stop_ids:
                return
            yield token
            following = [token]

    def close(self) -> None:
        """Let go of the weights, unless they stay."""
        if not self._keep:
            self._weights.release()

    @contextmanager
    def _working(self) -> Iterator[None]:
        with mx.stream(self._weights.device), device_failures():
            yield

    def _run(
        self,
        token_ids: Tokens,
        *,
        layers: Collection[int] = (),
        vectors: Mapping[int, mx.array],
        cache: Any = None,
    ) -> tuple[mx.array, dict[int, mx.array]]:
        """Pass tokens through; nothing is computed yet."""
        model, taps = self._weights.take()
        ids = mx.array(np.asarray(token_ids, np.int32)[None])
        told = {} if cache is None else {"cache": cache}
        shape = (1, len(token_ids))
        with taps.passing(shape, layers=layers, vectors=vectors) as streams:
            logits = model(ids, **told)
        return logits, streams


def _bring(deltas: Deltas) -> dict[int, mx.array]:
    return {layer: mx.array(delta) for layer, delta in deltas.items()}


def _score(logits: mx.array, token_ids: Tokens) -> float:
    """Sum log-probabilities of (num_tokens, vocab_size) logits, a part at a time."""
    following, total = np.asarray(token_ids[1:], np.int64), 0.0
    mx.eval(logits)
    for at in range(0, len(following), LOGIT_ROWS):
        chosen = following[at : at + LOGIT_ROWS]
        part = np.array(logits[at : at + len(chosen)].astype(mx.float32), np.float64)
        part -= part.max(axis=1, keepdims=True)
        picked = part[np.arange(len(chosen)), chosen]
        total += float((picked - np.log(np.exp(part).sum(axis=1))).sum())
    return total
