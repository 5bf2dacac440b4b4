"""The chat template: where it is published, which one counts, and rendering with it.

The template runs in ``process``, never here: it is somebody else's program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from ster.checkpoint.template.process import FAILED, TemplateProcess
from ster.documents.strict_json import read_json
from ster.errors import TemplateError, TokenizerError
from ster.reporting import Reporter

READS_CLOCK = (
    "this model's chat template reads the clock, so activations differ from day to day"
)
MAX_REASON = 500
# Conversations that are sent together.
MAX_ASKED = 256

Conversation = Sequence[Mapping[str, str]]

_PROBE: Conversation = ({"role": "user", "content": "Hello"},)


class LightFiles(Protocol):
    """The one thing that templates ask of a checkpoint's files."""

    def find(self, name: str) -> Path | None:
        """Return the path of a file of the checkpoint, or None where there is none."""


class ChatTemplate:
    """A model's own template; its process is started, and ``check`` asks it.

    Args:
        source: The template's text.
        special_tokens: The declared tokens by name, such as ``bos_token``.
        reporter: Hears when the template reads the clock.

    Raises:
        TemplateError: The process cannot be started.
    """

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], reporter: Reporter
    ) -> None:
        self._process = TemplateProcess(source, special_tokens)
        self._reporter = reporter
        self._reads_clock = False
        self._noted = False
        self._process.start()

    @classmethod
    def load(cls, files: LightFiles, reporter: Reporter) -> Self | None:
        """Read the template that a checkpoint publishes; None without one.

        Raises:
            TemplateError: The template cannot be read or chosen, or its process not
                started.
            TokenizerError: A tokenizer config is not what it should be.
        """
        config = _read_config(files.find("tokenizer_config.json"))
        file = files.find("chat_template.jinja")
        published = config.get("chat_template")
        source = choose_template(published) if file is None else _read_text(file)
        if source is None:
            return None
        legacy = _read_config(files.find("special_tokens_map.json"))
        tokens = special_tokens(legacy) | special_tokens(config)
        return cls(source, tokens, reporter)

    def check(self) -> None:
        """Render a user message.

        Raises:
            TemplateError: The template does not parse or does not render.
        """
        self._render([_PROBE], add_generation_prompt=True)

    def render(
        self, conversations: Sequence[Conversation], *, add_generation_prompt: bool
    ) -> list[str]:
        """Render conversations, each from its first turn on.

        Args:
            conversations: Turns of ``role`` and ``content``.
            add_generation_prompt: Whether to open the assistant's next turn.

        Raises:
            TemplateError: The template refuses one of them, or has to be stopped.
        """
        texts: list[str] = []
        for at in range(0, len(conversations), MAX_ASKED):
            part = conversations[at : at + MAX_ASKED]
            texts += self._render(part, add_generation_prompt=add_generation_prompt)
        if self._reads_clock and not self._noted:
            self._noted = True
            self._reporter.note(READS_CLOCK)
        return texts

    def _render(
        self, conversations: Sequence[Conversation], *, add_generation_prompt: bool
    ) -> list[str]:
        replies = self._process.ask(
            [
                {
                    "messages": [dict(turn) for turn in turns],
                    "add_generation_prompt": add_generation_prompt,
                }
                for turns in conversations
            ]
        )
        texts: list[str] = []
        for reply in replies:
            text = reply.get("text")
            if "error" in reply or not isinstance(text, str):
                raise _refusal(reply.get("error"), text)
            self._reads_clock |= reply.get("clock") is True
            texts.append(text)
        return texts


def choose_template(published: object) -> str | None:
    """Choose among what ``chat_template`` holds; None when it holds nothing.

    Raises:
        TemplateError: It holds no template, or several and no default.
    """
    if published is None or isinstance(published, str):
        return published
    if not isinstance(published, list):
        raise TemplateError(
            "this model's chat_template is neither a template nor a list of them"
        )
    templates = [_named_template(entry) for entry in published]
    # transformers makes a dict of the list, so the last of a name counts.
    defaults = [source for name, source in templates if name == "default"]
    if defaults:
        return defaults[-1]
    if len(templates) > 1:
        raise TemplateError(
            "this model publishes several named chat templates "
            "and none of them is the default"
        )
    return templates[0][1] if templates else None


def special_tokens(config: Mapping[str, object]) -> dict[str, str]:
    """Collect the tokens that a tokenizer config declares, by name."""
    extra = config.get("extra_special_tokens")
    declared = {n: token for n, token in config.items() if n.endswith("_token")}
    if isinstance(extra, dict):
        declared |= extra
    texts = {name: _token_text(token) for name, token in declared.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _token_text(token: object) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _named_template(entry: object) -> tuple[object, str]:
    source = entry.get("template") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(source, str):
        raise TemplateError(
            "this model's chat template list has an entry with no template"
        )
    return entry.get("name"), source


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"failed to read {path}", error) from error


def _read_config(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    try:
        config = read_json(path.read_bytes())
    except OSError as error:
        raise TokenizerError(f"failed to read {path}", error) from error
    except ValueError as error:
        raise TokenizerError(f"invalid tokenizer config {path}", error) from error
    if not isinstance(config, dict):
        raise TokenizerError(f"invalid tokenizer config {path}", "expected an object")
    return config


def _refusal(kind: object, text: object) -> TemplateError:
    """Turn the child's word on an error into a sentence; its text is a stranger's."""
    reason = _one_line(str(text))
    if kind == "token":
        return TemplateError(
            f"this model's chat template uses {reason}, "
            "but its tokenizer config declares none"
        )
    if kind == "parse":
        return TemplateError(f"this model's chat template does not parse: {reason}")
    return TemplateError(f"{FAILED}: {reason}")


def _one_line(text: str) -> str:
    """Keep words, drop line ends and what could steer a terminal, and cut it short."""
    words = " ".join(text.split())
    shown = "".join(
        c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words
    )
    return shown if len(shown) <= MAX_REASON else shown[: MAX_REASON - 1] + "…"
