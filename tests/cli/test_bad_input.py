"""Bad documents, words, layers and outputs: one sentence each, and nothing touched."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.cli.user import ABSENT, OLD, PROGRESS, User

NO_FILE = "No such file or directory (os error 2)"
JSON = "invalid prompt JSON in prompts.json"
# The device that this system can never have.
ELSEWHERE = "cuda" if sys.platform == "darwin" else "metal"


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b'{"prompts": ["a"], "x": NaN}', ...),
        (
            b'{"prompts": ["a"], "prompts": ["b"]}',
            'key "prompts" is given twice',
        ),
        (b"[" * 200_000, ...),
        (b'{"prompts": ["a", 1]}', "`prompts[1]` is no string"),
    ],
)
def test_a_document_that_is_no_prompt_set_is_refused(user: User, data, cause):
    user.write("prompts.json", data)
    user.is_refused(JSON, cause)


@pytest.mark.parametrize(
    ("path", "cause"),
    [("missing.json", NO_FILE), ("", NO_FILE), ("a\0b", "embedded null byte")],
)
def test_a_document_that_cannot_be_read_is_refused(user: User, path, cause):
    shown = path.replace("\0", "\\u{0}")
    user.is_refused(f"failed to read {shown}", cause, input=path)


def test_a_prompt_set_without_prompts_is_refused(user: User):
    user.prompts()
    user.is_refused("prompt set contains no prompts")


def test_a_prompt_of_white_space_is_refused(user: User):
    user.prompts("the sea", "\u3000\n")
    user.is_refused("prompt must not be empty", "prompt 2 is blank")


def test_what_only_looks_blank_is_a_prompt(user: User):
    prompts = ["\u200b", "\ufeff", "\x1c", "\0", "\u180e"]
    user.prompts(*prompts)
    assert user.runs().code == 0
    assert [record["prompt"] for record in user.document()["records"]] == prompts


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
        (("--device", 'a"\n\\\x1b'), DEVICE.format(r"a\"\n\\\u{1b}")),
        (("--device", "mlx-cpu"), DEVICE.format("mlx-cpu")),
        (("--precision=",), PRECISION.format("")),
        (("--chat-template", "on"), MODE.format("on")),
        (("--memory", "-1"), SIZE.format("-1")),
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
        ("-1", 'invalid layer "-1"'),
        ("0,\u200b1", 'invalid layer "\\u{200b}1"'),
        ("1..=3", 'invalid layer range "1..=3"'),
        ("", "no layers selected"),
        ("9,7,2", "layer 7 is outside the model's 0..3 range"),
    ],
)
def test_layers_that_the_grammar_or_the_model_lacks_are_refused(
    user: User, layers, sentence
):
    user.is_refused(sentence, words=("--layers", layers))


def test_a_range_that_is_written_in_another_way_is_refused_with_ours(user: User):
    user.is_refused(
        'invalid layer "0-2"',
        "a range is written 0..2, its end not included",
        words=("--layers", "0-2"),
    )


def test_a_model_without_layers_is_refused(user: User):
    user.config(num_hidden_layers=0)
    user.is_refused("model has no layers", words=("--layers", "a"))


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("toy", "Is a directory (os error 21)"),
        ("", NO_FILE),
        ("prompts.json/a/b/o.json", "Not a directory (os error 20)"),
        ("deep/" + "n" * 300 + ".json", ...),
        ("a\0b", "embedded null byte"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused(user: User, path, cause):
    shown = path.replace("\0", "\\u{0}")
    user.is_refused(f"failed to write {shown}", cause, said=ABSENT, output=path)


@pytest.mark.parametrize("path", ["o", "o.txt", "new/o.pt"])
def test_an_output_of_another_suffix_is_refused_before_anything_is_read(
    user: User, path
):
    ran = user.runs(model="./nowhere", input="nowhere.json", output=path)
    assert (ran.code, ran.out) == (1, "")
    said = f"Error: failed to write {path}\n\nCaused by:\n    a suffix says how "
    assert ran.err.startswith(said)


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
        "toy/tokenizer_config.json",
        "./toy/../toy/model.safetensors",
        "hard.json",
        "soft.json",
    ],
)
def test_an_output_that_is_part_of_the_model_is_refused_untouched(user: User, path):
    os.link("toy/config.json", "hard.json")
    os.symlink("toy/tokenizer.json", "soft.json")
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
        (" \u3000", "model must not be empty", []),
        ("./nowhere", "failed to list ./nowhere", [NO_FILE]),
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
            "empty",
            "model config is missing: empty/config.json",
            ["the folder is empty"],
        ),
        ("./tyo", "failed to list ./tyo", [NO_FILE, "did you mean ./toy?"]),
        (
            "a model",
            'failed to read model repository "a model"',
            ["this is neither a directory nor a model id such as org/name"],
        ),
    ],
)
def test_a_model_that_is_none_is_refused(user: User, model, sentence, causes):
    (user.folder / "empty").mkdir()
    user.is_refused(sentence, *causes, model=model)


@pytest.mark.parametrize(
    ("words", "flags", "code", "first"),
    [
        (("--zzz",), {}, 2, "No such option: --zzz"),
        ((), {"input": "deep.json"}, 1, "invalid prompt JSON in deep.json"),
        ((), {}, 1, "failed to map 1 model weight files"),
        ((), {"output": "toy"}, 1, "failed to write toy"),
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
