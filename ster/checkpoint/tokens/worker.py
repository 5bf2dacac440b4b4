"""Tokenize in a process of its own: the child of ``process``.

A tokenizer.json comes with the checkpoint and can make the library that reads it loop,
grow or abort, so it does that in this process and not in the parent. This module
imports tokenizers beside ``limits`` only, to start quickly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer

from ster.checkpoint.confined.limits import allow_memory, confine, serve
from ster.checkpoint.tokens.bounds import max_tokens, pack, seconds_for, unpack

# Memory for loading and encoding: a fixed part, which includes thread stacks, and so
# many bytes for each byte of a file or a request, of which 36 and 240 were measured.
MEMORY_BYTES = 1 << 30
FILE_TIMES = 64
REQUEST_TIMES = 512


# Token ids of texts, and the tokens of a part of each.
Encoded = tuple[list[Sequence[int]], list[tuple[int, int]] | None]


class TooManyTokensError(Exception):
    """A text becomes more tokens than any tokenizer makes of it."""


class LoadedTokenizer:
    """A tokenizer whose truncation and padding are switched off.

    Args:
        tokenizer: As it was read from its file.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._find_special()

    def declare(self, tokens: Sequence[Mapping[str, Any]]) -> None:
        """Add tokens that the file lacks, in their order, as transformers does."""
        self._tokenizer.add_tokens([AddedToken(**token) for token in tokens])
        self._find_special()

    def encode(
        self,
        texts: Sequence[str],
        spans: Sequence[Sequence[int] | None] | None = None,
        *,
        add_special_tokens: bool,
    ) -> Encoded:
        """Encode texts on all cores.

        Args:
            texts: The texts.
            spans: Of each, the characters whose tokens are to be found, if any.
            add_special_tokens: Whether the tokenizer adds its own.
        """
        encode = self._tokenizer.encode_batch
        if spans is None:  # then nobody asks which characters a token stands for
            encode = self._tokenizer.encode_batch_fast
        encodings = encode(list(texts), add_special_tokens=add_special_tokens)
        token_ids: list[Sequence[int]] = []
        for text, encoding in zip(texts, encodings, strict=True):
            if len(encoding) > max_tokens(len(text)):
                raise TooManyTokensError(
                    f"it becomes {len(encoding)} tokens, more than any tokenizer "
                    "makes of it"
                )
            token_ids.append(encoding.ids)
        if spans is None:
            return token_ids, None
        both = zip(encodings, spans, strict=True)
        return token_ids, [find_tokens(encoding, span) for encoding, span in both]

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """Say what each token stands for within a text, special ones too."""
        return [self._piece(token) for token in token_ids]

    def bos_ids(self, declared: str | None) -> list[int]:
        """Find the tokens that begin a sequence: declared, or put before any text."""
        found: set[int | None] = set()
        if declared is not None:
            found.add(self._tokenizer.token_to_id(declared))
        # Of raw text; what follows it, such as the end of a sequence, is none.
        plain = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a", add_special_tokens=True).ids
        before = whole[: len(whole) - len(plain)]
        if plain and before and whole[len(before) :] == plain:
            found.add(before[0])
        return sorted(token for token in found if token is not None)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode tokens, special ones left out."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def grow(self, token_ids: Sequence[int], token: int) -> tuple[bool, str | None]:
        """Decode tokens with one more.

        Vocabularies with a byte fallback write a byte as ``<0x41>``.

        Returns:
            Whether the token adds to the text, as special tokens do not; and the text,
            or None where the token is a byte, which may be no whole character.
        """
        word = self._tokenizer.id_to_token(token)
        if word is None or word in self._special:
            return False, None
        if len(word) == 6 and word.startswith("<0x") and word.endswith(">"):
            return True, None
        return True, self.decode([*token_ids, token])

    def _piece(self, token: int) -> str:
        # Some decoders take the space off the first token of a text, so it comes twice.
        decode, word = self._tokenizer.decode, self._tokenizer.id_to_token(token)
        once = decode([token], skip_special_tokens=False)
        if once == word:
            return once
        twice = decode([token, token], skip_special_tokens=False)
        text = twice[len(once) :] if twice.startswith(once) else once
        if text and "\ufffd" not in text:
            return text
        return word or ""

    def _find_special(self) -> None:
        added = self._tokenizer.get_added_tokens_decoder().values()
        self._special = {token.content for token in added if token.special}


class Answering:
    """Answers the first request, which names the file, and those that follow."""

    def __init__(self) -> None:
        self._loaded: LoadedTokenizer | None = None

    def __call__(self, request: bytes) -> dict[str, object]:
        """Reply to a request's line."""
        try:
            return self._answer(json.loads(request), len(request))
        except Exception as error:  # noqa: BLE001
            return {"error": describe(error)}
        except BaseException as error:
            if not _is_panic(error):
                raise
            return {"error": describe(error)}

    def _answer(self, request: dict[str, Any], size: int) -> dict[str, object]:
        loaded = self._loaded
        if loaded is None:
            self._loaded = _load(request["path"], request["tokens"])
            return {}
        allow_memory(MEMORY_BYTES + REQUEST_TIMES * size)
        if "pieces" in request:
            return {"answer": loaded.pieces(unpack(request["pieces"]))}
        if "bos" in request:
            return {"answer": loaded.bos_ids(request["bos"])}
        if "token_ids" in request:
            token_ids = unpack(request["token_ids"])
            if request["token"] is None:
                return {"text": loaded.decode(token_ids)}
            written, text = loaded.grow(token_ids, request["token"])
            return {"written": written, "text": text}
        special = request["special"] is True
        return _encode(loaded, request["texts"], request.get("spans"), special)


def main() -> None:
    """Answer requests until the parent hangs up."""
    confine(MEMORY_BYTES)
    serve(Answering(), lambda size: 2 * seconds_for(size))


def describe(error: BaseException) -> str:
    """Say on one line what happened, the system's words as ster writes them."""
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.strerror} (os error {error.errno})"
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    return " ".join(str(error).split())[:4000] or type(error).__name__


def _load(path: str, tokens: list[dict[str, Any]]) -> LoadedTokenizer:
    with open(path, "rb") as file:
        data = file.read()
    allow_memory(MEMORY_BYTES + FILE_TIMES * len(data))
    loaded = LoadedTokenizer(Tokenizer.from_str(data.decode("utf-8")))
    loaded.declare(tokens)
    return loaded


def find_tokens(encoding: Encoding, span: Sequence[int] | None) -> tuple[int, int]:
    """Find the tokens that stand for some characters; (-1, -1) where none does."""
    if span is None:
        return -1, -1
    start, stop = span
    first = last = None
    while first is None and start < stop:  # white space may be part of no token
        first, start = encoding.char_to_token(start), start + 1
    while last is None and stop >= start:
        stop -= 1
        last = encoding.char_to_token(stop)
    if first is None or last is None:
        return -1, -1
    # A character may take several tokens, of which the first was found.
    while last + 1 < len(encoding):
        characters = encoding.token_to_chars(last + 1)
        if characters is None or not characters[0] <= stop < characters[1]:
            break
        last += 1
    return first, last + 1


def _encode(
    loaded: LoadedTokenizer,
    texts: list[str],
    spans: list[list[int] | None] | None,
    add_special_tokens: bool,
) -> dict[str, object]:
    """Encode texts; where the tokenizer fails, find the first text that it fails on."""
    try:
        encoded = loaded.encode(texts, spans, add_special_tokens=add_special_tokens)
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_panic(error):
            raise
        if len(texts) == 1:
            return {"error": describe(error), "text": 0}
        for number, text in enumerate(texts):
            reply = _encode(loaded, [text], None, add_special_tokens)
            if "error" in reply:
                return reply | {"text": number}
        raise
    token_ids, own = encoded
    every = chain.from_iterable(token_ids)
    reply = {"ids": pack(every), "lengths": pack(map(len, token_ids))}
    return reply if own is None else {**reply, "own": pack(chain.from_iterable(own))}


def _is_panic(error: BaseException) -> bool:
    """Tell a panic of the native code, which is a ``BaseException`` in Python."""
    return type(error).__name__ == "PanicException"
