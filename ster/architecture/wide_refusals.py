"""How a field of a wide family's config is refused: by its name and value."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from ster.errors import ConfigError

Values = dict[str, Any]


def refuse_unread(path: str, name: str, value: object, family: str) -> NoReturn:
    """Refuse a field that changes numbers and that mlx-lm does not look at.

    Raises:
        ConfigError: Always.
    """
    raise ConfigError(
        f"invalid {family} config {path}",
        f"`{name}` is {json.dumps(value)}, which mlx-lm's {family} does not read, so "
        "its rows would be wrong",
        path=path,
        field=name,
        found=value,
    )


def refuse_field(
    path: str, values: Values, name: str, value: object, expected: str
) -> NoReturn:
    """Refuse a field's value.

    Raises:
        ConfigError: Always.
    """
    family = str(values.get("model_type"))
    raise ConfigError(
        f"invalid {family} config {path}",
        f"`{name}` is {json.dumps(value)}, expected {expected}",
        path=path,
        field=name,
        found=value,
        expected=expected,
    )
