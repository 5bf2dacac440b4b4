"""Signatures and docstrings of the public names, as Markdown."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, is_dataclass
from types import ModuleType

import ster

# What public functions return and nobody makes by hand.
RETURNED = {
    "Comparison": "ster.vectors.comparison",
    "CurvePoint": "ster.vectors.learning_curves",
    "Enough": "ster.vectors.learning_curves",
    "Evaluation": "ster.vectors.selection",
    "LayerScore": "ster.vectors.selection",
    "LearningCurve": "ster.vectors.learning_curves",
    "Likeness": "ster.vectors.comparison",
    "MeasuredStrength": "ster.vectors.measured",
    "Projection": "ster.vectors.projection",
    "ReadTokens": "ster.documents.activations.read_tokens",
    "Selection": "ster.vectors.selection",
    "ShownTokens": "ster.documents.activations.shown",
    "StrengthChoice": "ster.vectors.measured",
}
SECTIONS = ("Args", "Returns", "Yields", "Raises", "Attributes", "Example")
# The operators that values have; `__len__` and the like need no words.
OPERATORS = ("__getitem__", "__matmul__", "__mul__", "__add__", "__array__")
MAX_LINE = 88


def describe() -> str:
    """Describe all public names, then what they return."""
    public = {name: getattr(ster, name) for name in ster.__all__}
    functions = [(f"ster.{n}", v) for n, v in public.items() if inspect.isroutine(v)]
    classes = [(f"ster.{n}", v) for n, v in public.items() if inspect.isclass(v)]
    modules = [(f"ster.{n}", v) for n, v in public.items() if inspect.ismodule(v)]
    returned = [
        (n, getattr(importlib.import_module(m), n)) for n, m in RETURNED.items()
    ]
    parts = [
        "The names of `ster`, and below them the values that its functions return.\n"
        "`ster.__version__` is the version, as a string.\n"
    ]
    parts += [function(name, value, "##") for name, value in functions]
    parts += [klass(name, value) for name, value in classes]
    parts += [module(name, value) for name, value in modules]
    parts.append("## Values that functions return\n")
    parts += [klass(name, value, "###") for name, value in returned]
    return "\n".join(parts)


def module(name: str, value: ModuleType) -> str:
    """Describe a public module: its own functions."""
    own = [
        (each, found)
        for each, found in vars(value).items()
        if inspect.isfunction(found) and not each.startswith("_")
        if found.__module__ == value.__name__ or each in getattr(value, "__all__", ())
    ]
    head = f"## {name}\n\n{docstring(value)}"
    return "\n".join([head, *(function(f"{name}.{n}", v, "###") for n, v in own)])


def klass(name: str, value: type, mark: str = "##") -> str:
    """Describe a class and its public members."""
    parts = [f"{mark} {name}\n\n{docstring(value)}", *inherited(value)]
    if issubclass(value, BaseException):
        bases = [base for base in value.__mro__ if base.__module__.startswith("ster")]
        parts += [f"Subclasses:\n\n{subclasses(value)}"] if len(bases) == 1 else []
    short = name.rpartition(".")[2]
    for member, found in members(value):
        label = f"{short}.{member}"
        if isinstance(found, property):
            kind = annotation(inspect.signature(found.fget).return_annotation)  # type: ignore[arg-type]
            parts.append(entry(f"{mark}# {label}", f"{label}: {kind}", found))
        else:
            parts.append(function(label, found, f"{mark}#"))
    return "\n".join(parts)


def inherited(value: type) -> Iterator[str]:
    """Yield what the classes that a value builds upon say of their fields."""
    for base in value.__mro__[1:]:
        if is_dataclass(base) and base.__name__ not in ster.__all__:
            fields = docstring(base).partition("**Args**")[2].partition("**Raises**")[0]
            yield f"**More fields**{fields.rstrip()}\n"


def subclasses(value: type) -> str:
    """List the kinds of an error."""
    lines = [
        f"- `{each.__name__}`: {inspect.getdoc(each)}"
        for each in sorted(_below(value), key=lambda each: each.__name__)
        if each.__module__ == value.__module__
    ]
    return "\n".join(lines) + "\n"


def _below(value: type) -> set[type]:
    found = set(value.__subclasses__())
    return found.union(*map(_below, found))


def members(value: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties, inherited ones of ster's included."""
    seen = set()
    for base in value.__mro__:
        if not base.__module__.startswith("ster"):
            continue
        for name, found in vars(base).items():
            shown = not name.startswith("_") or name in OPERATORS
            if name in seen or not shown or inspect.getdoc(found) is None:
                continue
            if isinstance(found, classmethod | staticmethod):
                found = getattr(value, name)
            if isinstance(found, property) or inspect.isroutine(found):
                seen.add(name)
                yield name, found


def function(name: str, value: object, mark: str) -> str:
    """Describe a function or method."""
    heading = re.sub(r"__(\w+)__", r"\\_\\_\1\\_\\_", name)
    return entry(f"{mark} {heading}", signature(name, value), value)


def entry(heading: str, spelled: str, value: object) -> str:
    """Put a name, its code and its docstring one below the other."""
    return f"{heading}\n\n```python\n{spelled}\n```\n\n{docstring(value)}"


def signature(name: str, value: object) -> str:
    """Spell a signature on one line, or with a parameter a line."""
    spec = inspect.signature(value)  # type: ignore[arg-type]
    words: list[str] = []
    star = False
    for each in spec.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.VAR_POSITIONAL:
            star = True
        if each.kind is each.KEYWORD_ONLY and not star:
            words.append("*")
            star = True
        words.append(parameter(each))
    result = annotation(spec.return_annotation)
    line = f"{name}({', '.join(words)}) -> {result}"
    if len(line) <= MAX_LINE:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f") -> {result}"


def parameter(each: inspect.Parameter) -> str:
    """Spell a parameter with its type and default."""
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    text = f"{stars}{each.name}"
    if each.annotation is not each.empty:
        text += f": {annotation(each.annotation)}"
    if each.default is not each.empty and each.default is not MISSING:
        text += f" = {each.default!r}" if ":" in text else f"={each.default!r}"
    return text


def annotation(given: object) -> str:
    """Spell a type as the source does."""
    if given is inspect.Signature.empty:
        return "None"
    return given if isinstance(given, str) else inspect.formatannotation(given)


def docstring(value: object) -> str:
    """Turn a docstring with sections into Markdown."""
    text = inspect.getdoc(value) or ""
    pattern = rf"^({'|'.join(SECTIONS)}):$"
    first, *rest = re.split(pattern, text, flags=re.MULTILINE)
    parts = [first.strip().replace("``", "`")]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        lines = inspect.cleandoc(body)
        if title == "Example":
            parts.append(f"```pycon\n{lines}\n```")
        elif title in ("Args", "Raises", "Attributes"):
            parts.append(f"**{title}**\n\n{entries(lines)}")
        else:
            parts.append(f"**{title}**\n\n{' '.join(lines.split()).replace('``', '`')}")
    return "\n\n".join(parts) + "\n"


def entries(lines: str) -> str:
    """Turn ``name: what it is`` and the lines indented below into a list."""
    found: list[str] = []
    for line in lines.splitlines():
        name, colon, what = line.partition(":")
        if not line.startswith(" ") and colon and re.fullmatch(r"[*\w., |]+", name):
            found.append(f"- `{name}`: {what.strip()}")
        elif found:
            found[-1] += f" {line.strip()}"
        else:
            found.append(line.strip())
    return "\n".join(each.replace("``", "`") for each in found)
