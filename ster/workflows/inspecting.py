"""Inspecting pairs in a model's tokens."""

from __future__ import annotations

from collections.abc import Hashable

from ster.documents.pair_sets.inspection import PairInspection, inspect_pairs
from ster.documents.pairs import PairSet
from ster.documents.prompt_sets.value import PromptSet
from ster.errors import require_type
from ster.runs.session import Session
from ster.workflows.confounds import own_tokens


def inspect_tokens(session: Session, pairs: PairSet) -> PairInspection:
    """Say what a pair set is like; no weight is opened.

    Where a pair has a system's turn, sides are whole conversations.

    Args:
        session: What encodes the sides as training does.
        pairs: The pairs.

    Raises:
        SterError: A side is refused.
    """
    require_type(pairs, PairSet, "pairs")
    prompts, asked = pairs.to_read()
    taken = PromptSet.of(prompts)
    if taken.chats is None:
        located = session.encoder.encode_texts(taken.prompts, asked, locate=True)
    else:
        located = session.encoder.locate_conversations(taken.conversations)
    # What a system's turn says stands outside the side's own text.
    whole = [None] * len(located.token_ids)
    token_ids = own_tokens(located.token_ids, whole if taken.chats else located.own)
    texts = session.encoder.token_texts(token for ids in token_ids for token in ids)

    def spell(token: Hashable) -> str:
        return texts[token] if isinstance(token, int) else str(token)

    return inspect_pairs(pairs, token_ids, spell)
