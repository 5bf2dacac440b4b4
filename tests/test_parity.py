"""Hidden states beside those of an independent implementation in float64."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import ster
from ster.cli import run
from ster.cli.tables.parity import draw_parity
from ster.documents.reference_states import read_reference
from ster.errors import DocumentError, LayerError, PromptError, SterError
from tests.checkpoints import Checkpoint, random_ids, text, write_checkpoint
from tests.conformance.running import force_waves
from tests.reference import residuals

TEXTS = [random_ids(length, seed=length) for length in (1, 5, 12)]
LAYERS = [0, 2]
KEYS = {
    *("hidden", "tokens", "positions", "relativeError", "worstPositionRelativeError"),
    *("largestDifference", "meanCosine", "smallestCosine"),
}
Document = dict[str, Any]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return write_checkpoint(tmp_path_factory.mktemp("parity") / "llama")


@pytest.fixture
def document(llama: Checkpoint) -> Document:
    """A reference by the oracle."""
    records: list[Document] = []
    for ids in TEXTS:
        states = residuals(llama.config, llama.tensors, ids)[LAYERS]
        records.append({"tokens": ids, "hidden": states.tolist()})
    return {"layers": LAYERS, "records": records}


def written(folder: Path, document: Document) -> Path:
    (folder / "reference.json").write_text(json.dumps(document))
    return folder / "reference.json"


@pytest.mark.parametrize("waves", [None, 1])
def test_the_oracle_is_met(
    llama: Checkpoint,
    document: Document,
    tmp_path: Path,
    device: str,
    waves: int | None,
    monkeypatch: pytest.MonkeyPatch,
):
    if waves:
        force_waves(monkeypatch, waves)
    found = ster.load(str(llama), device=device).parity(written(tmp_path, document))
    places = [(each.record, each.layer) for each in found.records]
    assert places == [(1, 0), (1, 2), (2, 0), (2, 2), (3, 0), (3, 2)]
    assert [each.num_tokens for each in found.records] == [1, 1, 5, 5, 12, 12]
    overall: Any = found.document["overall"]
    assert 0 < overall["relativeError"] < 1e-5
    assert overall["worstPositionRelativeError"] < 1e-5
    assert overall["smallestCosine"] > 1 - 1e-9
    assert overall["positions"] == 36


def test_the_numbers_are_those_of_the_formulas(
    llama: Checkpoint, document: Document, tmp_path: Path
):
    draws = np.random.default_rng(1)
    for each in document["records"]:
        hidden = np.array(each["hidden"])
        each["hidden"] = (hidden + 0.1 * draws.normal(size=hidden.shape)).tolist()
    runtime = ster.load(str(llama), device="cpu")
    report: Any = runtime.parity(written(tmp_path, document)).document
    pairs = []
    for number, ids in enumerate(TEXTS):
        acts = runtime.activations([text(ids)], layers=LAYERS, tokens="all").array
        theirs = np.array(document["records"][number]["hidden"])
        pairs += [(acts[:, i].astype("f8"), theirs[i]) for i in range(2)]
    norm = np.linalg.norm
    for found, (a, b) in zip(report["records"], pairs, strict=True):
        assert found.keys() >= KEYS
        each = norm(a - b, axis=1) / norm(b, axis=1)
        cosines = (a * b).sum(1) / norm(a, axis=1) / norm(b, axis=1)
        assert (found["hidden"], found["positions"]) == (32, len(a))
        assert found["relativeError"] == pytest.approx(norm(a - b) / norm(b), rel=1e-4)
        assert found["worstPositionRelativeError"] == pytest.approx(
            each.max(), rel=1e-4
        )
        assert found["worstPosition"] == each.argmax()
        assert found["largestDifference"] == pytest.approx(abs(a - b).max(), rel=1e-4)
        assert found["meanCosine"] == pytest.approx(cosines.mean(), abs=1e-6)
        assert found["smallestCosine"] == pytest.approx(cosines.min(), abs=1e-6)
    a, b = (np.concatenate(side) for side in zip(*pairs, strict=True))
    cosines = (a * b).sum(1) / norm(a, axis=1) / norm(b, axis=1)
    overall = report["overall"]
    assert overall["relativeError"] == pytest.approx(norm(a - b) / norm(b), rel=1e-4)
    assert overall["meanCosine"] == pytest.approx(cosines.mean(), abs=1e-6)
    assert overall["smallestCosine"] == pytest.approx(cosines.min(), abs=1e-6)


def test_a_planted_error_is_found_where_it_is(
    llama: Checkpoint, document: Document, tmp_path: Path
):
    document["records"][2]["hidden"][1][7][3] += 1.0
    found = ster.load(str(llama)).parity(written(tmp_path, document))
    worst = found.worst
    assert (worst.record, worst.layer, worst.worst_position) == (3, 2, 7)
    assert worst.largest_difference == pytest.approx(1, abs=1e-4)
    others = [each for each in found.records if each is not worst]
    assert max(each.worst_position_error for each in others) < 1e-5


def test_some_positions_and_prompts_do_as_well(
    llama: Checkpoint, document: Document, tmp_path: Path
):
    record = document["records"][2]
    record["hidden"] = np.array(record["hidden"])[:, [1, 11]].tolist()
    record |= {"positions": [1, 11], "prompt": text(TEXTS[2])}
    document["records"][1] |= {"prompt": text(TEXTS[1])}
    del document["records"][1]["tokens"]
    found = ster.load(str(llama)).parity(written(tmp_path, document))
    assert [each.num_positions for each in found.records] == [1, 1, 5, 5, 2, 2]
    assert found.records[-1].num_tokens == 12
    assert found.worst.worst_position_error < 1e-5


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_binary_references_say_the_same(
    llama: Checkpoint, document: Document, tmp_path: Path, suffix: str
):
    states = [np.array(each["hidden"]) for each in document["records"]]
    arrays: dict[str, Any] = {
        "layers": np.array(LAYERS),
        "lengths": np.array([len(ids) for ids in TEXTS]),
        "tokens": np.concatenate(TEXTS),
        "hidden": np.ascontiguousarray(np.concatenate(states, axis=1).swapaxes(0, 1)),
    }
    path = tmp_path / f"reference.{suffix}"
    np.savez(path, **arrays) if suffix == "npz" else save_file(arrays, path)
    runtime = ster.load(str(llama))
    expected = runtime.parity(written(tmp_path, document)).document
    assert runtime.parity(path).document == expected
    del arrays["lengths"]
    np.savez(path, **arrays) if suffix == "npz" else save_file(arrays, path)
    with pytest.raises(DocumentError, match="no array `lengths`"):
        runtime.parity(path)


def _npz(path: Path, **changes: Any) -> bytes:
    """Write a reference of one record; None leaves an array out."""
    arrays: dict[str, Any] = {
        "layers": np.array([0]),
        "lengths": np.array([2]),
        "tokens": np.array([5, 6]),
        "hidden": np.ones((2, 1, 4)),
        **changes,
    }
    np.savez(path, **arrays)
    return path.read_bytes()


def test_an_npz_of_another_order_of_numbers_is_read(tmp_path: Path):
    path = tmp_path / "r.npz"
    states = np.arange(1, 9, dtype=np.float32).reshape(2, 1, 4)
    _npz(path, hidden=np.asfortranarray(states))
    (record,) = read_reference(path).records
    np.testing.assert_array_equal(record.hidden, states.swapaxes(0, 1))


def test_a_damaged_npz_is_refused_in_a_sentence(tmp_path: Path):
    path = tmp_path / "r.npz"
    data = _npz(path)
    number = data.index(np.float64(1).tobytes())
    array = io.BytesIO()
    np.save(array, np.ones(3))
    for damaged in (
        *(data[:size] for size in (0, 4, 90, len(data) // 2, len(data) - 1)),
        data[:number] + b"\1" + data[number + 1 :],
        data.replace(b"NUMPY", b"MUMPY"),
        data.replace(b"'descr'", b"'decsr'"),
        array.getvalue(),
        b"PK\x03\x04",
        b"\x80\x04pickle",
    ):
        path.write_bytes(damaged)
        with pytest.raises(DocumentError) as caught:
            read_reference(path)
        assert caught.value.sentence == f"invalid reference {path}"
        assert len(caught.value.causes) == 1
    _npz(path, layers=np.array([{}], dtype=object))
    with pytest.raises(DocumentError, match="Object arrays cannot be loaded"):
        read_reference(path)


def _change(**changes: Any) -> Callable[[Document], None]:
    return lambda document: document.update(changes)


def _record(**changes: Any) -> Callable[[Document], None]:
    return lambda document: document["records"][1].update(changes)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (_change(layers=[0, 3]), LayerError, "outside the model"),
        (_change(layers=[2, 0]), DocumentError, "ascend"),
        (_change(layers=[0]), DocumentError, "record 1 has the shape"),
        (_change(records=[]), DocumentError, "no records"),
        (_change(more=1), DocumentError, 'unknown key "more"'),
        (_record(layer=1), DocumentError, 'unknown key "layer"'),
        (_record(tokens=[3, 4]), DocumentError, "5 rows a layer for 2 tokens"),
        (_record(tokens=None), DocumentError, "neither a prompt nor tokens"),
        (_record(tokens=[3, 4, 5, 6, 60]), PromptError, "token id 60"),
        (_record(positions=[0, 1, 2, 4, 3]), DocumentError, "do not ascend"),
        (_record(positions=[0, 1, 2, 3, 9]), DocumentError, "positions up to 9"),
        (_record(prompt="w7"), DocumentError, "record 2 has other tokens"),
        (_record(prompt="w7", tokens=None), DocumentError, "record 2 has 1 tokens"),
        (_record(hidden=[[[1.0]] * 5] * 2), DocumentError, "hidden size 1"),
        (_record(hidden=[[[0.0] * 32] * 5] * 2), DocumentError, "a row of zeros"),
        (_record(hidden=[[1.0], [[2.0]]]), DocumentError, "no numbers by layer"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    llama: Checkpoint,
    document: Document,
    tmp_path: Path,
    change: Callable[[Document], None],
    kind: type[SterError],
    said: str,
):
    change(document)
    with pytest.raises(kind, match=said):
        ster.load(str(llama)).parity(written(tmp_path, document))


def test_the_command_prints_the_report(
    llama: Checkpoint,
    document: Document,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    path = written(tmp_path, document)
    line = ["parity", "--model", str(llama), "--input", str(path)]
    assert run([*line, "--revision", "r"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["model", "modelRevision", "overall", "records"]
    runtime = ster.load(str(llama), device="cpu", revision="r")
    assert report == runtime.parity(path).document
    assert run([*line, "--chat-template", "off"]) == 2
    assert run([*line[:-1], "none.json"]) == 1
    assert "failed to read reference none.json" in capsys.readouterr().err


def test_the_table_shows_those_that_are_farthest_off(
    llama: Checkpoint,
    document: Document,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    document["records"][1]["hidden"][0][2][0] += 1.0
    found = ster.load(str(llama)).parity(written(tmp_path, document))
    monkeypatch.setattr("ster.cli.tables.parity.SHOWN", 2)
    parts: list[Any] = [*draw_parity(found)]
    table = parts[1]
    cells = [each.cells[table.marked] for each in table.columns]
    assert cells[:3] == ["2", "0", "5"]
    assert len(table.columns[0].cells) == 2
    assert "the 2 of 6 that are farthest off" in parts
