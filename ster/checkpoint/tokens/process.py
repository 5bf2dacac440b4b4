"""One tokenizer's process: its requests, and their bounds on time and size."""

from __future__ import annotations

import json
import os
from array import array
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
    TokenIds,
    max_tokens,
    pack,
    seconds_for,
    unpack,
)
from ster.errors import PromptError, TokenizerError

PROGRAM = Program(
    module="ster.checkpoint.tokens.worker",
    needs=("tokenizers",),
    work="tokenizes",
    # The largest known files load within two seconds.
    set_up_seconds=60.0,
)
_FREE_BYTES = 1 << 20


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

    def encode(
        self, texts: Sequence[str], *, add_special_tokens: bool, first: int = 1
    ) -> list[TokenIds]:
        """Encode texts.

        Args:
            texts: To be encoded in one go.
            add_special_tokens: Whether the tokenizer adds its own.
            first: The number of the first text, for refusals.

        Raises:
            PromptError: A text cannot be tokenized, or becomes too many tokens.
        """
        request = {"texts": list(texts), "special": add_special_tokens}
        room = sum(max_tokens(len(text)) + 1 for text in texts)
        try:
            reply = self._ask(request, 6 * room)
        except _Refused as refused:
            number = first + refused.text if isinstance(refused.text, int) else None
            sentence = f"failed to tokenize prompt: {refused}"
            raise PromptError(sentence, prompt=number) from refused
        try:
            token_ids, lengths = (
                unpack(str(reply["ids"])),
                unpack(str(reply["lengths"])),
            )
        except (KeyError, ValueError):
            token_ids, lengths = array("i"), array("i")
        if len(lengths) != len(texts) or sum(lengths) != len(token_ids):
            raise PromptError("failed to tokenize prompt: the answer makes no sense")
        ends = accumulate(lengths)
        return [token_ids[end - n : end] for n, end in zip(lengths, ends, strict=True)]

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
