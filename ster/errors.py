"""Every error that ster shows to a person.

::

    SterError                  a sentence, its causes and an exit code
    ├── UsageError             a word that ster does not know (exit code 2)
    ├── DeviceError            the device or the precision is not available here
    ├── DocumentError          prompts, pairs or an artifact cannot be read
    ├── LayerError             a selection of layers that the model does not have
    ├── PromptError            a prompt that cannot become tokens
    ├── CheckpointError        something is wrong with the checkpoint
    │   ├── HubError           the checkpoint cannot be fetched from the Hub
    │   ├── ConfigError        config.json
    │   ├── WeightsError       the safetensors files
    │   ├── TokenizerError     tokenizer.json and tokenizer_config.json
    │   └── TemplateError      the chat template
    ├── CapacityError          the run does not fit in the memory it may use
    ├── DirectionError         nothing can be fitted to these activations, or measured
    ├── NumericsError          a result that is no finite number
    └── OutputError            an output cannot be written

A sentence is complete without its causes. The library raises no other exceptions on
purpose: those of other libraries are turned into these where they arise.
"""

from __future__ import annotations

import os
import traceback
from numbers import Integral, Real

from ster.text import listing, one_line, printable, quoted, to_float

_HERE = os.path.dirname(os.path.abspath(__file__))


class SterError(Exception):
    """A refusal: one sentence for the person, then its causes, outermost first.

    Programs read the attributes below instead of the words. An attribute that is not
    given is taken from the first cause that has it, and else is None.

    Args:
        sentence: What went wrong, as it is printed after ``Error: ``.
        causes: Sentences or exceptions. An ``OSError`` reads as the system's own words.
        path: The file or directory that the error is about, as it was given.
        field: The key, flag, argument or tensor whose value is refused.
        found: That value.
        expected: What it should have been, as the value itself or in words.
        layer: The 0-based index of a block.
        prompt: Which prompt or text, counted from 1.
    """

    exit_code = 1

    def __init__(
        self,
        sentence: str,
        *causes: str | BaseException,
        path: str | os.PathLike[str] | None = None,
        field: str | None = None,
        found: object = None,
        expected: object = None,
        layer: int | None = None,
        prompt: int | None = None,
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.causes = tuple(flatten(causes))
        self.path = None if path is None else os.fspath(path)
        self.field = field
        self.found = found
        self.expected = expected
        self.layer = layer
        self.prompt = prompt
        for cause in causes:
            if isinstance(cause, SterError):
                self._take_facts(cause)

    def __str__(self) -> str:
        """Join sentence and causes on one line, for tracebacks and notebooks."""
        return printable(": ".join((self.sentence, *self.causes)))

    def lay_out(self, name: str) -> list[str]:
        """Give the sentence behind a name, and its causes, several of them numbered."""
        lines = [f"{name}: {one_line(self.sentence)}"]
        if self.causes:
            lines += ["", "Caused by:"]
        for number, cause in enumerate(self.causes):
            label = f"{number:>5}: " if len(self.causes) > 1 else "    "
            lines.append(label + cause.replace("\n", "\n" + " " * len(label)))
        return lines

    def _render_traceback_(self) -> list[str]:
        """Say what a notebook shows: the refusal and the own line that met it.

        IPython asks for it. The frames between the two are ster's, and say nothing to
        those who did not write it; ``STER_TRACEBACK=1`` shows them.
        """
        if os.environ.get("STER_TRACEBACK"):
            return traceback.format_exception(self)
        lines = self.lay_out(type(self).__name__)
        own = None
        for frame in traceback.extract_tb(self.__traceback__):
            if os.path.dirname(frame.filename).startswith(_HERE):
                break
            own = frame
        if own is not None and own.line:
            lines += ["", f"at line {own.lineno}: {own.line}"]
        return [printable(line) for line in lines]

    def _take_facts(self, cause: SterError) -> None:
        for name in ("path", "field", "found", "expected", "layer", "prompt"):
            if getattr(self, name) is None:
                setattr(self, name, getattr(cause, name))


class UsageError(SterError):
    """A flag's value is a word that ster does not know."""

    exit_code = 2


def check_word(
    name: str, word: object, known: tuple[str, ...], *, field: str | None = None
) -> str:
    """Take one of several words.

    Args:
        name: What the word names.
        word: What was given.
        known: The words that there are.
        field: The argument or flag that it was given for; ``name`` if not given.

    Raises:
        UsageError: It is another; says which there are.
    """
    if isinstance(word, str) and word in known:
        return word
    comma = "," * (len(known) > 2)
    raise UsageError(
        f"unknown {name} {quoted(str(word))}; expected "
        f"{', '.join(known[:-1])}{comma} or {known[-1]}",
        field=field or name,
        found=word,
        expected=known,
    )


class DeviceError(SterError):
    """The device, or the precision on that device, is not available here."""


class DocumentError(SterError):
    """A prompt set, pair set or artifact cannot be read or is not what it should be."""


class LayerError(SterError):
    """A selection of layers does not parse or names a layer that the model lacks."""


class PromptError(SterError):
    """A prompt is empty or cannot be turned into tokens."""


class CheckpointError(SterError):
    """The checkpoint is missing, incomplete or of a kind that ster does not read."""


class HubError(CheckpointError):
    """A model repository cannot be read, or a file of it cannot be downloaded."""


class ConfigError(CheckpointError):
    """config.json is unreadable, or asks for something that ster does not implement."""


class WeightsError(CheckpointError):
    """A weight file is damaged, or a tensor is missing or has the wrong shape."""


class TokenizerError(CheckpointError):
    """The tokenizer or its config cannot be loaded."""


class TemplateError(CheckpointError):
    """The chat template does not parse, does not render, or must not be run."""


class CapacityError(SterError):
    """The run needs more memory than it may use."""


class DirectionError(SterError):
    """No direction can be fitted to these activations or measured on them."""


class NumericsError(SterError):
    """A result is infinite or not a number."""


class OutputError(SterError):
    """A file that the person asked for cannot be written."""


# By type, how to make the values that a notebook gives to a runtime.
_WAYS = {
    "PairSet": "ster.PairSet.load(path) reads one, ster.PairSet.of([...]) makes one",
    "ContrastPair": "ster.PairSet.of([...]) takes texts",
    "SteeringVector": "ster.SteeringVector.load(path) reads one",
    "StrengthTrial": ('ster.StrengthTrial.of("-4,4") makes one'),
    "Strength": "ster.StrengthTrial.of([-4, 4]) takes numbers",
    "Sampling": "ster.Sampling(temperature=0.7) makes one",
    "Activations": "runtime.activations(texts) reads them",
    "Selection": 'runtime.optimize(pairs, by="accuracy") returns one',
    "EffectSelection": "runtime.optimize(pairs) returns one",
    "Evaluation": "runtime.evaluate(pairs, vector) returns one",
    "Axes": "matplotlib.pyplot.subplots() makes them, one or an array",
    "Answering": "ster.Answering(max_new_tokens=64) makes one",
}


def require_type(value: object, kind: type | tuple[type, ...], name: str) -> None:
    """Refuse an argument of another type, and say how one of the right type is made.

    Args:
        value: What was given.
        kind: The type, or those that will do.
        name: What the argument is called.

    Raises:
        UsageError: It is something else.
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = [each.__name__ for each in kinds]
        expected = listing([*map(_with_article, names)], "or")
        raise UsageError(
            f"{name} must be {expected}, not {type(value).__name__}",
            *(_WAYS[each] for each in names if each in _WAYS),
            field=name,
            found=value,
            expected=" or ".join(names),
        )


def _with_article(name: str) -> str:
    if name.endswith("s"):
        return name
    return f"an {name}" if name[0] in "AEIO" else f"a {name}"


def require_number(value: object, name: str) -> float:
    """Refuse an argument that is no real number.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _wrong_kind(value, name, "a number")
    return to_float(value)


def require_whole_number(value: object, name: str) -> int:
    """Refuse an argument that is no whole number.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _wrong_kind(value, name, "a whole number")
    return int(value)


def require_seed(value: object) -> int:
    """Refuse a seed that is no whole number of at least zero.

    Raises:
        UsageError: It is something else.
    """
    seed = require_whole_number(value, "seed")
    if seed < 0:
        raise UsageError(
            f"seed must be at least zero, not {seed}", field="seed", found=value
        )
    return seed


def require_string(value: object, name: str) -> str:
    """Refuse an argument that is no string.

    Raises:
        UsageError: It is something else.
    """
    if not isinstance(value, str):
        raise _wrong_kind(value, name, "a string")
    return value


def name_path(path: str | os.PathLike[str]) -> str:
    """Return a path as text.

    Raises:
        UsageError: It is something else.
    """
    given: object = path
    if not isinstance(given, str | bytes | os.PathLike):
        raise _wrong_kind(given, "a path", "a string or a Path")
    return os.fsdecode(path)


def _wrong_kind(value: object, name: str, expected: str) -> UsageError:
    shown = quoted(value) if isinstance(value, str) else str(value)
    sentence = f"{name} must be {expected}, not {shown}"
    return UsageError(sentence, field=name, found=value, expected=expected)


def flatten(causes: tuple[str | BaseException, ...]) -> list[str]:
    """Turn causes into lines; a ``SterError`` among them is followed by its own."""
    lines: list[str] = []
    for cause in causes:
        if isinstance(cause, SterError):
            lines += [cause.sentence, *cause.causes]
        elif isinstance(cause, OSError) and cause.errno is not None:
            lines.append(f"{cause.strerror} (os error {cause.errno})")
        elif isinstance(cause, BaseException):
            lines.append(str(cause) or type(cause).__name__)
        else:
            lines.append(cause)
    return lines
