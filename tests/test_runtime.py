"""A loaded checkpoint in a notebook: what it reads, keeps, says and refuses."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ster import Activations, PairSet, SteeringVector, load, write_toy_checkpoint
from ster.architecture.config import resolve_config
from ster.architecture.spec import LayerSpec
from ster.decoder.devices import implementation
from ster.errors import (
    CapacityError,
    DeviceError,
    LayerError,
    NumericsError,
    PromptError,
    UsageError,
    WeightsError,
)
from ster.loading import open_runtime
from ster.reporting import Progress, SterWarning
from ster.runs import wave
from ster.runs.choice import ModelChoice
from ster.runtime import Runtime
from tests.checkpoints import (
    make_config,
    make_tensors,
    random_ids,
    text,
    word_tokenizer,
    write_checkpoint,
)
from tests.conformance.running import no_memory_held

PROMPTS = [text(random_ids(length, seed=length)) for length in (5, 1, 9)]


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.events: list[Progress] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)

    def progress(self, progress: Progress) -> None:
        self.events.append(progress)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Llama of three blocks, of width 32."""
    return write_checkpoint(tmp_path_factory.mktemp("llama")).directory


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the toy checkpoint."""
    directory = tmp_path_factory.mktemp("toy") / "toy"
    write_toy_checkpoint(directory)
    return directory


@pytest.fixture
def runtime(checkpoint, device) -> Runtime:
    return load(checkpoint, device=device)


@pytest.fixture
def made(device, monkeypatch) -> list[str]:
    """Note every block that is made of stored weights."""
    spec = resolve_config(make_config(), "config.json")
    weights: Any = implementation(device).hold_weights(
        spec, device=device, precision="f32"
    )
    make, noted = type(weights)._make_block, []

    def noting(self: Any, block: LayerSpec, *room: Any) -> Any:
        noted.append(block.prefix)
        return make(self, block, *room)

    monkeypatch.setattr(type(weights), "_make_block", noting)
    return noted


def same(a: Activations, b: Activations) -> None:
    np.testing.assert_array_equal(a.array, b.array)


class TestLoading:
    def test_a_runtime_says_what_it_is(self, toy):
        assert repr(load(toy)) == (
            f"Runtime(model={str(toy)!r}, llama, 4 layers, hidden_size=64, "
            "device='cpu', precision='f32', chat_template='absent')"
        )

    def test_a_directory_may_be_a_path_or_a_string(self, toy):
        for model in (toy, str(toy)):
            runtime = load(model, revision="mine", precision="f16")
            assert runtime.model == str(toy)
            assert runtime.model_revision == "mine"
            assert runtime.precision == "f16"

    def test_unknown_words_are_refused(self, toy):
        with pytest.raises(UsageError, match="unknown device"):
            load(toy, device="gpu")
        with pytest.raises(UsageError, match="unknown precision"):
            load(toy, precision="f64")
        with pytest.raises(UsageError, match="unknown chat template mode"):
            load(toy, chat_template="on")
        with pytest.raises(DeviceError, match="bf16 has no CPU"):
            load(toy, precision="bf16")

    def test_layers_are_checked_before_the_tokenizer_is_read(self, toy, tmp_path):
        for file in toy.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / "tokenizer.json").write_text("no tokenizer")
        with pytest.raises(LayerError, match="layer 4 is outside"):
            open_runtime(
                ModelChoice(model=str(tmp_path)), reporter=Recorder(), layers="4"
            )


class TestReading:
    def test_the_toy_is_read(self, toy, device):
        read = load(toy, device=device).activations(["the sea is calm ."], [0, 3])
        assert read.array.shape == (1, 2, 64)
        assert read.array.dtype == np.float32
        assert read.layers == (0, 3)
        assert read.prompts == ("the sea is calm .",)
        assert (read.model, read.model_revision, read.hidden_size) == (
            str(toy),
            None,
            64,
        )

    @pytest.mark.parametrize(
        ("layers", "selected"),
        [
            ("all", (0, 1, 2)),
            ("2, 0..1", (0, 2)),
            (1, (1,)),
            (np.int64(1), (1,)),
            ([2, 0, 2], (0, 2)),
            ((1,), (1,)),
            (range(2), (0, 1)),
            (np.array([2, 1]), (1, 2)),
            # named, since its repr has an address, and workers compare names
            pytest.param(iter([0, 1]), (0, 1), id="an iterator"),
        ],
        ids=repr,
    )
    def test_layers_may_be_given_as_one_likes(self, checkpoint, layers, selected):
        read = load(checkpoint).activations(PROMPTS[:1], layers)
        assert read.layers == selected
        assert read.array.shape == (1, len(selected), 32)

    @pytest.mark.parametrize(
        ("layers", "sentence"),
        [
            ([], "at least one layer is required"),
            ("", "no layers selected"),
            (3, "layer 3 is outside the model's 0..2 range"),
            ([0, 7, 5], "layer 5 is outside the model's 0..2 range"),
            (-1, "layer -1 is outside the model's 0..2 range"),
            ("last", 'invalid layer "last"'),
            (1.0, 'invalid layer "1.0"'),
            (True, 'invalid layer "True"'),
            (None, 'invalid layer "None"'),
            (["1"], 'invalid layer "1"'),
        ],
    )
    def test_layers_that_the_model_lacks_are_refused(
        self, checkpoint, layers, sentence
    ):
        with pytest.raises(LayerError) as caught:
            load(checkpoint).activations(PROMPTS, layers)
        assert str(caught.value) == sentence

    @pytest.mark.parametrize(
        ("prompts", "sentence"),
        [
            ([], "prompt set contains no prompts"),
            (["w3", " \u3000"], "prompt must not be empty: prompt 2 is blank"),
            ("w3", "prompts must be a list of strings, not one string"),
            (["w3", 4], "a prompt must be a string, not int"),
        ],
    )
    def test_prompts_that_are_none_are_refused(
        self, checkpoint, tmp_path, prompts, sentence
    ):
        runtime = load(checkpoint)
        with pytest.raises(PromptError) as caught:
            runtime.activations(prompts)
        assert str(caught.value) == sentence
        with pytest.raises(PromptError) as caught:
            runtime.write_activations(prompts, tmp_path / "a.json")
        assert str(caught.value) == sentence
        assert list(tmp_path.iterdir()) == []

    def test_prompts_may_come_from_an_iterator(self, checkpoint):
        runtime = load(checkpoint)
        same(runtime.activations(iter(PROMPTS)), runtime.activations(PROMPTS))

    def test_fewer_layers_read_the_same_rows(self, runtime):
        every = runtime.activations(PROMPTS)
        some = runtime.activations(PROMPTS, [0, 1])
        np.testing.assert_allclose(some.array, every.array[:, :2], rtol=0, atol=1e-5)

    def test_a_document_holds_what_is_read_and_names_the_model(self, runtime, tmp_path):
        path = tmp_path / "deep" / "a.json"
        plan = runtime.write_activations(PROMPTS, path, "0,2")
        written = Activations.load(path)
        same(written, runtime.activations(PROMPTS, "0,2"))
        assert written.layers == (0, 2)
        assert written.model == runtime.model
        assert len(plan.waves) == 1


class TestRefusalsBeforeWeights:
    @pytest.fixture
    def damaged(self, tmp_path) -> Path:
        directory = write_checkpoint(tmp_path / "damaged").directory
        (directory / "model.safetensors").write_bytes(b"damaged")
        return directory

    def test_a_damaged_file_is_found_when_a_run_needs_it(self, damaged):
        runtime = load(damaged)
        with pytest.raises(WeightsError, match="failed to map 1 model weight files"):
            runtime.activations(PROMPTS)

    def test_a_token_beyond_the_vocabulary_is_named(self, damaged):
        word_tokenizer(70).save(str(damaged / "tokenizer.json"))
        with pytest.raises(PromptError) as caught:
            load(damaged).activations([text([3, 59]), text([3, 65, 4])])
        assert str(caught.value) == (
            "failed to tokenize prompt: token id 65 of prompt 2 is outside the "
            "model's vocabulary of 60"
        )

    def test_a_run_that_does_not_fit_is_refused(self, damaged):
        with pytest.raises(CapacityError, match=r"needs \d+ MB .* may use 1000 bytes"):
            load(damaged, memory=1000).activations(PROMPTS)

    def test_a_layer_is_refused(self, damaged):
        with pytest.raises(LayerError):
            load(damaged).activations(PROMPTS, 3)


ALL = ["layers.0.", "layers.1.", "layers.2."]


class TestKeptBlocks:
    def test_stay_from_run_to_run(self, runtime, made):
        first = runtime.activations(PROMPTS)
        same(runtime.activations(PROMPTS), first)
        runtime.activations(PROMPTS, 0)
        assert made == ALL

    def test_are_used_by_a_run_with_more_layers(self, runtime, made):
        low = runtime.activations(PROMPTS, [0])
        both = runtime.activations(PROMPTS, [0, 2])
        assert sorted(made) == ALL
        np.testing.assert_allclose(both.array[:, :1], low.array, rtol=0, atol=1e-5)

    def test_are_used_by_answers_and_scores_too(self, runtime, made):
        runtime.activations(PROMPTS, [1])
        runtime.generate(PROMPTS[0], max_new_tokens=2)
        runtime.score_responses(PROMPTS)
        assert sorted(made) == ALL

    def test_are_not_kept_where_memory_is_short(
        self, checkpoint, made, device, monkeypatch
    ):
        no_memory_held(monkeypatch, device)
        ample = load(checkpoint, device=device, memory=2**40)
        takes = implementation(device).footprint(
            ample.config, precision="f32", longest_prompt=9
        )
        # One block, these prompts and their rows; not a usual wave and all blocks.
        room = takes.open_bytes + takes.fixed_bytes
        room += 15 * (takes.token_bytes + takes.key_bytes) + 9 * takes.row_bytes
        room += takes.token_bytes  # the lists of keys, rounded up to a token
        short = load(checkpoint, device=device, memory=room)
        same(short.activations(PROMPTS), ample.activations(PROMPTS))
        short.activations(PROMPTS)
        assert sorted(made) == sorted(3 * ALL)

    def test_are_let_go_where_a_run_needs_their_memory(self, checkpoint, device):
        runtime = load(checkpoint, device=device)
        runtime.generate(PROMPTS[0], max_new_tokens=1)
        weights = runtime._session._weights
        assert weights is not None
        assert weights.held_bytes > 0
        runtime.write_activations(PROMPTS, os.devnull)
        assert weights.held_bytes > 0  # there is room for both
        memory = runtime._session.plan([[3]], 3).peak_bytes
        choice = replace(runtime._session.choice, memory=memory)
        runtime._session.choice = choice
        with pytest.warns(SterWarning, match="read anew"):
            runtime.generate(PROMPTS[0], max_new_tokens=1)
        assert weights.held_bytes == 0

    def test_are_not_needed_for_a_document(self, runtime, made, tmp_path):
        runtime.write_activations(PROMPTS, tmp_path / "a.json")
        assert made == ALL
        runtime.write_activations(PROMPTS, tmp_path / "a.json")
        assert sorted(made) == sorted(2 * ALL)


class TestReports:
    def test_progress_adds_up_to_all_prompts_and_tokens(self, checkpoint, device):
        recorder = Recorder()
        prompts = [*PROMPTS, PROMPTS[0]]
        load(checkpoint, device=device, reporter=recorder).activations(prompts, [0, 2])
        assert [event.layer for event in recorder.events] == [0, 1, 2]
        assert [event.prompts_done for event in recorder.events] == [1, 2, 4]
        assert [event.tokens_done for event in recorder.events] == [5, 10, 15]
        assert {
            (e.num_prompts, e.num_tokens, e.num_layers) for e in recorder.events
        } == {(4, 15, 3)}

    def test_progress_goes_on_from_wave_to_wave(self, checkpoint, monkeypatch):
        monkeypatch.setattr("ster.runs.plan.WAVE_TOKENS", 8)
        recorder = Recorder()
        runtime = load(checkpoint, reporter=recorder)
        prompts = [text(random_ids(6, seed=seed)) for seed in range(4)]
        many = runtime.activations(prompts, [0, 1])
        done = [event.prompts_done for event in recorder.events]
        tokens = [event.tokens_done for event in recorder.events]
        assert done == [0, 1, 1, 2, 2, 3, 3, 4]
        assert tokens == sorted(tokens)
        assert tokens[-1] == recorder.events[-1].num_tokens
        monkeypatch.undo()
        one = load(checkpoint).activations(prompts, [0, 1])
        np.testing.assert_allclose(many.array, one.array, rtol=0, atol=1e-5)

    def test_the_template_is_noted_once_and_runs_add_nothing(self, checkpoint):
        recorder = Recorder()
        runtime = load(checkpoint, reporter=recorder)
        runtime.activations(PROMPTS)
        assert recorder.notes == [
            "this model publishes no chat template, so prompts and completions are "
            "encoded as raw text"
        ]
        assert recorder.warnings == []

    def test_a_prompt_past_the_trained_length_is_read_with_a_warning(
        self, tmp_path, device
    ):
        config = make_config(max_position_embeddings=4)
        directory = write_checkpoint(tmp_path, config).directory
        runtime = load(directory, device=device)
        long = text(random_ids(6))
        with pytest.warns(SterWarning) as caught:
            read = runtime.activations(["w3 w4 w5 w6", long])
        assert [str(warning.message) for warning in caught] == [
            "prompt 2 has 6 tokens, more than the model's max_position_embeddings of "
            "4; its later positions are past what the model was trained on"
        ]
        assert np.isfinite(read.array).all()

    def test_the_reporter_hears_the_warning_in_place_of_python(self, tmp_path):
        config = make_config(max_position_embeddings=4)
        directory = write_checkpoint(tmp_path, config).directory
        recorder = Recorder()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load(directory, reporter=recorder).activations([text(random_ids(6))])
        assert len(recorder.warnings) == 1


class TestNumbersThatAreNotFinite:
    def write(self, directory: Path, **changes: float) -> Path:
        """Write a checkpoint with one embedding row or one bias of a given value."""
        config = make_config(mlp_bias=True)
        tensors = make_tensors(config)
        tensors["model.embed_tokens.weight"][9] = changes.get("embedding", 0.5)
        bias = tensors["model.layers.1.mlp.down_proj.bias"]
        bias[3] = changes.get("bias", 0.5)
        return write_checkpoint(directory, config, tensors=tensors).directory

    def test_name_the_prompt(self, tmp_path, device):
        directory = self.write(tmp_path, embedding=np.inf)
        with pytest.raises(NumericsError) as caught:
            load(directory, device=device).activations(["w3 w4", "w5 w9"])
        assert caught.value.sentence == (
            "layer 0 of prompt 2 is not finite at --precision f32"
        )
        assert caught.value.causes == ("the checkpoint's own weights lead there",)
        assert (caught.value.layer, caught.value.prompt) == (0, 2)
        assert (caught.value.field, caught.value.found) == ("precision", "f32")

    def test_name_the_layer_and_the_way_out(self, tmp_path, device):
        directory = self.write(tmp_path, bias=70_000.0)  # past float16's 65504
        runtime = load(directory, device=device, precision="f16")
        assert np.isfinite(runtime.activations(["w3 w4"], 0).array).all()
        with pytest.raises(NumericsError) as caught:
            runtime.activations(["w3 w4"], [0, 1])
        wider = "" if device == "cpu" else " or bf16"
        assert str(caught.value) == (
            f"layer 1 of prompt 1 is not finite at --precision f16; use f32{wider}"
        )
        assert np.isfinite(
            load(directory, device=device).activations(["w3"]).array
        ).all()

    def test_leave_no_document_and_no_directory(self, tmp_path, device):
        directory = self.write(tmp_path / "model", embedding=np.inf)
        runtime = load(directory, device=device)
        with pytest.raises(NumericsError):
            runtime.write_activations(
                ["w3", "w9"], tmp_path / "new" / "deep" / "a.json"
            )
        assert [path.name for path in tmp_path.iterdir()] == ["model"]

    def test_leave_an_older_document_as_it_was(self, tmp_path):
        directory = self.write(tmp_path / "model", embedding=np.inf)
        path = tmp_path / "a.json"
        path.write_text(json.dumps("older"))
        with pytest.raises(NumericsError):
            load(directory).write_activations(["w3", "w9"], path)
        assert path.read_text() == '"older"'
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "model"]


def test_a_document_grows_wave_by_wave_beside_its_place(
    checkpoint, tmp_path, monkeypatch
):
    """What is held does not grow with the number of prompts."""
    output, sizes = tmp_path / "out.json", []
    read_rows = wave.read_rows

    def watched(*arguments: Any, **named: Any) -> Any:
        sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
        assert not output.exists()
        return read_rows(*arguments, **named)

    monkeypatch.setattr("ster.runs.reading.read_rows", watched)
    monkeypatch.setattr("ster.runs.plan.WAVE_TOKENS", 10)
    prompts = [text(random_ids(10, seed=seed)) for seed in range(400)]
    plan = load(checkpoint).write_activations(prompts, output)
    assert len(plan.waves) > 100
    assert sizes == sorted(sizes)
    # All but what a file buffers is on the disk before the last wave runs.
    assert output.stat().st_size - sizes[-1] < 2**18 < output.stat().st_size
    assert len(Activations.load(output)) == 400


def test_a_model_so_narrow_that_all_rows_fit_one_product(tmp_path, device):
    config = make_config(hidden_size=8, intermediate_size=4, head_dim=4)
    folder = str(write_checkpoint(tmp_path / "model", config))
    rows = load(folder, device=device).activations(PROMPTS).array
    np.testing.assert_allclose(rows, load(folder).activations(PROMPTS).array, atol=1e-5)


def wrong(runtime: Any, what: str) -> object:
    """Give what a notebook gives first: a path, a list, a dict."""
    pairs, vector = PairSet.of([("a b", "c d")]), Path("happy.json")
    return {
        "train": lambda: runtime.train("pairs.json"),
        "optimize": lambda: runtime.optimize([("a", "b")]),
        "evaluate pairs": lambda: runtime.evaluate({}, vector),
        "evaluate vector": lambda: runtime.evaluate(pairs, vector),
        "trial": lambda: runtime.evaluate(pairs, runtime.train(pairs), "4"),
        "steer": lambda: runtime.generate("the sea", steer="happy.json"),
        "several": lambda: runtime.activations(["the sea"], steer=[np.ones(64, "f4")]),
        "array": lambda: runtime.activations(["the sea"], steer=np.ones(64, "f4")),
        "sampling": lambda: runtime.generate("the sea", sampling={"top_p": 0.5}),
    }[what]()


@pytest.mark.parametrize(
    ("what", "sentence", "way"),
    [
        ("train", "pairs must be a PairSet, not str", "PairSet.load"),
        ("optimize", "pairs must be a PairSet, not list", "PairSet.of"),
        ("evaluate pairs", "pairs must be a PairSet, not dict", "PairSet.of"),
        ("evaluate vector", "vector must be a SteeringVector, not PosixPath", "load"),
        ("trial", "trial must be a StrengthTrial, not str", "StrengthTrial.of"),
        ("steer", "steer must be a SteeringVector, not str", "SteeringVector.load"),
        ("several", "steer must be a SteeringVector, not ndarray", "load"),
        ("array", "steer must be a SteeringVector, not ndarray", "load"),
        ("sampling", "sampling must be a Sampling, not dict", "ster.Sampling("),
    ],
)
def test_an_argument_of_another_type_is_refused_by_name(tmp_path, what, sentence, way):
    write_toy_checkpoint(tmp_path / "toy")
    with pytest.raises(UsageError) as caught:
        wrong(load(tmp_path / "toy"), what)
    assert caught.value.sentence == sentence
    assert way in caught.value.causes[0]


def test_a_verbose_answer_says_its_plan(tmp_path):
    write_toy_checkpoint(tmp_path / "toy")
    recorder = Recorder()
    runtime = load(tmp_path / "toy", reporter=recorder)
    runtime._session.choice = replace(runtime._session.choice, verbose=True)
    runtime.generate("the sea", max_new_tokens=1)
    (plan,) = (note for note in recorder.notes if note.startswith("plan: "))
    assert "4 blocks and the head, weights resident; one wave; peak " in plan


def test_one_text_is_no_list_of_responses(tmp_path):
    write_toy_checkpoint(tmp_path / "toy")
    with pytest.raises(PromptError, match="not one string") as caught:
        load(tmp_path / "toy").score_responses("the sea")
    assert (caught.value.field, caught.value.found) == ("responses", "the sea")


def test_a_log_probability_that_is_no_number_is_refused(tmp_path):
    tensors = make_tensors(make_config())
    tensors["model.embed_tokens.weight"][9] = np.nan
    runtime = load(write_checkpoint(tmp_path, tensors=tensors).directory)
    with pytest.raises(NumericsError) as caught:
        runtime.score_responses([text([3, 4]), text([3, 9, 5]), text([9, 3])])
    assert caught.value.sentence == "a log-probability is not finite at --precision f32"
    assert caught.value.causes == ("the checkpoint's own weights lead there",)
    assert caught.value.prompt == 2
    assert (caught.value.field, caught.value.found) == ("precision", "f32")


def test_an_answer_of_no_numbers_names_its_prompt_and_what_may_help(tmp_path):
    tensors = make_tensors(make_config(eos_token_id=None))
    tensors["model.embed_tokens.weight"][9] = np.inf
    runtime = load(write_checkpoint(tmp_path, tensors=tensors).directory)
    with pytest.raises(NumericsError) as caught:
        list(runtime.generate_all([text([3, 4]), text([9])], max_new_tokens=1))
    assert caught.value.prompt == 2
    assert caught.value.causes == ("the checkpoint's own weights lead there",)
    ones = np.ones((1, 32), np.float32)
    vector = SteeringVector(
        layers=(0,), array=ones, model=runtime.model, trait_name="t", method="caa"
    )
    with pytest.raises(NumericsError) as caught:
        runtime.score_responses([text([3, 9, 4])], steer=vector)
    assert caught.value.causes == ("the stream was steered: less strength may help",)


@pytest.mark.parametrize("run", ["generate", "score_responses"])
def test_an_answer_that_cannot_fit_is_refused_before_its_weights(tmp_path, run):
    write_toy_checkpoint(tmp_path / "toy")
    runtime = load(tmp_path / "toy", memory="1M")
    with pytest.raises(CapacityError, match="this run needs .* may use 1 MB") as caught:
        getattr(runtime, run)("the sea" if run == "generate" else ["the sea"])
    assert (caught.value.field, caught.value.prompt) == ("memory", 1)
    assert caught.value.expected == 10**6 < int(str(caught.value.found))
