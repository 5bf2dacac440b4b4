"""Flags, commands, help, and the sentences for words that are none."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from ster.cli import run
from ster.runs.choice import ModelChoice
from tests.cli.stubs import StubRuntime

HOW = {"tokens": "last", "points": "resid_post", "role": "user", "store": "f32"}
REQUIRED = ["extract", "--model", "m", "--input", "i.json", "--output", "o.json"]
EXTRACT_FLAGS = [
    "--model",
    "--revision",
    "--device",
    "--precision",
    "--chat-template",
    "--template-arg",
    "--input",
    "--prompt",
    "--output",
    "--layers",
    "--memory",
    "--verbose",
    "--text",
]


@pytest.fixture
def stub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STER_DEVICE")
    return StubRuntime(monkeypatch)


def test_version_goes_to_stdout(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr() == ("ster 0.1.0\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command(capsys, flag):
    assert run([flag]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert re.findall(r"^  (extract|toy-model|--text|-V, --version) ", out, re.M) == [
        "-V, --version",
        "--text",
        "extract",
        "toy-model",
    ]


@pytest.mark.parametrize("flag", EXTRACT_FLAGS)
def test_help_of_extract_explains_every_flag(capsys, flag):
    assert run(["extract", "--help"]) == 0
    entry = rf"^  (-\w, )?{flag}( <\S+>| / --json)?  +\S+"
    assert re.search(entry, capsys.readouterr().out, re.M)


def test_help_of_extract_shows_defaults_requirements_and_an_example(capsys):
    run(["extract", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for default in ("cpu", "f32", "auto", "all"):
        assert re.search(rf"[\[ ]default: {default}\]", text)
    assert text.count("required]") == 2
    assert "Example: ster toy-model toy ster extract --model toy" in text


def test_no_words_at_all_give_the_help_as_an_error(capsys):
    assert run([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: ster [OPTIONS] COMMAND [ARGS]...\n")
    assert "toy-model" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nonsense"], "No such command 'nonsense'."),
        (["nonsense", "train"], "No such command 'nonsense'."),
        (["extrac"], "No such command 'extrac'. Did you mean 'extract'?"),
        (["--text"], "Missing command."),
        (["--nope"], "No such option: --nope"),
        (["extract"], "Missing option '--model'."),
        (["extract", "--model", "m"], "Missing option '--output'."),
        (REQUIRED[:5], "Missing option '--output'."),
        ([*REQUIRED, "--xyz"], "No such option: --xyz"),
        (
            [*REQUIRED, "--layer", "3"],
            "No such option: --layer (Possible options: --layers)",
        ),
        ([*REQUIRED, "stray"], "Got unexpected extra argument(s) (stray)"),
        ([*REQUIRED, "--layers"], "Option '--layers' needs a value."),
        (
            ["extract", "--model", "--input", "x"],
            "Option '--model' needs a value, but '--input' follows it.",
        ),
        (
            [*REQUIRED, "--layers", "--text"],
            "Option '--layers' needs a value, but '--text' follows it.",
        ),
        ([*REQUIRED, "--model=n"], "Option '--model' is given more than once."),
        ([*REQUIRED, "--input", "n"], "Option '--input' is given more than once."),
        (["toy-model"], "Missing argument 'DIR'."),
        (["toy-model", "a", "b"], "Got unexpected extra argument(s) (b)"),
    ],
)
def test_a_wrong_line_is_refused_with_its_usage(stub, capsys, words, sentence):
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"Error: {sentence}\n\nUsage: ster ")
    assert err.endswith(" --help' for help.\n")
    assert stub.calls == []


def test_text_takes_no_value(stub, capsys):
    assert run([*REQUIRED, "--text=yes"]) == 2
    assert capsys.readouterr() == (
        "",
        "Error: Option '--text' does not take a value.\n",
    )
    assert stub.calls == []


@pytest.mark.parametrize(
    ("word", "quoted"), [("Auto", '"Auto"'), ("", '""'), ('a"\n', r'"a\"\n"')]
)
def test_an_unknown_chat_template_mode_is_a_usage_error(stub, capsys, word, quoted):
    assert run([*REQUIRED, "--chat-template", word]) == 2
    sentence = f"unknown chat template mode {quoted}; expected auto or off"
    assert capsys.readouterr() == ("", f"Error: {sentence}\n")
    assert stub.calls == []


def test_extract_checks_in_order_and_prints_the_output_as_given(stub, capsys):
    assert run(REQUIRED) == 0
    assert capsys.readouterr() == ("o.json\n", "")
    choice = ModelChoice(model="m")
    assert stub.calls == [
        ("check_device", ("cpu", "f32")),
        ("read_prompt_set", "i.json"),
        ("open_runtime", (choice, {"layers": "all"})),
        ("write_activations", (["a", "b"], "o.json", "all", HOW)),
    ]


def test_every_flag_of_extract_arrives(stub, capsys):
    words = ["--revision=abc", "--device", "metal", "--precision=f16", "--verbose"]
    words += ["--chat-template", "off", "--layers", "-1", "--memory", "1.5 GiB"]
    words += ["--template-arg", "a=false", "--template-arg=b=x=y"]
    words += ["--tokens", "0", "--points=resid_post", "--role=assistant"]
    assert run([*REQUIRED, *words]) == 0
    assert stub.calls[0] == ("check_device", ("metal", "f16"))
    choice = ModelChoice(
        model="m",
        device="metal",
        precision="f16",
        chat_template="off",
        template_args={"a": False, "b": "x=y"},
        revision="abc",
        memory=3 * 2**29,
        verbose=True,
    )
    assert stub.calls[2] == ("open_runtime", (choice, {"layers": "-1"}))
    how = {**HOW, "tokens": "0", "role": "assistant"}
    assert stub.calls[3] == ("write_activations", (["a", "b"], "o.json", "-1", how))


def test_a_value_that_looks_like_a_flag_can_be_attached(stub, capsys):
    words = ["extract", "--model=--m", "--input=-i", "--output=./--o.json"]
    assert run(words) == 0
    assert capsys.readouterr().out == "./--o.json\n"
    assert stub.calls[2][1][0].model == "--m"


@pytest.mark.parametrize(
    "words",
    [
        ["--text", *REQUIRED],
        [*REQUIRED, "--text"],
        ["extract", "--text", *REQUIRED[1:]],
    ],
)
def test_text_may_stand_anywhere(stub, capsys, words):
    assert run(words) == 0
    assert capsys.readouterr() == ("o.json\n", "")


@pytest.mark.parametrize(
    "words", [["toy-model", "./d/"], ["toy-model", "./d/", "--text"]]
)
def test_toy_model_prints_the_directory_as_given(stub, capsys, words):
    assert run(words) == 0
    assert capsys.readouterr() == ("./d/\n", "")
    assert stub.calls == [("write_toy_checkpoint", "./d/")]


@pytest.mark.parametrize("spelling", ["i.json", "./i.json", "link.json", "hard.json"])
def test_an_output_that_is_the_input_is_refused_untouched(
    stub, tmp_path, capsys, spelling
):
    prompts = tmp_path / "i.json"
    prompts.write_text('{"prompts": ["x"]}')
    (tmp_path / "link.json").symlink_to(prompts)
    (tmp_path / "hard.json").hardlink_to(prompts)
    assert run([*REQUIRED[:-1], spelling]) == 1
    expected = (
        f"Error: failed to write {spelling}\n\nCaused by:\n    it is this run's input\n"
    )
    assert capsys.readouterr() == ("", expected)
    assert [name for name, _ in stub.calls] == ["check_device"]
    assert prompts.read_text() == '{"prompts": ["x"]}'


LETTERS = ["extract", "-m", "m", "-i", "i.json", "-o", "o.json"]


def test_letters_stand_for_the_long_flags(stub, capsys):
    assert run([*LETTERS, "-d", "metal"]) == 0
    assert capsys.readouterr().out == "o.json\n"
    assert stub.calls[0] == ("check_device", ("metal", "f32"))
    assert stub.calls[2][1][0] == ModelChoice(model="m", device="metal")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([*LETTERS, "-m", "n"], "Option '-m' is given more than once."),
        ([*LETTERS, "--model", "n"], "Option '--model' is given more than once."),
        ([*LETTERS, "-mn"], "Option '-m' is given more than once."),
        ([*LETTERS, "-d"], "Option '-d' needs a value."),
        (
            [*LETTERS, "-d", "--text"],
            "Option '-d' needs a value, but '--text' follows it.",
        ),
        ([*LETTERS, "-x"], "No such option: -x"),
    ],
)
def test_a_wrong_line_of_letters_is_refused_too(stub, capsys, words, sentence):
    assert run(words) == 2
    assert capsys.readouterr().err.startswith(f"Error: {sentence}\n\nUsage: ster ")
    assert stub.calls == []


@pytest.mark.parametrize("command", [["vector", "train"], ["generate"], ["chat"]])
def test_no_letter_stands_for_two_flags_of_a_command(capsys, command):
    assert run([*command, "--help"]) == 0
    letters = re.findall(r"^  (-\w), --", capsys.readouterr().out, re.M)
    assert len(letters) == len(set(letters)) > 3


def test_help_stands_under_headings_and_is_plain_in_a_pipe(capsys):
    assert run(["generate", "--help"]) == 0
    out = capsys.readouterr().out
    headings = re.findall(r"^(\w.*):$", out, re.M)
    assert headings == [
        *("Model", "Input and output", "Steering", "Measuring", "Writing"),
        "This run",
    ]
    assert not set(out) & set("│╭\x1b")


@pytest.mark.parametrize("columns", [30, 45, 58, 60])
@pytest.mark.parametrize("words", [[], ["generate"], ["vector", "ablate"]])
def test_help_fits_the_terminal(monkeypatch, capsys, words, columns):
    monkeypatch.setattr("ster.cli.panels.may_draw", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*words, "--help"]) == 0
    page, _, _ = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).partition("Example")
    assert max(len(line.rstrip()) for line in page.splitlines()) <= columns
    said = " ".join(page.replace("│", " ").split())
    assert words or "Make contrastive pairs, and see what they are like." in said


def test_variables_stand_in_for_absent_flags(stub, monkeypatch, capsys):
    monkeypatch.setenv("STER_MODEL", "from-here")
    monkeypatch.setenv("STER_DEVICE", "metal")
    monkeypatch.setenv("STER_PRECISION", "f16")
    line = ["extract", "-i", "i.json", "-o", "o.json"]
    assert run(line) == 0
    assert stub.calls[0] == ("check_device", ("metal", "f16"))
    choice = ModelChoice(model="from-here", device="metal", precision="f16")
    assert stub.calls[2][1][0] == choice
    stub.calls.clear()
    assert run([*line, "-m", "m", "-d", "cuda", "--precision", "bf16"]) == 0
    choice = ModelChoice(model="m", device="cuda", precision="bf16")
    assert stub.calls[2][1][0] == choice


def test_an_empty_variable_counts_as_absent(stub, monkeypatch, capsys):
    for name in ("STER_MODEL", "STER_DEVICE", "STER_PRECISION"):
        monkeypatch.setenv(name, "")
    assert run(REQUIRED) == 0
    assert stub.calls[0] == ("check_device", ("cpu", "f32"))
    assert run(["extract", "-i", "i.json", "-o", "o.json"]) == 2
    assert "Missing option '--model'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "word", "sentence", "code"),
    [
        ("DEVICE", "gpu", 'unknown device "gpu"; expected cpu, metal, or cuda', 2),
        ("DEVICE", "mlx-cpu", 'unknown device "mlx-cpu"; expected cpu, metal', 2),
        ("PRECISION", "f8", 'unknown precision "f8"; expected f32, f16, or bf16', 2),
        ("PRECISION", "bf16", "bf16 has no CPU matmul kernel in this Candle build", 1),
        ("MODEL", "./nowhere", "failed to list ./nowhere", 1),
        ("MODEL", "toyy", "failed to read model repository toyy", 1),
    ],
)
def test_a_refused_variable_is_named_in_the_cause(
    user, monkeypatch, name, word, sentence, code
):
    monkeypatch.setenv("STER_MODEL", "toy")
    monkeypatch.setenv(f"STER_{name}", word)
    assert run(["extract", "-i", "prompts.json", "-o", "o.json"]) == code
    _, err = user.heard()
    assert err.startswith(f"Error: {sentence}")
    assert f"STER_{name} is set to it\n" in err


def test_a_flag_s_word_is_refused_without_naming_a_variable(user, monkeypatch):
    monkeypatch.setenv("STER_DEVICE", "cpu")
    ran = user.runs("--device", "gpu")
    assert ran.code == 2
    assert "STER_DEVICE" not in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [([], True), (["-d", "cpu"], False), (["-d", "auto"], False)],
)
def test_a_gpu_that_nobody_asked_for_is_pointed_out_once(
    stub, monkeypatch, capsys, words, told
):
    monkeypatch.setattr("ster.decoder.devices.find_gpu", lambda: "metal")
    monkeypatch.setattr(
        "ster.decoder.devices.implementation",
        lambda _: SimpleNamespace(check_available=lambda _: None),
    )
    assert run([*REQUIRED, *words]) == 0
    sentence = "this machine has Metal; --device metal or --device auto would use it\n"
    assert capsys.readouterr().err == sentence * told
    chosen = "metal" if "auto" in words else "cpu"
    assert stub.calls[0] == ("check_device", (chosen, "f32"))
    assert stub.calls[2][1][0].device == chosen


@pytest.mark.parametrize(
    ("words", "told"),
    [([], True), (["-d", "auto"], True), (["-d", "cpu"], False)],
)
def test_a_python_that_keeps_metal_out_of_reach_is_pointed_out(
    stub, monkeypatch, capsys, words, told
):
    monkeypatch.setattr("ster.decoder.devices.find_gpu", lambda: None)
    monkeypatch.setattr("ster.decoder.devices.is_translated", lambda: True)
    assert run([*REQUIRED, *words]) == 0
    sentence = (
        "this machine has Metal, but this Python is built for Intel processors; with "
        "one that is built for arm64 ster would use it\n"
    )
    assert capsys.readouterr().err == sentence * told
    assert stub.calls[0] == ("check_device", ("cpu", "f32"))


def test_a_variable_that_chooses_the_device_silences_the_note(
    stub, monkeypatch, capsys
):
    monkeypatch.setattr("ster.decoder.devices.find_gpu", lambda: "cuda")
    monkeypatch.setenv("STER_DEVICE", "cpu")
    assert run(REQUIRED) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["--json"], ["--text", "--json"]])
def test_json_is_the_other_word_of_text(capsys, words):
    assert run(["models", *words]) == 0
    assert capsys.readouterr().out.startswith("{\n")
    assert run([*words, "models", "--text"]) == 0
    assert capsys.readouterr().out.startswith("families[0].")


@pytest.mark.parametrize(
    "flag", ["--batch-size", "--max-sequence", "--random-directions", "--max-damage"]
)
def test_a_flag_of_a_trial_needs_strengths(flag, capsys):
    line = ["vector", "evaluate", "-m", "none", "--pairs", "none.json"]
    assert run([*line, "--vector", "none.json", flag, "8"]) == 2
    assert capsys.readouterr().err == f"Error: {flag} needs --strengths\n"
