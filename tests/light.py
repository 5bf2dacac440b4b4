"""A checkpoint's light files in a folder, and reporters that remember."""

from __future__ import annotations

from pathlib import Path


class Notes:
    """Remembers notes; anything else it is told fails the test."""

    def __init__(self):
        self.notes = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def warn(self, sentence: str) -> None:
        raise AssertionError(sentence)

    def progress(self, progress: object) -> None:
        raise AssertionError(progress)


class Warnings(Notes):
    """Remembers warnings as well."""

    def __init__(self):
        super().__init__()
        self.warnings = []

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


class Folder:
    """Stands for ``CheckpointFiles`` where only light files are asked for."""

    def __init__(self, path: Path):
        self.path = path

    def find(self, name: str) -> Path | None:
        path = self.path / name
        return path if path.exists() else None

    def require_tokenizer(self) -> Path:
        return self.path / "tokenizer.json"
