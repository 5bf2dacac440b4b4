"""The names of the methods. Loads no arrays, so the command line can check a name."""

from __future__ import annotations

from ster.errors import UsageError
from ster.text import quoted

METHODS = ("caa", "pca", "logistic")
_ALIASES = {"mean-difference": "caa", "probe": "logistic"}


def parse_method(word: str) -> str:
    """Read a ``--method`` value: a method or another name for one.

    Raises:
        UsageError: There is no such method.
    """
    method = _ALIASES.get(word, word)
    if method not in METHODS:
        raise UsageError(
            f"unknown training method {quoted(word)}; expected caa, pca, or logistic",
            field="method",
            found=word,
            expected=METHODS,
        )
    return method
