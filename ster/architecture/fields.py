"""Typed reading of config.json: each field is of its type, or refused by its name.

Booleans are not numbers here, and null means the same as absent, as it does for the
published checkpoints.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from ster.errors import ConfigError

LARGEST_COUNT = 2**31 - 1
# Past float32's range a number is infinite where it is used.
LARGEST_NUMBER = float.fromhex("0x1.fffffep+127")
# And this one, and all below it, is zero.
SMALLEST_NUMBER = 2.0**-150


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of one JSON object of a config, with what a refusal has to name.

    Args:
        values: The object.
        path: The file it stands in, for sentences.
        model_type: The checkpoint's declared type, for sentences.
        within: Where the object stands in the file, ``""`` at the top.
    """

    values: Mapping[str, object]
    path: str
    model_type: str
    within: str = ""

    def has(self, name: str) -> bool:
        """Tell whether a field is there and not null."""
        return self.values.get(name) is not None

    def count(
        self,
        name: str,
        default: int | None = None,
        *,
        least: int = 1,
        most: int = LARGEST_COUNT,
    ) -> int:
        """Read a whole number within bounds."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(name, value, "a whole number")
        if not least <= value <= most:
            self.refuse(name, value, f"between {least} and {most}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Read a number above zero that float32 can hold."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.refuse(name, value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not SMALLEST_NUMBER < number <= LARGEST_NUMBER:
            self.refuse(name, value, "a finite number above zero")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            self.refuse(name, value, "true or false")
        return value

    def word(self, name: str, default: str | None = None) -> str:
        """Read a string."""
        value = self._value(name, default)
        if not isinstance(value, str):
            self.refuse(name, value, "a string")
        return value

    def inner(self, name: str) -> Fields | None:
        """Read an object, or None where it is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(name, value, "an object")
        return Fields(
            values=value,
            path=self.path,
            model_type=self.model_type,
            within=f"{self.within}{name}.",
        )

    def refuse(self, name: str, value: object, expected: str) -> NoReturn:
        """Refuse a field's value.

        Raises:
            ConfigError: Always; the cause names field, value and what was expected.
        """
        raise ConfigError(
            f"invalid {self.model_type} config {self.path}",
            f"`{self.within}{name}` is {shown(value)}, not {expected}",
            path=self.path,
            field=f"{self.within}{name}",
            found=value,
            expected=expected,
        )

    def error(self, cause: str, field: str | None = None) -> ConfigError:
        """Build the refusal of this config for a cause."""
        sentence = f"invalid {self.model_type} config {self.path}"
        return ConfigError(sentence, cause, path=self.path, field=field)

    def _value(self, name: str, default: object) -> object:
        value = self.values.get(name)
        if value is not None:
            return value
        if default is None:
            place = f"{self.within}{name}"
            raise self.error(f"missing field `{place}`", place)
        return default


def shown(value: object) -> str:
    """Write a value as it stands in the file, cut short."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):  # too deep, or of too many digits
        text = "..."
    return text if len(text) <= 60 else text[:57] + "..."
