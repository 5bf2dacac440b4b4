"""A checkpoint whose text side is loaded and whose weights wait for a run.

What reading and answering have in common: the files, the config, the encoder, where to
compute, how much memory there is, and the blocks that stay from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ster.architecture.config import DecoderConfig
from ster.architecture.tensors import (
    PREFIX,
    Shapes,
    extraction_shapes,
    generation_shapes,
)
from ster.checkpoint.resolve import CheckpointFiles
from ster.checkpoint.tokenizer import Encoder
from ster.checkpoint.weights import open_weights
from ster.decoder.contract import Decoder
from ster.decoder.devices import implementation
from ster.errors import PromptError
from ster.reporting import Reporter
from ster.runs.memory import free_memory, held_memory
from ster.runs.plan import Budget


@dataclass(slots=True, kw_only=True)
class LoadedModel:
    """What a ``Runtime`` holds; see there for the words.

    Args:
        files: The checkpoint's files.
        config: What the decoder is.
        encoder: Text to token ids.
        device: Where to compute.
        precision: Width of weights and residual stream.
        memory: Bytes that the process may hold; None is a share of what is free.
        reporter: Hears of notes and progress.
        verbose: Say how a run is planned.
    """

    files: CheckpointFiles
    config: DecoderConfig
    encoder: Encoder
    device: str
    precision: str
    memory: int | None
    reporter: Reporter
    verbose: bool = False
    # A resident decoder, kept from run to run, and the tensors that it has.
    _kept: tuple[frozenset[str], Decoder[Any]] | None = field(default=None, init=False)

    @property
    def keeps_blocks(self) -> bool:
        """Tell whether blocks are kept from an earlier run."""
        return self._kept is not None

    def budget(self, longest_prompt: int, num_layers: int) -> Budget:
        """Say what a run takes and may take.

        Args:
            longest_prompt: In tokens.
            num_layers: Layers whose rows are kept.
        """
        footprint = implementation(self.device).footprint(
            self.config, precision=self.precision, longest_prompt=longest_prompt
        )
        held_bytes = held_memory()
        if self.memory is not None:
            memory_bytes = self.memory
        else:
            device_memory = implementation(self.device).device_memory()
            memory_bytes = held_bytes + min(free_memory(), device_memory)
        return Budget(
            footprint=footprint,
            num_layers=num_layers,
            # A run takes the kept blocks over.
            held_bytes=held_bytes - self._num_kept() * footprint.block_bytes,
            memory_bytes=memory_bytes,
        )

    def _num_kept(self) -> int:
        names = self._kept[0] if self._kept is not None else ()
        return len({name.split(".")[1] for name in names if name.startswith("layers.")})

    def open_blocks(
        self, num_blocks: int, *, resident: bool
    ) -> AbstractContextManager[Decoder[Any]]:
        """Map the weights of the first blocks, or take a decoder that was kept.

        It rests when the ``with`` ends, however that is.
        """
        shapes = extraction_shapes(self.config, range(num_blocks))
        return self._open(shapes, resident=resident)

    def open_model(self, *, resident: bool) -> AbstractContextManager[Decoder[Any]]:
        """Map all weights, the head with them; else as ``open_blocks``."""
        return self._open(generation_shapes(self.config), resident=resident)

    def check_tokens(self, token_ids: Sequence[Sequence[int]]) -> None:
        """Refuse ids that the embedding lacks."""
        for number, ids in enumerate(token_ids, start=1):
            if max(ids) >= self.config.vocab_size:
                raise PromptError(
                    f"failed to tokenize prompt: token id {max(ids)} of prompt {number}"
                    f" is outside the model's vocabulary of {self.config.vocab_size}"
                )

    @contextmanager
    def _open(self, shapes: Shapes, *, resident: bool) -> Iterator[Decoder[Any]]:
        decoder = self._take(shapes, resident=resident)
        try:
            yield decoder
        finally:
            decoder.rest()

    def _take(self, shapes: Shapes, *, resident: bool) -> Decoder[Any]:
        if self._kept is not None and resident and self._kept[0] >= shapes.keys():
            return self._kept[1]
        self._kept = None
        # A checkpoint saved without its head has no prefix; the index tells.
        names = [*shapes, *(PREFIX + name for name in shapes)]
        decoder = implementation(self.device).open_decoder(
            self.config,
            open_weights(self.files.weight_files(names), shapes),
            device=self.device,
            precision=self.precision,
            resident=resident,
        )
        if resident:
            self._kept = frozenset(shapes), decoder
        return decoder
