"""Whatever is in the files and on the line: an answer or a refusal, never a traceback.

Every run is seeded, so that a failure is found again; it names its seed.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ster.cli import run
from ster.toy import write_toy_checkpoint

LINE = ["--model", "toy", "--input", "prompts.json", "--output", "o.json"]
PROMPTS = {"prompts": ["the sea is calm .", "wind"], "note": {"by": ["me", 1.5]}}
# What a field may not be, and now and then may.
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 64, 256, 2**31 - 1, 2**31, 2**63, 2**70),
    *(0.0, -0.0, 0.5, 1e-45, 1e-5, 1e4, 1e38, 1e39, 1e300, -1e300, 64.0),
    *("", " ", "0", "64", "silu", "linear", "yarn", "x" * 5000, "\0", "\x1b[2J", "é"),
    *([], {}, [[]], [0], ["full_attention"] * 4, ["sliding_attention"] * 4),
    *({"rope_type": "linear", "factor": 2.0}, {"type": "dynamic", "factor": 1e-30}),
    {"rope_type": "yarn", "factor": 1e30, "beta_fast": 1.0, "beta_slow": 1.0},
    {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4},
]
FIELDS = [
    *("head_dim", "sliding_window", "use_sliding_window", "max_window_layers"),
    *("layer_types", "rope_scaling", "rope_parameters", "partial_rotary_factor"),
    *("quantization_config", "original_max_position_embeddings", "chat_template"),
]
SHAPES = [[], [0], [0, 0], [-1, 4], [2**63, 2], [4, 2**64], "x", [64.0], [64, 64]]
TEMPLATES = [
    *(0, [], {}, "", "x", "{{", "{% if %}", "{{ messages }}", "{{ bos_token }}x"),
    *("{{ messages[0].content }}", "{{ messages[9].content }}", "{{ 1/0 }}", ["x"]),
    [{"name": "default", "template": "{{ messages[0]['content'] | upper }}"}],
]
WORDS = [
    *("--model", "--zzz", "--", "-", "-x", "--=", "=", "", "\0", "é", "\x1b[2J", "~/x"),
    *("toy", "./toy/", "./nowhere", "prompts.json", "new/o.json", "/dev/null", "a/b/"),
    *("0", "-1", "0..2", "all", "cpu", "tpu", "f16", "bf16", "f8", "off", "1G", "1e9"),
]
SYMBOLS = '0123.,,.. +-=al٣\u3000\n"\\'
FLAGS = [
    *("--model", "--input", "--output", "--layers", "--device", "--precision"),
    *("--chat-template", "--revision", "--memory", "--text", "--verbose"),
]


class Place:
    """A folder with the toy checkpoint, where a run must end well."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.codes: set[int] = set()

    def check(self, words: list[str], what: str) -> None:
        """Run, and find an answer with a document or a refusal with none."""
        self.capsys.readouterr()
        code = run(words)
        out, err = self.capsys.readouterr()
        self.codes.add(code)
        context = f"{what}: {words} -> {code}\n{err[-2000:]}"
        assert code in (0, 1, 2), context
        assert "Traceback" not in err, context
        assert "unexpected" not in _sentence(err), context
        assert "\x1b" not in err, context
        assert "\0" not in err, context
        left = sorted(set(map(str, Path().rglob("*"))) - self.before)
        if code == 0:
            _check_documents(left, context)
        else:
            assert out == "", context
            assert left == [], context
            assert "Error: " in err or err.startswith("Usage: "), context
        for name in sorted(left, reverse=True):
            Path(name).rmdir() if Path(name).is_dir() else Path(name).unlink()

    @property
    def before(self) -> set[str]:
        """Name what lies there before a run."""
        files = ["config", "tokenizer", "tokenizer_config"]
        inner = {f"toy/{name}.json" for name in files}
        return {"toy", "prompts.json", "toy/model.safetensors", *inner}


def _sentence(err: str) -> str:
    """Return the sentence of a refusal, without what libraries word."""
    lines = [line for line in err.splitlines() if line.startswith("Error: ")]
    return lines[0].partition(":")[2][:12] if lines else ""


def _check_documents(names: list[str], context: str) -> None:
    for name in names:
        if not Path(name).is_dir():
            document = json.loads(Path(name).read_bytes())
            assert document["product"] == "ster", context
            assert document["records"], context


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "toy"
    write_toy_checkpoint(folder)
    return folder


@pytest.fixture
def place(toy, tmp_path, monkeypatch, capsys) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path.parent / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delenv("STER_TRACEBACK", raising=False)
    shutil.copytree(toy, "toy")
    Path("prompts.json").write_text(json.dumps(PROMPTS))
    return Place(capsys)


Mutate = Callable[[random.Random, bytes], bytes]


def change_bytes(draw: random.Random, data: bytes) -> bytes:
    """Flip, cut, repeat or insert a few bytes."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(changed) + 1)
        size = draw.choice((1, 1, 2, 8, 100))
        kind = draw.randrange(5)
        if kind == 0:
            del changed[at : at + size]
        elif kind == 1:
            changed[at:at] = draw.randbytes(size)
        elif kind == 2:
            changed[at:at] = changed[at : at + size]
        elif kind == 3:
            changed[at : at + 1] = draw.choice((b"{", b"}", b'"', b",", b"0", b"\\"))
        else:
            del changed[at:]
    return bytes(changed)


def change_fields(draw: random.Random, data: bytes) -> bytes:
    """Give some fields of an object another value, another name, or take them out."""
    document: dict[str, Any] = json.loads(data)
    for _ in range(draw.randint(1, 3)):
        name = draw.choice([*document, *FIELDS])
        if draw.random() < 0.2:
            document.pop(name, None)
        else:
            document[name] = draw.choice(VALUES)
    return json.dumps(document).encode()


def change_family(draw: random.Random, data: bytes) -> bytes:
    family = draw.choice(("llama", "mistral", "qwen2", "qwen3"))
    document = json.loads(data) | {"model_type": family}
    return change_fields(draw, json.dumps(document).encode())


def change_template(draw: random.Random, data: bytes) -> bytes:
    document = json.loads(data) | {"chat_template": draw.choice(TEMPLATES)}
    return json.dumps(document).encode()


def change_header(draw: random.Random, data: bytes) -> bytes:
    """Change a safetensors header, and its length so that it stays readable."""
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    for _ in range(draw.randint(1, 2)):
        name = draw.choice([name for name in header if name != "__metadata__"])
        field = draw.choice(("dtype", "shape", "data_offsets", "name"))
        if field == "name":
            header[draw.choice(("", "\x1b[2J", "model.norm.weight", name + "x"))] = (
                header.pop(name)
            )
        elif field == "dtype":
            header[name][field] = draw.choice(("F16", "BF16", "F64", "I8", "X", 3))
        else:
            header[name][field] = draw.choice(SHAPES)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def change_start(draw: random.Random, data: bytes) -> bytes:
    """Change bytes where the header is: the rest are numbers, and any will do."""
    return change_bytes(draw, data[:6000]) + data[6000:]


@pytest.mark.parametrize(
    ("name", "mutate", "times"),
    [
        ("prompts.json", change_bytes, 80),
        ("prompts.json", change_fields, 40),
        ("toy/config.json", change_bytes, 80),
        ("toy/config.json", change_fields, 150),
        ("toy/config.json", change_family, 60),
        ("toy/tokenizer_config.json", change_bytes, 60),
        ("toy/tokenizer_config.json", change_fields, 40),
        ("toy/tokenizer_config.json", change_template, 15),
        ("toy/tokenizer.json", change_bytes, 100),
        ("toy/model.safetensors", change_header, 80),
        ("toy/model.safetensors", change_start, 50),
    ],
)
def test_a_changed_file_is_read_or_refused(place: Place, name, mutate, times):
    path = Path(name)
    original = path.read_bytes()
    for seed in range(times):
        draw = random.Random(f"{name} {mutate.__name__} {seed}")
        path.write_bytes(mutate(draw, original))
        words = draw.choice(([], ["--layers", "0"], ["--precision", "f16"]))
        place.check(["extract", *LINE, *words], f"seed {seed}")
    path.write_bytes(original)
    assert 1 in place.codes


def draw_line(draw: random.Random) -> list[str]:
    """Write a command, mostly right, with some flags and values that are not."""
    flags = dict(zip(LINE[::2], LINE[1::2], strict=True))
    for _ in range(draw.randint(0, 2)):
        flags[draw.choice(FLAGS)] = draw.choice(WORDS)
    words = ["extract"]
    for flag, value in flags.items():
        words += [f"{flag}={value}"] if draw.random() < 0.5 else [flag, value]
    if draw.random() < 0.3:
        words[draw.randrange(len(words))] = draw.choice((*WORDS, *FLAGS, "--help"))
    return words


def test_any_words_are_a_line_or_a_usage_error(place: Place):
    for seed in range(200):
        place.check(draw_line(random.Random(f"words {seed}")), f"seed {seed}")
    assert place.codes == {0, 1, 2}


def test_any_layers_are_read_or_refused(place: Place):
    for seed in range(120):
        draw = random.Random(f"layers {seed}")
        spec = "".join(draw.choices(SYMBOLS, k=draw.randint(0, 8)))
        place.check(["extract", *LINE, f"--layers={spec}"], f"seed {seed}")
    assert place.codes == {0, 1}


def test_any_text_is_a_prompt_or_refused(place: Place):
    for seed in range(60):
        draw = random.Random(f"text {seed}")
        most = [draw.choice((0x7F, 0x110000)) for _ in range(draw.randint(0, 30))]
        text = "".join(chr(draw.randrange(end)) for end in most)
        Path("prompts.json").write_text(json.dumps({"prompts": [text, "the sea"]}))
        place.check(["extract", *LINE], f"seed {seed}")
    assert place.codes == {0, 1}
