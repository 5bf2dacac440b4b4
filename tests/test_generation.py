"""Generation and steering: published texts, caches, and what steering may not touch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.architecture.spec import ModelSpec
from ster.decoder.steerings import Steerings
from ster.errors import NumericsError, PromptError
from ster.runs.loop import run_blocks
from ster.runs.sampling import Sampling
from ster.runs.streams import pack_steered
from ster.runtime import Runtime
from ster.vectors.steering import SteeringVector
from ster.workflows.steering import sum_deltas
from tests.checkpoints import (
    make_config,
    make_tensors,
    random_ids,
    text,
    write_checkpoint,
)
from tests.conformance.running import no_memory_held
from tests.golden.family_cases import FAMILY_CASES
from tests.golden.golden import SEED
from tests.grown import grow_tokens

NUM_LAYERS = 3


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("toy") / "toy"
    ster.write_toy_checkpoint(folder)
    return str(folder)


def random_runtime(
    folder: Path, device: str, precision: str = "f32", **changes
) -> Runtime:
    config = make_config(**changes)
    checkpoint = write_checkpoint(folder / "model", config)
    return ster.load(str(checkpoint), device=device, precision=precision)


def make_vector(runtime: Runtime, *layers: int, scale: float = 1.0) -> SteeringVector:
    size = runtime.config.hidden_size
    rows = np.random.default_rng(5).standard_normal((len(layers), size))
    return SteeringVector(
        layers=layers,
        array=(rows * scale).astype(np.float32),
        model=runtime.model,
        trait_name="odd",
        method="caa",
    )


def caa(runtime: Runtime, pairs: list[tuple[str, str]], layers: str) -> SteeringVector:
    """Fit the mean difference with nothing but numpy."""
    sides = [
        runtime.activations([pair[side] for pair in pairs], layers).array
        for side in (0, 1)
    ]
    mean = (sides[0] - sides[1]).mean(axis=0)
    array = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    return SteeringVector(
        layers=tuple(range(*map(int, layers.split("..")))),
        array=array.astype(np.float32),
        model=runtime.model,
        trait_name="calm",
        method="caa",
    )


def test_the_published_texts_steered_and_not(toy, published, device):
    expected, runtime = published["generate"], ster.load(toy, device=device)
    vector = caa(runtime, published["pairs"], "1..3")
    length = expected["max_new_tokens"]

    def answer(*steer: SteeringVector) -> str:
        return runtime.generate(expected["prompt"], steer=steer, max_new_tokens=length)

    assert answer() == expected["unsteered"]
    for strength in (1, 2, 4):
        steered = expected["steered"][f"strength_{strength}"]
        assert answer(vector * float(strength)) == steered
        halves = [vector * (strength / 2), vector * (strength / 2)]
        assert answer(*halves) == steered


def tokens(runtime: Runtime, ids: list[int], count: int, *steer) -> list[int]:
    """Generate token ids, the likeliest each time, past any end of text."""
    session = runtime._session
    (made,) = grow_tokens(session, [ids], count, [sum_deltas(steer, session)])
    return made


@pytest.mark.parametrize(
    ("precision", "changes"),
    [
        ("f32", {}),
        ("f32", {"family": "mistral", "sliding_window": 5}),
        ("f32", {"family": "qwen3"}),
        ("f16", {"family": "qwen2"}),
    ],
)
def test_with_and_without_the_cache_the_same_tokens(
    tmp_path, device, precision, changes
):
    runtime = random_runtime(tmp_path, device, precision, **changes)
    vector, ids = make_vector(runtime, 0, 2, scale=2.0), random_ids(9)
    for steer in ((), (vector,)):
        # The slow and obvious way: the whole text anew for every token.
        whole = list(ids)
        for _ in range(8):
            whole += tokens(runtime, whole, 1, *steer)
        assert tokens(runtime, ids, 8, *steer) == whole[len(ids) :]


def test_a_cache_grows_past_every_step_of_its_arrays(tmp_path, device):
    runtime = random_runtime(tmp_path, device, num_hidden_layers=1)
    made = tokens(runtime, [3, 4], 300)
    assert len(made) == 300
    assert tokens(runtime, [3, 4, *made[:280]], 5) == made[280:285]


def test_generation_stops_where_the_trained_length_is_full(tmp_path, device):
    runtime = random_runtime(tmp_path, device, max_position_embeddings=12)
    assert len(tokens(runtime, random_ids(5), 50)) == 12 - 5


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_strength_zero_has_the_same_bits_as_unsteered(tmp_path, device, zero):
    runtime = random_runtime(tmp_path, device)
    vector, prompt = make_vector(runtime, 0, 1, 2), text(random_ids(6))
    plain = runtime.activations([prompt]).array
    steered = runtime.activations([prompt], steer=[vector * zero]).array
    assert steered.tobytes() == plain.tobytes()
    answers = runtime.generate(prompt), runtime.generate(prompt, steer=[vector * zero])
    assert answers[0] == answers[1]


def test_a_layer_is_read_before_its_own_vector_is_added(tmp_path, device):
    runtime = random_runtime(tmp_path, device)
    prompts = [text(random_ids(6)), text(random_ids(3, seed=1))]
    plain = runtime.activations(prompts).array
    steered = runtime.activations(prompts, steer=[make_vector(runtime, 1)]).array
    assert steered[:, :2].tobytes() == plain[:, :2].tobytes()
    assert np.abs(steered[:, 2] - plain[:, 2]).max() > 1e-2


def test_the_next_block_meets_the_stream_plus_the_vector(tmp_path, device):
    """Block 1 does nothing when its output projections are zero: it hands on s·v."""
    config = make_config()
    tensors = make_tensors(config)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"model.layers.1.{name}.weight"][:] = 0
    checkpoint = write_checkpoint(tmp_path / "model", config, tensors=tensors)
    runtime = ster.load(str(checkpoint), device=device)
    vector, prompt = make_vector(runtime, 0), text(random_ids(6))
    plain = runtime.activations([prompt], layers="0..2").array[0]
    steered = runtime.activations([prompt], "0..2", steer=[vector * 3.0]).array[0]
    moved = steered[1] - plain[1]
    assert moved == pytest.approx(3.0 * vector.direction(0), abs=1e-5)


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_a_vector_is_added_in_f32_whatever_the_precision(tmp_path, device, precision):
    """Of blocks that add nothing, the stream after one is the stream before it."""
    if (device, precision) == ("cpu", "bf16"):
        pytest.skip("the cpu has no bf16")
    config = make_config()
    tensors = make_tensors(config)
    for name in tensors:
        if "o_proj" in name or "down_proj" in name:
            tensors[name][:] = 0
    made = write_checkpoint(tmp_path / "model", config, tensors=tensors)
    runtime = ster.load(str(made), device=device, precision=precision)
    vector, prompt = make_vector(runtime, 0, scale=0.1), text(random_ids(5))
    before = runtime.activations([prompt]).array[0, 0]
    after = runtime.activations([prompt], steer=[vector]).array[0, 1]
    assert (after == before + vector.direction(0)).all()


def test_the_first_token_is_steered_too(tmp_path, device):
    runtime = random_runtime(tmp_path, device, eos_token_id=None)
    prompt = text(random_ids(6))
    push = make_vector(runtime, NUM_LAYERS - 1, scale=50.0)
    first = runtime.generate(prompt, max_new_tokens=1)
    assert runtime.generate(prompt, max_new_tokens=1, steer=[push]) != first


def test_pieces_of_a_stream_are_the_text(toy, device):
    runtime = ster.load(toy, device=device)
    pieces = list(runtime.stream("the sea is calm .", max_new_tokens=9))
    assert len(pieces) > 1
    assert "".join(pieces) == runtime.generate("the sea is calm .", max_new_tokens=9)


def test_sampling_repeats_with_its_seed(toy):
    runtime, prompt = ster.load(toy), "the sea is calm ."

    def answer(seed: int) -> str:
        sampling = Sampling(temperature=1.5, top_p=0.95, seed=seed)
        return runtime.generate(prompt, max_new_tokens=12, sampling=sampling)

    assert answer(1) == answer(1)
    assert len({answer(seed) for seed in range(4)}) > 1


def test_scores_are_sums_of_log_probabilities(toy, device):
    """Against the plain softmax of the logits of every prefix."""
    runtime = ster.load(toy, device=device)
    texts = ["the sea is calm .", "the sea is", "storm"]
    top = runtime.config.num_hidden_layers - 1
    expected = []
    for response in texts:
        ids = runtime.response_tokens(response)
        session = runtime._session
        with session.open(session.plan([ids], top + 1, head=True)) as decoder:
            steered = pack_steered(decoder.spec, [ids])
            nothing: Steerings[Any] = Steerings(decoder, [{}])
            parts = steered.parts(decoder, nothing, num_blocks=top + 1, top_rows=None)
            packed = steered.packed
            hidden = run_blocks(decoder, packed.token_ids, packed.position_ids, parts)
            logits = decoder.unembed(hidden).astype(np.float64)
        mass = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        expected.append(sum(np.log(mass[i, ids[i + 1]]) for i in range(len(ids) - 1)))
    for batch_size in (1, 2, 8):
        scores = runtime.score_responses(texts, batch_size=batch_size)
        assert scores == pytest.approx(expected, abs=1e-4)
    assert scores[2] == 0


def test_steering_moves_scores(toy):
    runtime = ster.load(toy)
    texts = ["the sea is calm .", "the storm waves crash ."]
    plain = runtime.score_responses(texts)
    moved = runtime.score_responses(texts, steer=[make_vector(runtime, 1)])
    assert np.abs(np.subtract(moved, plain)).min() > 1e-3


@pytest.mark.parametrize(
    ("prompt", "changes", "sentence"),
    [
        (" ", {}, "prompt must not be empty"),
        ("sea", {"max_new_tokens": 0}, "max_new_tokens must be greater than zero"),
        (
            "sea " * 256,
            {},
            "prompt contains 256 tokens, model context allows fewer than 256",
        ),
        (
            "sea",
            {"system": "Be calm."},
            "a conversation of several turns needs the model's chat template, and this "
            "run's chat template is absent",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused_before_weights(
    toy, prompt, changes, sentence
):
    runtime = ster.load(toy)
    with pytest.raises(PromptError) as refusal:
        runtime.stream(prompt, **changes)
    assert refusal.value.sentence == sentence


def test_an_untied_checkpoint_without_head_reads_but_does_not_answer(tmp_path, device):
    config = make_config(tie_word_embeddings=False)
    tensors = make_tensors(config)
    del tensors["lm_head.weight"]
    checkpoint = write_checkpoint(tmp_path / "model", config, tensors=tensors)
    runtime = ster.load(str(checkpoint), device=device)
    assert runtime.activations([text([3, 4])]).array.shape == (1, 3, 32)
    with pytest.raises(ster.SterError, match=r"lm_head\.weight is missing"):
        runtime.generate(text([3, 4]))


def test_scores_that_are_no_numbers_are_refused(tmp_path, device):
    config = make_config()
    tensors = make_tensors(config)
    tensors["model.norm.weight"][:] = np.inf
    checkpoint = write_checkpoint(tmp_path / "model", config, tensors=tensors)
    runtime = ster.load(str(checkpoint), device=device)
    with pytest.raises(NumericsError, match="are not finite at --precision f32"):
        runtime.generate(text([3, 4]))


def test_a_vector_of_another_model_is_refused(toy):
    runtime = ster.load(toy)
    stranger = make_vector(runtime, 1)
    stranger = SteeringVector(
        layers=(1,),
        array=stranger.array,
        model="elsewhere",
        trait_name="odd",
        method="caa",
    )
    with pytest.raises(ster.SterError) as refusal:
        runtime.generate("sea", steer=[stranger])
    assert refusal.value.sentence == (
        f'artifact was trained for model "elsewhere", current model is "{toy}"'
    )


def test_generation_in_less_memory_than_the_weights_says_the_same(
    tmp_path, device, monkeypatch
):
    """Blocks are read anew for every token, and a warning says so."""
    config = make_config(hidden_size=64, intermediate_size=4096, num_hidden_layers=8)
    checkpoint = write_checkpoint(tmp_path / "model", config)
    prompt = text(random_ids(4))
    expected = ster.load(str(checkpoint), device=device).generate(
        prompt, max_new_tokens=3
    )
    no_memory_held(monkeypatch, device)
    session = ster.load(str(checkpoint), device=device)._session
    plan = session.plan([[3] * 4], 8, head=True, new_tokens=3, logit_rows=1)
    runtime = ster.load(str(checkpoint), device=device, memory=plan.peak_bytes)
    with pytest.warns(ster.SterWarning, match="read anew for every token"):
        assert runtime.generate(prompt, max_new_tokens=3) == expected


def test_a_text_that_outgrows_longropes_first_length_is_read_anew(tmp_path, device):
    """The tokens that transformers 5.24 writes, in float64, with its cache."""
    config, _ = FAMILY_CASES["phi3-longrope"]
    checkpoint = write_checkpoint(tmp_path / "model", config, seed=SEED)
    runtime = ster.load(str(checkpoint), device=device)
    spec = runtime._session.spec
    assert isinstance(spec, ModelSpec)
    assert spec.reading_length(21, 10) == 25
    assert spec.reading_length(21, 3) == 21
    assert spec.reading_length(25, 10) == 25
    written = tokens(runtime, random_ids(21), 10)
    assert written == [22, 13, 27, 50, 55, 11, 35, 37, 43, 39]
