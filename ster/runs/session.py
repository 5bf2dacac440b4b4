"""An open checkpoint: its text side is loaded, its weights wait for a run.

What all runs have in common: the files, the spec, the encoder, where to compute, how
much memory there is, and the weights that stay from run to run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ster.architecture.spec import ModelSpec
from ster.architecture.wide import WideSpec
from ster.checkpoint.resolve import CheckpointFiles
from ster.checkpoint.tokenizer import Encoder
from ster.checkpoint.weights import PREFIX, open_weights
from ster.decoder.contract import Decoder, DeviceMemory, Weights
from ster.decoder.devices import Implementation, implementation
from ster.decoder.whole import WholeWeights
from ster.errors import PromptError
from ster.reporting import Reporter
from ster.runs.choice import ModelChoice
from ster.runs.plan import Budget, Plan, Work, plan_run
from ster.stream.packing import Tokens

# Most prompts at once through a model that is not ster's own.
WHOLE_PROMPTS = 16


@dataclass(slots=True, kw_only=True)
class Session:
    """What a ``Runtime`` holds; see there for the words.

    Args:
        choice: What a person chose: device, precision, memory.
        files: The checkpoint's files.
        spec: What the decoder is.
        encoder: Text to token ids.
        reporter: Hears of notes and progress.
    """

    choice: ModelChoice
    files: CheckpointFiles
    spec: ModelSpec | WideSpec
    encoder: Encoder
    reporter: Reporter
    _weights: Weights | None = field(default=None, init=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def device(self) -> str:
        """Return where it computes."""
        return self.choice.device

    @property
    def precision(self) -> str:
        """Return the width of weights and residual stream."""
        return self.choice.precision

    @property
    def keeps_blocks(self) -> bool:
        """Tell whether blocks are kept from an earlier run."""
        return self._held_bytes > 0

    def check_tokens(self, token_ids: Sequence[Tokens]) -> None:
        """Refuse ids that the embedding lacks.

        Raises:
            PromptError: Names the prompt and the id.
        """
        for number, ids in enumerate(token_ids, start=1):
            if max(ids) >= self.spec.vocab_size:
                raise PromptError(
                    f"failed to tokenize prompt: token id {max(ids)} of prompt {number}"
                    f" is outside the model's vocabulary of {self.spec.vocab_size}",
                    prompt=number,
                    found=int(max(ids)),
                    expected=self.spec.vocab_size,
                )
            if isinstance(self.spec, WideSpec):
                self.spec.check_length(number, len(ids))

    def plan(self, token_ids: Sequence[Tokens], num_blocks: int, **work: Any) -> Plan:
        """Plan a run over prompts; ``work`` is the rest of ``plan.Work``.

        Raises:
            CapacityError: It does not fit.
        """
        if isinstance(self.spec, WideSpec):
            # No tokens are shared, and its head is one product.
            work["rotary_lengths"] = range(len(token_ids))
            most = work.get("max_prompts") or WHOLE_PROMPTS
            work["max_prompts"] = min(most, WHOLE_PROMPTS)
            if work.get("logit_rows", 0) > 1:
                work["logit_rows"] = max(map(len, token_ids))
        work.setdefault(
            "rotary_lengths", [self.spec.rotary_length(len(ids)) for ids in token_ids]
        )
        wanted = Work(token_ids=token_ids, num_blocks=num_blocks, **work)
        plan = plan_run(wanted, self._budget(max(map(len, token_ids))))
        if self.choice.verbose:
            self.reporter.note(str(plan))
        return plan

    @contextmanager
    def open(self, plan: Plan) -> Iterator[Decoder[Any]]:
        """Map the weights that a run needs beside those that are there already.

        Raises:
            WeightsError: A weight file is damaged or lacks a tensor.
        """
        weights = self._take_weights(plan.num_blocks, head=plan.head)
        if plan.release:
            weights.release()
        decoder = self._implementation.open_decoder(weights, keep=plan.keep)
        try:
            yield decoder
        finally:
            decoder.close()

    @property
    def _implementation(self) -> Implementation:
        return implementation(self.device, whole=isinstance(self.spec, WideSpec))

    @property
    def _held_bytes(self) -> int:
        return 0 if self._weights is None else self._weights.held_bytes

    def _budget(self, longest_prompt: int) -> Budget:
        memory: DeviceMemory = self._implementation.device_memory(self.device)
        limit = self.choice.memory
        return Budget(
            footprint=self._implementation.footprint(
                self.spec, precision=self.precision, longest_prompt=longest_prompt
            ),
            other_bytes=max(0, memory.held - self._held_bytes),
            held_bytes=self._held_bytes,
            memory_bytes=memory.limit if limit is None else limit,
        )

    def _take_weights(self, num_blocks: int, *, head: bool) -> Weights:
        with self._opening:
            if self._weights is None:
                self._weights = self._implementation.hold_weights(
                    self.spec, device=self.device, precision=self.precision
                )
            weights = self._weights
            if isinstance(self.spec, WideSpec):
                if isinstance(weights, WholeWeights):
                    weights.add_files(self.files.all_weight_files())
                return weights
            shapes = self.spec.shapes(range(num_blocks), head=head)
            if not shapes.keys() <= set(weights.names):
                # A checkpoint saved without its head has no prefix; the index tells.
                names = [*shapes, *(PREFIX + name for name in shapes)]
                files = self.files.weight_files(names)
                weights.add(open_weights(files, shapes))
            return weights
