"""The names of the methods. Loads no arrays, so the command line can check a name."""

from __future__ import annotations

from ster.errors import check_word

# Those that are chosen among by accuracy, in their order.
METHODS = ("caa", "pca", "logistic")
ALL_METHODS = (*METHODS, "logreg", "pca-uncentred")
# Those that are chosen among by their effect.
EFFECT_METHODS = ("caa", "logreg", "pca-uncentred")
_ALIASES = {
    "mean-difference": "caa",
    "probe": "logistic",
    "pca-uncentered": "pca-uncentred",
}


def parse_method(word: str) -> str:
    """Read a ``--method`` value: a method or another name for one.

    Raises:
        UsageError: There is no such method.
    """
    method = _ALIASES.get(word, word)
    if method not in ALL_METHODS:
        check_word("training method", word, ALL_METHODS, field="method")
    return method
