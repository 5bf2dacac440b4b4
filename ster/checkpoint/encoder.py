"""From prompts to token ids: by the checkpoint's tokenizer, and by its template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ster.checkpoint.template.chat import ChatTemplate, Conversation, TemplateRefusal
from ster.checkpoint.tokens.bounds import TokenIds
from ster.checkpoint.tokens.generated import GeneratedText
from ster.checkpoint.tokens.located import FindText, LocatedTexts, Span
from ster.checkpoint.tokens.process import TokenizerProcess
from ster.checkpoint.tokens.responses import (
    AFTER_EMPTY,
    AFTER_PROMPT,
    ALONE,
    EncodedResponses,
    find_starts,
    join,
    match_prompts,
)
from ster.checkpoint.tokens.texts import (
    refuse_several_turns,
    refuse_what_is_no_text,
    split_texts,
)
from ster.errors import PromptError, TemplateError, check_word

_WAY_OUT = "--chat-template off encodes raw text"
# Whose turn a text without a prompt may be.
ROLES = ("user", "assistant")


class Encoder:
    """Turns prompts into the token ids that the model is to read.

    Args:
        tokenizer: Of the checkpoint.
        template: Wraps a prompt as a user's message; None encodes it as it is.
        label: What documents say of the template: ``applied``, ``absent`` or ``off``.
        bos_token: The declared token that begins a sequence, if there is one.
    """

    def __init__(
        self,
        tokenizer: TokenizerProcess,
        template: ChatTemplate | None,
        label: str,
        bos_token: str | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.chat_template = label
        self._bos_token = bos_token
        self._bos_ids: frozenset[int] | None = None

    def encode(
        self, texts: Sequence[str], prompts: Sequence[str | None] | None = None
    ) -> list[TokenIds]:
        """Encode each text, under a template as the one message of a user.

        A text with a prompt is the assistant's answer to it.

        Args:
            texts: The texts.
            prompts: What each of them answers, if anything.

        Raises:
            PromptError: A text cannot be tokenized or gives no tokens.
            TemplateError: The template refuses a text, or drops it.
        """
        return [*self.encode_texts(texts, prompts, locate=False).token_ids]

    def encode_texts(
        self,
        texts: Sequence[str],
        prompts: Sequence[str | None] | None = None,
        *,
        role: str = "user",
        locate: bool = True,
    ) -> LocatedTexts:
        """Encode texts, and tell which tokens are theirs.

        Args:
            texts: The texts.
            prompts: What each of them answers, if anything.
            role: ``user``: a text without a prompt is a user's message. ``assistant``:
                it is an answer, as ``encode_responses`` encodes them.
            locate: Whether to tell; else no text's own tokens are known.

        Raises:
            PromptError: As for ``encode``.
            TemplateError: As for ``encode``.
            UsageError: There is no such role.
        """
        check_word("role", role, ROLES)
        known = match_prompts(texts, prompts)
        if role == "assistant":
            return self._encode_answers(texts, known, locate=locate)[0]
        return self._encode(role, texts, known, locate=locate)

    def encode_conversations(
        self, conversations: Sequence[Conversation]
    ) -> list[TokenIds]:
        """Encode conversations; unless it spoke last, the assistant's turn is opened.

        Without a template a conversation of one turn is its text.

        Raises:
            PromptError: One cannot be tokenized or gives no tokens, or has several
                turns and there is no template.
            TemplateError: The template refuses one, or drops its last turn.
        """
        return [*self.locate_conversations(conversations, locate=False).token_ids]

    def locate_conversations(
        self, conversations: Sequence[Conversation], *, locate: bool = True
    ) -> LocatedTexts:
        """Encode conversations, and tell which tokens are their last turn's text.

        Raises:
            PromptError: As for ``encode_conversations``.
            TemplateError: As for ``encode_conversations``.
        """
        for turns in conversations:
            refuse_what_is_no_text([turn["content"] for turn in turns])
        if self._template is None:
            refuse_several_turns(conversations, self.chat_template)
            texts = [turns[-1]["content"] for turns in conversations]
            return self._tokenize_raw(texts, texts, locate=locate)
        return self._render(self._template, conversations, locate=locate)

    def encode_responses(
        self, texts: Sequence[str], prompts: Sequence[str | None] | None = None
    ) -> EncodedResponses:
        """Encode whole responses: after their prompt, or as an assistant's turn alone.

        Where the template refuses to render one of them alone, each that has no prompt
        follows an empty turn of a user.

        Args:
            texts: The responses.
            prompts: What each of them answers, where that is known.

        Raises:
            PromptError: One cannot be tokenized or gives no tokens.
            TemplateError: The template refuses it in every form, or drops it.
        """
        known = match_prompts(texts, prompts)
        located, without = self._encode_answers(texts, known)
        forms = (without if prompt is None else AFTER_PROMPT for prompt in known)
        return EncodedResponses(
            token_ids=located.token_ids,
            forms=tuple(forms),
            starts=self.find_starts(located.token_ids, known),
        )

    def encode_response(self, text: str) -> list[int]:
        """Encode one whole response, as ``encode_responses`` does."""
        return self.encode_responses([text]).token_ids[0].tolist()

    def open_text(self) -> GeneratedText:
        """Start a text that is to grow by generated tokens."""
        return GeneratedText(self._tokenizer)

    def token_texts(self, token_ids: Iterable[int]) -> dict[int, str]:
        """Say what tokens stand for in a text, special ones too, by their ids.

        Raises:
            PromptError: The tokenizer fails.
        """
        return self._tokenizer.token_texts(sorted(set(token_ids)))

    def count_bos(self, token_ids: TokenIds) -> int:
        """Count the tokens that begin a sequence: declared, or put before raw text.

        Raises:
            PromptError: The tokenizer fails.
        """
        if self._bos_ids is None:
            self._bos_ids = self._tokenizer.find_bos(self._bos_token)
        return sum(token in self._bos_ids for token in token_ids)

    def _encode(
        self,
        role: str,
        texts: Sequence[str],
        prompts: Sequence[str | None],
        *,
        locate: bool = False,
    ) -> LocatedTexts:
        """Encode texts, those with a prompt as answers to it, the others as a role's.

        Without a template an answer follows its prompt as one text.
        """
        both = list(zip(prompts, texts, strict=True))
        if self._template is None:
            joined = [join(asked, text) for asked, text in both]
            return self._tokenize_raw(joined, texts, locate=locate)
        chats: list[Conversation] = [
            (_turn(role, text),)
            if asked is None
            else (_turn("user", asked), _turn("assistant", text))
            for asked, text in both
        ]
        return self._render(self._template, chats, locate=locate)

    def _encode_answers(
        self,
        texts: Sequence[str],
        prompts: Sequence[str | None],
        *,
        locate: bool = False,
    ) -> tuple[LocatedTexts, str]:
        """Encode answers, and say in which form those without a prompt were."""
        try:
            return self._encode("assistant", texts, prompts, locate=locate), ALONE
        except TemplateRefusal as refusal:
            if None not in prompts:
                raise _out_of_forms(refusal, _WAY_OUT) from refusal
            located = self._encode_after(texts, prompts, refusal, locate=locate)
            return located, AFTER_EMPTY

    def _encode_after(
        self,
        texts: Sequence[str],
        prompts: Sequence[str | None],
        alone: TemplateRefusal,
        *,
        locate: bool,
    ) -> LocatedTexts:
        """Encode responses after their prompts, or after a turn that is empty."""
        after = [asked or "" for asked in prompts]
        try:
            return self._encode("assistant", texts, after, locate=locate)
        except TemplateRefusal as refusal:
            if prompts[(refusal.prompt or 1) - 1] is not None:
                raise _out_of_forms(refusal, _WAY_OUT) from refusal
            raise _out_of_forms(
                refusal,
                f"an assistant's turn alone is refused too: {alone.sentence}",
                f"a pair's prompt goes before its answers; {_WAY_OUT}",
            ) from refusal

    def find_starts(
        self, token_ids: Sequence[TokenIds], prompts: Sequence[str | None]
    ) -> tuple[int, ...]:
        """Find the first token of each answer: there it parts from its prompt alone.

        Of a text that answers nothing it is the second.

        Raises:
            PromptError: An answer adds no token to its prompt.
        """
        asked = list(dict.fromkeys(each for each in prompts if each is not None))
        before = dict(zip(asked, self.encode(asked), strict=True))
        return find_starts(
            token_ids, [None if each is None else before[each] for each in prompts]
        )

    def _tokenize_raw(
        self, joined: Sequence[str], texts: Sequence[str], *, locate: bool
    ) -> LocatedTexts:
        """Encode texts that end with these, as the tokenizer does by itself."""

        def find(number: int, whole: str) -> Span:
            return len(whole) - len(texts[number]), len(whole)

        batches = split_texts(joined)
        find_text = find if locate else None
        return self._tokenize(batches, find_text, add_special_tokens=True)

    def _render(
        self, template: ChatTemplate, chats: Sequence[Conversation], *, locate: bool
    ) -> LocatedTexts:
        """Render and tokenize batch by batch, so that texts are dropped soon."""

        def find(number: int, rendering: str) -> Span | None:
            return template.find_last_turn(chats[number], rendering)

        # The template writes the special tokens itself.
        batches = template.render_whole(chats)
        find_text = find if locate else None
        return self._tokenize(batches, find_text, add_special_tokens=False)

    def _tokenize(
        self,
        batches: Iterable[Sequence[str]],
        find_text: FindText | None,
        *,
        add_special_tokens: bool,
    ) -> LocatedTexts:
        token_ids: list[TokenIds] = []
        own: list[Span | None] = []
        for batch in batches:
            done = len(token_ids)
            spans = None
            if find_text is not None:
                spans = [find_text(done + at, text) for at, text in enumerate(batch)]
            located = self._tokenizer.locate(
                batch,
                spans,
                add_special_tokens=add_special_tokens,
                first=done + 1,
            )
            token_ids += located.token_ids
            own += located.own
        for number, ids in enumerate(token_ids, start=1):
            if len(ids) == 0:
                raise PromptError("tokenizer produced no tokens", prompt=number)
        return LocatedTexts(token_ids=token_ids, own=own)


def _turn(role: str, content: str) -> Mapping[str, str]:
    return {"role": role, "content": content}


def _out_of_forms(refusal: TemplateRefusal, *causes: str) -> TemplateError:
    """Make the last refusal of a response, which no other form follows."""
    return TemplateError(
        refusal.sentence, *refusal.causes, *causes, prompt=refusal.prompt
    )
