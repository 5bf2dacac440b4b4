"""Cases from the field: how prompts run together, and what becomes of them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers

import ster
from ster.errors import (
    NumericsError,
)
from tests.checkpoints import (
    Checkpoint,
    make_config,
    make_tensors,
    random_ids,
    text,
    write_checkpoint,
)
from tests.conformance.compare import assert_close, tolerance
from tests.conformance.running import (
    force_streaming,
    force_waves,
    refusal,
    rows_of,
    truth,
)

LENGTHS = (1, 2, 3, 17, 64, 65, 300)
PROMPTS = [random_ids(length, seed=length) for length in LENGTHS]

# Case 1: position and batching


@pytest.fixture(scope="module")
def expected(llama: Checkpoint) -> NDArray[np.float64]:
    return truth(llama, PROMPTS)


def test_prompts_together_have_the_rows_they_should(
    llama: Checkpoint, expected: NDArray[np.float64], device: str
):
    rows = rows_of(llama, PROMPTS, device)
    assert_close(rows, expected, tolerance(device, "f32"))


def test_a_prompt_alone_has_the_rows_that_it_has_among_others(
    llama: Checkpoint, expected: NDArray[np.float64], device: str
):
    runtime = ster.load(str(llama), device=device)
    alone = [runtime.activations([text(prompt)]).array for prompt in PROMPTS]
    assert_close(np.concatenate(alone), expected, tolerance(device, "f32"))


def test_rows_come_in_the_order_of_the_prompts(
    llama: Checkpoint, expected: NDArray[np.float64], device: str
):
    order = random.Random(0).sample(range(len(PROMPTS)), len(PROMPTS))
    rows = rows_of(llama, [PROMPTS[i] for i in order], device)
    assert_close(rows, expected[order], tolerance(device, "f32"))


def test_waves_give_the_same_rows_as_one(
    llama: Checkpoint,
    expected: NDArray[np.float64],
    device: str,
    monkeypatch: pytest.MonkeyPatch,
):
    force_waves(monkeypatch, 3)
    rows = rows_of(llama, PROMPTS, device)
    assert_close(rows, expected, tolerance(device, "f32"))


def test_a_document_written_in_waves_is_the_document_of_one_wave(
    llama: Checkpoint,
    expected: NDArray[np.float64],
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    force_waves(monkeypatch, 2)
    force_streaming(monkeypatch, device)
    runtime = ster.load(str(llama), device=device)
    prompts = [text(prompt) for prompt in PROMPTS]
    plan = runtime.write_activations(prompts, tmp_path / "rows.json")
    read = ster.Activations.load(tmp_path / "rows.json")
    assert (len(plan.waves), plan.keep) == (4, False)
    assert read.prompts == tuple(prompts)
    assert_close(read.array, expected, tolerance(device, "f32"))


# Case 2: the last block


@pytest.mark.parametrize("final_norm", [0.0, 3.0])
def test_the_last_block_is_read_before_the_final_norm(
    tmp_path: Path, device: str, final_norm: float
):
    tensors = make_tensors(make_config())
    plain = write_checkpoint(tmp_path / "plain", tensors=tensors)
    changed = tensors | {"model.norm.weight": np.full(32, final_norm, np.float32)}
    other = write_checkpoint(tmp_path / "other", tensors=changed)
    rows = rows_of(other, device=device)
    assert np.array_equal(rows, rows_of(plain, device=device))
    assert_close(rows, truth(plain), tolerance(device, "f32"))


# Case 3: prefix sharing

STEM = random_ids(20, seed=1)
SHARED_PREFIXES = {
    "a prompt is the shared prefix itself": [[*STEM, 5, 6], STEM, [*STEM, 7]],
    "each prompt is a prefix of the next": [STEM[: n + 1] for n in range(20)],
    "they share the first token only": [[9, n, n, n] for n in range(3, 13)],
}


@pytest.mark.parametrize("prompts", SHARED_PREFIXES.values(), ids=SHARED_PREFIXES)
def test_a_shared_prefix_changes_no_number(
    llama: Checkpoint, device: str, prompts: list[list[int]]
):
    rows = rows_of(llama, prompts, device)
    assert_close(rows, truth(llama, prompts), tolerance(device, "f32"))


def test_equal_prompts_have_equal_rows(llama: Checkpoint, device: str):
    rows = rows_of(llama, [STEM, [4], STEM], device)
    assert np.array_equal(rows[0], rows[2])


def test_a_token_over_the_border_of_the_shared_text_is_read_as_it_is(
    tmp_path: Path, device: str
):
    made = write_checkpoint(tmp_path)
    # "ab" is one token: "xa" and "xab" share a text and not its tokens.
    vocab = {"[UNK]": 0, "x": 3, "a": 4, "b": 5, "ab": 6}
    tokenizer = Tokenizer(models.BPE(vocab, [("a", "b")], unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rows = ster.load(tmp_path, device=device).activations(["xa", "xab", "xaba"]).array
    expected = truth(made, [[3, 4], [3, 6], [3, 6, 4]])
    assert_close(rows, expected, tolerance(device, "f32"))


# Case 5: longer than trained


def test_a_prompt_past_the_trained_length_is_computed_with_a_warning(
    tmp_path: Path, device: str
):
    made = write_checkpoint(tmp_path, make_config(max_position_embeddings=16))
    prompts = [random_ids(16), random_ids(17, seed=1)]
    with pytest.warns(ster.SterWarning, match="prompt 2 has 17 tokens.* of 16") as said:
        rows = rows_of(made, prompts, device)
    assert len(said) == 1
    assert_close(rows, truth(made, prompts), tolerance(device, "f32"))


# Case 16: past the range of f16


@pytest.fixture
def loud(tmp_path: Path) -> Checkpoint:
    """Write a checkpoint where token 9 alone passes 65504, in block 1.

    The stream does, which is f32, and what the down projection takes, which is not.
    """
    config = make_config(mlp_bias=True)
    tensors = make_tensors(config)
    tensors["model.embed_tokens.weight"][:, 5] = 0
    tensors["model.embed_tokens.weight"][9, 5] = 65000
    tensors["model.layers.1.mlp.down_proj.bias"][5] = 1000
    for part in ("gate", "up"):
        tensors[f"model.layers.1.mlp.{part}_proj.weight"][0] = 0
        tensors[f"model.layers.1.mlp.{part}_proj.weight"][0, 5] = 50
    return write_checkpoint(tmp_path / "loud", config, tensors=tensors)


def test_a_run_past_the_range_of_f16_is_refused_by_layer_and_prompt(
    loud: Checkpoint, tmp_path: Path, device: str
):
    way_out = "use f32" if device == "cpu" else "use f32 or bf16"
    sentence = f"layer 1 of prompt 3 is not finite at --precision f16; {way_out}"
    runtime = ster.load(str(loud), device=device, precision="f16")
    # The second is a prefix of the third and shares its rows.
    prompts = [text([4, 5]), text([6, 7]), text([6, 7, 9]), text([6, 8])]
    for run in (
        lambda: runtime.activations(prompts),
        lambda: runtime.write_activations(prompts, tmp_path / "new" / "rows.json"),
    ):
        with pytest.raises(NumericsError) as refused:
            run()
        assert refused.value.sentence == sentence
    assert not (tmp_path / "new").exists()


def test_a_stream_past_the_range_of_f16_is_read_at_f16(tmp_path: Path, device: str):
    config = make_config(mlp_bias=True)
    tensors = make_tensors(config)
    tensors["model.embed_tokens.weight"][9, 5] = 65000
    tensors["model.layers.1.mlp.down_proj.bias"][5] = 1000
    made = write_checkpoint(tmp_path, config, tensors=tensors)
    rows = rows_of(made, [[6, 7, 9]], device, precision="f16")
    assert rows.max() > 65504
    assert_close(rows, truth(made, [[6, 7, 9]]), tolerance(device, "f16"))


def test_the_same_run_is_read_at_f32(loud: Checkpoint, device: str):
    rows = rows_of(loud, [[6, 7, 9]], device)
    assert rows.max() > 65504
    assert_close(rows, truth(loud, [[6, 7, 9]]), tolerance(device, "f32"))


def test_at_f16_a_layer_below_the_overflow_is_read(loud: Checkpoint, device: str):
    runtime = ster.load(str(loud), device=device, precision="f16")
    rows = runtime.activations([text([6, 7, 9])], layers=[0]).array
    expected = truth(loud, [[6, 7, 9]])[:, :1]
    assert_close(rows, expected, tolerance(device, "f16"))


def test_a_residual_that_is_no_number_at_f32_is_refused_too(tmp_path: Path):
    tensors = make_tensors(make_config())
    tensors["model.layers.2.mlp.down_proj.weight"][3, 3] = np.nan
    made = write_checkpoint(tmp_path, tensors=tensors)
    assert "layer 2 of prompt 1 is not finite at --precision f32" in refusal(made)


# Case 27: the same again


def test_the_same_run_twice_writes_the_same_bytes(
    llama: Checkpoint, tmp_path: Path, device: str
):
    documents = []
    for name in ("first.json", "second.json"):
        runtime = ster.load(str(llama), device=device)
        prompts = [text(prompt) for prompt in PROMPTS]
        runtime.write_activations(prompts, tmp_path / name)
        documents.append((tmp_path / name).read_bytes())
    assert documents[0] == documents[1]


def test_a_second_run_of_one_runtime_gives_the_same_numbers(
    llama: Checkpoint, device: str
):
    runtime = ster.load(str(llama), device=device)
    prompts = [text(prompt) for prompt in PROMPTS]
    first = runtime.activations(prompts, layers=[0]).array
    everything = runtime.activations(prompts).array
    assert np.array_equal(runtime.activations(prompts, layers=[0]).array, first)
    assert np.array_equal(runtime.activations(prompts).array, everything)
