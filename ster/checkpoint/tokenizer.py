"""Loading what encodes prompts: the checkpoint's tokenizer and its template.

Both come from strangers, so each runs in a confined process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ster.checkpoint.confined.process import start_ahead as start_process_ahead
from ster.checkpoint.encoder import Encoder
from ster.checkpoint.template.arguments import check_template_args
from ster.checkpoint.template.chat import ChatTemplate
from ster.checkpoint.template.process import PROGRAM as TEMPLATE
from ster.checkpoint.tokenizer_config import (
    LightFiles,
    TokenizerConfig,
    read_tokenizer_config,
)
from ster.checkpoint.tokens.process import PROGRAM as TOKENIZER
from ster.checkpoint.tokens.process import TokenizerProcess
from ster.errors import SterError, TokenizerError, UsageError, check_word
from ster.reporting import Reporter

MODES = ("auto", "off")
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


class TokenizerFiles(LightFiles, Protocol):
    """What loading asks of a checkpoint's files."""

    def require_tokenizer(self) -> Path:
        """Return the path of tokenizer.json, or refuse the checkpoint."""


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
    check_word("chat template mode", chat_template, MODES, field="chat_template")
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
    bos_token = config.special_tokens().get("bos_token")
    return Encoder(tokenizer, template, label, bos_token)


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
