"""Texts that grow together, a token of each at a time.

Texts enter in the order in which they wait, are read in one stream, and leave as they
end; others enter as soon as there is room for a good number. It knows token ids only,
never text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ster.decoder.contract import Chosen, Decoder
from ster.decoder.steerings import Steerings
from ster.decoder.whole import WholeModel
from ster.runs.growth import Growing, Growth
from ster.runs.inputs import following_inputs
from ster.runs.loop import run_blocks
from ster.runs.sampling import make_drawing, make_sampler
from ster.runs.streams import Part, pack_steered
from ster.stream.changes import Deltas
from ster.stream.packing import DistinctTokens, Ints, Tokens
from ster.stream.texts import Texts

Array = TypeVar("Array")
F32 = NDArray[np.float32]
# Of those at work, as many have to leave before others enter: what is read at once
# should be worth it.
ENTERING_SHARE = 4


def grow(
    decoder: Decoder[Array],
    prompts: Sequence[tuple[Tokens, int]],
    deltas: Sequence[Deltas],
    growth: Growth,
) -> Iterator[Growing]:
    """Let texts grow.

    Args:
        decoder: The blocks, with head.
        prompts: What each begins with, fewer tokens than ``max_position_embeddings``,
            and the number of its steering.
        deltas: The steerings: what is done to rows after some layers. A text's prompt
            is what it begins with.
        growth: How they grow.

    Yields:
        A text each time that it has one more token, or has ended. A token that
        another rounding might have chosen otherwise is chosen with its text alone.
    """
    texts = [
        Growing(
            number=number,
            prompt=prompt,
            steering=steering,
            random=np.random.default_rng(growth.sampling.seed),
        )
        for number, (prompt, steering) in enumerate(prompts)
    ]
    if isinstance(decoder, WholeModel):
        for text in texts:
            yield from _grow_whole(decoder, text, deltas[text.steering], growth)
        return
    lengths = ((each.steering, len(each.prompt)) for each in texts)
    yield from Batch(decoder, Steerings(decoder, deltas, lengths), growth, texts).run()


def _grow_whole(
    model: WholeModel, text: Growing, deltas: Deltas, growth: Growth
) -> Iterator[Growing]:
    """Grow a text with a model that has a loop of its own."""
    draw = make_sampler(growth.sampling)

    def sample(logits: F32) -> int:
        text.is_finite = bool(np.isfinite(logits).all())
        return draw(logits) if text.is_finite else -1

    stop_ids = {*growth.stop_ids, -1}
    for token in model.write_tokens(
        text.prompt, deltas, sample, stop_ids, growth.max_new_tokens
    ):
        text.add(token, growth, model.max_position_embeddings)
        yield text
    if text.ended is None:
        text.ended = "stop"
        yield text


class Batch(Generic[Array]):
    """The texts at work, and those that wait.

    Args:
        decoder: The blocks, with head.
        steerings: What texts may be steered with.
        growth: How they grow.
        texts: All of them. One alone decides what it is like in company.
    """

    def __init__(
        self,
        decoder: Decoder[Array],
        steerings: Steerings[Array],
        growth: Growth,
        texts: Sequence[Growing],
    ) -> None:
        self._decoder, self._spec = decoder, decoder.spec
        self._steerings, self._growth = steerings, growth
        self._waiting, self._is_alone = deque(texts), len(texts) == 1
        self._at_work: list[Growing] = []
        self._texts = Texts()
        longest = max(map(len, texts)) + growth.max_new_tokens
        self._caches = decoder.make_caches(
            min(growth.max_texts, len(texts)),
            min(longest, self._spec.max_position_embeddings),
        )

    def run(self) -> Iterator[Growing]:
        """Grow all texts to their ends."""
        pending: Chosen[Array] | None = None  # what is chosen and not looked at yet
        while self._waiting or self._at_work:
            if pending is None:
                if entering := self._next_entering():
                    chosen = self._read(entering)
                    yield from self._take(entering, chosen)
                    self._let_go()
                    continue
                pending = self._step(np.array([t.token_ids[-1] for t in self._at_work]))
            following = None
            if self._decoder.works_ahead and not self._someone_ends():
                following = self._step(pending.token_ids)
            num_texts = len(self._at_work)
            yield from self._take([*self._at_work], pending)
            order = self._let_go()
            pending = following
            if following is not None and len(order) < num_texts:
                pending = self._of(following, order)

    def _next_entering(self) -> list[Growing]:
        """Take the texts that enter now, if any do."""
        room = self._growth.max_texts - len(self._at_work)
        worth = min(len(self._waiting), self._growth.max_texts // ENTERING_SHARE)
        entering: list[Growing] = []
        if self._at_work and room < worth:
            return entering
        distinct, tokens, listed = DistinctTokens(), 0, 0
        while self._waiting and len(entering) < room:
            text = self._waiting[0]
            kind: tuple[int, ...] = self._spec.rotary_length(len(text)), text.steering
            kind += self._steerings.treatments.key(text.steering, len(text.prompt))
            tokens += distinct.add(text.tokens, kind)
            listed += len(text)
            most = self._growth.reading_tokens
            if entering and (tokens > most or listed > 2 * most):
                break
            entering.append(self._waiting.popleft())
        return entering

    def _read(self, entering: Sequence[Growing]) -> Chosen[Array]:
        """Read texts from their beginnings, and choose the token after each."""
        treatments = self._steerings.treatments
        which = [
            treatments.of(text.steering, len(text.prompt), len(text))
            for text in entering
        ]
        steered = pack_steered(
            self._spec,
            [text.tokens for text in entering],
            which,
            self._steerings.parting(np.concatenate(which)),
        )
        self._at_work += entering
        # Rows ascend, as texts need not; equal texts end in the same row.
        last_rows, places = np.unique(steered.packed.last_rows, return_inverse=True)
        parts = steered.parts(
            self._decoder,
            self._steerings,
            num_blocks=self._spec.num_hidden_layers,
            top_rows=last_rows,
            entering=self._texts.enter(steered.packed),
        )
        before = steered.before
        hidden = run_blocks(
            self._decoder,
            before.token_ids,
            before.position_ids,
            parts,
            caches=self._caches,
        )
        return self._choose(self._decoder.take(hidden, places), entering)

    def _step(self, token_ids: Ints | Array) -> Chosen[Array]:
        """Run a new token of each text through all blocks, and choose the next one."""
        self._texts.grow()
        at, positions = self._steerings.treatments.at, self._texts.positions
        which = np.array(
            [
                at(text.steering, len(text.prompt), int(position))
                for text, position in zip(self._at_work, positions, strict=True)
            ]
        )
        part = Part(
            start=0,
            stop=self._spec.num_hidden_layers,
            inputs_of=following_inputs(self._decoder, self._texts),
            steering=self._steerings.of(which),
        )
        hidden = run_blocks(
            self._decoder,
            token_ids,
            positions,
            [part],
            caches=self._caches,
        )
        return self._choose(hidden, self._at_work)

    def _choose(self, hidden: Array, texts: Sequence[Growing]) -> Chosen[Array]:
        randoms = [text.random for text in texts]
        drawing = make_drawing(self._growth.sampling, randoms)
        return self._decoder.choose(hidden, drawing)

    def _take(
        self, texts: Sequence[Growing], chosen: Chosen[Array]
    ) -> Iterator[Growing]:
        """Give texts their tokens."""
        token_ids = self._decoder.to_host(chosen.token_ids)
        is_close = self._decoder.to_host(chosen.is_close)
        for text, token, close in zip(texts, token_ids, is_close, strict=True):
            if close and not self._is_alone:
                yield from self._choose_alone(text)
                continue
            text.is_finite = token >= 0
            text.add(int(token), self._growth, self._spec.max_position_embeddings)
            yield text

    def _choose_alone(self, text: Growing) -> Iterator[Growing]:
        """Give a text the next token that it gets alone, from its prompt on.

        Its tokens so far are the same, and so are those after it until one is close
        again. A text to which that happens twice stays alone: it is not to begin
        again and again. So does one whose tokens are not the same after all, since its
        keys in the caches are of others. Only where the likeliest is taken is a token
        close: nothing was drawn.
        """
        alone = replace(text, token_ids=[])
        batch = Batch(self._decoder, self._steerings, self._growth, [alone])
        for _ in batch.run():
            if alone.ended is None and len(alone) <= len(text):
                continue
            is_other = alone.token_ids[: len(text.token_ids)] != text.token_ids
            text.was_close |= is_other
            text.token_ids = [*alone.token_ids]
            text.ended, text.is_finite = alone.ended, alone.is_finite
            yield text
            if not text.was_close:
                break
        text.was_close = True

    def _let_go(self) -> Ints:
        """Let texts leave that have ended, or have to be read anew.

        Returns:
            The former place of each text that stays.
        """
        gone = set()
        for place, text in enumerate(self._at_work):
            before = len(text) - 1
            reads_anew = self._spec.reading_length(before, 1) > before
            if text.ended is None and reads_anew:
                self._waiting.appendleft(text)
            if text.ended is not None or reads_anew:
                gone.add(place)
        leaving = self._texts.leave(gone)
        if gone:
            for cache in self._caches:
                cache.leave(leaving)
        self._at_work = [self._at_work[place] for place in leaving.order]
        return leaving.order

    def _someone_ends(self) -> bool:
        """Tell whether a text is known to leave with its next token, or may enter."""
        most = self._growth.max_new_tokens
        limit = self._spec.max_position_embeddings
        return bool(self._waiting) or any(
            len(text.token_ids) + 1 >= most
            or len(text) + 1 >= limit
            or self._spec.reading_length(len(text), 1) > len(text)
            for text in self._at_work
        )

    def _of(self, chosen: Chosen[Array], order: Ints) -> Chosen[Array] | None:
        """Take what was chosen for the texts that stay."""
        if not len(order):
            return None
        return Chosen(
            token_ids=self._decoder.take(chosen.token_ids, order),
            is_close=self._decoder.take(chosen.is_close, order),
        )
