"""One loaded checkpoint: what notebooks hold, and what the commands go through.

Everything that can be refused without mapping a weight is refused before one is mapped:
loading reads config, tokenizer and template, and the weights wait for a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.config import DecoderConfig, read_config
from ster.checkpoint.resolve import CheckpointFiles, open_files
from ster.checkpoint.tensors import PREFIX, extraction_shapes
from ster.checkpoint.tokenizer import Encoder, load_encoder
from ster.checkpoint.weights import open_weights
from ster.decoder.contract import Decoder
from ster.decoder.devices import DEVICES, MLX_CPU, check_device, implementation
from ster.decoder.rope import rotary_length
from ster.documents.activations import Activations, ActivationWriter
from ster.documents.prompts import check_prompts
from ster.errors import NumericsError, PromptError
from ster.extraction import extract_rows
from ster.layers import Layers, select_layers
from ster.memory import free_memory, held_memory
from ster.plan import ExtractionPlan, plan_extraction
from ster.reporting import Progress, QuietReporter, Reporter

__all__ = ["Runtime", "check_device", "load", "open_runtime"]


def load(
    model: str | os.PathLike[str],
    *,
    device: str = "cpu",
    precision: str = "f32",
    chat_template: str = "auto",
    revision: str | None = None,
    memory: int | None = None,
    reporter: Reporter | None = None,
) -> Runtime:
    """Load a checkpoint.

    Args:
        model: A directory, or the id of a model on the Hugging Face Hub.
        device: ``cpu``, ``metal`` or ``cuda``; ``mlx-cpu`` is MLX without a GPU.
        precision: Width of weights and stream: ``f32``, ``f16``, or off cpu ``bf16``.
        chat_template: ``auto`` applies the model's own, ``off`` encodes raw text.
        revision: Branch, tag or commit on the Hub.
        memory: Bytes that the process may take; by default a share of what is free.
        reporter: Hears of notes and progress; by default warnings become Python's.

    Raises:
        SterError: Whatever can be refused before the weights are mapped.
    """
    check_device(device, precision, known=(*DEVICES, MLX_CPU))
    return open_runtime(
        os.fspath(model),
        device=device,
        precision=precision,
        chat_template=chat_template,
        revision=revision,
        memory=memory,
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
    config = read_config(config_path)
    select_layers(layers, config.num_hidden_layers)
    return Runtime(
        files=files,
        config=config,
        encoder=load_encoder(files, chat_template, reporter),
        device=device,
        precision=precision,
        memory=memory,
        reporter=reporter,
        verbose=verbose,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """An extraction that is encoded and planned; nothing is mapped yet."""

    prompts: list[str]
    token_ids: list[list[int]]
    layers: tuple[int, ...]
    plan: ExtractionPlan


class Runtime:
    """A checkpoint that is ready to read residual streams. Made by ``load``.

    Example:
        >>> from ster import load, write_toy_checkpoint
        >>> write_toy_checkpoint("toy")
        >>> runtime = load("toy")
        >>> runtime.activations(["the sea is calm ."], layers=[0, 3]).array.shape
        (1, 2, 64)

    Attributes:
        config: What the decoder is.
        device: Where it computes.
        precision: The width of its weights and of its residual stream.
    """

    def __init__(
        self,
        *,
        files: CheckpointFiles,
        config: DecoderConfig,
        encoder: Encoder,
        device: str,
        precision: str,
        memory: int | None,
        reporter: Reporter,
        verbose: bool,
    ) -> None:
        self.config = config
        self.device = device
        self.precision = precision
        self._files = files
        self._encoder = encoder
        self._memory = memory
        self._reporter = reporter
        self._verbose = verbose
        # A resident decoder and the number of its blocks, kept from run to run.
        self._kept: tuple[int, Decoder[Any]] | None = None

    @property
    def model(self) -> str:
        """Return the model as it was named."""
        return self._files.model

    @property
    def model_revision(self) -> str | None:
        """Return the commit or the given revision that documents record."""
        return self._files.revision

    @property
    def chat_template(self) -> str:
        """Return what becomes of the template: applied, absent or off."""
        return self._encoder.chat_template

    def __repr__(self) -> str:
        """Show the model and how it runs."""
        config = self.config
        return (
            f"Runtime(model={self.model!r}, {config.model_type}, "
            f"{config.num_hidden_layers} layers, hidden_size={config.hidden_size}, "
            f"device={self.device!r}, precision={self.precision!r}, "
            f"chat_template={self.chat_template!r})"
        )

    def activations(
        self, prompts: Iterable[str], layers: Layers = "all"
    ) -> Activations:
        """Read the residual stream at the last token of every prompt.

        Args:
            prompts: Each becomes one user message under a chat template.
            layers: ``"all"``, a ``--layers`` value such as ``"0,8..12"``, an index, or
                indices. A row is read after that block, before the next.

        Returns:
            The rows in prompt order, with ``.array`` (num_prompts, num_layers,
            hidden_size) f32.

        Raises:
            SterError: A prompt, layer or weight is refused, or the run does not fit.
        """
        run = self._prepare(prompts, layers, keep=True)
        return Activations(
            array=np.concatenate([rows for _, rows in self._waves(run)]),
            layers=run.layers,
            prompts=tuple(run.prompts),
            model=self.model,
            model_revision=self.model_revision,
            hidden_size=self.config.hidden_size,
        )

    def write_activations(
        self,
        prompts: Iterable[str],
        output: str | os.PathLike[str],
        layers: Layers = "all",
    ) -> ExtractionPlan:
        """Read as ``activations`` does, into a document that grows beside its place.

        Memory does not grow with the number of prompts.

        Raises:
            SterError: As for ``activations``, or the output cannot be written. Then
                nothing is left behind and an old document stays as it was.
        """
        run = self._prepare(prompts, layers, keep=False)
        with ActivationWriter(
            output,
            model=self.model,
            model_revision=self.model_revision,
            hidden_size=self.config.hidden_size,
        ) as writer:
            for wave, rows in self._waves(run):
                for index, row in zip(wave, rows, strict=True):
                    writer.write(run.prompts[index], run.layers, row)
        return run.plan

    def _prepare(self, prompts: Iterable[str], layers: Layers, *, keep: bool) -> _Run:
        """Encode and plan, mapping nothing."""
        selected = select_layers(layers, self.config.num_hidden_layers)
        checked = check_prompts(prompts)
        token_ids = self._encoder.encode(checked)
        self._check_tokens(token_ids)
        footprint = implementation(self.device).footprint(
            self.config,
            precision=self.precision,
            longest_prompt=max(map(len, token_ids)),
        )
        held_bytes = held_memory()
        # Blocks kept from an earlier run are used again, or dropped for this one.
        kept_bytes = self._kept[0] * footprint.block_bytes if self._kept else 0
        plan = plan_extraction(
            token_ids,
            [rotary_length(self.config.rope, len(ids)) for ids in token_ids],
            num_blocks=selected[-1] + 1,
            num_layers=len(selected),
            footprint=footprint,
            held_bytes=held_bytes - kept_bytes,
            memory_bytes=self._memory_limit(held_bytes),
            keep_resident=keep,
        )
        if self._verbose:
            self._reporter.note(str(plan))
        return _Run(prompts=checked, token_ids=token_ids, layers=selected, plan=plan)

    def _memory_limit(self, held_bytes: int) -> int:
        """Return how many bytes the process may hold."""
        if self._memory is not None:
            return self._memory
        device_memory = implementation(self.device).device_memory()
        return held_bytes + min(free_memory(), device_memory)

    def _check_tokens(self, token_ids: Sequence[Sequence[int]]) -> None:
        """Refuse ids that the embedding lacks; warn past the trained length."""
        limit = self.config.max_position_embeddings
        for number, ids in enumerate(token_ids, start=1):
            if max(ids) >= self.config.vocab_size:
                raise PromptError(
                    f"failed to tokenize prompt: token id {max(ids)} of prompt {number}"
                    f" is outside the model's vocabulary of {self.config.vocab_size}"
                )
            if len(ids) > limit:
                self._reporter.warn(
                    f"prompt {number} has {len(ids)} tokens, more than the model's "
                    f"max_position_embeddings of {limit}; its later positions are past "
                    "what the model was trained on"
                )

    def _waves(self, run: _Run) -> Iterator[tuple[range, NDArray[np.float32]]]:
        """Run wave by wave; yield each wave's prompts and their rows."""
        decoder = self._decoder(run.plan)
        for number, wave in enumerate(run.plan.waves):
            token_ids = [run.token_ids[index] for index in wave]
            on_block = partial(self._report, run.plan, number)
            rows = extract_rows(decoder, token_ids, run.layers, on_block)
            self._check_finite(rows, wave, run.layers)
            yield wave, rows

    def _decoder(self, plan: ExtractionPlan) -> Decoder[Any]:
        """Map the weights of the plan's blocks, or take the blocks that were kept."""
        if self._kept and self._kept[0] >= plan.num_blocks and plan.resident:
            return self._kept[1]
        self._kept = None
        shapes = extraction_shapes(self.config, range(plan.num_blocks))
        # A checkpoint saved without its head has no prefix; the index tells.
        names = [*shapes, *(PREFIX + name for name in shapes)]
        decoder = implementation(self.device).open_decoder(
            self.config,
            open_weights(self._files.weight_files(names), shapes),
            device=self.device,
            precision=self.precision,
            resident=plan.resident,
        )
        if plan.resident:
            self._kept = plan.num_blocks, decoder
        return decoder

    def _report(self, plan: ExtractionPlan, wave: int, layer: int) -> None:
        """Say how far the run is; a wave in work counts by the blocks it has passed."""
        share = (layer + 1) / plan.num_blocks
        done = plan.waves[wave].start + int(len(plan.waves[wave]) * share)
        tokens = sum(plan.wave_tokens[:wave]) + int(plan.wave_tokens[wave] * share)
        self._reporter.progress(
            Progress(
                prompts_done=done,
                num_prompts=plan.waves[-1].stop,
                layer=layer,
                num_layers=plan.num_blocks,
                tokens_done=tokens,
                num_tokens=plan.num_tokens,
            )
        )

    def _check_finite(
        self, rows: NDArray[np.float32], wave: range, layers: Sequence[int]
    ) -> None:
        finite = np.isfinite(rows).all(axis=-1)
        if finite.all():
            return
        prompt, layer = np.argwhere(~finite)[0]
        sentence = (
            f"layer {layers[layer]} of prompt {wave[prompt] + 1} is not finite at "
            f"--precision {self.precision}"
        )
        if self.precision == "f32":
            raise NumericsError(sentence, "the checkpoint's own weights lead there")
        wider = self.precision == "f16" and self.device != "cpu"
        raise NumericsError(f"{sentence}; use f32{' or bf16' if wider else ''}")
