"""Activations as safetensors and npz: their bytes, what others read, refusals."""

from __future__ import annotations

import json
import os
import struct
import threading
import tracemalloc
import zlib
from dataclasses import replace
from datetime import date, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import load_file

import ster
from ster.documents.activations.files import check_suffix, open_writer
from ster.documents.activations.read_tokens import ReadTokens
from ster.documents.activations.value import Activations
from ster.errors import NumericsError, OutputError, SterError, UsageError
from tests.activation_documents import (
    described,
    read_tokens,
    whole_activations,
    write_pieces,
)

FORMS = ("safetensors", "npz")
POINTS = ("resid_post", "attn_out", "mlp_out")
each_form = pytest.mark.parametrize("form", FORMS)


def assert_same(one: Activations, other: Activations) -> None:
    for name in ("layers", "prompts", "model", "model_revision", "hidden_size"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("points", "read", "labels", "precision", "chat_template", "steered"):
        assert getattr(one, name) == getattr(other, name)
    for point in one.points:
        mine, theirs = one.at_point(point).array, other.at_point(point).array
        assert mine.tobytes() == theirs.tobytes()
    assert (one.tokens is None) == (other.tokens is None)
    if one.tokens is not None and other.tokens is not None:
        assert one.tokens.text == other.tokens.text
        for name in ("prompt_index", "position", "token_id", "in_template"):
            mine, theirs = getattr(one.tokens, name), getattr(other.tokens, name)
            assert np.array_equal(mine, theirs)
        for name in ("num_tokens", "num_bos"):
            mine, theirs = getattr(one.tokens, name), getattr(other.tokens, name)
            assert np.array_equal(mine, theirs)


SMALL = described(prompts=("é", "b"), labels={"k": (1, 2)}, precision="f32")
ROWS = np.array([[[1, -0.0]], [[0.1, 3.4028235e38]]], np.float32)
METADATA = (
    '{"product":"ster","schema_version":"1","document":"activations","model":"m",'
    '"precision":"f32","tokens":"last","points":"resid_post","store":"f32",'
    f'"ster_version":"{ster.__version__}"}}'
)
# In the order of the file. The last text is filled up, for the rows to be aligned.
COLUMNS: list[tuple[str, str, tuple[int, ...], bytes]] = [
    ("layers", "I64", (1,), struct.pack("<q", 0)),
    ("offsets", "I64", (3,), struct.pack("<3q", 0, 1, 2)),
    ("prompt_index", "I64", (2,), struct.pack("<2q", 0, 1)),
    ("prompts", "U8", (10,), '["é","b"]'.encode()),
    ("labels", "U8", (14,), b'{"k":[1,2]}   '),
    ("activations", "F32", (2, 1, 2), struct.pack("<4f", 1, -0.0, 0.1, 3.4028235e38)),
]


def test_safetensors_are_written_byte_by_byte_as_specified(tmp_path: Path):
    write_pieces(tmp_path / "a.safetensors", SMALL, ROWS)
    header = f'{{"__metadata__":{METADATA}'
    at = 0
    for name, dtype, shape, data in COLUMNS:
        sizes = ",".join(map(str, shape))
        header += f',"{name}":{{"dtype":"{dtype}","shape":[{sizes}],'
        header += f'"data_offsets":[{at},{at + len(data)}]}}'
        at += len(data)
    text = f"{header}}}".encode()
    text += b" " * (-len(text) % 8)
    golden = struct.pack("<Q", len(text)) + text + b"".join(row[3] for row in COLUMNS)
    assert (tmp_path / "a.safetensors").read_bytes() == golden


def test_npz_is_written_byte_by_byte_as_specified(tmp_path: Path):
    """A zip as PKWARE's note describes it, of stored members of 1 January 1980."""
    write_pieces(tmp_path / "a.npz", SMALL, ROWS)
    text = METADATA.encode()
    members = [("metadata", "U8", (len(text),), text), *COLUMNS]
    types = {"I64": "<i8", "U8": "|u1", "F32": "<f4"}
    golden, listed = b"", b""
    for name, dtype, shape, data in members:
        npy = BytesIO()
        np.save(npy, np.frombuffer(data, types[dtype]).reshape(shape))
        body = npy.getvalue()
        file = f"{name}.npy".encode()
        common = (20, 0x08, 0, 0, 0x21)  # version, sizes follow, stored, time, day
        sizes = (zlib.crc32(body), len(body), len(body))
        at = len(golden)
        golden += struct.pack("<4s5H3L2H", b"PK\3\4", *common, 0, 0, 0, len(file), 0)
        golden += file + body + struct.pack("<4s3L", b"PK\7\b", *sizes)
        listed += struct.pack("<4sBB5H3L", b"PK\1\2", 20, 3, *common, *sizes)
        listed += struct.pack("<5H2L", len(file), 0, 0, 0, 0, 0o600 << 16, at) + file
    counts = (0, 0, len(members), len(members), len(listed), len(golden), 0)
    golden += listed + struct.pack("<4s4H2LH", b"PK\5\6", *counts)
    assert (tmp_path / "a.npz").read_bytes() == golden


def read_without_ster(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Read all arrays and the metadata as somebody does who has no ster."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        return arrays, json.loads(bytes(arrays.pop("metadata")))
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    return load_file(path), metadata


@each_form
@pytest.mark.parametrize("points", [POINTS[:1], POINTS])
def test_a_document_is_read_without_ster(
    tmp_path: Path, form: str, points: tuple[str, ...]
):
    made = whole_activations(points)
    made.save(tmp_path / f"a.{form}")
    arrays, metadata = read_without_ster(tmp_path / f"a.{form}")
    rows = {point: arrays.pop(f"activations.{point}", None) for point in points}
    if len(points) == 1:
        rows = {points[0]: arrays.pop("activations")}
    for point, array in rows.items():
        assert array.dtype == np.float32
        assert np.array_equal(array, made.at_point(point).array)
    texts = {
        name: json.loads(bytes(arrays.pop(name))) for name in ("prompts", "labels")
    }
    assert texts["prompts"] == ["one 🦙\n", "two"]
    assert texts["labels"] == {"kind": ["x", None], "score": [1.5, -2]}
    shown = json.loads(bytes(arrays.pop("token_text")))
    assert shown == [f"é{at}\n" for at in (0, 1, 2, 0, 1)]
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "layers": [2, 10],
        "offsets": [0, 3, 5],
        "prompt_index": [0, 0, 0, 1, 1],
        "token_position": [0, 1, 2, 0, 1],
        "token_id": [100, 101, 102, 100, 101],
        "in_template": [1, 0, 0, 1, 0],
        "num_tokens": [5, 4],
        "num_bos": [1, 0],
    }
    assert metadata == {
        "product": "ster",
        "schema_version": "1",
        "document": "activations",
        "model": 'a/"b"',
        "model_revision": "main",
        "precision": "f16",
        "chat_template": "applied",
        "tokens": "all",
        "points": ",".join(points),
        "store": "f32",
        "ster_version": ster.__version__,
    }


@pytest.mark.parametrize("points", [POINTS[:1], POINTS])
def test_every_array_of_safetensors_is_aligned(tmp_path: Path, points: Any):
    whole_activations(points).save(tmp_path / "a.safetensors")
    data = (tmp_path / "a.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    del header["__metadata__"]
    widths = {"I64": 8, "F32": 4, "U8": 1}
    for name, place in header.items():
        start = 8 + length + place["data_offsets"][0]
        assert start % widths[place["dtype"]] == 0, name
    assert (8 + length) % 8 == 0


@each_form
@pytest.mark.parametrize("points", [POINTS[:1], POINTS[1:2], POINTS])
def test_what_is_saved_is_what_is_loaded(
    tmp_path: Path, form: str, points: tuple[str, ...]
):
    made = whole_activations(points)
    made.save(tmp_path / f"a.{form}")
    loaded = Activations.load(tmp_path / f"a.{form}")
    assert_same(made, loaded)
    for array in (loaded.array, *loaded.others.values()):
        assert array.flags.c_contiguous
        assert array.flags.writeable


def little_known() -> Activations:
    """Make activations of which nothing is said that may be left out."""
    return Activations(
        array=np.ones((2, 1, 2), np.float32),
        layers=(0,),
        prompts=("a", "b"),
        model="",
        hidden_size=2,
    )


@each_form
def test_a_document_says_that_its_rows_were_steered(tmp_path: Path, form: str):
    words = ("2 × calm (caa) at layer 1", "glad (pca) at layers 1, 3 (remove)")
    made = replace(whole_activations(), steered=words)
    made.save(tmp_path / f"a.{form}")
    assert Activations.load(tmp_path / f"a.{form}").steered == words
    metadata = read_without_ster(tmp_path / f"a.{form}")[1]
    assert json.loads(metadata["steered"]) == list(words)
    replace(made, steered=()).save(tmp_path / f"a.{form}")
    assert "steered" not in read_without_ster(tmp_path / f"a.{form}")[1]


@each_form
def test_which_tokens_json_held_is_not_made_up(tmp_path: Path, form: str):
    made = replace(little_known(), read="mean")
    made.save(tmp_path / "a.json")
    loaded = Activations.load(tmp_path / "a.json")
    assert loaded.read is None
    loaded.save(tmp_path / f"b.{form}")
    assert Activations.load(tmp_path / f"b.{form}").read is None
    assert "tokens" not in read_without_ster(tmp_path / f"b.{form}")[1]


@each_form
def test_what_is_not_known_stays_unknown(tmp_path: Path, form: str):
    made = little_known()
    made.save(tmp_path / f"a.{form}")
    loaded = Activations.load(tmp_path / f"a.{form}")
    assert_same(made, loaded)
    assert loaded.tokens is None
    assert (loaded.precision, loaded.model_revision) == (None, None)
    assert "token_id" not in read_without_ster(tmp_path / f"a.{form}")[0]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@settings(deadline=None)
@given(
    array=hnp.arrays(
        np.float32,
        st.tuples(st.just(3), st.integers(1, 3), st.integers(1, 9)),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    ),
    prompts=st.lists(texts, min_size=3, max_size=3).map(tuple),
    label=st.tuples(texts, st.none() | st.booleans(), st.integers(-9, 2**64 - 1)),
    name=texts,
)
@each_form
def test_everything_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    form: str,
    array: np.ndarray,
    prompts: tuple[str, ...],
    label: tuple[object, ...],
    name: str,
):
    path = tmp_path_factory.getbasetemp() / f"round_trip.{form}"
    made = Activations(
        array=array,
        layers=tuple(range(array.shape[1])),
        prompts=prompts,
        model=name,
        hidden_size=array.shape[2],
        labels={name: label},
        tokens=read_tokens((1, 1, 1)),
    )
    made.save(path)
    assert_same(made, Activations.load(path))


@each_form
def test_rows_in_pieces_of_any_size_make_the_same_bytes(tmp_path: Path, form: str):
    made = whole_activations(POINTS)
    made.save(tmp_path / f"whole.{form}")
    rows = [made.array, *made.others.values()]
    for sizes in ((1, 1, 1, 1, 1), (2, 3), (4, 0, 1)):
        ends = np.cumsum(sizes)
        pieces = [
            tuple(array[end - size : end] for array in rows)
            for size, end in zip(sizes, ends, strict=True)
        ]
        write_pieces(tmp_path / f"a.{form}", made, *pieces)
        written = (tmp_path / f"a.{form}").read_bytes()
        assert written == (tmp_path / f"whole.{form}").read_bytes()


@each_form
def test_f16_takes_half_and_is_read_as_f32(tmp_path: Path, form: str):
    made = whole_activations(POINTS)
    made.save(tmp_path / f"a.{form}", store="f16")
    arrays, metadata = read_without_ster(tmp_path / f"a.{form}")
    assert metadata["store"] == "f16"
    loaded = Activations.load(tmp_path / f"a.{form}")
    for point in POINTS:
        assert arrays[f"activations.{point}"].dtype == np.float16
        rounded = made.at_point(point).array.astype(np.float16).astype(np.float32)
        assert loaded.at_point(point).array.dtype == np.float32
        assert np.array_equal(loaded.at_point(point).array, rounded)


def failing_write(path: Path, *pieces: Any, **how: Any) -> SterError:
    path.write_bytes(b"old")
    parts = described(prompts=("a", "b"), layers=(2, 5), tokens=read_tokens((2, 1)))
    with pytest.raises(SterError) as refusal:
        write_pieces(path, parts, *pieces, **how)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    return refusal.value


def rows_with(row: int, column: int, value: float, num_rows: int = 3) -> np.ndarray:
    rows = np.ones((num_rows, 2, 2))
    rows[row, column, 1] = value
    return rows


@each_form
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_a_value_that_is_not_finite_is_never_written(
    tmp_path: Path, form: str, value: float
):
    pieces = rows_with(0, 0, 1, num_rows=1), rows_with(1, 1, value, num_rows=2)
    refusal = failing_write(tmp_path / f"a.{form}", *pieces)
    assert isinstance(refusal, NumericsError)
    assert str(refusal) == "layer 5 of prompt 2 is not finite"
    assert (refusal.layer, refusal.prompt) == (5, 2)


@each_form
@pytest.mark.parametrize("value", [65520, -1e5])
def test_what_f16_cannot_hold_is_refused_and_never_infinite(
    tmp_path: Path, form: str, value: float
):
    pieces = rows_with(0, 0, 1, num_rows=1), rows_with(0, 1, value, num_rows=2)
    refusal = failing_write(tmp_path / f"a.{form}", *pieces, store="f16")
    assert isinstance(refusal, NumericsError)
    assert refusal.sentence == "layer 5 of prompt 1 does not fit in f16"
    assert "store f32" in refusal.causes[0]
    assert (refusal.layer, refusal.prompt) == (5, 1)
    write_pieces(tmp_path / f"b.{form}", described(), np.full((1, 1, 2), 65504.0))


@each_form
@pytest.mark.parametrize(
    ("pieces", "cause"),
    [
        ([], "0 rows came of 3"),
        ([np.ones((2, 2, 2))], "2 rows came of 3"),
        ([np.ones((2, 2, 2))] * 2, "there are more rows than 3"),
        ([np.ones((3, 2, 3))], "rows of shape (3, 2, 3) for 1 point of (3, 2, 2)"),
    ],
)
def test_rows_that_do_not_fit_leave_the_old_file(
    tmp_path: Path, form: str, pieces: list[np.ndarray], cause: str
):
    refusal = failing_write(tmp_path / f"a.{form}", *pieces)
    assert isinstance(refusal, OutputError)
    assert refusal.sentence == f"failed to write {tmp_path / f'a.{form}'}"
    assert refusal.causes[0] == cause


@each_form
def test_points_need_as_many_rows_each(tmp_path: Path, form: str):
    parts = described(points=POINTS[:2])
    rows = np.ones((1, 1, 2))
    with pytest.raises(OutputError, match=r"rows of shape \(1, 1, 2\) for 2 points"):
        write_pieces(tmp_path / f"a.{form}", parts, rows)
    with pytest.raises(OutputError, match=r"\(1, 1, 2\), \(0, 1, 2\) for 2 points"):
        write_pieces(tmp_path / f"a.{form}", parts, (rows, rows[:0]))
    assert list(tmp_path.iterdir()) == []


@each_form
@pytest.mark.parametrize("points", [POINTS[:1], POINTS])
def test_an_interrupt_passes_and_leaves_nothing(
    tmp_path: Path, form: str, points: tuple[str, ...]
):
    def stop():
        raise KeyboardInterrupt

    rows = (np.ones((1, 1, 2)),) * len(points)
    parts = described(prompts=("a", "b"), points=points)
    with pytest.raises(KeyboardInterrupt):
        write_pieces(tmp_path / f"new/a.{form}", parts, rows, stop)
    assert list(tmp_path.iterdir()) == []


@each_form
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_a_refusal(tmp_path: Path, form: str):
    (tmp_path / f"a.{form}").symlink_to("/dev/full")
    with pytest.raises(OutputError, match="No space left on device"):
        whole_activations(POINTS).save(tmp_path / f"a.{form}")


@each_form
def test_a_pipe_is_written_without_going_back(tmp_path: Path, form: str):
    made = whole_activations(POINTS)
    made.save(tmp_path / f"file.{form}")
    pipe = tmp_path / f"pipe.{form}"
    os.mkfifo(pipe)
    writing = threading.Thread(target=made.save, args=[pipe], daemon=True)
    writing.start()
    assert pipe.read_bytes() == (tmp_path / f"file.{form}").read_bytes()
    writing.join(timeout=60)


@each_form
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, form: str):
    """24 MB in pieces of 128 kB, at two points, one of which has to wait."""
    piece = np.ones((16, 4, 512), np.float32)
    num_pieces = 96
    counts = (16 * num_pieces,)
    shape = {"layers": (0, 1, 2, 3), "hidden_size": 512, "points": POINTS[:2]}
    parts = described(tokens=read_tokens(counts), **shape)
    tracemalloc.start()
    try:
        with open_writer(tmp_path / f"a.{form}", parts) as writer:
            for _ in range(num_pieces):
                writer.write(piece, piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / f"a.{form}").stat().st_size > 24_000_000
    assert peak < 3_000_000


def labelled(*values: object) -> Any:
    return described(prompts=("p",) * len(values), labels={"n": values})


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(-3), -3),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.array([1, 2]), [1, 2]),
        (("a", np.int8(1)), ["a", 1]),
        ({"a": np.nan}, {"a": None}),
        (float("nan"), None),
        (np.float64("nan"), None),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4), "2026-01-02T03:04:00"),
        (np.datetime64("2026-01-02"), "2026-01-02"),
        (np.datetime64("NaT"), None),
        (2**64 - 1, 2**64 - 1),
    ],
)
def test_a_label_becomes_json_where_there_is_an_obvious_way(
    tmp_path: Path, value: object, read: object
):
    path = tmp_path / "a.npz"
    write_pieces(path, labelled(value), np.ones((1, 1, 2)))
    assert Activations.load(path).labels == {"n": (read,)}


@pytest.mark.parametrize(
    "value", [b"x", {1, 2}, object(), 1j, float("inf"), 2**64, np.float64("-inf")]
)
def test_a_label_that_json_does_not_have_is_refused_by_name(
    tmp_path: Path, value: object
):
    with pytest.raises(OutputError) as refusal:
        open_writer(tmp_path / "a.npz", labelled("x", value))
    assert refusal.value.causes[0].startswith(
        "label n holds a value that JSON does not"
    )
    assert refusal.value.field == "n"


def test_rows_out_of_the_order_of_their_prompts_are_refused(tmp_path: Path):
    made = whole_activations()[[0, 3, 1]]
    with pytest.raises(OutputError, match="not in the order of their prompts") as error:
        made.save(tmp_path / "a.npz")
    (way,) = [word for word in error.value.causes[0].split("; ") if "argsort" in word]
    code = way.removesuffix(" are")
    sorted_rows = eval(code, {"activations": made, "numpy": np})
    sorted_rows.save(tmp_path / "a.npz")
    assert Activations.load(tmp_path / "a.npz").prompt_index.tolist() == [0, 0, 1]


MANY_ROWS = described(tokens=read_tokens((2,)))
LATER = ReadTokens(
    prompt_index=np.array([1]),
    position=np.array([0]),
    token_id=np.array([1]),
    text=("x",),
    in_template=np.array([False]),
    num_tokens=np.array([1, 1]),
    num_bos=np.array([0, 0]),
)


@pytest.mark.parametrize(
    "parts",
    [
        MANY_ROWS,
        described(points=("attn_out",)),
        described(points=POINTS),
        described(prompts=("a", "b"), tokens=LATER),
    ],
)
def test_json_holds_one_row_a_prompt_at_resid_post(tmp_path: Path, parts: Any):
    with pytest.raises(OutputError) as refusal:
        open_writer(tmp_path / "a.json", parts)
    assert refusal.value.sentence == f"failed to write {tmp_path / 'a.json'}"
    assert refusal.value.causes == (
        "a .json document holds one row for each prompt at the point resid_post; "
        "use .safetensors or .npz",
    )


def test_json_holds_no_f16(tmp_path: Path):
    with pytest.raises(OutputError, match=r"holds f32, not f16; use \.safetensors or"):
        open_writer(tmp_path / "a.json", described(), store="f16")


@pytest.mark.parametrize("form", [*FORMS, "json"])
def test_an_unknown_store_is_a_usage_error(tmp_path: Path, form: str):
    with pytest.raises(UsageError) as refusal:
        check_suffix(tmp_path / f"a.{form}", store="f64")
    assert str(refusal.value) == 'unknown store "f64"; expected f32 or f16'
    assert refusal.value.expected == ("f32", "f16")


@each_form
def test_a_suffix_can_be_checked_before_anything_is_known(tmp_path: Path, form: str):
    path = tmp_path / f"new/a.{form}"
    assert check_suffix(path, points=POINTS, one_row=False, store="f16") == form
    with pytest.raises(OutputError, match="one row for each prompt"):
        check_suffix(tmp_path / "a.json", one_row=False)
    assert list(tmp_path.iterdir()) == []
