"""How a vector is applied, and to which tokens. Loads no arrays, as ``strengths``.

With u the direction of length 1 and p = h·u how far a row h lies along it, the ways are

    add         h + strength · v
    remove      h - strength · p · u
    replace     h - p · u + strength · v
    clamp       p becomes the nearest of -c .. c, with c the length of strength · v
    at-least    p becomes what it is after ``replace``, where it is less
    at-most     the same, where it is more
    add-below   as add, where p < below
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ster.errors import UsageError, check_word
from ster.layers import Layers, list_layers, name_layers
from ster.stream.where import EVERYWHERE, Where, parse_where
from ster.vectors.strengths import Strength, StrengthLike, take_strength

HOWS = ("add", "remove", "replace", "clamp", "at-least", "at-most", "add-below")


@dataclass(frozen=True, slots=True, kw_only=True)
class Applying:
    """How a vector is applied, whatever vector and strength.

    Args:
        how: One of ``HOWS``.
        where: The tokens that it is applied to.
        below: Of ``add-below``, the projection below which a row is added to.
        keep_norm: A row that is changed is scaled back to the length that it had.
        layers: Where it is applied; None is at the vector's own layers.
    """

    how: str = "add"
    where: Where = EVERYWHERE
    below: Strength | None = None
    keep_norm: bool = False
    layers: str | tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        *,
        how: str = "add",
        where: str = "all",
        below: StrengthLike | None = None,
        keep_norm: bool = False,
        layers: Layers | None = None,
    ) -> Applying:
        """Take what a notebook or a command line has.

        Raises:
            UsageError: A word is unknown, or the parts contradict each other.
            DirectionError: ``below`` is not finite.
        """
        check_word("how", how, HOWS)
        if not isinstance(keep_norm, bool):
            raise UsageError(
                f"keep_norm must be True or False, not {keep_norm}",
                field="keep_norm",
                found=keep_norm,
            )
        if how == "add-below" and below is None:
            raise UsageError(
                "add-below needs a threshold: below, or --below",
                "it adds to the tokens whose rows lie less far along the vector",
                field="below",
            )
        if how != "add-below" and below is not None:
            raise UsageError(
                f"below is for add-below, not for {how}", field="below", found=below
            )
        return cls(
            how=how,
            where=_take_where(where),
            below=None if below is None else take_strength(below),
            keep_norm=keep_norm,
            layers=_take_layers(layers),
        )

    @property
    def is_plain(self) -> bool:
        """Whether nothing is done but to add, though not to all tokens perhaps."""
        return self.how == "add" and not self.keep_norm

    @property
    def is_odd(self) -> bool:
        """Whether the opposite strength does what the opposite vector does."""
        return self.how in ("add", "replace")

    @property
    def is_even(self) -> bool:
        """Whether the opposite vector does the same, so that nothing turns round."""
        return self.how in ("remove", "clamp")

    @property
    def document(self) -> dict[str, object]:
        """What documents say of it, under the names that ``Intervention`` takes."""
        layers, below = self.layers, self.below
        return {
            "how": self.how,
            "where": self.where.words,
            "below": None if below is None else below.word or below.value,
            "keep_norm": self.keep_norm,
            "layers": [*_listed(layers)] if isinstance(layers, tuple) else layers,
        }

    @property
    def entry(self) -> dict[str, object]:
        """The key of a report that has it: none where the vector is simply added."""
        return {} if self == ADDING else {"intervention": self.document}

    @property
    def remark(self) -> str | None:
        """What a card or table says of it: nothing where the vector is simply added."""
        return None if self == ADDING else str(self)

    def __str__(self) -> str:
        """Say it in a few words, for a line of a table."""
        parts = [self.how]
        if self.below is not None:
            parts.append(f"below {self.below}")
        if self.where != EVERYWHERE:
            parts.append(f"where {self.where.words}")
        if self.keep_norm:
            parts.append("norm kept")
        if self.layers is not None:
            parts.append(f"at {_name(self.layers)}")
        return ", ".join(parts)

    def does_nothing_at(self, strength: Strength) -> bool:
        """Tell whether a strength is 0 in a way in which 0 is nothing."""
        return not strength.value and self.how in ("add", "remove", "add-below")

    def check(self, strength: Strength) -> None:
        """Refuse a strength that means nothing this way.

        Raises:
            UsageError: A share to remove counts in norms, or a bound is negative.
        """
        if self.how == "remove" and strength.of_norm:
            raise UsageError(
                f"a strength of remove is a share, not a length: {strength} is none",
                "1 removes all that lies along the direction, 0.5 half of it",
                field="strength",
                found=str(strength),
            )
        if self.how == "clamp" and strength.value < 0:
            raise UsageError(
                f"clamp limits to -c..c, so c cannot be {strength}",
                "at-least and at-most limit on one side",
                field="strength",
                found=str(strength),
            )

    def check_tried(self, strength: Strength) -> None:
        """Refuse a strength that no trial measures this way.

        Raises:
            UsageError: As for ``check``; or it is 0, and does something all the same.
        """
        self.check(strength)
        if not strength.value and not self.does_nothing_at(strength):
            raise UsageError(
                f"0 is what a trial compares with, and {self.how} at 0 does something",
                "remove takes out what replace at 0 does; a small strength is near 0",
                field="strengths",
                found=str(strength),
            )


ADDING = Applying()


def formula(how: str, amount: float, share: float) -> list[dict[str, float]]:
    """Give the numbers of the moves that apply a direction, as ``Move`` has them.

    Args:
        how: One of ``HOWS``.
        amount: The length of strength · v, with the sign of the strength.
        share: The strength itself.
    """
    towards = {"offset": amount, "slope": -1.0}
    if how == "remove":
        return [{"slope": -share}]
    if how == "replace":
        return [towards]
    if how == "clamp":
        back = {"offset": -amount, "slope": -1.0}
        return [towards | {"high": 0.0}, back | {"low": 0.0}]
    if how == "at-least":
        return [towards | {"low": 0.0}]
    if how == "at-most":
        return [towards | {"high": 0.0}]
    return [{"offset": amount}]


def _name(layers: str | tuple[int, ...]) -> str:
    if isinstance(layers, str):
        return f"layer{'' if layers.strip().isdigit() else 's'} {layers}"
    return name_layers(_listed(layers))


def _listed(layers: Iterable[int]) -> tuple[int, ...]:
    """Sort layers as ``select_layers`` does; one may be numpy's."""
    return tuple(sorted({*map(int, layers)}))


def _take_where(where: object) -> Where:
    if not isinstance(where, str):
        raise UsageError(
            f'where must be a string such as "generated", not {where}',
            field="where",
            found=where,
        )
    return parse_where(where)


def _take_layers(layers: Layers | None) -> str | tuple[int, ...] | None:
    """Take a selection of layers; which of them a model has is not known yet."""
    if layers is None or isinstance(layers, str):
        return layers
    return list_layers(layers)
