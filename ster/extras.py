"""Libraries that an extra brings: imported where they are used, and missed in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ster.errors import SterError


@contextmanager
def importing(library: str, extra: str) -> Iterator[None]:
    """Say how a library is installed, where an import of it in this ``with`` fails.

    Raises:
        SterError: The library is not there.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != library:
            raise
        raise SterError(
            f"this needs {library}, which is not installed",
            f"it comes with the extra `{extra}`, pip install 'ster-mlx[{extra}]'",
        ) from error
