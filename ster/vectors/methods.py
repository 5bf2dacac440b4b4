"""The names of the methods. Loads no arrays, so the command line can check a name."""

from __future__ import annotations

from ster.errors import check_word

METHODS = ("caa", "pca", "logistic")
_ALIASES = {"mean-difference": "caa", "probe": "logistic"}


def parse_method(word: str) -> str:
    """Read a ``--method`` value: a method or another name for one.

    Raises:
        UsageError: There is no such method.
    """
    method = _ALIASES.get(word, word)
    if method not in METHODS:
        check_word("training method", word, METHODS, field="method")
    return method
