"""A runtime without a model, so that the command line can be tested alone.

It needs no pytest: ``driver.py`` has it in a process of its own.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

from ster.documents.whole_files import AtomicFile
from ster.reporting import Reporter

if TYPE_CHECKING:
    import pytest

MODULES = ("ster.loading", "ster.documents.prompt_sets.files", "ster.toy")
# What a run does: it has its prompts, its layers, its open document and its reporter.
Run = Callable[[list[str], str, AtomicFile, Reporter], object]


def write_nothing(
    prompts: list[str], layers: str, file: AtomicFile, reporter: Reporter
) -> None:
    """Write an empty document and say nothing."""
    file.write(b"{}")


class StubRuntime:
    """Stands for what a command calls, and writes down in ``calls`` what it asks for.

    Args:
        monkeypatch: Undoes it after the test.
        modules: Which of the three modules it stands for.
        run: What ``write_activations`` does while the document is open.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch | None = None,
        *,
        modules: tuple[str, ...] = (
            "ster.loading",
            "ster.documents.prompt_sets.files",
            "ster.toy",
        ),
        run: Run = write_nothing,
    ) -> None:
        self.calls: list[tuple[str, object]] = []
        self.fail: dict[str, BaseException] = {}
        self.run = run
        self.reporter: Reporter
        functions = {
            "ster.loading": (self.check_device, self.open_runtime),
            "ster.documents.prompt_sets.files": (self.read_prompt_set,),
            "ster.toy": (self.write_toy_checkpoint,),
        }
        for name in modules:
            module = types.ModuleType(name)
            vars(module).update({stub.__name__: stub for stub in functions[name]})
            if monkeypatch is None:
                sys.modules[name] = module
            else:
                monkeypatch.setitem(sys.modules, name, module)

    def record(self, name: str, value: object) -> None:
        self.calls.append((name, value))
        if name in self.fail:
            raise self.fail[name]

    def check_device(self, device: str, precision: str) -> None:
        self.record("check_device", (device, precision))

    def read_prompt_set(self, path: str) -> list[str]:
        self.record("read_prompt_set", path)
        return ["a", "b"]

    def open_runtime(
        self, model: str, *, reporter: Reporter, **options: object
    ) -> StubRuntime:
        self.reporter = reporter
        self.record("open_runtime", (model, options))
        return self

    def write_activations(
        self, prompts: list[str], output: str, layers: str, **how: str
    ) -> None:
        self.record("write_activations", (prompts, output, layers, how))
        with AtomicFile(output) as file:
            self.run(prompts, layers, file, self.reporter)

    held_memory = 10**6

    def closing_line(self, seconds: float) -> str:
        return f"it took {seconds:.0f} s"

    def write_toy_checkpoint(self, directory: str) -> None:
        self.record("write_toy_checkpoint", directory)
