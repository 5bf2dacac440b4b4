"""One tokenizer's process: its requests, and their bounds on time and size."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from ster.checkpoint.confined.process import (
    ConfinedProcess,
    ProcessFailure,
    Program,
    Reply,
)
from ster.checkpoint.tokens.bounds import (
    max_tokens,
    pack,
    seconds_for,
    unpack,
)
from ster.checkpoint.tokens.located import LocatedTexts, Span
from ster.errors import PromptError, TokenizerError

PROGRAM = Program(
    module="ster.checkpoint.tokens.worker",
    needs=("tokenizers",),
    work="tokenizes",
    # The largest known files load within two seconds.
    set_up_seconds=60.0,
)
_FREE_BYTES = 1 << 20
_TOKENS_AT_ONCE = 4096


class TokenizerProcess:
    """Encodes and decodes with one tokenizer.json.

    Args:
        path: The file.
        tokens: What the tokenizer config declares to be one token each.
    """

    def __init__(self, path: Path, tokens: Sequence[Mapping[str, object]]) -> None:
        self._path = path
        setup = {"path": os.path.abspath(path), "tokens": list(tokens)}
        self.confined = ConfinedProcess(PROGRAM, setup)

    def start(self) -> None:
        """Start loading and do not wait for it.

        Raises:
            TokenizerError: The process cannot be started.
        """
        try:
            self.confined.start()
        except ProcessFailure as failure:
            raise self._unloadable(str(failure)) from failure

    def check(self) -> None:
        """Wait until it is loaded.

        Raises:
            TokenizerError: The file cannot be read or is no tokenizer.
        """
        try:
            replies = self.confined.ask([], seconds=0, max_reply_bytes=0)
        except ProcessFailure as failure:
            raise self._unloadable(str(failure)) from failure
        if replies:
            raise self._unloadable(str(replies[0].get("error")))

    def locate(
        self,
        texts: Sequence[str],
        spans: Sequence[Span | None] | None = None,
        *,
        add_special_tokens: bool,
        first: int = 1,
    ) -> LocatedTexts:
        """Encode texts, and find the tokens of a part of each.

        Args:
            texts: To be encoded in one go.
            spans: The characters of each that are to be found; None where nothing is.
            add_special_tokens: Whether the tokenizer adds its own.
            first: The number of the first text, for refusals.

        Raises:
            PromptError: A text cannot be tokenized, or becomes too many tokens.
        """
        request = {"texts": list(texts), "special": add_special_tokens}
        if spans is not None:
            request["spans"] = list(spans)
        room = sum(max_tokens(len(text)) + 3 for text in texts)
        try:
            reply = self._ask(request, 6 * room)
        except _Refused as refused:
            number = first + refused.text if isinstance(refused.text, int) else None
            sentence = f"failed to tokenize prompt: {refused}"
            raise PromptError(sentence, prompt=number) from refused
        try:
            return _read_located(reply, len(texts))
        except (KeyError, ValueError) as error:
            sentence = "failed to tokenize prompt: the answer makes no sense"
            raise PromptError(sentence) from error

    def token_texts(self, token_ids: Sequence[int]) -> dict[int, str]:
        """Say what each token stands for, special ones too.

        Raises:
            PromptError: They cannot be decoded.
        """
        texts: list[object] = []
        for at in range(0, len(token_ids), _TOKENS_AT_ONCE):
            part = token_ids[at : at + _TOKENS_AT_ONCE]
            answer = self._look_up({"pieces": pack(part)}, 4096 * len(part))
            texts += answer if isinstance(answer, list) else []
        return dict(zip(token_ids, map(str, texts), strict=True))

    def find_bos(self, declared: str | None) -> frozenset[int]:
        """Find the ids of the tokens that begin a sequence.

        Args:
            declared: The token that the tokenizer config declares as such.

        Raises:
            PromptError: The tokenizer fails.
        """
        answer = self._look_up({"bos": declared}, 4096)
        return frozenset(map(int, answer if isinstance(answer, list) else []))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode tokens, special ones left out.

        Raises:
            PromptError: They cannot be decoded.
        """
        return self._decode(token_ids, None)[1] or ""

    def grow(self, token_ids: Sequence[int], token: int) -> tuple[bool, str | None]:
        """Decode tokens with one more, as ``LoadedTokenizer.grow`` does.

        Raises:
            PromptError: They cannot be decoded.
        """
        return self._decode(token_ids, int(token))

    def _decode(
        self, token_ids: Sequence[int], token: int | None
    ) -> tuple[bool, str | None]:
        request = {"token_ids": pack(token_ids), "token": token}
        try:
            reply = self._ask(request, 4096 * (len(token_ids) + 1))
        except _Refused as refused:
            sentence = f"failed to decode generated tokens: {refused}"
            raise PromptError(sentence) from refused
        text = reply.get("text")
        return reply.get("written") is True, text if isinstance(text, str) else None

    def _look_up(self, request: Mapping[str, object], reply_bytes: int) -> object:
        try:
            return self._ask(request, reply_bytes).get("answer")
        except _Refused as refused:
            sentence = f"failed to decode tokens: {refused}"
            raise PromptError(sentence) from refused

    def _ask(self, request: Mapping[str, object], reply_bytes: int) -> Reply:
        try:
            (reply,) = self.confined.ask(
                [request],
                seconds=seconds_for(len(json.dumps(request))),
                max_reply_bytes=_FREE_BYTES + reply_bytes,
            )
        except ProcessFailure as failure:
            raise _Refused(str(failure), None) from failure
        if "error" in reply:
            raise _Refused(str(reply["error"]), reply.get("text"))
        return reply

    def _unloadable(self, detail: str) -> TokenizerError:
        sentence = f"failed to load tokenizer {self._path}: {detail}"
        return TokenizerError(sentence, path=self._path)


class _Refused(Exception):
    """The tokenizer or its process failed, perhaps on the text of this index."""

    def __init__(self, detail: str, text: object) -> None:
        super().__init__(detail)
        self.text = text


def _read_located(reply: Reply, num_texts: int) -> LocatedTexts:
    """Read token ids and spans; ValueError or KeyError where they make no sense."""
    token_ids, lengths = unpack(str(reply["ids"])), unpack(str(reply["lengths"]))
    if len(lengths) != num_texts or sum(lengths) != len(token_ids):
        raise ValueError("token ids of other texts")
    ends = accumulate(lengths)
    listed = [token_ids[end - n : end] for n, end in zip(lengths, ends, strict=True)]
    if "own" not in reply:
        return LocatedTexts(token_ids=listed, own=[None] * num_texts)
    flat = unpack(str(reply["own"]))
    own = [*zip(flat[::2], flat[1::2], strict=True)]
    return LocatedTexts(
        token_ids=listed,
        own=[
            (start, stop) if 0 <= start < stop <= length else None
            for (start, stop), length in zip(own, lengths, strict=True)
        ],
    )
