"""From prompts to token ids: the checkpoint's tokenizer, with its template or without.

The only module that imports tokenizers, whose panics and warnings end here.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from tokenizers import Tokenizer

from ster.checkpoint.template.chat import ChatTemplate, Conversation, LightFiles
from ster.errors import PromptError, SterError, TokenizerError, UsageError
from ster.reporting import Reporter
from ster.text import quoted

NOTES = {
    "applied": (
        "applying the model's own chat template to every prompt and completion"
    ),
    "absent": (
        "this model publishes no chat template, "
        "so prompts and completions are encoded as raw text"
    ),
    "off": "chat template off, so prompts and completions are encoded as raw text",
}
# Enough to keep all cores busy; more would only hold memory and keep Ctrl-C waiting.
_BATCH_SIZE = 1024

# How vocabularies with a byte fallback spell a byte that is no part of a known word.
_BYTE = re.compile(r"<0x..>")
# What decoders write for bytes that are no character, or not yet.
_REPLACEMENT = "\ufffd"

_stderr_lock = threading.Lock()


def _renew_lock() -> None:
    """Give a forked child a lock of its own: whoever held it is not there."""
    global _stderr_lock
    _stderr_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class TokenizerFiles(LightFiles, Protocol):
    """What loading asks of a checkpoint's files."""

    def require_tokenizer(self) -> Path:
        """Return the path of tokenizer.json, or refuse the checkpoint."""


class Encoder:
    """Turns prompts into the token ids that the model is to read.

    Args:
        tokenizer: Neither truncates nor pads.
        template: Wraps a prompt as a user's message; None encodes it as it is.
        label: How the documents call that: ``applied``, ``absent`` or ``off``.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, label: str
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.chat_template = label

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Encode each prompt, under a template as the one message of a user.

        Raises:
            PromptError: A prompt cannot be tokenized or gives no tokens.
            TemplateError: The template refuses a prompt.
        """
        if self._template is None:
            return self._tokenize(prompts, add_special_tokens=True)
        chats: list[Conversation] = [
            ({"role": "user", "content": prompt},) for prompt in prompts
        ]
        texts = self._template.render(chats, add_generation_prompt=True)
        # The template spells the special tokens itself.
        return self._tokenize(texts, add_special_tokens=False)

    def encode_conversations(
        self, conversations: Sequence[Conversation]
    ) -> list[list[int]]:
        """Encode turns that the model is to answer; raw, the last one's text alone.

        Raises:
            PromptError: They cannot be tokenized or give no tokens.
            TemplateError: The template refuses them.
        """
        if self._template is None:
            texts = [turns[-1]["content"] for turns in conversations]
            return self._tokenize(texts, add_special_tokens=True)
        texts = self._template.render(conversations, add_generation_prompt=True)
        return self._tokenize(texts, add_special_tokens=False)

    def encode_response(self, text: str) -> list[int]:
        """Encode a whole response: under a template, an assistant's turn alone.

        Raises:
            PromptError: It cannot be tokenized or gives no tokens.
            TemplateError: The template refuses it.
        """
        if self._template is None:
            return self._tokenize([text], add_special_tokens=True)[0]
        turn: Conversation = ({"role": "assistant", "content": text},)
        texts = self._template.render([turn], add_generation_prompt=False)
        return self._tokenize(texts, add_special_tokens=False)[0]

    def encode_responses(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode whole responses, each as ``encode_response`` does, all at once."""
        if self._template is None:
            return self._tokenize(texts, add_special_tokens=True)
        turns: list[Conversation] = [
            ({"role": "assistant", "content": text},) for text in texts
        ]
        rendered = self._template.render(turns, add_generation_prompt=False)
        return self._tokenize(rendered, add_special_tokens=False)

    def open_text(self) -> GeneratedText:
        """Start a text that is to grow by generated tokens."""
        return GeneratedText(self._tokenizer)

    def _tokenize(
        self, texts: Sequence[str], *, add_special_tokens: bool
    ) -> list[list[int]]:
        token_ids: list[list[int]] = []
        for start in range(0, len(texts), _BATCH_SIZE):
            batch = list(texts[start : start + _BATCH_SIZE])
            token_ids += _encode_batch(self._tokenizer, batch, add_special_tokens)
        if not all(token_ids):
            raise PromptError("tokenizer produced no tokens")
        return token_ids


class GeneratedText:
    """Text that grows by tokens; what may still change is held back.

    A character may take several tokens, a run of byte tokens is read as a whole, and
    the last word's spaces may depend on the next. So what two tokens in a row leave as
    it is counts as certain.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder().values()
        self._special = {token.content for token in added if token.special}
        self._token_ids: list[int] = []
        self._before = ""
        self._given = ""

    def add(self, token: int) -> str:
        """Add a token; return the text that has become certain, perhaps none.

        Raises:
            PromptError: The token cannot be decoded.
        """
        word = self._tokenizer.id_to_token(token)
        if word is None or word in self._special:
            return ""  # decoding passes over it, as if it had never been there
        self._token_ids.append(token)
        if _BYTE.fullmatch(word):
            return ""
        whole, before = self._decode(), self._before
        self._before = whole
        end = min(_common_length(before, whole), len(whole.rstrip(_REPLACEMENT)))
        if not whole[:end].startswith(self._given):
            return ""
        piece = whole[len(self._given) : end]
        self._given += piece
        return piece

    def rest(self) -> str:
        """Return what was held back until the end."""
        whole = self._decode()
        return whole[_common_length(self._given, whole) :]

    def _decode(self) -> str:
        with _failures(_undecodable):
            return self._tokenizer.decode(self._token_ids, skip_special_tokens=True)


def _common_length(text: str, longer: str) -> int:
    """Count the characters that two texts begin with alike."""
    if longer.startswith(text):
        return len(text)  # nearly always, and fast
    return next(n for n, letter in enumerate(text) if longer[n : n + 1] != letter)


def load_encoder(
    files: TokenizerFiles, chat_template: str, reporter: Reporter
) -> Encoder:
    """Load the tokenizer, then the template that the run uses, and say which it is.

    Args:
        files: The checkpoint's.
        chat_template: ``auto`` uses the model's own template where it has one; ``off``
            does not look for it.
        reporter: Is told once how prompts are encoded.

    Raises:
        UsageError: ``chat_template`` is another word.
        TokenizerError: The tokenizer or its config cannot be loaded.
        TemplateError: The template cannot be used.
    """
    if chat_template not in ("auto", "off"):
        mode = quoted(chat_template)
        raise UsageError(f"unknown chat template mode {mode}; expected auto or off")
    path = files.require_tokenizer()
    template, label = None, "off"
    if chat_template != "off":
        try:
            template = ChatTemplate.load(files, reporter)
        except SterError:
            load_tokenizer(path)  # what is wrong with it is said first
            raise
        label = "absent" if template is None else "applied"
    # The template's process comes up meanwhile.
    tokenizer = load_tokenizer(path)
    if template is not None:
        template.check()
    reporter.note(NOTES[label])
    return Encoder(tokenizer, template, label)


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer.json, with the truncation and padding it carries switched off.

    Raises:
        TokenizerError: The file cannot be read or is no tokenizer.
    """
    with _failures(lambda detail: _unloadable(path, detail)):
        tokenizer = Tokenizer.from_str(path.read_bytes().decode("utf-8"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return tokenizer


def _encode_batch(
    tokenizer: Tokenizer, texts: list[str], add_special_tokens: bool
) -> list[list[int]]:
    with _failures(_untokenizable):
        encodings = tokenizer.encode_batch_fast(
            texts, add_special_tokens=add_special_tokens
        )
    return [encoding.ids for encoding in encodings]


def _unloadable(path: Path, detail: str) -> TokenizerError:
    return TokenizerError(f"failed to load tokenizer {path}: {detail}")


def _undecodable(detail: str) -> PromptError:
    return PromptError(f"failed to decode generated tokens: {detail}")


def _untokenizable(detail: str) -> PromptError:
    return PromptError(f"failed to tokenize prompt: {detail}")


def _is_panic(error: BaseException) -> bool:
    """Tell a panic of the native code, which Python meets as no ``Exception``."""
    return type(error).__name__ == "PanicException"


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.strerror} (os error {error.errno})"
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def _failures(refusal: Callable[[str], SterError]) -> Iterator[None]:
    """Turn what tokenizers raises, panics included, into a refusal with that detail."""
    try:
        with _panics_off_stderr():
            yield
    except Exception as error:
        raise refusal(_describe(error)) from error
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise refusal(_describe(error)) from error


@contextmanager
def _panics_off_stderr() -> Iterator[None]:
    """Hold back what is written to stderr, and drop it if the work panics.

    A panic writes its trace to file descriptor 2 before Python sees an exception.
    """
    if sys.__stderr__ is None:  # then descriptor 2 may be any file
        yield
        return
    with _stderr_lock, _open_scratch() as held:
        kept = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException as error:
            if _is_panic(error):
                held.truncate(0)
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            _pass_on(held)


def _open_scratch() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "w+b")


def _pass_on(held: IO[bytes]) -> None:
    """Write to stderr what was held back from it."""
    held.seek(0)
    text = held.read()
    with suppress(OSError):
        os.write(2, text)
