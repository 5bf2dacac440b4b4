"""Cases from the field: what a config and the weight files may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.architecture.spec import ModelSpec
from ster.decoder.numpy.decoder import NumpyDecoder
from ster.errors import (
    CheckpointError,
)
from tests.checkpoints import (
    Checkpoint,
    make_config,
    make_tensors,
    write_checkpoint,
)
from tests.conformance.compare import assert_close, precisions, tolerance
from tests.conformance.running import (
    FEW,
    refusal,
    rows_of,
    truth,
)

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


# Cases 6 and 7: rotary scaling


def test_theta_and_scaling_are_read_from_rope_parameters_alone(
    tmp_path: Path, device: str
):
    parameters = LLAMA3 | {"rope_theta": 500000.0}
    config = make_config(rope_theta=..., rope_parameters=parameters)
    made = write_checkpoint(tmp_path / "new", config)
    rows = rows_of(made, device=device)
    assert_close(rows, truth(made), tolerance(device, "f32"))
    old = make_config(rope_theta=500000.0, rope_scaling=LLAMA3)
    assert np.array_equal(
        rows, rows_of(write_checkpoint(tmp_path / "old", old), FEW, device)
    )
    silent = write_checkpoint(tmp_path / "ten thousand", make_config())
    assert np.abs(rows - rows_of(silent, FEW, device)).max() > 0.1


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"rope_type": "default", "rope_theta": 500000.0}, "rope_theta"),
        ({"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}, "default"),
        (LLAMA3 | {"factor": 4.0, "rope_theta": 10000.0}, "factor"),
    ],
)
def test_two_spellings_that_disagree_are_refused_and_both_named(
    tmp_path: Path, parameters: dict[str, Any], named: str
):
    scaling = {"rope_type": "default"} if named == "default" else None
    config = make_config(
        rope_scaling=LLAMA3 if named == "factor" else scaling,
        rope_parameters=parameters,
    )
    sentence = refusal(write_checkpoint(tmp_path, config))
    both = [
        "rope_parameters",
        "rope_theta" if named == "rope_theta" else "rope_scaling",
    ]
    assert [word for word in (*both, named) if word not in sentence] == []


def test_two_spellings_that_agree_are_read(tmp_path: Path):
    both = make_config(
        rope_theta=500000.0,
        rope_scaling=LLAMA3,
        rope_parameters=LLAMA3 | {"rope_theta": 500000.0},
    )
    made = write_checkpoint(tmp_path, both)
    assert_close(rows_of(made), truth(made), 1e-5)


@pytest.mark.parametrize(
    "scaling", [None, {"rope_type": "default"}, {"type": "default"}]
)
def test_no_scaling_may_be_said_in_several_ways(
    llama: Checkpoint, tmp_path: Path, scaling: dict[str, Any] | None
):
    made = write_checkpoint(tmp_path, make_config(rope_scaling=scaling))
    assert np.array_equal(rows_of(made), rows_of(llama))


def test_the_older_word_for_the_kind_of_scaling_is_read(tmp_path: Path):
    older = {("type" if k == "rope_type" else k): v for k, v in LLAMA3.items()}
    made = write_checkpoint(tmp_path, make_config(rope_scaling=older))
    assert_close(rows_of(made), truth(made), 1e-5)


@pytest.mark.parametrize("word", ["type", "rope_type"])
@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_a_scaling_that_ster_lacks_is_refused_by_name(
    tmp_path: Path, word: str, place: str
):
    scaling: dict[str, Any] = {place: {word: "ntk", "factor": 2.0}}
    config = make_config(**scaling)
    sentence = refusal(write_checkpoint(tmp_path, config))
    assert 'rope_scaling "ntk"; Ster implements' in sentence


# Cases 8 to 12: the other fields of config.json


def test_a_checkpoint_that_says_nothing_of_tying_has_its_own_head(tmp_path: Path):
    made = write_checkpoint(tmp_path, make_config(tie_word_embeddings=...))
    assert "lm_head.weight" in made.tensors
    config = ster.load(tmp_path).config
    assert isinstance(config, ModelSpec)
    assert config.head is not None
    assert_close(rows_of(made), truth(made), 1e-5)


@pytest.mark.parametrize("prefix", ["model.", ""])
def test_extraction_needs_neither_a_head_nor_a_final_norm(
    llama: Checkpoint, tmp_path: Path, device: str, prefix: str
):
    unread = ("lm_head.weight", "model.norm.weight")
    tensors = {k: v for k, v in llama.tensors.items() if k not in unread}
    made = write_checkpoint(tmp_path, tensors=tensors, prefix=prefix)
    rows = rows_of(made, device=device)
    assert np.array_equal(rows, rows_of(llama, device=device))


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_heads_need_not_fill_the_hidden_size(tmp_path: Path, device: str, family: str):
    made = write_checkpoint(tmp_path, make_config(family, head_dim=10))
    rows = rows_of(made, device=device)
    assert_close(rows, truth(made), tolerance(device, "f32"))


@pytest.mark.parametrize("count", [..., None, 4])
def test_without_a_count_of_key_value_heads_every_head_has_its_own(
    tmp_path: Path, count: int | None
):
    made = write_checkpoint(tmp_path, make_config(num_key_value_heads=count))
    assert made.tensors["model.layers.0.self_attn.k_proj.weight"].shape == (32, 32)
    assert_close(rows_of(made), truth(made), 1e-5)


def test_all_heads_may_share_one_key_head(tmp_path: Path, device: str):
    made = write_checkpoint(tmp_path, make_config(num_key_value_heads=1))
    rows = rows_of(made, device=device)
    assert_close(rows, truth(made), tolerance(device, "f32"))


BIASES = [
    ("llama", "attention_bias"),
    ("llama", "mlp_bias"),
    ("qwen3", "attention_bias"),
]


@pytest.mark.parametrize(("family", "field"), BIASES)
def test_biases_that_the_config_declares_are_used(
    tmp_path: Path, device: str, family: str, field: str
):
    made = write_checkpoint(tmp_path, make_config(family, **{field: True}))
    rows = rows_of(made, device=device)
    assert_close(rows, truth(made), tolerance(device, "f32"))
    without = {k: v for k, v in made.tensors.items() if not k.endswith(".bias")}
    bare = write_checkpoint(tmp_path / "bare", make_config(family), tensors=without)
    assert np.abs(rows - truth(bare)).max() > 0.1


@pytest.mark.parametrize(("family", "field"), BIASES)
def test_biases_that_the_config_denies_are_refused_and_never_dropped(
    tmp_path: Path, family: str, field: str
):
    tensors = make_tensors(make_config(family, **{field: True}))
    config = make_config(family, **{field: False})
    made = write_checkpoint(tmp_path, config, tensors=tensors)
    assert ".bias is in the checkpoint" in refusal(made)


def test_qwen2_has_its_three_biases_without_saying_so(tmp_path: Path, device: str):
    made = write_checkpoint(tmp_path, make_config("qwen2"))
    assert "attention_bias" not in made.config
    rows = rows_of(made, device=device)
    assert_close(rows, truth(made), tolerance(device, "f32"))


@pytest.mark.parametrize(
    "fields",
    [
        {"torch_dtype": ...},
        {"torch_dtype": "bfloat16"},
        {"torch_dtype": ..., "dtype": "bfloat16"},
        {"torch_dtype": "float16", "dtype": None},
    ],
)
def test_weights_say_themselves_how_they_are_stored(
    llama: Checkpoint, tmp_path: Path, fields: dict[str, Any]
):
    made = write_checkpoint(tmp_path, make_config(**fields))
    assert np.array_equal(rows_of(made), rows_of(llama))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_weights_of_every_width_are_read_in_shards_as_in_one_file(
    tmp_path: Path, device: str, dtype: str
):
    made = write_checkpoint(tmp_path / "one", dtype=dtype)
    shards = write_checkpoint(tmp_path / "three", dtype=dtype, shards=3)
    for precision in precisions(device):
        rows = rows_of(made, device=device, precision=precision)
        assert_close(rows, truth(made), tolerance(device, precision))
        again = rows_of(shards, device=device, precision=precision)
        assert np.array_equal(rows, again)


def test_a_window_that_is_switched_off_is_no_window(tmp_path: Path, device: str):
    off = make_config("qwen2", sliding_window=4, use_sliding_window=False)
    made = write_checkpoint(tmp_path / "off", off)
    rows = rows_of(made, device=device)
    assert_close(rows, truth(made), tolerance(device, "f32"))
    on = off | {"use_sliding_window": True, "max_window_layers": 0}
    seen = rows_of(write_checkpoint(tmp_path / "on", on), device=device)
    assert np.abs(rows - seen)[-1].max() > 0.1


@pytest.mark.parametrize("window", [1, 2, 7, 24, 25])
def test_a_window_holds_the_query_itself_and_those_before(
    tmp_path: Path, device: str, window: int
):
    made = write_checkpoint(tmp_path, make_config("mistral", sliding_window=window))
    rows = rows_of(made, device=device)
    assert_close(rows, truth(made), tolerance(device, "f32"))


# Cases 13 to 15: the weight files


@pytest.fixture
def no_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    def embed(*args: Any) -> None:
        pytest.fail("a run began although a weight is wrong")

    monkeypatch.setattr(NumpyDecoder, "embed", embed)


@pytest.mark.usefixtures("no_compute")
def test_a_shard_that_the_index_names_and_is_not_there_is_named(tmp_path: Path):
    made = write_checkpoint(tmp_path, shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors is missing" in refusal(made)


@pytest.mark.usefixtures("no_compute")
@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_a_shard_that_was_cut_short_is_named(tmp_path: Path, kept: int):
    made = write_checkpoint(tmp_path, shards=3)
    shard = tmp_path / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:kept])
    sentence = refusal(made)
    assert sentence.startswith("failed to map 3 model weight files: ")
    assert shard.name in sentence


@pytest.mark.usefixtures("no_compute")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.embed_tokens.weight", (59, 32)),
        ("model.layers.1.self_attn.k_proj.weight", (32, 32)),
        ("model.layers.2.mlp.down_proj.weight", (48, 32)),
        ("model.layers.0.input_layernorm.weight", (32, 1)),
    ],
)
def test_a_tensor_of_another_shape_is_named(
    tmp_path: Path, name: str, shape: tuple[int, ...]
):
    tensors = make_tensors(make_config()) | {name: np.ones(shape, np.float32)}
    sentence = refusal(write_checkpoint(tmp_path, tensors=tensors))
    assert f"the tensor {name} has shape {list(shape)}, expected" in sentence


@pytest.mark.usefixtures("no_compute")
@pytest.mark.parametrize("prefix", ["model.", ""])
def test_a_tensor_that_is_missing_is_named(tmp_path: Path, prefix: str):
    tensors = make_tensors(make_config())
    del tensors["model.layers.1.mlp.up_proj.weight"]
    sentence = refusal(write_checkpoint(tmp_path, tensors=tensors, prefix=prefix))
    assert f"the tensor {prefix}layers.1.mlp.up_proj.weight is missing" in sentence


def test_links_as_a_hub_cache_has_them_are_followed(llama: Checkpoint, tmp_path: Path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    write_checkpoint(blobs, shards=3)
    for number, file in enumerate(sorted(blobs.iterdir())):
        blob = file.rename(blobs / f"{number:064}")
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    assert np.array_equal(rows_of(snapshot), rows_of(llama))


def test_rotary_tables_of_old_llama_files_are_ignored(
    llama: Checkpoint, tmp_path: Path
):
    carried = {
        f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": np.zeros(4, np.float32)
        for layer in range(3)
    }
    made = write_checkpoint(tmp_path, tensors=llama.tensors | carried)
    assert np.array_equal(rows_of(made), rows_of(llama))


def test_a_checkpoint_with_pickles_only_is_refused_and_told_why(tmp_path: Path):
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="contains no safetensors") as refused:
        ster.load(tmp_path)
    assert "safetensors" in " ".join(refused.value.causes)
    assert "pytorch_model.bin" in " ".join(refused.value.causes)
