"""A runtime without a model, so that the words of a line can be tested alone."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest


class StubRuntime:
    """Writes down in ``calls`` what the command asks for, and in what order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, object]] = []
        self.fail: dict[str, BaseException] = {}
        runtime = types.ModuleType("ster.loading")
        prompts = types.ModuleType("ster.documents.prompts")
        toy = types.ModuleType("ster.toy")
        vars(runtime).update(
            check_device=self.check_device, open_runtime=self.open_runtime
        )
        vars(prompts).update(read_prompt_set=self.read_prompt_set)
        vars(toy).update(write_toy_checkpoint=self.write_toy_checkpoint)
        for module in (runtime, prompts, toy):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def record(self, name: str, value: object) -> None:
        self.calls.append((name, value))
        if name in self.fail:
            raise self.fail[name]

    def check_device(self, device: str, precision: str) -> None:
        self.record("check_device", (device, precision))

    def read_prompt_set(self, path: str) -> list[str]:
        self.record("read_prompt_set", path)
        return ["a", "b"]

    def open_runtime(self, model: str, **options: object) -> StubRuntime:
        options.pop("reporter")
        self.record("open_runtime", (model, options))
        return self

    def write_activations(self, prompts: list[str], output: str, layers: str) -> None:
        self.record("write_activations", (prompts, output, layers))
        Path(output).write_text("{}")

    def write_toy_checkpoint(self, directory: str) -> None:
        self.record("write_toy_checkpoint", directory)
