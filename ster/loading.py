"""From a model's name to a ``Runtime``.

Everything that can be refused without opening a weight is refused before one is opened:
loading reads config, tokenizer and template, and the first run maps the weights.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ster.architecture.config import is_owned, read_document, resolve_config
from ster.architecture.spec import ModelSpec
from ster.architecture.wide import WideSpec
from ster.checkpoint.encoder import Encoder
from ster.checkpoint.resolve import CheckpointFiles, open_files
from ster.checkpoint.tokenizer import load_encoder
from ster.decoder.devices import (
    AUTO,
    DEVICES,
    MLX_CPU,
    TRANSLATED,
    check_device,
    choose_device,
    is_translated,
)
from ster.decoder.memory import parse_memory
from ster.decoder.wide import open_wide
from ster.errors import UsageError
from ster.layers import Layers, select_layers
from ster.notebook import NotebookReporter, is_notebook
from ster.reporting import QuietReporter, Reporter
from ster.runs.choice import ModelChoice
from ster.runs.session import Session
from ster.runtime import Runtime

__all__ = ["check_device", "load", "open_runtime"]


def load(
    model: str | os.PathLike[str],
    *,
    device: str = AUTO,
    precision: str = "f32",
    chat_template: str = "auto",
    template_args: Mapping[str, object] | None = None,
    revision: str | None = None,
    memory: str | int | None = None,
    reporter: Reporter | None = None,
    progress: bool | None = None,
) -> Runtime:
    """Load a checkpoint.

    Args:
        model: A directory, or the id of a model on the Hugging Face Hub.
        device: ``cpu``, ``metal`` or ``cuda``, or ``auto``, the best of these that is
            here; ``mlx-cpu`` is MLX without a GPU.
        precision: The width of weights, of what products take, and of keys and values:
            ``f32``, ``f16`` or, anywhere but on cpu, ``bf16``. The stream is f32.
        chat_template: ``auto`` applies the model's own, ``off`` encodes raw text.
        template_args: Variables of the template: ``{"enable_thinking": False}``.
        revision: Branch, tag or commit on the Hub.
        memory: Bytes that the process may take, or a size such as ``4G``; by default a
            share of what is free.
        reporter: Receives notes, warnings and progress. By default warnings become
            Python warnings, and the rest is dropped.
        progress: Whether a notebook shows how far a run is, with speed and time left;
            in a notebook it does unless a reporter is given.

    Raises:
        SterError: Whatever can be refused before the weights are opened.
    """
    if template_args is not None and not isinstance(template_args, Mapping):
        raise UsageError(
            "template_args must be values by name, such as {'enable_thinking': False}",
            field="template_args",
            found=template_args,
        )
    wanted, device = device, choose_device(device)
    choice = ModelChoice(
        model=os.fspath(model) if isinstance(model, os.PathLike) else model,
        revision=revision,
        device=device,
        precision=precision,
        chat_template=chat_template,
        template_args=dict(template_args or {}),
        memory=None if memory is None else parse_memory(memory),
    )
    check_device(device, precision, known=(*DEVICES, MLX_CPU))
    if reporter is None:
        shown = is_notebook() if progress is None else progress
        reporter = NotebookReporter() if shown else QuietReporter()
    if wanted == AUTO and is_translated():
        reporter.warn(TRANSLATED)
    return open_runtime(choice, reporter=reporter)


def open_runtime(
    choice: ModelChoice, *, reporter: Reporter, layers: Layers = "all"
) -> Runtime:
    """Load a checkpoint for a device that is checked already, and check layers too.

    The commands call this, so that wrong layers are refused after the config is read
    and before the tokenizer is.

    Raises:
        SterError: As for ``load``, or ``layers`` does not suit the model.
    """
    files = open_files(choice.model, choice.revision)
    config_path = files.require_config()
    files.require_tokenizer()
    files.check_weights()
    spec = _read_spec(config_path, choice, reporter)
    select_layers(layers, spec.num_hidden_layers)
    return Runtime(
        Session(
            files=files,
            spec=spec,
            encoder=_load_encoder(files, choice, reporter),
            choice=choice,
            reporter=reporter,
        )
    )


def _read_spec(
    path: Path, choice: ModelChoice, reporter: Reporter
) -> ModelSpec | WideSpec:
    """Read config.json; on a GPU, of families that ster does not own too."""
    document = read_document(path)
    if is_owned(document) or choice.device == "cpu":
        return resolve_config(document, str(path))
    return open_wide(
        document,
        str(path),
        reporter,
        device=choice.device,
        precision=choice.precision,
    )


def _load_encoder(
    files: CheckpointFiles, choice: ModelChoice, reporter: Reporter
) -> Encoder:
    told: dict[str, Any] = {}
    if choice.template_args:
        told["template_args"] = choice.template_args
    return load_encoder(files, choice.chat_template, reporter, **told)
