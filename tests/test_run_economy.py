"""What a run does once: it opens weights, makes blocks, and encodes texts together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import ster.runs.session
import ster.runs.writing
from ster import PairSet, StrengthTrial, load
from ster.architecture.spec import LayerSpec
from ster.checkpoint.confined.process import ConfinedProcess
from ster.decoder.devices import implementation
from ster.runtime import Runtime
from tests.checkpoints import make_config, random_ids, text, write_checkpoint

TEMPLATE = (
    "{% for turn in messages %}<s>{{ turn['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}</s>{% endif %}"
)
BLOCKS = ["layers.0.", "layers.1.", "layers.2."]


@pytest.fixture
def runtime(tmp_path: Path, device: str) -> Runtime:
    """Load a checkpoint with a template, so that both confined processes are asked."""
    config = make_config(eos_token_id=None)
    made = write_checkpoint(tmp_path, config, chat_template=TEMPLATE)
    return load(made.directory, device=device)


@pytest.fixture
def did(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what runs do from now on."""
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str, label: str) -> None:
        real = getattr(owner, name)

        def counting(*args: Any, **words: Any) -> Any:
            counted[label] += 1
            return real(*args, **words)

        monkeypatch.setattr(owner, name, counting)

    count(ster.runs.session, "open_weights", "weights opened")
    count(ster.runs.writing, "read_stop_ids", "stop tokens read")
    decoders: Any = implementation(runtime.device)
    count(decoders, "open_decoder", "decoders")
    spec, device = runtime.config, runtime.device
    kind: Any = type(decoders.hold_weights(spec, device=device, precision="f32"))
    make, ask = kind._make_block, ConfinedProcess.ask

    def made(self: Any, block: LayerSpec, *room: Any) -> Any:
        counted[block.prefix] += 1
        return make(self, block, *room)

    def asked(
        self: Any, requests: Sequence[Mapping[str, object]], **words: Any
    ) -> list[dict[str, object]]:
        decodes = any("token_ids" in request for request in requests)
        counted["decoded" if decodes else "exchanges"] += 1
        return ask(self, requests, **words)

    monkeypatch.setattr(kind, "_make_block", made)
    monkeypatch.setattr(ConfinedProcess, "ask", asked)
    return counted


def make_pairs(count: int) -> PairSet:
    """Make pairs that differ."""
    sides = [text(random_ids(6, seed=seed)) for seed in range(2 * count)]
    return PairSet.of(list(zip(sides[::2], sides[1::2], strict=True)))


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_strengths_cost_no_more_opening_and_encoding_than_none(runtime, did):
    pairs = make_pairs(24)
    vector = runtime.train(make_pairs(2), layers=[1])
    did.clear()
    trial = StrengthTrial.of("-4,-2,1,2,4", batch_size=8, max_sequence=99)
    evaluation = runtime.evaluate(pairs, vector, trial)
    assert evaluation.strength is not None
    assert len(evaluation.strength.candidates) == 5
    # Training opened the first blocks; the others and the head, once for all strengths.
    assert did["weights opened"] == 1
    assert [did[block] for block in BLOCKS] == [0, 0, 1]
    # One for reading, one for all the scores, one for those of random directions.
    assert did["decoders"] == 3
    # As prompts and as responses, through the template and the tokenizer.
    assert did["exchanges"] <= 8


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_blocks_that_reading_opened_score_too(runtime, did):
    vector = runtime.train(make_pairs(2), layers=[2])
    did.clear()
    trial = StrengthTrial.of("1,2", batch_size=3, max_sequence=99)
    runtime.evaluate(make_pairs(3), vector, trial)
    assert [did[block] for block in BLOCKS] == [0, 0, 0]
    # The head alone.
    assert did["weights opened"] == 1
    runtime.evaluate(make_pairs(3), vector, trial)
    assert did["weights opened"] == 1


@pytest.mark.filterwarnings("ignore:no strength is chosen")
@pytest.mark.parametrize("batch_size", [2, 99])
def test_the_first_measurement_of_all_makes_every_block_once(runtime, did, batch_size):
    vector = load(runtime.model, device=runtime.device).train(make_pairs(2), layers=[1])
    did.clear()
    trial = StrengthTrial.of("-1,1,3", batch_size=batch_size, max_sequence=99)
    runtime.evaluate(make_pairs(5), vector, trial)
    # A run of a single wave keeps none, and random directions run after the vector.
    assert [did[block] for block in BLOCKS] == [1, 1, 1 if batch_size == 2 else 2]
    # For reading up to the vector's layer, and for what scoring needs beside it.
    assert did["weights opened"] == 2


def test_many_answers_share_one_encoding_one_opening_one_look_at_stop_tokens(
    runtime, did
):
    prompts = [text(random_ids(5, seed=seed)) for seed in range(20)]
    answers = list(runtime.generate_all(prompts, max_new_tokens=2))
    assert len(answers) == 20
    assert did["stop tokens read"] == 1
    assert did["weights opened"] == 1
    assert did["decoders"] == 1
    assert [did[block] for block in BLOCKS] == [1, 1, 1]
    assert did["exchanges"] <= 4


@pytest.mark.parametrize("run", ["activations", "score_responses"])
def test_many_texts_are_encoded_together(runtime, did, run):
    texts = [text(random_ids(5, seed=seed)) for seed in range(40)]
    getattr(runtime, run)(texts)
    # Loading, encoding, and what the tokens that were read are called.
    assert did["exchanges"] <= 5
    assert did["weights opened"] == 1


def test_a_document_that_does_not_say_its_tokens_does_not_ask_for_them(
    runtime, did, tmp_path
):
    texts = [text(random_ids(5, seed=seed)) for seed in range(40)]
    runtime.write_activations(texts, tmp_path / "rows.json")
    assert did["exchanges"] == 2  # they are rendered, and encoded
    runtime.write_activations(texts, tmp_path / "rows.npz")
    assert did["exchanges"] > 4


def test_a_choice_by_function_looks_at_all_prompts_at_once(runtime, did):
    texts = [text(random_ids(5, seed=seed)) for seed in range(40)]
    runtime.activations(texts, tokens=lambda each: [len(each) - 1])
    assert did["exchanges"] <= 7
