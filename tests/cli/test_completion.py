"""What completes ster's words in a shell."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from ster.cli import run
from tests.processes import finished

Captured = pytest.CaptureFixture[str]

ASK = """
eval "$(ster completion bash)"
COMP_WORDS=({words})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_ster_completion ster
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("shell", "holds"),
    [
        ("bash", "complete -o default -F _ster_completion ster"),
        ("zsh", "compdef _ster_completion ster"),
        ("fish", "complete --command ster"),
    ],
)
def test_each_shell_has_its_script(capsys: Captured, shell: str, holds: str):
    assert run(["completion", shell]) == 0
    out, err = capsys.readouterr()
    assert holds in out
    assert "_STER_COMPLETE" in out
    assert err == ""


@pytest.mark.parametrize("word", ["csh", "", "Bash"])
def test_an_unknown_shell_is_a_usage_error(capsys: Captured, word: str):
    assert run(["completion", word]) == 2
    assert capsys.readouterr() == (
        "",
        f'Error: unknown shell "{word}"; expected bash, zsh or fish\n',
    )


COMMANDS = ["extract", "generate", "chat", "toy-model", "models", "completion"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ster ''", [*COMMANDS, "vector"]),
        ("ster ex", ["extract"]),
        ("ster vector ''", ["train", "optimize", "evaluate", "inspect"]),
        ("ster extract --device ''", ["cpu", "metal", "cuda", "auto"]),
        ("ster extract -m m -d c", ["cpu", "cuda"]),
        ("ster extract --precision f", ["f32", "f16"]),
        ("ster chat --pre", ["--precision"]),
        ("ster completion ''", ["bash", "zsh", "fish"]),
        ("ster extract --input ''", []),  # files, which bash completes
    ],
)
def test_bash_is_told_what_may_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, expected: list[str]
):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ster").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ster "$@"\n')
    (folder / "ster").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    done = finished([bash, "--norc", "-c", ASK.format(words=words)])
    assert done.stderr == b""
    assert set(expected) <= set(done.stdout.decode().split())
    if "''" not in words or not expected:
        assert done.stdout.decode().split() == expected


def test_zsh_is_told_what_words_mean(capsys: Captured, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("_STER_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "ster extract --pre")
    assert run([]) == 0
    out = capsys.readouterr().out
    assert out.startswith('_arguments \'*: :(("--precision":')
    assert "\n" not in out.strip()


def test_nonsense_in_the_variable_is_no_crash(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("_STER_COMPLETE", "nonsense")
    assert run([]) == 1
    assert "Traceback" not in "".join(capsys.readouterr())
