"""The pair set: ``{"trait_name": "...", "pairs": [{"positive", "negative"}, ...]}``.

A pair may have a ``prompt`` too, which both its sides answer, and each side a system's
turn. ``pair_sets`` reads, makes, splits and inspects them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    SupportsIndex,
    TypeAlias,
    overload,
)

from ster.documents.cards import pair_card
from ster.documents.pair_sets.pair import ContrastPair, check_pairs
from ster.errors import DocumentError, UsageError
from ster.html import cut, to_html
from ster.reporting import QuietReporter
from ster.text import counted

if TYPE_CHECKING:
    from ster.documents.pair_sets.inspection import PairInspection
    from ster.documents.prompt_sets.value import Prompts


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PairSet:
    """Contrastive pairs for one trait.

    A slice of it is a pair set, too, and ``+`` puts two together.

    Args:
        trait_name: What the positive sides have.
        pairs: The pairs, in the order that ``optimize`` splits them in.

    Raises:
        DocumentError: There are no pairs, or a side or a prompt is blank or no text.
        UsageError: One of them is no ``ContrastPair``.
    """

    trait_name: str
    pairs: tuple[ContrastPair, ...]

    def __post_init__(self) -> None:
        """Check once that there is something to compare."""
        if not isinstance(self.trait_name, str):
            raise DocumentError(
                "the name of a trait must be a string",
                field="trait_name",
                found=self.trait_name,
            )
        check_pairs(self.pairs, "pair set")

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self.pairs)

    def __iter__(self) -> Iterator[ContrastPair]:
        """Go through the pairs in order."""
        return iter(self.pairs)

    @overload
    def __getitem__(self, index: SupportsIndex) -> ContrastPair: ...

    @overload
    def __getitem__(self, index: slice) -> PairSet: ...

    def __getitem__(self, index: SupportsIndex | slice) -> ContrastPair | PairSet:
        """Take one pair, or a pair set of some.

        Raises:
            IndexError: There is no such pair.
            DocumentError: A slice has none.
            UsageError: It is no index and no slice.
        """
        try:
            taken = self.pairs[index]
        except TypeError:
            found: object = index
            raise UsageError(
                f"pairs must be an index or a slice, not {cut(repr(found))}",
                field="pairs",
                found=found,
            ) from None
        if isinstance(taken, tuple):
            return replace(self, pairs=taken)
        return taken

    def __add__(self, other: PairSet) -> PairSet:
        """Put the pairs of another set behind these; both names stay if they differ."""
        if not isinstance(other, PairSet):
            return NotImplemented
        names = [name for name in (self.trait_name, other.trait_name) if name]
        trait_name = ", ".join(dict.fromkeys(names))
        return PairSet(trait_name=trait_name, pairs=self.pairs + other.pairs)

    def __repr__(self) -> str:
        """Show the trait and the number of pairs, not their texts."""
        return f"PairSet({self.trait_name!r}, {counted(len(self), 'pair')})"

    def _repr_html_(self) -> str:
        return to_html(pair_card(self))

    @property
    def prompts(self) -> list[str]:
        """All sides, each positive one followed by its negative one."""
        return [side for pair in self.pairs for side in (pair.positive, pair.negative)]

    @property
    def asked(self) -> list[str | None]:
        """What each of the sides in ``prompts`` answers, if anything."""
        return [pair.prompt for pair in self.pairs for _ in range(2)]

    @property
    def systems(self) -> list[str | None]:
        """The system's turn before each of the sides in ``prompts``, if any."""
        sides = ("positive_system", "negative_system")
        return [getattr(pair, side) for pair in self.pairs for side in sides]

    def to_read(self) -> tuple[Prompts, list[str | None] | None]:
        """Return what is read of the pairs, and what each of it answers.

        Where a pair has a system's turn, all sides are chats, which say themselves what
        is answered.
        """
        if not any(pair.has_system for pair in self.pairs):
            return self.prompts, self.asked
        from ster.documents.pair_sets.conversations import to_chats

        return to_chats(self), None

    @property
    def side_labels(self) -> dict[str, tuple[object, ...]]:
        """What is known of each side that is read: its pair, from 0, and which side."""
        numbers = range(len(self.pairs))
        return {
            "pair": tuple(number for number in numbers for _ in range(2)),
            "side": ("positive", "negative") * len(self.pairs),
        }

    def refuse_systems(self, doing: str) -> None:
        """Refuse pairs with a system's turn for what does not know it.

        Args:
            doing: What cannot be done, as "scored".

        Raises:
            DocumentError: A pair has one.
        """
        for number, pair in enumerate(self.pairs, start=1):
            if pair.has_system:
                raise DocumentError(
                    f"pair {number} has a system turn, and pairs with one are read but "
                    f"not {doing}",
                    "pairs whose difference stands in the texts will do",
                    found=pair,
                    prompt=number,
                )

    def shuffle(self, seed: int = 0) -> PairSet:
        """Return the pairs in another order, the same for a seed on every platform.

        Raises:
            UsageError: The seed is no whole number.
        """
        from ster.documents.pair_sets.splits import shuffled

        return self._take(shuffled(len(self), seed))

    def split(self, share: float, *, seed: int = 0) -> tuple[PairSet, PairSet]:
        """Split the pairs in two, in file order, the same for a seed everywhere.

        Pairs that share a prompt, a group or a side stay together. A side that is in
        more than three pairs and a tenth of all, as "(A)" may be, is no such tie; the
        same pair again always is one.

        Args:
            share: Of the pairs that the first set is to have, as nearly as can be.
            seed: Decides which pairs.

        Raises:
            UsageError: A number is out of range, or all pairs belong together.

        Example:
            >>> from ster import PairSet
            >>> pairs = PairSet.of([(f"yes {n}", f"no {n}") for n in range(10)])
            >>> pairs.split(0.7, seed=1)
            (PairSet('', 7 pairs), PairSet('', 3 pairs))
        """
        from ster.documents.pair_sets.splits import split_indices

        first, second = split_indices(self.groups, share, seed)
        return self._take(first), self._take(second)

    def folds(self, num_folds: int, *, seed: int = 0) -> list[tuple[PairSet, PairSet]]:
        """Hold out every pair once: pairs to fit on and pairs to hold out, by fold.

        Args:
            num_folds: How many.
            seed: Decides which pairs. What stays together is as for ``split``.

        Raises:
            UsageError: As for ``split``.
        """
        from ster.documents.pair_sets.splits import fold_indices

        folds = fold_indices(self.groups, num_folds, seed)
        return [(self._take(fit), self._take(held)) for fit, held in folds]

    @property
    def groups(self) -> list[int]:
        """By pair, the number of what a split keeps together."""
        from ster.documents.pair_sets.ties import find_groups

        return find_groups(self.pairs)

    def inspect(self) -> PairInspection:
        """Say what the pairs are like, and what trivially tells their sides apart.

        Lengths are counted in characters, and what differs in words.
        """
        from ster.documents.pair_sets.inspection import inspect_pairs

        return inspect_pairs(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the pairs; the suffix says how: .json, .jsonl, .csv or .tsv.

        Only JSON has a place for the trait's name.

        Raises:
            OutputError: The suffix is another, or the file cannot be written.
        """
        from ster.documents.pair_sets.writing import write_pairs

        write_pairs(self, path)

    @classmethod
    def of(cls, pairs: Pairs, *, trait_name: str = "") -> PairSet:
        """Take pairs as a notebook has them.

        Args:
            pairs: A pair set, or an ordered iterable of pairs: (positive, negative)
                texts, ``ContrastPair`` values, or mappings with ``positive``,
                ``negative`` and perhaps ``prompt``, or with CAA's names for them. Or a
                table with such columns, as a pandas DataFrame or a
                ``datasets.Dataset``.
            trait_name: What the positive sides have.

        Raises:
            DocumentError: As for the class, or something is no pair of strings.

        Example:
            >>> from ster import PairSet
            >>> PairSet.of([("What a joy!", "What a pity!")], trait_name="happy")
            PairSet('happy', 1 pair)
        """
        from ster.documents.pair_sets.given import take_pairs

        if isinstance(pairs, PairSet):
            return replace(pairs, trait_name=trait_name or pairs.trait_name)
        return cls(trait_name=trait_name, pairs=take_pairs(pairs))

    @classmethod
    def from_labels(
        cls,
        prompts: Prompts,
        *,
        label: str,
        positive: object,
        seed: int = 0,
        trait_name: str | None = None,
    ) -> PairSet:
        """Pair the prompts of one label with those of the other, at random.

        As many of both are taken as there are of the fewer; a warning says how many
        were left over.

        Args:
            prompts: Whatever ``PromptSet.of`` takes, with labels.
            label: The name of a label that has two values.
            positive: The value of the positive sides.
            seed: Decides who is paired with whom.
            trait_name: What the positive sides have; ``positive`` unless given.

        Raises:
            DocumentError: There is no such label or value, it has not two values, or a
                prompt lacks it or is a chat of several turns.
        """
        from ster.documents.pair_sets.labelled import pair_by_label

        made = pair_by_label(prompts, label=label, positive=positive, seed=seed)
        if made.left_over:
            QuietReporter().warn(made.left_over)
        name = made.positive if trait_name is None else trait_name
        return cls(trait_name=name, pairs=made.pairs)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, stream: BinaryIO | None = None
    ) -> PairSet:
        """Read a pair set; its suffix says how.

        Args:
            path: ``.jsonl``, ``.csv`` or ``.tsv``; any other is JSON: the document that
                ``save`` writes, or a list of pairs, whose names may be CAA's. ``-`` is
                standard input, whose form its content tells. Without a name of its own
                a trait is named after the file.
            stream: What ``-`` reads instead of standard input.

        Raises:
            DocumentError: The file cannot be read or is no pair set, has no pairs or
                one with a blank side or prompt.
        """
        from ster.documents.pair_sets.files import read_pair_set

        return read_pair_set(path, stream=stream)

    def _take(self, indices: Iterable[int]) -> PairSet:
        return replace(self, pairs=tuple(self.pairs[index] for index in indices))


Pairs: TypeAlias = PairSet | Iterable[Any]
