"""Where does a rendering hold a text? Templates trim it, escape it, or change it."""

from __future__ import annotations

import html
import json
import re

from ster.text import trim

# The most words of a text that are looked for.
_MAX_PARTS = 1000
# The share of words that must be there: templates that take words out of a text, such
# as marks for images, leave most of it.
_ENOUGH = 0.5
_PARTS = re.compile(r"""["']type["']\s*:\s*["']text["']""")


def holds(rendering: str, text: str) -> bool:
    """Tell whether a text stands in a rendering.

    It does if the rendering holds one of these: the text without white space at its
    ends; the text, or the text escaped for JSON or HTML, both compared without white
    space and case; or at least half of the text's words.
    """
    wanted = trim(text)
    if wanted in rendering:
        return True
    folded = _fold(rendering)
    escaped = json.dumps(wanted)[1:-1], json.dumps(wanted, ensure_ascii=False)[1:-1]
    for form in (wanted, *escaped, html.escape(wanted)):
        if _fold(form) in folded:
            return True
    parts = [_fold(part) for part in re.findall(r"\w+", wanted)[:_MAX_PARTS]]
    found = sum(part in folded for part in parts)
    return bool(parts) and found >= _ENOUGH * len(parts)


def find_text(rendering: str, text: str, after: str | None) -> tuple[int, int] | None:
    """Find the characters of a text that a template wrote unchanged, or trimmed.

    Args:
        rendering: What the template made of it.
        text: What is looked for.
        after: What the template writes after a last turn, if that is known.

    Returns:
        The first and the one after the last; None where the text is not there as it
        is, or at several places of which none is known to be its own.
    """
    trimmed = trim(text)
    if after is not None and rendering.endswith(after):
        stop = len(rendering) - len(after)
        for whole in (text, trimmed):
            if whole and rendering.endswith(whole, 0, stop):
                return stop - len(whole), stop
    start = rendering.find(trimmed)
    if not trimmed or start < 0 or rendering.find(trimmed, start + 1) >= 0:
        return None
    return start, start + len(trimmed)


def writes_parts(rendering: str, text: str) -> bool:
    """Tell whether a template wrote the list of parts itself instead of reading it."""
    return bool(_PARTS.search(rendering)) and not _PARTS.search(text)


def _fold(text: str) -> str:
    return "".join(text.split()).casefold()
