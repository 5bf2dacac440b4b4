"""Parity: ster's hidden states beside those that another implementation computed."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ster.checkpoint.tokens.bounds import TokenIds
from ster.documents.reference_states import Reference, ReferenceRecord
from ster.errors import DocumentError
from ster.layers import check_layers
from ster.runs.reading import plan_token_reading
from ster.runs.session import Session

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityRecord:
    """How one layer of one text compares.

    Args:
        record: Which record of the reference, counted from 1.
        layer: The block's index.
        hidden_size: Width of the stream.
        num_tokens: Tokens of the text.
        num_positions: Those that were compared.
        relative_error: |ours - theirs| / |theirs|, over all positions at once.
        worst_position_error: The greatest of the same at one position.
        worst_position: That position.
        largest_difference: Of any two values.
        mean_cosine: Between rows, over the positions.
        smallest_cosine: The smallest of these.
        squares: What the first is made of: squared lengths of difference and theirs.
    """

    record: int
    layer: int
    hidden_size: int
    num_tokens: int
    num_positions: int
    relative_error: float
    worst_position_error: float
    worst_position: int
    largest_difference: float
    mean_cosine: float
    smallest_cosine: float
    squares: tuple[float, float]

    @property
    def document(self) -> dict[str, object]:
        """What the report says of it."""
        return {
            "hidden": self.hidden_size,
            "largestDifference": self.largest_difference,
            "layer": self.layer,
            "meanCosine": self.mean_cosine,
            "positions": self.num_positions,
            "record": self.record,
            "relativeError": self.relative_error,
            "smallestCosine": self.smallest_cosine,
            "tokens": self.num_tokens,
            "worstPosition": self.worst_position,
            "worstPositionRelativeError": self.worst_position_error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How hidden states compare with a reference.

    Args:
        model: The model as it was named.
        model_revision: Its revision, None where there is none.
        records: One for each record of the reference and each layer, in that order.
    """

    model: str
    model_revision: str | None
    records: tuple[ParityRecord, ...]

    @property
    def worst(self) -> ParityRecord:
        """The record with the position that is farthest off."""
        return max(self.records, key=lambda each: each.worst_position_error)

    @property
    def document(self) -> dict[str, object]:
        """The report; ``overall`` has the same measures over all rows together."""
        found, worst = self.records, self.worst
        off, length = (math.fsum(e.squares[i] for e in found) for i in (0, 1))
        count = sum(each.num_positions for each in found)
        cosines = math.fsum(e.mean_cosine * e.num_positions for e in found)
        return {
            "model": self.model,
            "modelRevision": self.model_revision,
            "overall": {
                "largestDifference": max(each.largest_difference for each in found),
                "meanCosine": cosines / count,
                "positions": count,
                "relativeError": math.sqrt(off / length),
                "smallestCosine": min(each.smallest_cosine for each in found),
                "worstPositionRelativeError": worst.worst_position_error,
            },
            "records": [each.document for each in found],
        }


def compare_states(session: Session, reference: Reference) -> Parity:
    """Read the reference's tokens at its layers and compare the rows.

    Args:
        session: What reads them. A prompt without tokens is encoded as it encodes.
        reference: What another implementation computed.

    Raises:
        SterError: The reference does not suit the model or its tokenizer, or the run is
            refused.
    """
    check_layers(reference.layers, session.spec.num_hidden_layers)
    token_ids = [*_token_ids(session, reference.records)]
    positions = [*map(_check, *_numbered(session, reference.records, token_ids))]
    reading = plan_token_reading(
        session, token_ids, reference.layers, positions, label="comparing record"
    )
    records: list[ParityRecord] = []
    for wave, (rows,) in reading.waves():
        at = 0
        for index in wave:
            count = len(positions[index])
            ours = np.moveaxis(rows[at : at + count], 0, 1)
            at += count
            records += _compare(
                index, ours, reference, len(token_ids[index]), positions[index]
            )
    return Parity(
        model=session.files.model,
        model_revision=session.files.revision,
        records=tuple(records),
    )


def _numbered(
    session: Session,
    records: Sequence[ReferenceRecord],
    token_ids: Sequence[TokenIds],
) -> tuple[Iterable[int], Iterable[int], Iterable[ReferenceRecord], Iterable[TokenIds]]:
    widths = [session.spec.hidden_size] * len(records)
    return range(1, len(records) + 1), widths, records, token_ids


def _token_ids(
    session: Session, records: Sequence[ReferenceRecord]
) -> Iterator[TokenIds]:
    """Take each record's tokens; a prompt has to become those that stand beside it."""
    texts = [each.prompt for each in records if each.prompt is not None]
    encoded = iter(session.encoder.encode(texts) if texts else [])
    for number, record in enumerate(records, start=1):
        own = None if record.prompt is None else next(encoded)
        if own is not None and record.tokens is not None:
            _check_encoding(number, [*own], [*record.tokens])
        yield own if own is not None else array("i", record.tokens or ())


def _check_encoding(number: int, ours: list[int], theirs: list[int]) -> None:
    if ours == theirs:
        return
    pairs = zip(ours, theirs, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    cause = f"here it becomes {len(ours)} tokens, there {len(theirs)}"
    if at is not None:
        cause = f"token {at} is {ours[at]} here and {theirs[at]} there"
    raise DocumentError(
        f"the prompt of record {number} has other tokens in the reference",
        f"{cause}; leave the prompt out to compare what its tokens make",
        field="tokens",
        found=theirs,
        expected=ours,
        prompt=number,
    )


def _check(
    number: int, width: int, record: ReferenceRecord, token_ids: TokenIds
) -> Sequence[int]:
    """Refuse states of another width or of other tokens; return the positions."""
    num_positions, found = record.hidden.shape[1:]
    if found != width:
        raise DocumentError(
            f"record {number} has hidden size {found}, and the model {width}",
            field="hidden",
            found=found,
            expected=width,
            prompt=number,
        )
    positions = record.positions or range(num_positions)
    if max(positions) >= len(token_ids) or (
        record.positions is None and num_positions != len(token_ids)
    ):
        raise DocumentError(
            f"record {number} has {len(token_ids)} tokens here, and states of "
            f"{num_positions} positions up to {max(positions)} in the reference",
            "another tokenizer, or another template, makes other tokens of a prompt",
            field="positions",
            found=num_positions,
            expected=len(token_ids),
            prompt=number,
        )
    return positions


def _compare(
    index: int,
    ours: NDArray[np.float32],
    reference: Reference,
    num_tokens: int,
    positions: Sequence[int],
) -> Iterator[ParityRecord]:
    theirs = reference.records[index].hidden
    for layer, mine, true in zip(reference.layers, ours, theirs, strict=True):
        wide = mine.astype(np.float64)
        off, length = np.linalg.norm(wide - true, axis=1), np.linalg.norm(true, axis=1)
        lengths = np.linalg.norm(wide, axis=1) * length
        # A row of ours without a length has no direction, and so nothing in common.
        cosines = (wide * true).sum(axis=1) / np.where(lengths, lengths, np.inf)
        errors = off / length
        worst = int(errors.argmax())
        squares = float((off**2).sum()), float((length**2).sum())
        yield ParityRecord(
            record=index + 1,
            layer=layer,
            hidden_size=true.shape[1],
            num_tokens=num_tokens,
            num_positions=len(positions),
            relative_error=math.sqrt(squares[0] / squares[1]),
            worst_position_error=float(errors[worst]),
            worst_position=int(positions[worst]),
            largest_difference=float(np.abs(wide - true).max()),
            mean_cosine=float(cosines.mean()),
            smallest_cosine=float(cosines.min()),
            squares=squares,
        )
