"""From prompts to token ids: the checkpoint's tokenizer, with its template or without.

Both come from strangers, so each runs in a confined process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ster.checkpoint.confined.process import start_ahead as start_process_ahead
from ster.checkpoint.template.arguments import check_template_args
from ster.checkpoint.template.chat import ChatTemplate, Conversation, TemplateRefusal
from ster.checkpoint.template.process import PROGRAM as TEMPLATE
from ster.checkpoint.tokenizer_config import (
    LightFiles,
    TokenizerConfig,
    read_tokenizer_config,
)
from ster.checkpoint.tokens.bounds import TokenIds
from ster.checkpoint.tokens.generated import GeneratedText
from ster.checkpoint.tokens.process import PROGRAM as TOKENIZER
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
from ster.errors import (
    PromptError,
    SterError,
    TemplateError,
    TokenizerError,
    UsageError,
)
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
_WAY_OUT = "--chat-template off encodes raw text"


class TokenizerFiles(LightFiles, Protocol):
    """What loading asks of a checkpoint's files."""

    def require_tokenizer(self) -> Path:
        """Return the path of tokenizer.json, or refuse the checkpoint."""


class Encoder:
    """Turns prompts into the token ids that the model is to read.

    Args:
        tokenizer: Of the checkpoint.
        template: Wraps a prompt as a user's message; None encodes it as it is.
        label: What documents say of the template: ``applied``, ``absent`` or ``off``.
    """

    def __init__(
        self, tokenizer: TokenizerProcess, template: ChatTemplate | None, label: str
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.chat_template = label

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
        return self._encode("user", texts, match_prompts(texts, prompts))

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
        for turns in conversations:
            refuse_what_is_no_text([turn["content"] for turn in turns])
        if self._template is None:
            refuse_several_turns(conversations, self.chat_template)
            texts = [turns[-1]["content"] for turns in conversations]
            return self._tokenize(split_texts(texts), add_special_tokens=True)
        return self._render(self._template, conversations)

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
        without = ALONE
        try:
            token_ids = self._encode("assistant", texts, known)
        except TemplateRefusal as refusal:
            if None not in known:
                raise _out_of_forms(refusal, _WAY_OUT) from refusal
            token_ids, without = self._encode_after(texts, known, refusal), AFTER_EMPTY
        forms = (without if prompt is None else AFTER_PROMPT for prompt in known)
        return EncodedResponses(
            token_ids=token_ids,
            forms=tuple(forms),
            starts=self._find_starts(token_ids, known),
        )

    def encode_response(self, text: str) -> list[int]:
        """Encode one whole response, as ``encode_responses`` does."""
        return self.encode_responses([text]).token_ids[0].tolist()

    def open_text(self) -> GeneratedText:
        """Start a text that is to grow by generated tokens."""
        return GeneratedText(self._tokenizer)

    def _encode(
        self, role: str, texts: Sequence[str], prompts: Sequence[str | None]
    ) -> list[TokenIds]:
        """Encode texts, those with a prompt as answers to it, the others as a role's.

        Without a template an answer follows its prompt as one text.
        """
        both = list(zip(prompts, texts, strict=True))
        if self._template is None:
            joined = [join(asked, text) for asked, text in both]
            return self._tokenize(split_texts(joined), add_special_tokens=True)
        chats: list[Conversation] = [
            (_turn(role, text),)
            if asked is None
            else (_turn("user", asked), _turn("assistant", text))
            for asked, text in both
        ]
        return self._render(self._template, chats)

    def _encode_after(
        self,
        texts: Sequence[str],
        prompts: Sequence[str | None],
        alone: TemplateRefusal,
    ) -> list[TokenIds]:
        """Encode responses after their prompts, or after a turn that is empty."""
        try:
            return self._encode("assistant", texts, [asked or "" for asked in prompts])
        except TemplateRefusal as refusal:
            if prompts[(refusal.prompt or 1) - 1] is not None:
                raise _out_of_forms(refusal, _WAY_OUT) from refusal
            raise _out_of_forms(
                refusal,
                f"an assistant's turn alone is refused too: {alone.sentence}",
                f"a pair's prompt goes before its answers; {_WAY_OUT}",
            ) from refusal

    def _find_starts(
        self, token_ids: Sequence[TokenIds], prompts: Sequence[str | None]
    ) -> tuple[int, ...]:
        """Find the first token of each answer: there it parts from its prompt alone."""
        asked = list(dict.fromkeys(each for each in prompts if each is not None))
        before = dict(zip(asked, self.encode(asked), strict=True))
        return find_starts(
            token_ids, [None if each is None else before[each] for each in prompts]
        )

    def _render(
        self, template: ChatTemplate, chats: Sequence[Conversation]
    ) -> list[TokenIds]:
        """Render and tokenize batch by batch, so that texts are dropped soon."""
        # The template writes the special tokens itself.
        return self._tokenize(template.render_whole(chats), add_special_tokens=False)

    def _tokenize(
        self, batches: Iterable[Sequence[str]], *, add_special_tokens: bool
    ) -> list[TokenIds]:
        token_ids: list[TokenIds] = []
        for batch in batches:
            token_ids += self._tokenizer.encode(
                batch,
                add_special_tokens=add_special_tokens,
                first=len(token_ids) + 1,
            )
        for number, ids in enumerate(token_ids, start=1):
            if len(ids) == 0:
                raise PromptError("tokenizer produced no tokens", prompt=number)
        return token_ids


def load_encoder(
    files: TokenizerFiles,
    chat_template: str,
    reporter: Reporter,
    template_args: Mapping[str, object] | None = None,
) -> Encoder:
    """Load the tokenizer, then the template that the run uses, and say which it is.

    Args:
        files: The checkpoint's.
        chat_template: ``auto`` uses the model's own template where it has one; ``off``
            does not look for it.
        reporter: Is told once how prompts are encoded.
        template_args: Variables of the template, by name.

    Raises:
        UsageError: ``chat_template`` is another word; a template argument is invalid,
            or there is no template to read it.
        TokenizerError: The tokenizer or its config cannot be loaded.
        TemplateError: The template cannot be used.
    """
    if chat_template not in ("auto", "off"):
        mode = quoted(chat_template)
        raise UsageError(
            f"unknown chat template mode {mode}; expected auto or off",
            field="chat_template",
            found=chat_template,
            expected=("auto", "off"),
        )
    args = check_template_args(template_args or {})
    path = files.require_tokenizer()
    try:
        config = _read_config(files, chat_template, reporter)
        tokenizer = TokenizerProcess(path, config.declared_tokens())
        # Both processes come up at the same time.
        tokenizer.start()
        template, label = None, "off"
        if chat_template != "off":
            template = ChatTemplate.load(files, config, reporter, args)
            label = "absent" if template is None else "applied"
    except SterError:
        TokenizerProcess(path, []).check()  # a broken tokenizer is refused first
        raise
    tokenizer.check()
    if template is not None:
        template.check()
    elif args:
        raise UsageError(
            "template arguments need the model's chat template, and this run's chat "
            f"template is {label}",
            field="template_args",
            found=", ".join(args),
        )
    reporter.note(NOTES[label])
    return Encoder(tokenizer, template, label)


def start_ahead(model: str, chat_template: str) -> None:
    """Start the processes that ``load_encoder`` will need.

    Commands import array libraries while these processes come up.

    Args:
        model: A directory, or a model's id, which is not looked up here.
        chat_template: ``auto`` or ``off``.
    """
    start_process_ahead(TOKENIZER)
    if chat_template == "auto" and _may_have_template(model):
        start_process_ahead(TEMPLATE)


def _may_have_template(model: str) -> bool:
    if not os.path.isdir(model):
        return True
    if os.path.exists(os.path.join(model, "chat_template.jinja")):
        return True
    try:
        with open(os.path.join(model, "tokenizer_config.json"), "rb") as file:
            return b'"chat_template"' in file.read()
    except OSError:
        return False


def _read_config(
    files: LightFiles, chat_template: str, reporter: Reporter
) -> TokenizerConfig:
    """Read the tokenizer config; a run without template only warns of a broken one."""
    try:
        config = read_tokenizer_config(files)
        config.declared_tokens()
    except TokenizerError as error:
        if chat_template != "off":
            raise
        reporter.warn(f"{error}; so the special tokens that it declares are unknown")
        return TokenizerConfig()
    return config


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _out_of_forms(refusal: TemplateRefusal, *causes: str) -> TemplateError:
    """Make the last refusal of a response, which no other form follows."""
    return TemplateError(
        refusal.sentence, *refusal.causes, *causes, prompt=refusal.prompt
    )
