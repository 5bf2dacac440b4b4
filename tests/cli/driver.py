"""The real command line over a runtime that needs no model.

It writes the document piece by piece, as a run does. With ``--layers hang`` it says so
in the middle of the document and waits for a signal. With ``--layers lost`` the signal
comes while Python drops exceptions, and after the last prompt with ``--layers late``.
"""

from __future__ import annotations

import os
import signal
import weakref
from typing import NoReturn

from ster.cli import main
from ster.documents.whole_files import AtomicFile
from ster.reporting import Progress, Reporter
from tests.cli.stubs import StubRuntime


def run(prompts: list[str], layers: str, file: AtomicFile, reporter: Reporter) -> None:
    """Write the pieces of a document, and meet a signal where ``layers`` says."""
    reporter.note("a note, Größe")
    reporter.warn("a warning")
    file.write(b"begin ")
    total = len(prompts)
    for done in range(1, total + 1):
        reporter.progress(
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
            hang(reporter)
        if layers == "lost":
            interrupt_where_it_is_lost()
    file.write(b"end")
    if layers == "late":
        interrupt_where_it_is_lost()


def hang(reporter: Reporter) -> NoReturn:
    """Say so, and wait for signals, also for one that comes before the wait begins."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    reporter.note("hanging")
    while True:
        os.read(woken, 1)


def interrupt_where_it_is_lost() -> None:
    """Send Ctrl-C within a weak reference's callback."""

    class Held:
        pass

    held = Held()
    reference = weakref.ref(held, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del held
    if reference() is not None:
        raise RuntimeError("it is still held")


if __name__ == "__main__":
    StubRuntime(modules=("ster.loading",), run=run)
    main()
