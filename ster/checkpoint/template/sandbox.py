"""The sandbox that a chat template runs in, with the functions that it may call.

No single step of a template may make something huge. Memory that grows in small steps
meets the limit on the process (``worker``), which not every system enforces.

What a template sees follows transformers 5.24, utils/chat_template_utils.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import wraps
from types import BuiltinMethodType
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_format
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, generate_lorem_ipsum, missing

# A model that takes a million tokens takes about this much text.
MAX_TEXT = 8_000_000
# Room for every number that a template has use for.
MAX_BITS = 4096
# Filters that take widths and lengths beside their value.
GUARDED_FILTERS = (
    "batch",
    "center",
    "indent",
    "round",
    "slice",
    "truncate",
    "wordwrap",
)

_PERCENT_WIDTHS = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")


class TooLargeError(Exception):
    """A template asks for something far larger than any prompt."""


class MissingTokenError(jinja2.TemplateRuntimeError):
    """A template writes a special token that the tokenizer config does not declare."""


class Undefined(jinja2.Undefined):
    """jinja2's own, except that writing an undeclared bos_token or eos_token fails."""

    __slots__ = ()

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,  # noqa: ANN401
        name: str | None = None,
        exc: type[jinja2.TemplateRuntimeError] = jinja2.UndefinedError,
    ) -> None:
        if obj is missing and name in ("bos_token", "eos_token"):
            hint, exc = name, MissingTokenError
        super().__init__(hint, obj, name, exc)

    def __str__(self) -> str:
        """Return '', or fail for an undeclared token."""
        if self._undefined_exception is MissingTokenError:
            raise MissingTokenError(self._undefined_name)
        return ""


class Generation(Extension):
    """Render ``{% generation %}`` blocks as if their tags were not there."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> nodes.Node:
        """Turn the block into a call: what it sets is not seen outside."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_render")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateNamespace(Namespace):
    """jinja2's namespace without names that Python keeps for itself."""

    def __init__(*args: Any, **attributes: Any) -> None:
        self, *rest = args
        named = dict(*rest, **attributes)
        for name in named:
            _refuse_private(name)
        Namespace.__init__(self, named)

    def __setitem__(self, name: str, value: object) -> None:
        """Set an attribute, as ``{% set ns.x = 1 %}`` does."""
        _refuse_private(name)
        Namespace.__setitem__(self, name, value)


class TemplateDict:
    """What a template may do with ``dict``, without access to the type itself."""

    def __call__(self, *args: Any, **fields: Any) -> dict[Any, Any]:
        """Make a dict."""
        return dict(*args, **fields)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Make a dict of keys with one value."""
        return dict.fromkeys(*args)


class Sandbox(ImmutableSandboxedEnvironment):
    """The immutable sandbox, in which no single step makes something huge.

    Memory that grows in small steps meets the limit on the process instead.
    """

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        """Compute ``*``, ``**`` or ``%`` unless the result is out of proportion."""
        if operator == "%" and isinstance(left, str | bytes):
            _check_percent_format(left, right)
        elif operator == "**":
            _check_power(left, right)
        elif operator == "*":
            _check_product(left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        """Call a function; widths and lengths given to Python's own are bounded."""
        if _makes_what_it_is_asked(function):
            _check_sizes(args)
            _check_sizes(named.values())
        return super().call(context, function, *args, **named)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:  # noqa: ANN401
        """Wrap str.format as the sandbox does, and bound the widths it names."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        text: str = value.__self__

        @wraps(wrapped)
        def checked(*args: Any, **named: Any) -> str:
            if re.search(r"\{[^{}]*:[^{}]*\d{7}", text):
                raise TooLargeError("a format asks for too wide a field")
            if re.search(r"\{[^{}]*:[^{}]*\{", text):
                _check_sizes((*args, *named.values()))
            return wrapped(*args, **named)

        return checked


def make_sandbox() -> Sandbox:
    """Make the environment that transformers renders chat templates in, but guarded.

    ``strftime_now`` is left to the caller, who has to know when it is used.
    """
    sandbox = Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=Undefined,
        extensions=[Generation, loopcontrols],
    )
    for name in GUARDED_FILTERS:
        sandbox.filters[name] = _guard(sandbox.filters[name])
    sandbox.filters |= {"format": _format, "tojson": _to_json}
    sandbox.globals |= {
        "raise_exception": _raise_exception,
        "dict": TemplateDict(),
        "namespace": TemplateNamespace,
    }
    return sandbox


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as it is: jinja2's own filter escapes what HTML reserves."""
    _check_sizes((indent,))
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _format(value: object, *args: Any, **named: Any) -> str:
    _check_percent_format(str(value), named or args)
    return do_format(str(value), *args, **named)


def _guard(filter_function: Callable[..., Any]) -> Callable[..., Any]:
    """Bound the numbers that a filter takes beside its value."""

    @wraps(filter_function)
    def guarded(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        _check_sizes(args[1:])
        _check_sizes(named.values())
        return filter_function(*args, **named)

    return guarded


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(
            f"a namespace cannot hold the private name {name!r}"
        )


def _makes_what_it_is_asked(function: object) -> bool:
    """Tell whether a number given to a function is the size of what it returns."""
    if isinstance(function, BuiltinMethodType):
        return isinstance(function.__self__, str | bytes | int)
    return function is generate_lorem_ipsum


def _check_sizes(values: Iterable[object]) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > MAX_TEXT:
            raise TooLargeError(f"a size of {value:.0e} is too large")


def _check_percent_format(text: str | bytes, values: object) -> None:
    plain = text if isinstance(text, str) else text.decode("latin-1")
    for widths in _PERCENT_WIDTHS.findall(plain):
        if "*" in widths:
            _check_sizes(values if isinstance(values, tuple) else (values,))
        if any(len(width) > 6 for width in widths):
            raise TooLargeError("a format asks for too wide a field")


def _check_power(base: object, exponent: object) -> None:
    if isinstance(base, int) and isinstance(exponent, int):
        bits = base.bit_length() * max(exponent, 0)
        if abs(base) > 1 and bits > MAX_BITS:
            raise TooLargeError("a power is too large a number")


def _check_product(left: object, right: object) -> None:
    for value, times in ((left, right), (right, left)):
        if not isinstance(times, int):
            continue
        if isinstance(value, str | bytes | list | tuple):
            if len(value) * max(times, 0) > MAX_TEXT:
                raise TooLargeError("a repeated sequence is too long")
        elif isinstance(value, int) and (
            value.bit_length() + times.bit_length() > MAX_BITS
        ):
            raise TooLargeError("a product is too large a number")
