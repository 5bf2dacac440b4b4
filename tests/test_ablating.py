"""A checkpoint whose blocks no longer write along a vector."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

import ster
from ster.architecture.config import read_config
from ster.architecture.writers import stream_writers
from ster.checkpoint.rewriting import narrowed
from ster.errors import (
    ConfigError,
    DirectionError,
    DocumentError,
    LayerError,
    NumericsError,
    OutputError,
    SterError,
    UsageError,
    WeightsError,
)
from tests.checkpoints import (
    ALL_FAMILIES,
    Checkpoint,
    Tensors,
    make_config,
    random_ids,
    text,
    write_checkpoint,
)
from tests.reference import residuals

LAYERS = (0, 2)
DIRECTIONS = np.random.default_rng(5).normal(size=(2, 32)).astype(np.float32)
UNITS = DIRECTIONS.astype(np.float64)
UNITS /= np.linalg.norm(UNITS, axis=1, keepdims=True)
PROMPTS = [text(random_ids(9, seed=each)) for each in (1, 2)]
# Names of what writes to the stream, and of norms on the way, written out once more.
WRITERS = (
    *(".o_proj.", ".down_proj", ".c_proj.", ".w2."),
    *(".attention.dense.", ".dense_4h_to_h."),
)


def vector_of(checkpoint: Checkpoint | Path, **parts: Any) -> ster.SteeringVector:
    """Make a vector of two layers, whose directions are not of length 1."""
    return ster.SteeringVector.of(
        DIRECTIONS, layers=LAYERS, model=str(checkpoint), trait_name="calm", **parts
    )


def bytes_of(file: Path) -> dict[str, bytes]:
    """Read the stored bytes of each tensor, by what the header says of them."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    begin = 8 + size
    return {
        name: data[begin + each["data_offsets"][0] : begin + each["data_offsets"][1]]
        for name, each in header.items()
    }


@pytest.fixture
def llama(tmp_path: Path) -> Checkpoint:
    return write_checkpoint(tmp_path / "llama")


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_nothing_is_written_along_the_vector_any_more(tmp_path: Path, family: str):
    """In no owned family, whatever its layout, biases and norms, on both decoders."""
    made = write_checkpoint(tmp_path / "model", make_config(family))
    done = ster.ablate(made.directory, vector_of(made), tmp_path / "new")
    touched = {int(name.split(".layers.")[-1].split(".h.")[-1].split(".")[0])
               for name in done.rewritten}  # fmt: skip
    assert touched == set(LAYERS)
    assert all(any(each in name for each in WRITERS) for name in done.rewritten)
    for device in ("cpu", "mlx-cpu"):
        runtime = ster.load(tmp_path / "new", device=device)
        for point in ("attn_out", "mlp_out"):
            found = runtime.activations(PROMPTS, tokens="all", points=point)
            for layer, unit in zip(LAYERS, UNITS, strict=True):
                rows = found.array[:, layer].astype(np.float64)
                lengths = np.linalg.norm(rows, axis=1)
                assert (np.abs(rows @ unit) < 1e-5 * lengths).all()
            other = found.array[:, 1].astype(np.float64)
            # The other layer writes along it as it did.
            assert np.abs(other @ UNITS[0]).max() > 0.01 * np.abs(other).max()


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_only_rms_norms_stand_between_a_matrix_and_the_stream(
    tmp_path: Path, family: str
):
    made = write_checkpoint(tmp_path, make_config(family))
    for layer in read_config(made.directory / "config.json").layers:
        for writer in stream_writers(layer):
            assert all(each.keeps_order for each in writer.matrix.places)
            assert writer.norm is None or not (writer.norm.centred or writer.norm.bias)


def ablated(tensors: Tensors, strength: float) -> dict[str, NDArray[np.float64]]:
    """Compute the weights of a Llama-like checkpoint by the formula alone."""
    wide = {name: np.asarray(each, np.float64) for name, each in tensors.items()}
    for layer, unit in zip(LAYERS, UNITS, strict=True):
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            key = f"model.layers.{layer}.{name}"
            w = wide[f"{key}.weight"]
            wide[f"{key}.weight"] = w - strength * np.outer(unit, unit @ w)
            if f"{key}.bias" in wide:
                b = wide[f"{key}.bias"]
                wide[f"{key}.bias"] = b - strength * unit * (unit @ b)
    return wide


@pytest.mark.parametrize("strength", [1.0, 0.4, -0.5])
def test_weights_and_rows_are_those_of_the_formula(tmp_path: Path, strength: float):
    config = make_config("llama", attention_bias=True, mlp_bias=True)
    made = write_checkpoint(tmp_path / "model", config)
    place = tmp_path / "new"
    done = ster.ablate(made.directory, vector_of(made), place, strength=strength)
    expected = ablated(made.tensors, strength)
    with safe_open(place / "model.safetensors", "np") as file:
        for name in done.rewritten:
            found, wanted = file.get_tensor(name), expected[name]
            assert found.dtype == np.float32
            assert (found == wanted.astype(np.float32)).mean() > 0.999
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
    assert len(done.rewritten) == 8
    ids = random_ids(9)
    rows = ster.load(place).activations([text(ids)], tokens="all").array
    truth = residuals(config, expected, ids).swapaxes(0, 1)
    np.testing.assert_allclose(rows, truth, atol=2e-5 * np.abs(truth).max())


@pytest.mark.parametrize("family", ["gemma2", "olmo2"])
def test_a_norm_on_the_way_is_counted_in(tmp_path: Path, family: str):
    """The direction that leaves the matrix is the one before the norm."""
    made = write_checkpoint(tmp_path / "model", make_config(family))
    ster.ablate(made.directory, vector_of(made), tmp_path / "new")
    name = "model.layers.2.post_feedforward_layernorm.weight"
    scale = made.tensors[name].astype(np.float64) + (family == "gemma2")
    before = UNITS[1] * scale / np.linalg.norm(UNITS[1] * scale)
    w = made.tensors["model.layers.2.mlp.down_proj.weight"].astype(np.float64)
    with safe_open(tmp_path / "new/model.safetensors", "np") as file:
        found = file.get_tensor("model.layers.2.mlp.down_proj.weight")
    np.testing.assert_allclose(
        found, w - np.outer(before, before @ w), rtol=1e-6, atol=1e-8
    )


def test_a_matrix_that_is_stored_on_its_side_loses_the_same(tmp_path: Path):
    made = write_checkpoint(tmp_path / "model", make_config("gpt2"))
    ster.ablate(made.directory, vector_of(made), tmp_path / "new")
    with safe_open(tmp_path / "new/model.safetensors", "np") as file:
        w = file.get_tensor("transformer.h.2.mlp.c_proj.weight")
        b = file.get_tensor("transformer.h.2.mlp.c_proj.bias")
    assert np.abs(w @ UNITS[1]).max() < 1e-6
    assert abs(b @ UNITS[1]) < 1e-6
    assert np.abs(w).max() > 0.1


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_shards_keep_their_bytes_but_for_the_values_that_change(
    tmp_path: Path, dtype: str
):
    made = write_checkpoint(tmp_path / "model", dtype=dtype, shards=3)
    old, new = made.directory, tmp_path / "new"
    done = ster.ablate(old, vector_of(made), new)
    index = "model.safetensors.index.json"
    assert (new / index).read_bytes() == (old / index).read_bytes()
    changed: set[str] = set()
    for file in sorted(old.glob("*.safetensors")):
        before, after = file.read_bytes(), (new / file.name).read_bytes()
        head = 8 + int.from_bytes(before[:8], "little")
        assert (len(before), before[:head]) == (len(after), after[:head])
        ones, others = bytes_of(file), bytes_of(new / file.name)
        changed |= {name for name in ones if ones[name] != others[name]}
    assert changed == set(done.rewritten)
    assert changed == {
        f"model.layers.{layer}.{name}.weight"
        for layer in LAYERS
        for name in ("self_attn.o_proj", "mlp.down_proj")
    }
    assert done.total_tensors == len(made.tensors)
    ster.load(new).activations(PROMPTS)


def test_at_strength_0_every_byte_stays(llama: Checkpoint, tmp_path: Path):
    done = ster.ablate(llama.directory, vector_of(llama), tmp_path / "new", strength=0)
    old = llama.directory / "model.safetensors"
    assert (tmp_path / "new/model.safetensors").read_bytes() == old.read_bytes()
    assert done.rewritten == ()
    assert done.copied_tensors == done.total_tensors == 30


def test_a_matrix_of_several_slices_is_the_same(
    llama: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ster.ablate(llama.directory, vector_of(llama), tmp_path / "one")
    monkeypatch.setattr("ster.checkpoint.rewriting._WIDENED_VALUES", 100)
    monkeypatch.setattr("ster.checkpoint.rewriting._COPIED_BYTES", 1000)
    ster.ablate(llama.directory, vector_of(llama), tmp_path / "two")
    one, two = (bytes_of(tmp_path / each / "model.safetensors") for each in
                ("one", "two"))  # fmt: skip
    for name, data in one.items():
        first, second = (np.frombuffer(each, np.float32) for each in (data, two[name]))
        np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-9)


def test_light_files_are_copied_and_other_weights_are_not(
    llama: Checkpoint, tmp_path: Path
):
    copied = ("generation_config.json", "chat_template.jinja", "merges.txt",
              "tokenizer.model", "LICENSE.md", "special_tokens_map.json")  # fmt: skip
    for name in copied:
        (llama.directory / name).write_text("{}")
    for name in ("pytorch_model.bin", "pytorch_model.bin.index.json", "README.md",
                 ".hidden.json", "optimizer.safetensors"):  # fmt: skip
        (llama.directory / name).write_text("{}")
    (llama.directory / "original").mkdir()
    done = ster.ablate(llama.directory, vector_of(llama), tmp_path / "new")
    own = ("config.json", "model.safetensors", "tokenizer.json",
           "tokenizer_config.json")  # fmt: skip
    assert done.files == tuple(sorted([*copied, *own]))
    assert tuple(sorted(each.name for each in (tmp_path / "new").iterdir())) == (
        done.files
    )
    for name in (*copied, "config.json", "tokenizer.json"):
        was, now = llama.directory / name, tmp_path / "new" / name
        assert now.read_bytes() == was.read_bytes()


def test_the_report_says_what_was_written(llama: Checkpoint, tmp_path: Path):
    vector = replace(vector_of(llama), source="calm.json")
    done = ster.ablate(
        llama.directory, vector, tmp_path / "new", strength=0.5, revision="r1"
    )
    document = done.document
    assert list(document) == sorted(document)
    assert document == {
        "artifact": "calm.json",
        "copied_tensors": 26,
        "files": sorted(each.name for each in llama.directory.iterdir()),
        "layers": [0, 2],
        "model": str(llama),
        "model_revision": "r1",
        "output": str(tmp_path / "new"),
        "parameters": 2 * (32 * 32 + 32 * 48),
        "rewritten": list(done.rewritten),
        "strength": 0.5,
        "total_tensors": 30,
        "trait_name": "calm",
    }


def test_halves_of_bf16_are_rounded_once():
    """What rounding to f32 first would round to the wrong side, or to a false tie."""
    one = 1 + 2.0**-8
    values = np.array([one + 2.0**-40, one - 2.0**-40, one, -one - 2.0**-40, 3.0])
    bits = narrowed(values, "BF16")
    back = (bits.astype(np.uint32) << 16).view(np.float32)
    assert back.tolist() == [1 + 2.0**-7, 1.0, 1.0, -1 - 2.0**-7, 3.0]


def test_an_empty_directory_is_filled(llama: Checkpoint, tmp_path: Path):
    (tmp_path / "new").mkdir()
    ster.ablate(llama.directory, vector_of(llama), f"{tmp_path}/new/")
    assert (tmp_path / "new/model.safetensors").is_file()


def refused(
    kind: type[SterError], model: Path, vector: Any, place: Path, **how: Any
) -> SterError:
    """Return a refusal; nothing is left of it."""
    before = sorted(place.parent.rglob("*"))
    with pytest.raises(kind) as refusal:
        ster.ablate(model, vector, place, **how)
    assert sorted(place.parent.rglob("*")) == before
    return refusal.value


def test_a_directory_that_holds_something_is_refused(llama: Checkpoint, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes").touch()
    vector = vector_of(llama)
    error = refused(OutputError, llama.directory, vector, tmp_path / "full")
    assert error.sentence == f"failed to write {tmp_path / 'full'}"
    assert "not empty" in error.causes[0]
    refused(OutputError, llama.directory, vector, llama.directory)


@pytest.mark.parametrize("strength", [np.nan, np.inf])
def test_a_strength_that_is_not_finite_is_refused(
    llama: Checkpoint, tmp_path: Path, strength: float
):
    error = refused(
        DirectionError,
        llama.directory,
        vector_of(llama),
        tmp_path / "new",
        strength=strength,
    )
    assert error.field == "strength"


def test_a_strength_in_norms_is_refused(llama: Checkpoint, tmp_path: Path):
    place, vector = tmp_path / "new", vector_of(llama)
    refused(UsageError, llama.directory, vector, place, strength="1n")


def test_vectors_that_do_not_belong_to_the_model_are_refused(
    llama: Checkpoint, tmp_path: Path
):
    place, model = tmp_path / "new", llama.directory
    other = replace(vector_of(llama), model="other")
    error = refused(DocumentError, model, other, place)
    assert error.sentence == (
        f'artifact was trained for model "other", current model is "{llama}"'
    )
    narrow = ster.SteeringVector.of(np.ones(8), layers=0, model=str(llama))
    assert refused(DocumentError, model, narrow, place).expected == 32
    high = ster.SteeringVector.of(np.ones(32), layers=3, model=str(llama))
    refused(LayerError, model, high, place)
    zero = ster.SteeringVector.of(np.zeros(32), layers=1, model=str(llama))
    assert refused(DirectionError, model, zero, place).layer == 1
    refused(UsageError, model, "calm.json", place)


def test_quantized_and_foreign_checkpoints_are_refused_by_name(tmp_path: Path):
    quantization = {"bits": 4, "group_size": 32}
    for changes, named in (
        ({"quantization": quantization}, "quantized checkpoint"),
        ({"model_type": "nemotron"}, "nemotron"),
    ):
        made = write_checkpoint(tmp_path / named.split()[0])
        config = make_config(**changes)
        (made.directory / "config.json").write_text(json.dumps(config))
        # The weights are never opened.
        (made.directory / "model.safetensors").write_bytes(b"no weights")
        error = refused(ConfigError, made.directory, vector_of(made), tmp_path / "new")
        assert named in error.sentence
        assert error.causes


def test_damaged_weights_leave_nothing(llama: Checkpoint, tmp_path: Path):
    weights = llama.directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    refused(WeightsError, llama.directory, vector_of(llama), tmp_path / "a/new")


def test_what_leaves_the_stored_type_is_refused(tmp_path: Path):
    made = write_checkpoint(tmp_path / "model", dtype="f16")
    place = tmp_path / "new"
    error = refused(NumericsError, made.directory, vector_of(made), place, strength=1e6)
    assert error.field == "model.layers.0.self_attn.o_proj.weight"
    assert "F16" in error.causes[0]


def test_a_full_disk_is_refused_before_weights_are_written_and_while_they_are(
    llama: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    place, vector = tmp_path / "a/new", vector_of(llama)
    with monkeypatch.context() as patch:
        patch.setattr("ster.workflows.ablating.os.fsync", full)
        error = refused(OutputError, llama.directory, vector, place)
        assert error.sentence == f"failed to write {place}"
        assert "No space left" in error.causes[0]
    usage = SimpleNamespace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    error = refused(OutputError, llama.directory, vector, place)
    assert error.found == 1000
    assert error.causes[0].endswith("and the disk has 1000 bytes free")
    assert error.expected == (llama.directory / "model.safetensors").stat().st_size


def test_an_interrupt_leaves_nothing(
    llama: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ster.workflows.ablating.rewrite_file", stop)
    with pytest.raises(KeyboardInterrupt):
        ster.ablate(llama.directory, vector_of(llama), tmp_path / "a/new")
    assert [each.name for each in tmp_path.iterdir()] == ["llama"]
