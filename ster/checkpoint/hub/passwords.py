"""Addresses without the passwords in them."""

from __future__ import annotations

import re

# Up to the last @: a password may hold one that ought to have been escaped.
_USER = re.compile(r"://[^\s'\"<>]*@")


def hide_passwords(text: str) -> str:
    """Take user and password out of every address in a text."""
    return _USER.sub("://", text)
