"""The model flags: spelled once for all commands, and turned into an open model.

A command takes one ``ModelFlags`` as ``flags`` and is decorated ``with_model_flags``.
"""

from __future__ import annotations

import functools
import inspect
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from typer._click.core import Context
from typer._click.globals import get_current_context

from ster.checkpoint.template.arguments import parse_template_args
from ster.cli.options import offer, take_text
from ster.cli.progress import LiveReporter, SaysOnce, open_reporter
from ster.cli.streams import say
from ster.decoder.memory import parse_memory
from ster.documents.descriptors import is_standard_output
from ster.errors import OutputError, SterError, check_word

if TYPE_CHECKING:
    from ster.runs.choice import ModelChoice
    from ster.runtime import Runtime

Answer = TypeVar("Answer")
# A run of so many seconds is a long one.
LONG_SECONDS = 5.0
# Where a flag's value may come from, as the parser calls it.
DEFAULT, ENVIRONMENT = "DEFAULT", "ENVIRONMENT"
_GPUS = {"metal": "Metal", "cuda": "CUDA"}


def _check_chat_template(word: str) -> str:
    """Refuse a mode that is neither auto nor off."""
    return check_word(
        "chat template mode", word, ("auto", "off"), field="--chat-template"
    )


def _check_template_args(words: list[str] | None) -> list[str]:
    """Refuse what is no NAME=VALUE."""
    taken = [take_text("--template-arg", word) for word in words or []]
    parse_template_args(taken)
    return taken


def _check_memory(size: str | None) -> str | None:
    """Refuse what is no size of memory."""
    if size is not None:
        parse_memory(size)
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """The flags that every command with a model has, in the order of its help.

    Args:
        sources: By flag, where its value comes from.
    """

    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="<DIR|ID>",
            envvar="STER_MODEL",
            help="A checkpoint directory, or the id of a model on the Hugging Face "
            "Hub.",
        ),
    ]
    revision: Annotated[
        str | None,
        typer.Option(
            "--revision",
            metavar="<REV>",
            help="Branch, tag or commit on the Hub, main unless given; of a directory "
            "it is recorded and selects nothing.",
        ),
    ] = None
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="<DEVICE>",
            envvar="STER_DEVICE",
            autocompletion=offer("cpu", "metal", "cuda", "auto"),
            help="Where to compute: cpu, metal or cuda; auto is the best that is here.",
        ),
    ] = "cpu"
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            metavar="<PRECISION>",
            envvar="STER_PRECISION",
            autocompletion=offer("f32", "f16", "bf16"),
            help="The width of weights, of what products take, and of keys and values: "
            "f32, f16 or, not on cpu, bf16.",
        ),
    ] = "f32"
    chat_template: Annotated[
        str,
        typer.Option(
            "--chat-template",
            metavar="<MODE>",
            autocompletion=offer("auto", "off"),
            callback=_check_chat_template,
            help="auto applies the model's own chat template where it has one; off "
            "encodes raw text.",
        ),
    ] = "auto"
    template_args: Annotated[
        list[str] | None,
        typer.Option(
            "--template-arg",
            metavar="<N=V>",
            callback=_check_template_args,
            help="A variable of the chat template and its value, such as "
            "enable_thinking=false; may be given several times.",
        ),
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="<SIZE>",
            callback=_check_memory,
            help="Most memory that the process may take, with keys and values, such as "
            "800M or 4G; three quarters of what is free unless given.",
        ),
    ] = None
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Say on stderr how the run is planned."),
    ] = False
    sources: Mapping[str, str] = field(default_factory=dict)

    def check_device(self) -> None:
        """Refuse a device or precision that is not available.

        Raises:
            SterError: A word is unknown, or does not suit this machine.
        """
        from ster.checkpoint.tokenizer import start_ahead

        # These processes come up while the array libraries are imported.
        start_ahead(self.model, self.chat_template)
        from ster.decoder import devices
        from ster.loading import check_device

        with self.naming_variables():
            check_device(devices.choose_device(self.device), self.precision)
        by_default = self.sources.get("device") == DEFAULT
        if (by_default or self.device == devices.AUTO) and devices.is_translated():
            say(f"{devices.TRANSLATED}\n")
        elif by_default and (gpu := devices.find_gpu()) is not None:
            say(
                f"this machine has {_GPUS[gpu]}; --device {gpu} or --device auto "
                "would use it\n"
            )

    @contextmanager
    def naming_variables(self) -> Iterator[None]:
        """Name the variable that a refused word came from, in the refusal's cause.

        Raises:
            SterError: What was raised within, with another cause.
        """
        try:
            yield
        except SterError as error:
            name = "model" if error.path == self.model else error.field or ""
            if self.sources.get(name) != ENVIRONMENT:
                raise
            error.causes = (*error.causes, f"STER_{name.upper()} is set to it")
            raise

    @property
    def choice(self) -> ModelChoice:
        """The values of the flags, parsed."""
        from ster.decoder.devices import choose_device
        from ster.runs.choice import ModelChoice

        return ModelChoice(
            model=self.model,
            revision=self.revision,
            device=choose_device(self.device),
            precision=self.precision,
            chat_template=self.chat_template,
            template_args=parse_template_args(self.template_args or []),
            memory=None if self.memory is None else parse_memory(self.memory),
            verbose=self.verbose,
        )

    @contextmanager
    def open(
        self,
        layers: str = "all",
        output_path: str | None = None,
        *,
        counts: bool = True,
        once: bool = False,
    ) -> Iterator[Runtime]:
        """Load the model, and show what it says until the ``with`` ends.

        Args:
            layers: A selection of layers, checked as soon as the config is read.
            output_path: The output, which must not be a file of the model.
            counts: At the end of a long run, and with --verbose, a line says what was
                done, in how much time and memory.
            once: Whatever is said again is dropped.

        Raises:
            SterError: Whatever can be refused before the weights are opened.
        """
        # Late, so that `ster --help` does not wait for the array libraries.
        from ster.checkpoint.resolve import local_files
        from ster.documents.strict_json import dump_json
        from ster.loading import open_runtime

        if output_path is not None:  # the document names the model
            dump_json([self.model, self.revision], output_path)
        begun = time.monotonic()
        with open_reporter() as reporter:
            told = SaysOnce(reporter) if once else reporter
            with self.naming_variables():
                runtime = open_runtime(self.choice, reporter=told, layers=layers)
            if isinstance(reporter, LiveReporter):
                reporter.measure_memory(lambda: runtime.held_memory)
            if output_path is not None:
                check_output(output_path, local_files(self.model, self.revision))
            yield runtime
            seconds = time.monotonic() - begun
            if counts and (seconds >= LONG_SECONDS or self.verbose):
                written = _wrote(output_path)
                reporter.note(runtime.closing_line(seconds) + written)


def _wrote(output_path: str | None) -> str:
    """Name where the answer went, unless that is stdout."""
    if output_path is None or is_standard_output(output_path):
        return ""
    return f"; wrote {output_path}"


_FIRST, _LAST = ("model",), ("memory", "verbose", "text")


def with_model_flags(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """Add all model flags to a command; see ``with_some_model_flags``."""
    return with_some_model_flags()(command)


def with_some_model_flags(
    *names: str,
) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Make what adds model flags to a command; those not named keep their defaults.

    Args:
        names: Fields of ``ModelFlags``; all if there are none.
    """
    wanted = names or tuple(each.name for each in fields(ModelFlags))

    def decorate(command: Callable[..., Answer]) -> Callable[..., Answer]:
        return _add_flags(command, wanted)

    return decorate


def _add_flags(
    command: Callable[..., Answer], wanted: Sequence[str]
) -> Callable[..., Answer]:
    """Add the model flags to a command's signature, and hand them over as ``flags``.

    typer lists flags in the signature's order: ``--model`` first, ``--memory``,
    ``--verbose`` and ``--text`` last, the other model flags where ``flags`` stands.
    """
    own = inspect.signature(command, eval_str=True).parameters
    annotations = get_type_hints(ModelFlags, include_extras=True)
    spelled = {
        each.name: _parameter(each, annotations[each.name])
        for each in fields(ModelFlags)
        if each.name != "sources" and each.name in wanted
    }
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in own.items():
        parameters |= spelled if name == "flags" else {name: parameter}
    middle = [name for name in parameters if name not in (*_FIRST, *_LAST)]
    ordered = [
        parameters[name] for name in (*_FIRST, *middle, *_LAST) if name in parameters
    ]

    @functools.wraps(command)
    def run(**words: Any) -> Answer:
        context = get_current_context(silent=True)
        sources: dict[str, str] = {}
        if context is not None:
            sources = {name: _source(context, name) for name in spelled}
        given = {name: words.pop(name) for name in spelled}
        return command(flags=ModelFlags(**given, sources=sources), **words)

    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in ordered}
    return run


def _source(context: Context, name: str) -> str:
    """Say where a flag's value comes from."""
    source = context.get_parameter_source(name)
    return DEFAULT if source is None else source.name


def _parameter(flag: Field[Any], annotation: object) -> inspect.Parameter:
    absent = inspect.Parameter.empty
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=absent if flag.default is MISSING else flag.default,
        annotation=annotation,
    )


def check_output(output_path: str, input_paths: Iterable[str]) -> None:
    """Refuse to write over a file that the run reads.

    A device passes: a terminal is often input and output at once.

    Raises:
        OutputError: The output is an input.
    """
    for path in input_paths:
        try:
            source, target = os.stat(path), os.stat(output_path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(source.st_mode) and os.path.samestat(source, target):
            sentence = f"failed to write {output_path}"
            raise OutputError(sentence, "it is this run's input", path=output_path)
