"""The real command line over a runtime that needs no model: ``driver.py extract ...``.

It writes the document piece by piece, as a run does. With ``--layers hang`` it says so
in the middle of the document and waits for a signal.
"""

from __future__ import annotations

import signal
import sys
import types

from ster.cli import main
from ster.documents.json import AtomicFile
from ster.reporting import Progress, Reporter


class Runtime:
    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def write_activations(self, prompts: list[str], output: str, layers: str) -> None:
        self.reporter.note("a note, Größe")
        self.reporter.warn("a warning")
        total = len(prompts)
        with AtomicFile(output) as file:
            file.write(b"begin ")
            for done in range(1, total + 1):
                self.reporter.progress(
                    Progress(
                        prompts_done=done,
                        num_prompts=total,
                        layer=3,
                        num_layers=4,
                        tokens_done=done * 10,
                        num_tokens=total * 10,
                    )
                )
                if layers == "hang":
                    self.reporter.note("hanging")
                    while True:
                        signal.pause()
            file.write(b"end")


def open_runtime(model: str, *, reporter: Reporter, **options: object) -> Runtime:
    return Runtime(reporter)


runtime = types.ModuleType("ster.loading")
vars(runtime).update(check_device=lambda *words: None, open_runtime=open_runtime)
sys.modules["ster.loading"] = runtime

if __name__ == "__main__":
    main()
