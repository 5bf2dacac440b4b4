"""From the model flags of a command to a loaded model and back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ster.cli.progress import open_reporter
from ster.errors import OutputError
from ster.runs.memory import parse_memory

if TYPE_CHECKING:
    from ster.runtime import Runtime


class ModelFlags(NamedTuple):
    """The flags that every command with a model has, in the order of its help."""

    model: str
    revision: str | None
    device: str
    precision: str
    chat_template: str
    memory: str | None
    verbose: bool

    def check_device(self) -> None:
        """Refuse a device or precision that is not to be had.

        Raises:
            SterError: A word is unknown, or not for this machine.
        """
        from ster.checkpoint.tokenizer import start_ahead

        # It comes up while the array libraries are imported.
        start_ahead(self.model, self.chat_template)
        from ster.loading import check_device

        check_device(self.device, self.precision)

    @contextmanager
    def open(
        self, layers: str = "all", output_path: str | None = None
    ) -> Iterator[Runtime]:
        """Load the model, and show what it says until the ``with`` ends.

        Args:
            layers: The selection that is checked as soon as the config is read.
            output_path: What must not be a file of the model.

        Raises:
            SterError: Whatever can be refused before the weights are mapped.
        """
        # Late, so that `ster --help` does not wait for the array libraries.
        from ster.checkpoint.resolve import local_files
        from ster.loading import open_runtime

        with open_reporter() as reporter:
            runtime = open_runtime(
                self.model,
                device=self.device,
                precision=self.precision,
                chat_template=self.chat_template,
                revision=self.revision,
                reporter=reporter,
                layers=layers,
                memory=None if self.memory is None else parse_memory(self.memory),
                verbose=self.verbose,
            )
            if output_path is not None:
                refuse_same_file(local_files(self.model), output_path)
            yield runtime


def refuse_same_file(input_paths: Iterable[str], output_path: str) -> None:
    """Refuse to write over a file that the run reads.

    Devices are not meant: a terminal is often both.
    """
    for path in input_paths:
        try:
            source, target = os.stat(path), os.stat(output_path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(source.st_mode) and os.path.samestat(source, target):
            raise OutputError(
                f"failed to write {output_path}", "it is this run's input"
            )
