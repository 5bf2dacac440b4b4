"""Reading activations: prompts through the plan, wave by wave, checked as they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ster.documents.prompts import check_prompts
from ster.errors import NumericsError
from ster.reporting import Progress
from ster.runs.extraction import extract_rows
from ster.runs.plan import ExtractionPlan, plan_extraction
from ster.runs.session import LoadedModel
from ster.stream.rotary import rotary_length

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A reading that is encoded and planned; nothing is mapped yet.

    Args:
        model: What reads.
        prompts: The prompts, verbatim.
        token_ids: Their tokens.
        layers: Block indices, ascending.
        plan: Waves and memory.
        deltas: Vectors added to the stream after their block has been read, by layer.
        label: What a line of progress says before its numbers.
        prompts_per_item: How many prompts those numbers count as one.
    """

    model: LoadedModel
    prompts: Sequence[str]
    token_ids: Sequence[Sequence[int]]
    layers: tuple[int, ...]
    plan: ExtractionPlan
    deltas: Mapping[int, F32]
    label: str
    prompts_per_item: int

    def waves(self) -> Iterator[tuple[range, F32]]:
        """Run wave by wave.

        Yields:
            The indices of the wave's prompts, and their rows (num_prompts, num_layers,
            hidden_size).

        Raises:
            WeightsError: A weight file is damaged or lacks a tensor.
            NumericsError: A row is infinite or not a number.
        """
        plan, layers = self.plan, self.layers
        opened = self.model.open_blocks(plan.num_blocks, resident=plan.resident)
        with opened as decoder:
            for number, wave in enumerate(plan.waves):
                token_ids = [self.token_ids[index] for index in wave]
                on_block = partial(self._report, number)
                rows = extract_rows(decoder, token_ids, layers, self.deltas, on_block)
                check_finite(rows, wave, layers, self.model)
                yield wave, rows

    def _report(self, number: int, layer: int) -> None:
        """Say how far it is; a wave in work counts by the blocks it has passed."""
        plan, share = self.plan, (layer + 1) / self.plan.num_blocks
        wave = plan.waves[number]
        done = wave.start + int(len(wave) * share)
        tokens = sum(plan.wave_tokens[:number]) + int(plan.wave_tokens[number] * share)
        self.model.reporter.progress(
            Progress(
                label=self.label,
                prompts_done=done // self.prompts_per_item,
                num_prompts=len(self.prompts) // self.prompts_per_item,
                layer=layer,
                num_layers=plan.num_blocks,
                tokens_done=tokens,
                num_tokens=plan.num_tokens,
            )
        )


def plan_reading(
    model: LoadedModel,
    prompts: Sequence[str],
    layers: tuple[int, ...],
    *,
    keep_resident: bool,
    deltas: Mapping[int, F32] | None = None,
    label: str = "extracting prompt",
    prompts_per_item: int = 1,
) -> Reading:
    """Encode prompts and plan their reading, refusing what can be without weights.

    Raises:
        PromptError: A prompt is empty or cannot be tokenized.
        TemplateError: The chat template refuses a prompt.
        CapacityError: The run does not fit.
    """
    checked = check_prompts(prompts)
    token_ids = model.encoder.encode(checked)
    model.check_tokens(token_ids)
    _warn_of_long_prompts(model, token_ids)
    plan = plan_extraction(
        token_ids,
        [rotary_length(model.config.rope, len(ids)) for ids in token_ids],
        num_blocks=layers[-1] + 1,
        budget=model.budget(max(map(len, token_ids)), len(layers)),
        keep_resident=keep_resident,
    )
    if model.verbose:
        model.reporter.note(str(plan))
    return Reading(
        model=model,
        prompts=checked,
        token_ids=token_ids,
        layers=layers,
        plan=plan,
        deltas=deltas or {},
        label=label,
        prompts_per_item=prompts_per_item,
    )


def check_finite(
    rows: F32, wave: range, layers: Sequence[int], model: LoadedModel
) -> None:
    """Refuse rows that are no finite numbers, naming the first prompt and layer."""
    finite = np.isfinite(rows).all(axis=-1)
    if finite.all():
        return
    prompt, layer = np.argwhere(~finite)[0]
    sentence = (
        f"layer {layers[layer]} of prompt {wave[prompt] + 1} is not finite at "
        f"--precision {model.precision}"
    )
    if model.precision == "f32":
        raise NumericsError(sentence, "the checkpoint's own weights lead there")
    wider = model.precision == "f16" and model.device != "cpu"
    raise NumericsError(f"{sentence}; use f32{' or bf16' if wider else ''}")


def _warn_of_long_prompts(
    model: LoadedModel, token_ids: Sequence[Sequence[int]]
) -> None:
    limit = model.config.max_position_embeddings
    for number, ids in enumerate(token_ids, start=1):
        if len(ids) > limit:
            model.reporter.warn(
                f"prompt {number} has {len(ids)} tokens, more than the model's "
                f"max_position_embeddings of {limit}; its later positions are past "
                "what the model was trained on"
            )
