"""The flags that say how vectors are applied, and to which tokens.

A command takes one ``ApplyingFlags`` as ``applied`` and is decorated
``with_applying_flags``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from ster.cli.options import offer
from ster.cli.steering import split_vector
from ster.errors import UsageError
from ster.vectors.applying import ADDING, HOWS, Applying
from ster.vectors.strengths import Strength

if TYPE_CHECKING:
    from ster.vectors.interventions import Intervention
    from ster.vectors.steering import SteeringVector

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyingFlags:
    """The flags, in the order of a command's help."""

    how: Annotated[
        str,
        typer.Option(
            "--how",
            metavar="<HOW>",
            autocompletion=offer(*HOWS),
            help="add the vectors; remove what lies along them, of which the strength "
            "is the share; replace it, removed and then added; clamp it to -S..S; "
            "at-least or at-most, the same on one side; or add-below, where it is less "
            "than --below.",
        ),
    ] = "add"
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="<TOKENS>",
            autocompletion=offer("all", "prompt", "generated", "last"),
            help="To which tokens: all; prompt; generated, those after the prompt; "
            "last, the prompt's last one; an index, or a half-open range such as 4.. "
            "or -2.., negative ones counted from the prompt's end.",
        ),
    ] = "all"
    below: Annotated[
        str | None,
        typer.Option(
            "--below",
            metavar="<S>",
            help="With --how add-below: how far along the direction a token's row must "
            "not lie to be added to, a length or 0.05n.",
        ),
    ] = None
    keep_norm: Annotated[
        bool,
        typer.Option(
            "--keep-norm",
            help="Scale a row that was changed back to the length that it had.",
        ),
    ] = False
    at_layers: Annotated[
        str | None,
        typer.Option(
            "--at-layers",
            metavar="<LAYERS>",
            help="Apply the vectors after these layers: some of their own, or any, of "
            "a vector of one layer; their own unless given.",
        ),
    ] = None

    def take(self, strengths: Iterable[Strength] = ()) -> Applying:
        """Take the flags together, and refuse what contradicts itself.

        Args:
            strengths: At which vectors are applied.

        Raises:
            UsageError: It does, or a strength means nothing this way.
            DirectionError: ``--below`` is not finite.
        """
        applying = Applying.of(
            how=self.how,
            where=self.where,
            below=self.below,
            keep_norm=self.keep_norm,
            layers=self.at_layers,
        )
        for strength in strengths:
            applying.check(strength)
        return applying

    def refuse_without(self, flag: str) -> None:
        """Refuse them where there is nothing to apply.

        Args:
            flag: What they need.

        Raises:
            UsageError: One of them is given.
        """
        for each in fields(self):
            if getattr(self, each.name) != each.default:
                own = f"--{each.name.replace('_', '-')}"
                raise UsageError(f"{own} needs {flag}", field=own)


def take_applying(
    applied: ApplyingFlags, vectors: Sequence[str], times: Sequence[Strength]
) -> Applying:
    """Take how vectors are applied; refuse that without any, and strengths so.

    Raises:
        UsageError: There is no vector, or flags or strengths contradict each other.
    """
    if not vectors:
        applied.refuse_without("--vector")
    applying = applied.take()
    for _, own in map(split_vector, vectors):
        for strength in times:
            applying.check(strength if own is None else own * strength)
    return applying


def intervene(
    steer: Iterable[tuple[SteeringVector, Strength]],
    applying: Applying = ADDING,
    times: Strength | None = None,
) -> list[Intervention]:
    """Apply vectors in one way, each at its strength, or so many times that.

    Raises:
        UsageError: A strength means nothing this way, or counts in norms twice.
    """
    from ster.vectors.interventions import Intervention

    return [
        Intervention.applied(vector, own if times is None else own * times, applying)
        for vector, own in steer
    ]


def with_applying_flags(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """Put the flags where a command's signature has ``applied``, and hand them over."""
    own = inspect.signature(command, eval_str=True).parameters
    annotations = get_type_hints(ApplyingFlags, include_extras=True)
    spelled = {
        each.name: inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=annotations[each.name],
        )
        for each in fields(ApplyingFlags)
    }
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in own.items():
        parameters |= spelled if name == "applied" else {name: parameter}

    @functools.wraps(command)
    def run(**words: Any) -> Answer:
        given = {name: words.pop(name) for name in spelled}
        return command(applied=ApplyingFlags(**given), **words)

    signature = inspect.Signature([*parameters.values()])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters.values()}
    return run
