"""Logits, tokens and scores against transformers, and against the oracle."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ster
from tests import reference
from tests.checkpoints import (
    ORACLE_FAMILIES,
    make_config,
    make_tensors,
    random_ids,
    text,
    write_checkpoint,
)
from tests.conformance.answering import continue_greedily, scores, steering
from tests.conformance.compare import assert_close, precisions, tolerance
from tests.families import field_of
from tests.golden.golden import NAMES, ORACLE_NAMES, Golden, read_golden
from tests.golden.texts import MODES, TEXT_NAMES, open_texts
from tests.quantized import plain_twin

# The dynamic and the long prompts go past the trained length on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::ster.SterWarning")


def open_golden(name: str, folder: Path, **how: Any) -> tuple[Golden, ster.Runtime]:
    golden = read_golden(name)
    write_checkpoint(folder, golden.config, seed=golden.seed)
    return golden, ster.load(folder, **how)


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers_at_every_width(
    tmp_path: Path, name: str, device: str
):
    for precision in precisions(device):
        how = {"device": device, "precision": precision}
        golden, runtime = open_golden(name, tmp_path, **how)
        # Where the trained length is full nothing is generated.
        limit = field_of(golden.config, "max_position_embeddings")
        room = [i for i, prompt in enumerate(golden.prompts) if len(prompt) < limit]
        made = [continue_greedily(runtime, golden.prompts[i]) for i in room]
        logits = np.stack([logits for _, logits in made])
        allowed = tolerance(device, precision)
        if precision != "f32":
            # One prompt of phi3-longrope is 0.081 off at bf16, where transformers is
            # 0.060, and one of gpt-oss-v5 0.0082 at f16, where it is 0.0057. All others
            # are within a layer's tolerance.
            allowed *= 2
        assert_close(logits, golden.logits[room, None], allowed)
        if precision == "f32":
            assert [tokens[0] for tokens, _ in made] == [golden.next[i] for i in room]


@pytest.mark.parametrize("name", NAMES)
def test_a_steered_run_is_that_of_transformers(tmp_path: Path, name: str, device: str):
    golden, runtime = open_golden(name, tmp_path, device=device)
    steered, allowed = golden.steered, tolerance(device, "f32")
    vectors = steering(runtime, steered.vectors)
    rows = runtime.activations([text(steered.prompt)], steer=vectors).array
    assert_close(rows, steered.residuals[None], allowed)
    tokens, logits = continue_greedily(runtime, steered.prompt, 1, steered.vectors)
    assert_close(logits[None], steered.logits[None, None], allowed)
    assert tokens == [steered.next]
    plain = golden.logits[golden.prompts.index(steered.prompt)]
    assert np.abs(plain - steered.logits).max() > 0.1  # there is something to see


@pytest.mark.parametrize("name", NAMES)
def test_a_response_has_the_log_probability_of_transformers(
    tmp_path: Path, name: str, device: str
):
    golden, runtime = open_golden(name, tmp_path, device=device)
    scored, near = golden.scored, tolerance(device, "f32")
    assert scores(runtime, [scored.response]) == pytest.approx(
        [scored.unsteered], rel=near
    )
    steered = scores(runtime, [scored.response], golden.steered.vectors)
    assert steered == pytest.approx([scored.steered], rel=near)
    # There is something to see, of sums of some 60.
    assert abs(scored.steered - scored.unsteered) > 0.02


@pytest.mark.parametrize("chat_template", MODES)
@pytest.mark.parametrize("name", TEXT_NAMES)
def test_the_token_after_a_text_is_that_of_transformers(
    tmp_path: Path, name: str, chat_template: str, device: str
):
    golden = open_texts(name, tmp_path)
    texts = golden.of[chat_template]
    runtime = ster.load(golden.directory, device=device, chat_template=chat_template)
    made = [continue_greedily(runtime, ids)[0][0] for ids in texts.token_ids]
    assert made == (texts.next or made)


@pytest.mark.parametrize("name", ORACLE_NAMES)
def test_the_oracle_has_the_logits_and_scores_of_transformers(name: str):
    golden = read_golden(name)
    tensors = make_tensors(golden.config, golden.seed)
    config, tensors = plain_twin(golden.config, tensors)
    steered, scored = golden.steered, golden.scored
    found = [reference.logits(config, tensors, prompt)[-1] for prompt in golden.prompts]
    found += [reference.logits(config, tensors, steered.prompt, steered.vectors)[-1]]
    expected = np.stack([*golden.logits, steered.logits])
    assert_close(np.stack(found, dtype=np.float32)[:, None], expected[:, None], 2e-6)
    rows = reference.last_rows(
        config, tensors, steered.prompt, steering=steered.vectors
    )
    assert_close(rows[None].astype(np.float32), steered.residuals[None], 2e-6)
    sums = [
        reference.log_probability(config, tensors, scored.response, vectors)
        for vectors in ({}, steered.vectors)
    ]
    assert sums == pytest.approx([scored.unsteered, scored.steered], rel=2e-6)


SHAPES = st.fixed_dictionaries(
    {
        "family": st.sampled_from(ORACLE_FAMILIES),
        "num_hidden_layers": st.integers(1, 4),
        "num_key_value_heads": st.sampled_from([1, 2, 4]),
        "head_dim": st.sampled_from([6, 8, 14]),
        "tie_word_embeddings": st.booleans(),
        "rope_theta": st.sampled_from([100.0, 10000.0, 1e6]),
        "rms_norm_eps": st.sampled_from([1e-6, 1e-3]),
        "vocab_size": st.integers(20, 80),
        "max_position_embeddings": st.just(4096),
    }
)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # device is a word
)
@given(
    shape=SHAPES,
    seed=st.integers(0, 1 << 16),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
def test_any_checkpoint_answers_and_scores_as_the_oracle(
    device: str, shape: dict[str, Any], seed: int, lengths: list[int]
):
    config = make_config(**shape)
    if "layer_types" in config:
        kinds = ["sliding_attention", "full_attention"]
        config["layer_types"] = (kinds * 4)[: config["num_hidden_layers"]]
    vocab, size = config["vocab_size"], config["hidden_size"]
    prompts = [random_ids(n, seed + n, vocab) for n in lengths]
    rows = np.random.default_rng(seed).uniform(-2, 2, (2, size)).astype(np.float32)
    top = config["num_hidden_layers"] - 1
    steered = {top // 2: rows[0], top: rows[1]}
    near = tolerance(device, "f32")
    with TemporaryDirectory() as folder:
        made = write_checkpoint(Path(folder), config, seed=seed)
        runtime = ster.load(folder, device=device)
        for vectors in ({}, steered):
            # More than one token, so that the cache has its say.
            tokens, logits = continue_greedily(runtime, prompts[0], 4, vectors)
            known = [*prompts[0], *tokens[:-1]]
            truth = reference.logits(config, made.tensors, known, vectors)
            assert_close(logits[None], truth[None, -4:], near)
            for token, row in zip(tokens, truth[-4:], strict=True):
                assert row[token] >= row.max() - 2 * near * np.abs(row).max()
            summed = scores(runtime, prompts, vectors)
            expected = [
                reference.log_probability(config, made.tensors, prompt, vectors)
                for prompt in prompts
            ]
            assert summed == pytest.approx(expected, rel=near, abs=1e-4)
