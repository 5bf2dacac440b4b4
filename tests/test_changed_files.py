"""Weight files that are written to between two runs of a session, or in one's middle.

Each test writes to a shard that holds one block's matrices and nothing else, so that no
other check of another tensor speaks first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ster import Activations, load
from ster.errors import WeightsError
from ster.reporting import Progress
from ster.runtime import Runtime
from tests.checkpoints import (
    make_config,
    make_tensors,
    random_ids,
    text,
    write_checkpoint,
    write_safetensors,
)
from tests.conformance.running import force_streaming

PROMPTS = [text(random_ids(length, seed=length)) for length in (5, 1, 9)]
BLOCK, HEAD, REST = (f"{name}.safetensors" for name in ("block", "head", "rest"))


def write_shards(folder: Path) -> Path:
    """Write a checkpoint whose block 1 and whose head have files of their own."""
    tensors = make_tensors(make_config(eos_token_id=None))
    made = write_checkpoint(folder / "model", make_config(eos_token_id=None))
    (made.directory / "model.safetensors").unlink()
    weight_map = {
        name: BLOCK if ".layers.1." in name else HEAD if "lm_head" in name else REST
        for name in tensors
    }
    for file in (BLOCK, HEAD, REST):
        part = {
            name: each for name, each in tensors.items() if weight_map[name] == file
        }
        write_safetensors(made.directory / file, part, "f32")
        # Else a change in the same tick of the clock could not be told.
        os.utime(made.directory / file, ns=(0, 0))
    index = json.dumps({"metadata": {}, "weight_map": weight_map})
    (made.directory / "model.safetensors.index.json").write_text(index)
    return made.directory


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_shards(tmp_path)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(b"x" * 10)


class ChangesAt:
    """A reporter that does something once, as soon as a block has been read."""

    def __init__(self, layer: int, change: Callable[[], None]) -> None:
        self.layer = layer
        self.change: Callable[[], None] | None = change
        self.is_armed = False

    def note(self, sentence: str) -> None:
        pass

    warn = note

    def progress(self, progress: Progress) -> None:
        if self.is_armed and progress.layer == self.layer and self.change is not None:
            change, self.change = self.change, None
            change()


RUNS: dict[str, Callable[[Runtime], object]] = {
    "activations": lambda runtime: runtime.activations(PROMPTS),
    "generate": lambda runtime: runtime.generate(PROMPTS[0], max_new_tokens=2),
    "score_responses": lambda runtime: runtime.score_responses(PROMPTS),
}


def refused(run: Callable[[], object], path: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        run()
    assert caught.value.path == str(path)
    assert caught.value.sentence == f"the weight file {path} changed while it was read"


@pytest.mark.parametrize("change", [overwrite, lambda path: os.truncate(path, 100)])
@pytest.mark.parametrize("run", RUNS)
def test_what_stayed_in_memory_is_whole_whatever_becomes_of_its_file(
    model, device, run, change
):
    """Nothing that stays is a view of a file, whose end may be the process's."""
    runtime = load(model, device=device)
    runtime.generate(PROMPTS[0], max_new_tokens=2)
    before = RUNS[run](runtime)
    assert runtime._session.keeps_blocks
    for file in (BLOCK, HEAD):
        change(model / file)
    np.testing.assert_array_equal(numbers(RUNS[run](runtime)), numbers(before))


def numbers(result: object) -> object:
    return result.array if isinstance(result, Activations) else result


@pytest.mark.filterwarnings("ignore::ster.SterWarning")
@pytest.mark.parametrize("change", [overwrite, lambda path: os.truncate(path, 100)])
@pytest.mark.parametrize("run", RUNS)
def test_what_is_read_again_of_a_file_that_changed_is_refused_by_name(
    model, device, monkeypatch, run, change
):
    force_streaming(monkeypatch, device)
    runtime = load(model, device=device)
    RUNS[run](runtime)
    assert not runtime._session.keeps_blocks
    change(model / BLOCK)
    refused(lambda: RUNS[run](runtime), model / BLOCK)
    # Nor does it help to ask again.
    refused(lambda: RUNS[run](runtime), model / BLOCK)


def test_a_document_whose_weights_changed_in_the_middle_is_not_written(model, tmp_path):
    output = tmp_path / "out.json"
    output.write_text("older")
    reporter = ChangesAt(0, lambda: overwrite(model / BLOCK))
    runtime = load(model, reporter=reporter)
    reporter.is_armed = True
    refused(lambda: runtime.write_activations(PROMPTS, output, 1), model / BLOCK)
    assert output.read_text() == "older"
    assert sorted(os.listdir(tmp_path)) == ["model", "out.json"]


def test_a_new_file_in_place_of_an_old_one_disturbs_no_open_session(model, device):
    runtime = load(model, device=device)
    before = runtime.activations(PROMPTS).array
    (model / BLOCK).rename(model / "moved")
    (model / BLOCK).write_bytes(b"another checkpoint")
    np.testing.assert_array_equal(runtime.activations(PROMPTS).array, before)
    with pytest.raises(WeightsError, match="failed to map"):
        load(model, device=device).activations(PROMPTS)


def test_no_run_takes_the_rest_from_a_checkpoint_that_was_put_in_its_place(
    model, tmp_path, device
):
    """The first block would be of the old one, and the head of the new one."""
    runtime = load(model, device=device)
    runtime.activations(PROMPTS, 1)
    newer = write_shards(tmp_path / "newer")
    for file in (BLOCK, HEAD, REST):
        (newer / file).replace(model / file)
    with pytest.raises(WeightsError) as caught:
        runtime.generate(PROMPTS[0], max_new_tokens=1)
    assert caught.value.path in (str(model / BLOCK), str(model / REST))
    assert "was replaced after weights were read from it" in caught.value.sentence
    # What needs no more of it goes on.
    assert len(runtime.activations(PROMPTS, 1).array) == len(PROMPTS)
    load(model, device=device).generate(PROMPTS[0], max_new_tokens=1)


def test_the_rest_of_a_checkpoint_is_not_taken_from_a_file_that_was_overwritten(
    model, device
):
    runtime = load(model, device=device)
    runtime.activations(PROMPTS, 1)
    overwrite(model / BLOCK)
    refused(lambda: runtime.generate(PROMPTS[0], max_new_tokens=1), model / BLOCK)
