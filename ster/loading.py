"""From a model's name to a ``Runtime``.

Everything that can be refused without mapping a weight is refused before one is mapped:
loading reads config, tokenizer and template, and the weights wait for a run.
"""

from __future__ import annotations

import os

from ster.architecture.config import read_config
from ster.checkpoint.resolve import open_files
from ster.checkpoint.tokenizer import load_encoder
from ster.decoder.devices import DEVICES, MLX_CPU, check_device
from ster.decoder.memory import parse_memory
from ster.layers import Layers, select_layers
from ster.reporting import QuietReporter, Reporter
from ster.runs.session import Session
from ster.runtime import Runtime

__all__ = ["check_device", "load", "open_runtime"]


def load(
    model: str | os.PathLike[str],
    *,
    device: str = "cpu",
    precision: str = "f32",
    chat_template: str = "auto",
    revision: str | None = None,
    memory: str | int | None = None,
    reporter: Reporter | None = None,
) -> Runtime:
    """Load a checkpoint.

    Args:
        model: A directory, or the id of a model on the Hugging Face Hub.
        device: ``cpu``, ``metal`` or ``cuda``; ``mlx-cpu`` is MLX without a GPU.
        precision: Width of weights and stream: ``f32``, ``f16``, or off cpu ``bf16``.
        chat_template: ``auto`` applies the model's own, ``off`` encodes raw text.
        revision: Branch, tag or commit on the Hub.
        memory: Bytes that the process may take, or a size such as ``4G``; by default a
            share of what is free.
        reporter: Hears of notes and progress; by default warnings become Python's.

    Raises:
        SterError: Whatever can be refused before the weights are mapped.
    """
    limit = None if memory is None else parse_memory(memory)
    check_device(device, precision, known=(*DEVICES, MLX_CPU))
    return open_runtime(
        os.fspath(model),
        device=device,
        precision=precision,
        chat_template=chat_template,
        revision=revision,
        memory=limit,
        reporter=QuietReporter() if reporter is None else reporter,
    )


def open_runtime(
    model: str,
    *,
    device: str,
    precision: str,
    chat_template: str,
    revision: str | None,
    reporter: Reporter,
    memory: int | None = None,
    layers: Layers = "all",
    verbose: bool = False,
) -> Runtime:
    """Load a checkpoint whose device is checked, and a selection of layers with it.

    The commands call this: their layers are refused after the config is read and before
    the tokenizer is.

    Raises:
        SterError: As for ``load``; and ``layers`` does not suit the model.
    """
    files = open_files(model, revision)
    config_path = files.require_config()
    files.require_tokenizer()
    files.check_weights()
    spec = read_config(config_path)
    select_layers(layers, spec.num_hidden_layers)
    return Runtime(
        Session(
            files=files,
            spec=spec,
            encoder=load_encoder(files, chat_template, reporter),
            device=device,
            precision=precision,
            memory=memory,
            reporter=reporter,
            verbose=verbose,
        )
    )
