"""Bad documents, words, layers and outputs: one sentence each, and nothing touched."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.cli.user import ABSENT, OLD, PROGRESS, Cause, User

NO_FILE = "No such file or directory (os error 2)"
JSON = "invalid prompt JSON in prompts.json"
NOT_UTF8 = "invalid UTF-8 at byte {}"
# Everything that Unicode calls White_Space.
WHITE_SPACE = [
    *"\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000",
    *map(chr, range(0x2000, 0x200B)),
]
# The device that this system can never have.
ELSEWHERE = "cuda" if sys.platform == "darwin" else "metal"

DOCUMENTS: dict[str, tuple[bytes, Cause]] = {
    "nothing": (b"", ...),
    "text": (b"the sea", ...),
    "NaN": (b'{"prompts": ["a"], "x": NaN}', ...),
    "Infinity": (b'{"prompts": ["a"], "x": -Infinity}', ...),
    "a number past f64": (b'{"prompts": ["a"], "x": 1e999}', ...),
    "trailing words": (b'{"prompts": ["a"]} x', ...),
    "two documents": (b'{"prompts": ["a"]}{"prompts": ["b"]}', ...),
    "JSON lines": (b'{"prompt": "a"}\n{"prompt": "b"}\n', ...),
    "a NUL at the end": (b'{"prompts": ["a"]}\x00', ...),
    "cut short": (b'{"prompts": ["a", "b', ...),
    "single quotes": (b"{'prompts': ['a']}", ...),
    "a comment": (b'{"prompts": ["a"]} // mine', ...),
    "a trailing comma": (b'{"prompts": ["a",]}', ...),
    "a raw control character": (b'{"prompts": ["a\x01"]}', ...),
    "an unknown escape": (b'{"prompts": ["\\x41"]}', ...),
    "leading zeros": (b'{"prompts": ["a"], "x": 01}', ...),
    "a repeated key": (
        b'{"prompts": ["a"], "prompts": ["b"]}',
        'key "prompts" is given twice',
    ),
    "a key repeated deep inside": (
        b'{"prompts": ["a"], "notes": [{"k": 1, "k": 1}]}',
        'key "k" is given twice',
    ),
    "a key repeated by an escape": (
        b'{"prompts": ["a"], "\\u0070rompts": ["b"]}',
        'key "prompts" is given twice',
    ),
    "a lone high surrogate": (b'{"prompts": ["\\ud83d"]}', ...),
    "a lone low surrogate": (b'{"prompts": ["\\udc00 a"]}', ...),
    "a surrogate in a key": (b'{"prompts": ["a"], "\\ud800": 1}', ...),
    "a surrogate as UTF-8": (b'{"prompts": ["\xed\xa0\x80"]}', NOT_UTF8.format(14)),
    "Latin-1": (b'{"prompts": ["caf\xe9"]}', NOT_UTF8.format(17)),
    "UTF-16 with its mark": ('{"prompts": ["a"]}'.encode("utf-16"), NOT_UTF8.format(0)),
    "UTF-16 without": ('{"prompts": ["a"]}'.encode("utf-16-le"), ...),
    "two marks": (b'\xef\xbb\xbf\xef\xbb\xbf{"prompts": ["a"]}', ...),
    "brackets without end": (b"[" * 200_000, ...),
    "huge nesting": (b'{"prompts":' + b"[" * 99_999 + b"]" * 99_999 + b"}", ...),
    "nested objects": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, ...),
    "null": (b"null", "expected an object with the key `prompts`"),
    "a number": (b"7", "expected an object with the key `prompts`"),
    "a list": (b'["a"]', "expected an object with the key `prompts`"),
    "no prompts key": (b'{"Prompts": ["a"]}', "missing field `prompts`"),
    "prompts are null": (b'{"prompts": null}', "`prompts` is no list of strings"),
    "prompts are a string": (b'{"prompts": "a"}', "`prompts` is no list of strings"),
    "prompts are an object": (b'{"prompts": {}}', "`prompts` is no list of strings"),
    "a prompt is a number": (b'{"prompts": ["a", 1]}', "`prompts[1]` is no string"),
    "a prompt is null": (b'{"prompts": [null]}', "`prompts[0]` is no string"),
    "a prompt is a list": (b'{"prompts": [["a"]]}', "`prompts[0]` is no string"),
    "a prompt is a chat": (
        b'{"prompts": [{"role": "user", "content": "a"}]}',
        "`prompts[0]` is no string",
    ),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_document_that_is_no_prompt_set_is_refused(user: User, kind):
    data, cause = DOCUMENTS[kind]
    user.write("prompts.json", data)
    user.is_refused(JSON, cause)


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("missing.json", "No such file or directory (os error 2)"),
        ("toy", "Is a directory (os error 21)"),
        ("prompts.json/deeper", "Not a directory (os error 20)"),
        ("", "No such file or directory (os error 2)"),
        ("n" * 300, ...),
        ("loop", ...),
        ("dangling", "No such file or directory (os error 2)"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_document_that_cannot_be_read_is_refused(user: User, path, cause):
    os.symlink("loop", "loop")
    os.symlink("nowhere", "dangling")
    shown = path.replace("\0", "\\u{0}")
    user.is_refused(f"failed to read {shown}", cause, input=path)


def test_a_prompt_set_without_prompts_is_refused(user: User):
    user.prompts()
    user.is_refused("prompt set contains no prompts")


@pytest.mark.parametrize("space", WHITE_SPACE, ids=lambda space: f"{ord(space):x}")
def test_a_prompt_of_white_space_is_refused(user: User, space):
    user.prompts("the sea", space * 3)
    user.is_refused("prompt must not be empty")


def test_a_prompt_without_a_character_is_refused(user: User):
    user.prompts("")
    user.is_refused("prompt must not be empty")


@pytest.mark.parametrize("text", ["\u200b", "\ufeff", "\x1c", "\0", "\u180e"])
def test_what_only_looks_blank_is_a_prompt(user: User, text):
    user.prompts(text)
    assert user.runs().code == 0
    assert user.document()["records"][0]["prompt"] == text


def test_a_byte_order_mark_and_other_keys_are_accepted(user: User):
    assert user.runs().code == 0
    plain = (user.folder / "o.json").read_bytes()
    data = (user.folder / "prompts.json").read_bytes()
    user.write("prompts.json", b'\xef\xbb\xbf{"note": {"n": 1},' + data[1:])
    assert user.runs().code == 0
    assert (user.folder / "o.json").read_bytes() == plain


DEVICE = 'unknown device "{}"; expected cpu, metal, or cuda'
PRECISION = 'unknown precision "{}"; expected f32, f16, or bf16'
MODE = 'unknown chat template mode "{}"; expected auto or off'
SIZE = 'invalid memory size "{}"; expected one such as 800M or 4G'


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--device", "tpu"), DEVICE.format("tpu")),
        (("--device", "CPU"), DEVICE.format("CPU")),
        (("--device", ""), DEVICE.format("")),
        (("--device", " cpu"), DEVICE.format(" cpu")),
        (("--device", "mlx-cpu"), DEVICE.format("mlx-cpu")),
        (("--device", 'a"\n\\\x1b'), DEVICE.format(r"a\"\n\\\u{1b}")),
        (("--precision", "f64"), PRECISION.format("f64")),
        (("--precision", "F32"), PRECISION.format("F32")),
        (("--precision=",), PRECISION.format("")),
        (("--chat-template", "on"), MODE.format("on")),
        (("--chat-template", "Auto"), MODE.format("Auto")),
        (("--memory", "much"), SIZE.format("much")),
        (("--memory", "0"), SIZE.format("0")),
        (("--memory", "-1"), SIZE.format("-1")),
        (("--memory", "nan"), SIZE.format("nan")),
        (("--memory", "1e9"), SIZE.format("1e9")),
        (("--zzz",), "No such option: --zzz"),
        (("--layers",), "Option '--layers' needs a value."),
        (
            ("--device", "--text"),
            "Option '--device' needs a value, but '--text' follows it.",
        ),
        (("--model", "toy"), "Option '--model' is given more than once."),
        (("stray",), "Got unexpected extra argument(s) (stray)"),
        (("--text=1",), "Option '--text' does not take a value."),
    ],
)
def test_a_word_that_is_unknown_is_a_usage_error(user: User, words, sentence):
    user.is_told(sentence, words=words)


def test_bf16_on_the_cpu_is_refused(user: User):
    user.is_refused(
        "bf16 has no CPU matmul kernel in this Candle build; use --precision f16 for "
        "half precision on cpu, or --device metal for bf16",
        words=("--precision", "bf16"),
    )


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_device_that_is_not_here_is_refused_with_a_way_out(user: User, precision):
    user.is_refused(
        f"this Ster binary was built without the {ELSEWHERE} feature",
        ...,
        words=("--device", ELSEWHERE, "--precision", precision),
    )


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ("all,3", 'invalid layer "all"'),
        ("All", 'invalid layer "All"'),
        (" all", 'invalid layer "all"'),
        ("last", 'invalid layer "last"'),
        ("-1", 'invalid layer "-1"'),
        ("1_0", 'invalid layer "1_0"'),
        ("1.5", 'invalid layer "1.5"'),
        ("0x1", 'invalid layer "0x1"'),
        ("1e0", 'invalid layer "1e0"'),
        ("٣", 'invalid layer "٣"'),
        ("３", 'invalid layer "３"'),
        ("²", 'invalid layer "²"'),
        ("1 2", 'invalid layer "1 2"'),
        ("0;1", 'invalid layer "0;1"'),
        ("[0]", 'invalid layer "[0]"'),
        ("+", 'invalid layer "+"'),
        ("++1", 'invalid layer "++1"'),
        ("0,\u200b1", 'invalid layer "\\u{200b}1"'),
        ('"', 'invalid layer "\\""'),
        ("99999999999999999999", 'invalid layer "99999999999999999999"'),
        ("1..=3", 'invalid layer range "1..=3"'),
        ("..3", 'invalid layer range "..3"'),
        ("3..", 'invalid layer range "3.."'),
        ("..", 'invalid layer range ".."'),
        ("1 .. 3", 'invalid layer range "1 .. 3"'),
        ("0..1..2", 'invalid layer range "0..1..2"'),
        ("0...2", 'invalid layer range "0...2"'),
        ("-1..2", 'invalid layer range "-1..2"'),
        ("2..2", 'layer range "2..2" must have start < end'),
        ("3..1", 'layer range "3..1" must have start < end'),
        ("9..7", 'layer range "9..7" must have start < end'),
        ("", "no layers selected"),
        (" , ,", "no layers selected"),
        ("4", "layer 4 is outside the model's 0..3 range"),
        ("9,7,2", "layer 7 is outside the model's 0..3 range"),
        ("2..9", "layer 4 is outside the model's 0..3 range"),
        ("007", "layer 7 is outside the model's 0..3 range"),
        ("0..18446744073709551615", "layer 4 is outside the model's 0..3 range"),
        ("9,a", 'invalid layer "a"'),
    ],
)
def test_layers_that_the_grammar_or_the_model_lacks_are_refused(
    user: User, layers, sentence
):
    user.is_refused(sentence, words=("--layers", layers))


@pytest.mark.parametrize("layers", ["0-2", "0:2"])
def test_a_range_that_is_written_in_another_way_is_refused_with_ours(
    user: User, layers
):
    user.is_refused(
        f'invalid layer "{layers}"',
        "a range is written 0..2, its end not included",
        words=("--layers", layers),
    )


@pytest.mark.parametrize("layers", ["all", "a"])
def test_a_model_without_layers_is_refused(user: User, layers):
    user.config(num_hidden_layers=0)
    user.is_refused("model has no layers", words=("--layers", layers))


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("toy", "Is a directory (os error 21)"),
        (".", "Is a directory (os error 21)"),
        ("new/", "Is a directory (os error 21)"),
        ("", "No such file or directory (os error 2)"),
        ("prompts.json/o.json", "Not a directory (os error 20)"),
        ("prompts.json/a/b/o.json", "Not a directory (os error 20)"),
        ("n" * 300, ...),
        ("deep/" + "n" * 300, ...),
        ("loop", ...),
        ("link", "No such file or directory (os error 2)"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused(user: User, path, cause):
    os.symlink("loop", "loop")
    os.symlink("missing/deeper", "link")
    shown = path.replace("\0", "\\u{0}")
    user.is_refused(f"failed to write {shown}", cause, said=ABSENT, output=path)


def test_a_run_that_does_not_fit_says_what_it_needs(user: User):
    ran = user.runs("--memory", "1M")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[1].startswith("Error: this run needs ")
    assert "--memory" in ran.err
    assert not os.path.exists("o.json")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_a_refusal(user: User):
    user.is_refused(
        "failed to write /dev/full",
        "No space left on device (os error 28)",
        said=ABSENT + PROGRESS,
        output="/dev/full",
    )


def test_the_null_device_is_written_and_stays_a_device(user: User):
    ran = user.runs(output="/dev/null")
    assert (ran.code, ran.out) == (0, "/dev/null\n")
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
@pytest.mark.parametrize("name", ["closed/o.json", "closed/new/o.json"])
def test_a_folder_that_may_not_be_written_is_refused(user: User, name):
    folder = user.folder / "closed"
    folder.mkdir()
    folder.chmod(0o500)
    user.is_refused(
        f"failed to write {name}",
        "Permission denied (os error 13)",
        said=ABSENT,
        output=name,
    )


@pytest.mark.parametrize(
    "path",
    [
        "toy/config.json",
        "toy/tokenizer.json",
        "toy/tokenizer_config.json",
        "toy/model.safetensors",
        "./toy/../toy/config.json",
        "hard.json",
        "soft.json",
    ],
)
def test_an_output_that_is_part_of_the_model_is_refused_untouched(user: User, path):
    os.link("toy/config.json", "hard.json")
    os.symlink("toy/config.json", "soft.json")
    cause = "it is this run's input"
    user.is_refused(f"failed to write {path}", cause, said=ABSENT, output=path)


def test_an_output_that_is_the_input_is_refused_untouched(user: User):
    sentence = "failed to write ./prompts.json"
    user.is_refused(sentence, "it is this run's input", output="./prompts.json")


def test_an_output_beside_the_model_is_no_part_of_it(user: User):
    for _ in range(2):
        assert user.runs(output="toy/activations.json").code == 0


@pytest.mark.parametrize(
    ("model", "sentence", "causes"),
    [
        ("", "model must not be empty", []),
        (" \u3000", "model must not be empty", []),
        ("./nowhere", "failed to list ./nowhere", [NO_FILE]),
        ("toy/nowhere", "failed to list toy/nowhere", [NO_FILE]),
        (
            "prompts.json",
            "failed to list prompts.json",
            ["it is a file, and --model takes a checkpoint's folder"],
        ),
        ("~/model", "failed to list ~/model", [...]),
        (
            ".",
            "model config is missing: ./config.json",
            ["there is one in a folder of it: --model ./toy"],
        ),
        (
            "a model",
            'failed to read model repository "a model"',
            ["this is neither a directory nor a model id such as org/name"],
        ),
        (
            "https://huggingface.co/org/name",
            'failed to read model repository "https://huggingface.co/org/name"',
            ["this is neither a directory nor a model id such as org/name"],
        ),
    ],
)
def test_a_model_that_is_none_is_refused(user: User, model, sentence, causes):
    user.is_refused(sentence, *causes, model=model)


@pytest.mark.parametrize(
    ("words", "flags", "code", "first"),
    [
        (("--device", "tpu"), {}, 2, DEVICE.format("tpu")),
        (("--zzz",), {}, 2, "No such option: --zzz"),
        (("--layers", "-1"), {}, 1, 'invalid layer "-1"'),
        (("--layers", "9"), {}, 1, "layer 9 is outside the model's 0..3 range"),
        ((), {"input": "missing.json"}, 1, "failed to read missing.json"),
        ((), {"input": "deep.json"}, 1, "invalid prompt JSON in deep.json"),
        ((), {"model": "./nowhere"}, 1, "failed to list ./nowhere"),
        ((), {}, 1, "failed to map 1 model weight files"),
        ((), {"output": "toy"}, 1, "failed to write toy"),
        ((), {"output": "a/b/" + "n" * 300}, 1, "failed to write a/b/" + "n" * 300),
    ],
)
def test_a_real_process_refuses_in_the_same_way(user: User, words, flags, code, first):
    user.write("deep.json", b"[" * 200_000)
    user.write("o.json", OLD)
    user.damage_weights()
    before = user.snapshot()
    ran = user.starts(*words, **flags)
    assert (ran.code, ran.out) == (code, "")
    assert f"Error: {first}" in ran.err.splitlines()
    assert "Traceback" not in ran.err
    assert user.snapshot() == before


def test_an_output_that_is_a_shard_in_a_folder_is_refused_untouched(user: User):
    """Only the index knows of it."""
    shard = "sub/model-00001-of-00001.safetensors"
    names = list(load_file(user.folder / "toy/model.safetensors"))
    (user.folder / "toy/sub").mkdir()
    os.rename("toy/model.safetensors", f"toy/{shard}")
    index = {"weight_map": dict.fromkeys(names, shard)}
    user.write("toy/model.safetensors.index.json", json.dumps(index))
    path = f"toy/{shard}"
    cause = "it is this run's input"
    user.is_refused(f"failed to write {path}", cause, said=ABSENT, output=path)
