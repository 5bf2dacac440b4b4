"""White space and quoting, as the Rust product has them."""

from __future__ import annotations

import sys

import pytest

from ster.text import WHITE_SPACE, counted, listing, quoted, trim


def test_white_space_is_pythons_but_for_the_separator_controls():
    python = {c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace()}
    assert python - set(WHITE_SPACE) == set("\x1c\x1d\x1e\x1f")
    assert set(WHITE_SPACE) < python
    assert trim("\u2003\n a b \x85") == "a b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("llama", '"llama"'),
        ("", '""'),
        ('a"b', r'"a\"b"'),
        ("it's", '"it\'s"'),
        ("a\\b", r'"a\\b"'),
        ("a\tb\r\n\0", r'"a\tb\r\n\0"'),
        ("\x1b[31m", r'"\u{1b}[31m"'),
        ("é 日本 🦙", '"é 日本 🦙"'),
        ("\u200b\ufeff\u00a0", r'"\u{200b}\u{feff}\u{a0}"'),
        ("e\u0301", r'"e\u{301}"'),
        ("\udc80", r'"\u{dc80}"'),
    ],
)
def test_values_are_quoted_on_one_line(text: str, shown: str):
    assert quoted(text) == shown


@pytest.mark.parametrize(
    ("names", "shown"), [("a", "a"), ("ab", "a or b"), ("abc", "a, b or c")]
)
def test_the_last_of_several_names_has_a_word_before_it(names: str, shown: str):
    assert listing([*names], "or") == shown


def test_one_of_a_thing_is_not_several():
    assert [counted(n, "prompt") for n in range(3)] == [
        *("0 prompts", "1 prompt", "2 prompts")
    ]
