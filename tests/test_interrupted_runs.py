"""Runs that are broken off: the session stays usable, and holds nothing of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster import PairSet, StrengthTrial, load
from ster.decoder.devices import implementation
from ster.reporting import Progress
from ster.runtime import Runtime
from tests.checkpoints import make_config, random_ids, text, write_checkpoint
from tests.conformance.running import force_waves

PROMPTS = [text(random_ids(6, seed=seed)) for seed in range(6)]


class Interrupts:
    """A reporter at whose progress somebody presses Ctrl-C, once."""

    def __init__(self) -> None:
        self.left: int | None = None

    def note(self, sentence: str) -> None:
        pass

    warn = note

    def progress(self, progress: Progress) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


@pytest.fixture
def reporter() -> Interrupts:
    return Interrupts()


@pytest.fixture
def runtime(
    tmp_path: Path, device: str, reporter: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> Runtime:
    """Load a checkpoint of three blocks, of which two prompts at a time run."""
    force_waves(monkeypatch, 2)
    made = write_checkpoint(tmp_path / "model", make_config(eos_token_id=None))
    return load(made.directory, device=device, reporter=reporter)


@pytest.fixture
def open_runs(device: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """List the decoders that were opened and are not closed yet."""
    module: Any = implementation(device)
    open_decoder = module.open_decoder
    at_work: list[Any] = []

    def opened(weights: Any, *, keep: bool) -> Any:
        decoder = open_decoder(weights, keep=keep)
        close = decoder.close

        def closed() -> None:
            close()
            at_work.remove(decoder)

        decoder.close = closed
        at_work.append(decoder)
        return decoder

    monkeypatch.setattr(module, "open_decoder", opened)
    return at_work


def holds_scratch(runtime: Runtime) -> bool:
    """Tell whether memory stands between two runs; on a GPU MLX keeps its own."""
    scratch = getattr(runtime._session._weights, "scratch", None)
    return scratch is not None and bool(vars(scratch._held))


@pytest.mark.parametrize("after", [1, 4, 5, 9])
def test_a_reading_that_is_interrupted_between_waves_or_in_one(
    runtime, reporter, open_runs, after
):
    """Three waves of three blocks: in each of them, and at the very end."""
    expected = load(runtime.model, device=runtime.device).activations(PROMPTS).array
    reporter.left = after
    with pytest.raises(KeyboardInterrupt):
        runtime.activations(PROMPTS)
    assert open_runs == []
    assert not holds_scratch(runtime)
    np.testing.assert_allclose(
        runtime.activations(PROMPTS).array, expected, rtol=0, atol=1e-5
    )
    assert runtime.generate(PROMPTS[0], max_new_tokens=2) == load(
        runtime.model, device=runtime.device
    ).generate(PROMPTS[0], max_new_tokens=2)


def test_a_document_that_is_interrupted_is_not_there(
    runtime, reporter, open_runs, tmp_path
):
    output = tmp_path / "out.json"
    reporter.left = 5
    with pytest.raises(KeyboardInterrupt):
        runtime.write_activations(PROMPTS, output)
    assert open_runs == []
    assert os.listdir(tmp_path) == ["model"]
    runtime.write_activations(PROMPTS, output)
    assert output.exists()


def test_a_measurement_that_is_interrupted_can_be_made_again(
    runtime, open_runs, monkeypatch
):
    pairs = PairSet.of([(PROMPTS[0], PROMPTS[1]), (PROMPTS[2], PROMPTS[3])])
    vector = runtime.train(pairs, layers=[1])
    trial = StrengthTrial.of("1,2", batch_size=2, max_sequence=99)
    expected = runtime.evaluate(pairs, vector, trial).document

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ster.workflows.strengths._compare", interrupt)
        with pytest.raises(KeyboardInterrupt):
            runtime.evaluate(pairs, vector, trial)
    assert open_runs == []
    assert not holds_scratch(runtime)
    assert runtime.evaluate(pairs, vector, trial).document == expected


@pytest.mark.parametrize("leave", ["close", "interrupt", "forget"])
def test_an_answer_that_nobody_reads_to_its_end(runtime, open_runs, leave):
    expected = runtime.generate(PROMPTS[0], max_new_tokens=8)
    pieces = runtime.stream(PROMPTS[0], max_new_tokens=8)
    next(pieces)
    assert len(open_runs) == 1
    LEAVES[leave](pieces)
    del pieces
    assert open_runs == []
    assert not holds_scratch(runtime)
    assert runtime.generate(PROMPTS[0], max_new_tokens=8) == expected


def interrupt(pieces: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        pieces.throw(KeyboardInterrupt)


LEAVES: dict[str, Callable[[Iterator[str]], object]] = {
    "close": lambda pieces: pieces.close(),  # type: ignore[attr-defined]
    "interrupt": interrupt,
    "forget": lambda pieces: None,
}
