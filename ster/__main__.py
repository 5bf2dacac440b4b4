"""``python -m ster`` and the command ``ster``.

Ctrl-C gets a handler before anything else is imported: without one it would print a
traceback from the middle of an import. The handler only exits, as there is nothing to
tidy yet.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself takes 5 ms
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _leave)
    from ster.cli import main as run

    run()


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    os.write(2, b"Interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
