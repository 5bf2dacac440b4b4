"""Words such as ``enable_thinking=false``: what a chat template is told beside prompts.

Light, so that the command line can ask.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ster.errors import UsageError
from ster.text import quoted


def parse_template_arguments(words: Iterable[str]) -> dict[str, object]:
    """Read ``NAME=VALUE`` words; a value is JSON, else the string that it is.

    Raises:
        UsageError: A word is no such thing, or a name is given twice.
    """
    arguments: dict[str, object] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not (sign and name.isidentifier()):
            sentence = f"invalid template argument {quoted(word)}; expected NAME=VALUE"
            raise UsageError(sentence, field="template_args", found=word)
        if name in arguments:
            sentence = f"template argument {quoted(name)} is given twice"
            raise UsageError(sentence, field="template_args", found=word)
        arguments[name] = _parse_value(value)
    return arguments


def _parse_value(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
