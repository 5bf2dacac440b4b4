"""The wide path as a library's user meets it: what is opened, refused and warned of."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.architecture.wide import WideSpec
from ster.architecture.wide_families import WRONG
from ster.decoder.devices import MLX_CPU
from ster.errors import CapacityError, ConfigError, PromptError, WeightsError
from tests.checkpoints import text, write_checkpoint
from tests.processes import finished
from tests.wide_checkpoints import write_wide

# Without importing it: that is what some of these tests look at.
pytestmark = pytest.mark.skipif(
    find_spec("mlx_lm") is None, reason="the extra mlx-lm is not installed"
)

PROMPTS = [text([3, 4, 5]), text([6, 7])]


def load(folder: Path, **how: Any) -> ster.Runtime:
    return ster.load(folder, **{"device": MLX_CPU, **how})


def refusal(folder: Path, **how: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        load(folder, **how)
    return refused.value


@pytest.fixture
def stablelm(tmp_path: Path) -> Path:
    return write_wide(tmp_path / "stablelm")


def test_a_model_says_what_it_is(stablelm: Path):
    runtime = load(stablelm)
    config = runtime.config
    assert isinstance(config, WideSpec)
    sizes = config.num_hidden_layers, config.hidden_size, config.vocab_size
    assert sizes == (3, 32, 60)
    assert config.max_position_embeddings == 512
    assert "stablelm, 3 layers, hidden_size=32" in repr(runtime)


def test_a_family_that_ster_owns_does_not_go_that_way(tmp_path: Path):
    made = write_checkpoint(tmp_path)
    assert not isinstance(load(made.directory).config, WideSpec)


def test_rows_of_chosen_layers_are_those_of_all(stablelm: Path):
    runtime = load(stablelm)
    every = runtime.activations(PROMPTS).array
    some = runtime.activations(PROMPTS, layers=[0, 2]).array
    assert np.array_equal(some, every[:, [0, 2]])


@pytest.mark.filterwarnings("ignore:no strength is chosen")
def test_a_direction_is_fitted_measured_and_steered_with(stablelm: Path):
    runtime = load(stablelm)
    sides = [(text([3 + i, 4]), text([30 + i, 4])) for i in range(6)]
    pairs = ster.PairSet.of(sides)
    vector = runtime.train(pairs)
    rows = runtime.activations([side for pair in sides for side in pair]).array
    mean = (rows[0::2] - rows[1::2]).mean(axis=0)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    assert vector.array == pytest.approx(mean, abs=1e-5)
    trial = ster.StrengthTrial.of([-2, 2], batch_size=2, max_sequence=20)
    strength = runtime.evaluate(pairs, vector, trial).strength
    assert strength is not None
    assert len(strength.candidates) == 2
    assert runtime.optimize(pairs, holdout=0.5).vector.layers
    steered = runtime.activations(PROMPTS, steer=[vector * 3.0]).array
    plain = runtime.activations(PROMPTS).array
    assert np.array_equal(steered[:, 0], plain[:, 0])
    assert not np.allclose(steered[:, 1], plain[:, 1])


def test_a_text_is_written_as_it_is_streamed(stablelm: Path):
    runtime = load(stablelm)
    answer = runtime.generate(PROMPTS[0], max_new_tokens=5)
    assert answer
    assert "".join(runtime.stream(PROMPTS[0], max_new_tokens=5)) == answer
    assert next(runtime.generate_all(PROMPTS, max_new_tokens=5)) == answer


def test_weights_stay_between_runs_and_count_once(stablelm: Path):
    runtime = load(stablelm)
    runtime.activations(PROMPTS)
    held = runtime._session._held_bytes
    runtime.activations(PROMPTS)
    assert runtime._session._held_bytes == held > 0


def test_weights_in_two_shards_are_read_by_their_index(stablelm: Path):
    from safetensors.numpy import load_file, save_file

    expected = load(stablelm).activations(PROMPTS).array
    tensors = load_file(stablelm / "model.safetensors")
    (stablelm / "model.safetensors").unlink()
    names = sorted(tensors)
    shard_of: dict[str, str] = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"part-{number}.safetensors"
        save_file({name: tensors[name] for name in part}, stablelm / file)
        shard_of |= dict.fromkeys(part, file)
    index = {"weight_map": shard_of}
    (stablelm / "model.safetensors.index.json").write_text(json.dumps(index))
    assert np.array_equal(load(stablelm).activations(PROMPTS).array, expected)


def test_a_checkpoint_that_mlx_lm_quantized_is_read(tmp_path: Path):
    import mlx.core as mx
    from safetensors.numpy import load_file

    folder = write_wide(tmp_path, quantization={"group_size": 32, "bits": 8})
    tensors = load_file(folder / "model.safetensors")
    stored: dict[str, Any] = {}
    for name, values in tensors.items():
        stored[name] = mx.array(values)
        if name.endswith("_proj.weight") and values.shape[-1] % 32 == 0:
            bare = name.removesuffix("weight")
            parts = mx.quantize(stored[name], group_size=32, bits=8)
            stored |= dict(
                zip((name, bare + "scales", bare + "biases"), parts, strict=True)
            )
            exact = mx.dequantize(*parts, group_size=32, bits=8)
            tensors[name] = np.array(exact)
    mx.save_safetensors(str(folder / "model.safetensors"), stored)
    rows = load(folder).activations(PROMPTS).array
    from safetensors.numpy import save_file

    plain = write_wide(tmp_path / "plain")
    save_file(tensors, plain / "model.safetensors")
    expected = load(plain).activations(PROMPTS).array
    assert rows == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_a_family_that_nobody_checked_warns(
    stablelm: Path, monkeypatch: pytest.MonkeyPatch
):
    import mlx_lm

    monkeypatch.setattr("ster.decoder.wide.CHECKED", {})
    with pytest.warns(ster.SterWarning) as told:
        load(stablelm)
    assert [str(each.message) for each in told] == [
        "nobody has checked stablelm against a reference; its rows come from mlx-lm "
        f"{mlx_lm.__version__} as they are"
    ]


@pytest.mark.parametrize("family", sorted(WRONG))
def test_a_family_that_is_computed_wrongly_is_refused(tmp_path: Path, family: str):
    refused = refusal(write_wide(tmp_path, family))
    assert refused.sentence.startswith(f"mlx-lm computes {family} wrongly: ")
    assert refused.found == family


def test_on_cpu_the_way_out_is_said(stablelm: Path):
    refused = refusal(stablelm, device="cpu")
    assert refused.sentence.startswith('model architecture "stablelm" is unsupported')
    (cause,) = refused.causes
    assert "--device metal" in cause
    assert "pip install 'ster-mlx[mlx-lm]'" in cause


def test_without_mlx_lm_the_way_out_is_said(
    stablelm: Path, monkeypatch: pytest.MonkeyPatch
):
    from ster.decoder import mlx_lm

    monkeypatch.setitem(sys.modules, "mlx_lm", None)
    mlx_lm.import_mlx_lm.cache_clear()
    try:
        refused = refusal(stablelm)
    finally:
        mlx_lm.import_mlx_lm.cache_clear()
    assert refused.sentence.startswith('model architecture "stablelm" is unsupported')
    assert "pip install 'ster-mlx[mlx-lm]'" in refused.causes[0]


@pytest.mark.parametrize(
    "family", ["nobody_knows", "cache", "base", "../utils", "a.b", "", "kv\0"]
)
def test_a_family_that_mlx_lm_does_not_have_is_refused(stablelm: Path, family: str):
    refused = refusal(write_wide(stablelm, model_type=family))
    assert refused.sentence.startswith("model architecture ")
    assert "does not have" in refused.causes[0]
    assert refused.found == family


@pytest.mark.parametrize("family", ["bert", "t5", "whisper", "clip", "llada"])
@pytest.mark.parametrize("place", ["cpu", MLX_CPU])
def test_what_is_no_decoder_is_named(stablelm: Path, family: str, place: str):
    refused = refusal(write_wide(stablelm, model_type=family), device=place)
    assert refused.sentence.startswith(f'model architecture "{family}" is unsupported')
    assert "causal language model" in refused.causes[0]


def test_a_config_that_the_family_does_not_take_is_refused(stablelm: Path):
    refused = refusal(write_wide(stablelm, layer_norm_eps=...))
    assert refused.sentence == f"invalid stablelm config {stablelm}/config.json"
    assert "layer_norm_eps" in refused.causes[1]


def test_many_streams_are_refused_when_the_model_is_opened(tmp_path: Path):
    config = {
        "model_type": "gemma3n",
        "text_config": {
            "model_type": "gemma3n_text",
            "hidden_size": 32,
            "num_hidden_layers": 3,
            "intermediate_size": 48,
            "num_attention_heads": 4,
            "head_dim": 8,
            "rms_norm_eps": 1e-6,
            "vocab_size": 60,
            "num_key_value_heads": 2,
            "num_kv_shared_layers": 0,
            "vocab_size_per_layer_input": 60,
            "sliding_window": 16,
            "max_position_embeddings": 64,
            "rope_local_base_freq": 1e4,
            "rope_theta": 1e6,
            "final_logit_softcapping": 30.0,
            "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
            "activation_sparsity_pattern": [0.0] * 3,
            "hidden_size_per_layer_input": 8,
            "altup_num_inputs": 4,
            "altup_coef_clip": 120.0,
            "altup_correct_scale": True,
            "altup_active_idx": 0,
            "laurel_rank": 4,
        },
    }
    folder = write_wide(tmp_path)
    (folder / "config.json").write_text(json.dumps(config))
    refused = refusal(folder)
    assert refused.sentence.startswith(
        "the residual stream of gemma3n cannot be read: layer 0 returns an array of "
        "shape (4, 1, 2, 32)"
    )


def test_prompts_past_a_window_that_is_not_known_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ster.decoder.wide.WRONG", {})
    folder = write_wide(tmp_path, "starcoder2", sliding_window=8)
    with pytest.warns(ster.SterWarning, match="nobody has checked"):
        runtime = load(folder)
    runtime.activations([text([5] * 8)])
    with pytest.raises(PromptError) as refused:
        runtime.activations([text([5]), text([5] * 9)])
    facts = refused.value.prompt, refused.value.found, refused.value.expected
    assert facts == (2, 9, 8)
    with pytest.raises(PromptError, match="model context allows fewer than 8"):
        runtime.generate(text([5] * 8))


def test_less_memory_than_the_weights_is_refused(stablelm: Path):
    runtime = load(stablelm, memory=1)
    with pytest.raises(CapacityError) as refused:
        runtime.activations(PROMPTS)
    assert refused.value.expected == 1


def test_damaged_weights_are_named(stablelm: Path):
    file = stablelm / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(WeightsError) as refused:
        load(stablelm).activations(PROMPTS)
    assert refused.value.sentence == "failed to map 1 model weight files"
    assert "model.safetensors" in refused.value.causes[0]


@pytest.mark.parametrize("change", ["missing", "unknown", "shape"])
def test_tensors_that_do_not_fit_are_named(stablelm: Path, change: str):
    from safetensors.numpy import load_file, save_file

    file = stablelm / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.1.mlp.up_proj.weight"
    if change == "missing":
        del tensors[name]
    elif change == "shape":
        tensors[name] = tensors[name][:-1]
    else:
        name = "model.layers.1.mlp.up_proj.bias"
        tensors[name] = np.zeros(48, np.float32)
    save_file(tensors, file)
    with pytest.raises(WeightsError) as refused:
        load(stablelm).activations(PROMPTS)
    assert refused.value.sentence == "failed to map 1 model weight files"
    assert name in " ".join(refused.value.causes)


def test_an_id_outside_the_vocabulary_is_refused(stablelm: Path):
    runtime = load(write_wide(stablelm))
    with pytest.raises(PromptError, match="outside the model's vocabulary of 60"):
        runtime._session.check_tokens([[60]])


def test_the_import_leaves_the_process_as_it_was(stablelm: Path):
    program = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (700, 900))
os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # mlx-lm's, and harmless
before = dict(os.environ) | {{"MLX_ENABLE_TF32": "0"}}
import ster
ster.load({str(stablelm)!r}, device={MLX_CPU!r})
assert "mlx_lm" in sys.modules
print(resource.getrlimit(resource.RLIMIT_NOFILE))
print({{k for k, v in os.environ.items() if before.get(k) != v}})
"""
    result = finished([sys.executable, "-c", program])
    assert result.stderr == b""
    first, second = result.stdout.decode().splitlines()
    assert first == "(700, 900)"
    assert second == "set()"


def test_only_who_needs_it_waits_for_mlx_lm(tmp_path: Path):
    made = write_checkpoint(tmp_path)
    program = f"""
import sys, ster
ster.load({str(made)!r}, device={MLX_CPU!r})
print([name for name in ("mlx_lm", "transformers") if name in sys.modules])
"""
    result = finished([sys.executable, "-c", program])
    assert result.stdout == b"[]\n"


@pytest.mark.parametrize("name", ["apertus", "deepseek_v3", "mamba2", "gemma4"])
def test_threads_share_a_model(tmp_path: Path, name: str):
    # Rotary angles and the like are made when the model is, whoever runs it later.
    runtime = load(write_wide(tmp_path, name))
    expected = load(tmp_path).activations(PROMPTS).array
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(runtime.activations, PROMPTS) for _ in range(4)]
        for run in runs:
            assert np.array_equal(run.result(timeout=60).array, expected)
    assert np.array_equal(runtime.activations(PROMPTS).array, expected)


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("gemma4", "num_key_value_heads", 0),
        ("qwen3_5", "head_dim", -1),
        ("stablelm", "num_hidden_layers", 10**6),
        ("stablelm", "num_attention_heads", "x"),
        ("stablelm", "quantization", {"bits": 4}),
        ("deepseek_v3", "n_routed_experts", None),
        ("stablelm", "model_type", ["stablelm"]),
    ],
)
def test_a_field_of_another_kind_is_refused_and_ends_nothing(
    tmp_path: Path, family: str, field: str, value: object
):
    folder = write_wide(tmp_path, family)
    config = json.loads((folder / "config.json").read_text())
    config.get("text_config", config)[field] = value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ster.SterError):
        load(folder).activations(PROMPTS)
