"""The real command line over a runtime that needs no model: ``driver.py extract ...``.

It writes the document piece by piece, as a run does. With ``--layers hang`` it says so
in the middle of the document and waits for a signal. With ``--layers lost`` the signal
comes while Python drops exceptions, and after the last prompt with ``--layers late``.
"""

from __future__ import annotations

import os
import signal
import sys
import types
import weakref

from ster.cli import main
from ster.documents.whole_files import AtomicFile
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
                if layers == "lost":
                    interrupt_where_it_is_lost()
            file.write(b"end")
            if layers == "late":
                interrupt_where_it_is_lost()


def interrupt_where_it_is_lost() -> None:
    """Send Ctrl-C within a weak reference's callback."""

    class Held:
        pass

    held = Held()
    reference = weakref.ref(held, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del held
    if reference() is not None:
        raise RuntimeError("it is still held")


def open_runtime(model: str, *, reporter: Reporter, **options: object) -> Runtime:
    return Runtime(reporter)


runtime = types.ModuleType("ster.loading")
vars(runtime).update(check_device=lambda *words: None, open_runtime=open_runtime)
sys.modules["ster.loading"] = runtime

if __name__ == "__main__":
    main()
