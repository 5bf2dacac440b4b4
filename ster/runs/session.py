"""An open checkpoint: tokenizer and template are loaded, and runs map the weights.

A session holds what all runs share: the files, the spec, the encoder, the device, the
limit on memory, and the weights that stay in memory from run to run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ster.architecture.spec import ModelSpec, Placed
from ster.architecture.wide import WideSpec
from ster.checkpoint.encoder import Encoder
from ster.checkpoint.resolve import CheckpointFiles
from ster.checkpoint.weight_file import WeightFile
from ster.checkpoint.weights import open_weights
from ster.decoder.contract import Decoder, DeviceMemory, Weights
from ster.decoder.devices import Implementation, implementation
from ster.decoder.whole import WholeWeights
from ster.errors import PromptError, SterError, WeightsError
from ster.reporting import Reporter
from ster.runs.choice import ModelChoice
from ster.runs.plan import Plan, plan_run
from ster.runs.work import Budget, Work
from ster.stream.packing import Tokens
from ster.text import counted, megabytes

# Most prompts at once through a model that is not ster's own.
WHOLE_PROMPTS = 16


@dataclass(slots=True)
class Done:
    """What the runs of a session have done so far."""

    prompts: int = 0
    tokens: int = 0
    distinct: int = 0
    written: int = 0


@dataclass(slots=True, kw_only=True)
class Session:
    """One open checkpoint, as a ``Runtime`` holds it.

    Args:
        choice: What a person chose: device, precision, memory.
        files: The checkpoint's files.
        spec: What config.json says of the decoder.
        encoder: Text to token ids.
        reporter: Receives notes, warnings and progress.
    """

    choice: ModelChoice
    files: CheckpointFiles
    spec: ModelSpec | WideSpec
    encoder: Encoder
    reporter: Reporter
    done: Done = field(default_factory=Done, init=False)
    _weights: Weights | None = field(default=None, init=False)
    _files: dict[Path, WeightFile] = field(default_factory=dict, init=False)
    _taken: set[Placed] = field(default_factory=set, init=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def device(self) -> str:
        """Return the device that computes."""
        return self.choice.device

    @property
    def precision(self) -> str:
        """Return the width of the weights and of what products take."""
        return self.choice.precision

    @property
    def keeps_blocks(self) -> bool:
        """Tell whether weights of an earlier run are still in memory."""
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
        """Plan a run over prompts; ``work`` holds the other fields of ``plan.Work``.

        Raises:
            CapacityError: It does not fit.
        """
        if isinstance(self.spec, WideSpec):
            # No tokens are shared, and its head is one product.
            work["kinds"] = range(len(token_ids))
            # It writes one text after the other.
            at_once = 1 if "new_tokens" in work else WHOLE_PROMPTS
            work["max_prompts"] = min(work.get("max_prompts") or at_once, at_once)
            if work.get("logit_rows", 0) > 1:
                work["logit_rows"] = max(map(len, token_ids))
        work.setdefault(
            "kinds", [self.spec.rotary_length(len(ids)) for ids in token_ids]
        )
        wanted = Work(token_ids=token_ids, num_blocks=num_blocks, **work)
        plan = plan_run(wanted, self._budget(max(map(len, token_ids))))
        if self.choice.verbose:
            self.reporter.note(str(plan))
        return plan

    def kinds(
        self, token_ids: Sequence[Tokens], prompt_lengths: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Tell texts apart that share nothing where it matters where prompts end."""
        both = zip(token_ids, prompt_lengths, strict=True)
        return [(self.spec.rotary_length(len(ids)), length) for ids, length in both]

    @contextmanager
    def open(self, plan: Plan) -> Iterator[Decoder[Any]]:
        """Open the weights that a run needs and that are not open yet.

        Raises:
            WeightsError: A weight file is damaged or lacks a tensor.
            DeviceError: The device failed, which shows at the end at the latest.
        """
        weights = self._take_weights(plan.num_blocks, head=plan.head)
        if plan.release:
            weights.release()
        decoder = self._implementation.open_decoder(weights, keep=plan.keep)
        try:
            yield decoder
        except BaseException:
            with suppress(SterError):  # what went wrong first is what counts
                decoder.close()
            raise
        decoder.close()
        self.done.prompts += sum(map(len, plan.waves))
        self.done.tokens += plan.num_prompt_tokens
        self.done.distinct += plan.num_tokens

    @property
    def held_memory(self) -> int:
        """Return the bytes that the process holds now, on the device that computes."""
        return self._implementation.device_memory(self.device).held

    def closing_line(self, seconds: float) -> str:
        """Say what was done, in how much time and memory."""
        done = self.done
        peak = self._implementation.device_memory(self.device).peak
        written = f", {counted(done.written, 'token')} written" if done.written else ""
        noun = "answer" if done.written else "prompt"
        return (
            f"{counted(done.prompts, noun)}, {counted(done.tokens, 'token')} "
            f"({done.distinct} distinct){written} in {seconds:.1f} s; "
            f"peak {megabytes(peak)}"
        )

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
            # Where a model runs as a whole, its footprint has all weights at all times.
            held_bytes=0 if isinstance(self.spec, WideSpec) else self._held_bytes,
            memory_bytes=memory.limit if limit is None else limit,
        )

    def _take_weights(self, num_blocks: int, *, head: bool) -> Weights:
        """Give what is held the tensors that a run needs and that it has not yet.

        Those that it has are not opened again: the rest has to be of the same files.
        """
        with self._opening:
            if self._weights is None:
                self._taken.clear()
                self._weights = self._implementation.hold_weights(
                    self.spec, device=self.device, precision=self.precision
                )
            if isinstance(self.spec, WideSpec):
                if isinstance(self._weights, WholeWeights):
                    self._weights.add_files(self.files.all_weight_files())
                return self._weights
            wanted = self.spec.modules(range(num_blocks), head=head)
            missing = [each for each in wanted if each not in self._taken]
            if missing:
                naming, weights = self.spec.naming, self._weights
                files = self.files.weight_files(set(naming.spelled(missing)))
                for file in self._files.values():
                    _check_in_place(file)
                found = open_weights(files, missing, naming, self.spec.quantization)
                for stored in found.values():
                    for tensor in stored.tensors:
                        self._files.setdefault(tensor.file.path, tensor.file)
                weights.add(found)
                self._taken.update(missing)
            return self._weights


def _check_in_place(file: WeightFile) -> None:
    """Refuse to take the rest of a checkpoint where another one lies by now.

    Raises:
        WeightsError: The file was written to, or another one lies in its place.
    """
    file.check_unchanged()
    try:
        is_same = os.path.samestat(os.stat(file.path), os.fstat(file.descriptor))
    except OSError:
        return  # whoever needs it and does not find it says so
    if not is_same:
        raise WeightsError(
            f"the weight file {file.path} was replaced after weights were read from it",
            "the rest would be another checkpoint's; load the model again",
            path=file.path,
        )
