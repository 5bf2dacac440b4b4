"""A person in a folder with the toy checkpoint, two prompts and the command line."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from ster.cli import run
from tests.processes import finished

ABSENT = (
    "this model publishes no chat template, so prompts and completions are encoded as "
    "raw text\n"
)
APPLIED = "applying the model's own chat template to every prompt and completion\n"
OFF = "chat template off, so prompts and completions are encoded as raw text\n"
CLOCK = (
    "this model's chat template reads the clock, so activations differ from day to "
    "day\n"
)
PROGRESS = "extracting prompt 1/2\nextracting prompt 2/2\n"
PROMPTS = b'{"prompts": ["the sea is calm .", "thunder rolls"]}'
OLD = b"an older document"
# A cause that a library words; it is one line whatever it is.
Cause = str | EllipsisType


@dataclass(frozen=True)
class Ran:
    """What a command left on its streams."""

    code: int
    out: str
    err: str


class User:
    """Works in a folder that holds ``toy`` and ``prompts.json``.

    Args:
        folder: The folder, which is the current one.
        capsys: The streams of commands in this process.
    """

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def line(self, words: tuple[str, ...] = (), **flags: str) -> list[str]:
        """Spell a command: ``--model toy`` and so on, each of which may be replaced."""
        values = {"model": "toy", "input": "prompts.json", "output": "o.json", **flags}
        pairs = [(f"--{name}", value) for name, value in values.items()]
        return ["extract", *(word for pair in pairs for word in pair), *words]

    def runs(self, *words: str, **flags: str) -> Ran:
        """Run ``ster extract`` in this process."""
        self._capsys.readouterr()
        code = run(self.line(words, **flags))
        return Ran(code, *self._capsys.readouterr())

    def heard(self) -> tuple[str, str]:
        """Take what was written to both streams since."""
        return self._capsys.readouterr()

    def starts(self, *words: str, **flags: str) -> Ran:
        """Run ``ster extract`` in a process of its own."""
        done = finished([sys.executable, "-m", "ster", *self.line(words, **flags)])
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def is_refused(
        self,
        sentence: str,
        *causes: Cause,
        words: tuple[str, ...] = (),
        code: int = 1,
        said: str = "",
        **flags: str,
    ) -> None:
        """Run, and find the refusal alone: nothing written, nothing changed.

        Twice: without an older output and with one.
        """
        expected = re.escape(said) + refusal(sentence, *causes)
        for older in (None, OLD):
            if older is not None:
                self.write("o.json", older)
            before = self.snapshot()
            ran = self.runs(*words, **flags)
            assert (ran.code, ran.out) == (code, "")
            assert re.fullmatch(expected, ran.err), ran.err
            assert self.snapshot() == before

    def is_told(self, sentence: str, *, words: tuple[str, ...], **flags: str) -> None:
        """Run, and find the line itself refused, before anything is looked for."""
        before = self.snapshot()
        ran = self.runs(*words, **flags)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"Error: {sentence}\n")
        assert self.snapshot() == before

    def snapshot(self) -> dict[str, bytes | str]:
        """Read the whole folder: each file's bytes, each link's target."""
        found: dict[str, bytes | str] = {}
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.is_symlink():
                found[name] = str(path.readlink())
            else:
                found[name] = path.read_bytes() if path.is_file() else "folder"
        return found

    def write(self, name: str, data: bytes | str | None) -> None:
        """Put bytes or text into a file, or remove it."""
        path = self.folder / name
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data.encode() if isinstance(data, str) else data)

    def prompts(self, *prompts: str) -> None:
        """Write the prompts of the next run."""
        self.write("prompts.json", json.dumps({"prompts": prompts}))

    def config(self, **changes: object) -> None:
        """Change fields of config.json; ``...`` removes one."""
        self.change("toy/config.json", **changes)

    def tokenizer_config(self, **changes: object) -> None:
        """Change fields of tokenizer_config.json; ``...`` removes one."""
        self.change("toy/tokenizer_config.json", **changes)

    def tokenizer(self, edit: Callable[[Any], None]) -> None:
        """Change tokenizer.json."""
        document = json.loads((self.folder / "toy/tokenizer.json").read_bytes())
        edit(document)
        self.write("toy/tokenizer.json", json.dumps(document))

    def change(self, name: str, **changes: object) -> None:
        """Change fields of a JSON object in a file; ``...`` removes one."""
        document = json.loads((self.folder / name).read_bytes()) | changes
        kept = {key: value for key, value in document.items() if value is not ...}
        self.write(name, json.dumps(kept))

    def weights(self, edit: Callable[[dict[str, NDArray[Any]]], None]) -> None:
        """Change the tensors of the checkpoint."""
        path = self.folder / "toy/model.safetensors"
        tensors = load_file(path)
        edit(tensors)
        save_file(tensors, path)

    def damage_weights(self) -> None:
        """Cut the weight file, which every run that opens it then refuses."""
        path = self.folder / "toy/model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])

    def document(self, name: str = "o.json") -> Any:
        """Read what a run wrote."""
        return json.loads((self.folder / name).read_bytes())

    def rows(self, name: str = "o.json") -> NDArray[np.float64]:
        """Read the activations: (num_prompts, num_layers, hidden_size)."""
        records = self.document(name)["records"]
        return np.array([list(record["layers"].values()) for record in records])


def refusal(sentence: str, *causes: Cause) -> str:
    """Write the pattern of a refusal as a person sees it."""
    lines = [re.escape(f"Error: {sentence}")]
    if causes:
        lines += ["", "Caused by:"]
    for number, cause in enumerate(causes):
        label = f"{number:>5}: " if len(causes) > 1 else "    "
        lines.append(label + (".+" if cause is ... else re.escape(str(cause))))
    return "\n".join(lines) + "\n"


def make_user(
    toy: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> User:
    """Give a person a fresh folder and go there."""
    shutil.copytree(toy, folder / "toy")
    (folder / "prompts.json").write_bytes(PROMPTS)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("STER_TRACEBACK", raising=False)
    return User(folder, capsys)
