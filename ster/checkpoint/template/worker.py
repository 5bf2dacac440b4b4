"""Render one chat template in a process of its own: the child of ``process``.

A template comes with the checkpoint, so it is a stranger's program, and this process
may use little memory and time. This module imports jinja2 and ``sandbox`` beside
``limits`` only, to start quickly.
"""

from __future__ import annotations

import json
import random
import re
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes

from ster.checkpoint.confined.limits import confine, serve
from ster.checkpoint.template.sandbox import (
    MissingTokenError,
    Sandbox,
    TooLargeError,
    make_sandbox,
)

MEMORY_BYTES = 640 << 20
# A backstop: the parent's deadline is earlier.
ALARM_SECONDS = 15
# Characters that a template may write beside its own text and that of the request, some
# 15,000 tokens: what templates compute, such as dates and lists of tools, is far less.
MAX_ADDED = 1 << 16
# How often it may write its own text and the request's; escaped text is longer.
MAX_TIMES = 4

_ADDRESS = re.compile(r"0x[0-9a-f]{6,16}")


class UnstableError(Exception):
    """A template writes what differs from run to run."""


class Renderer:
    """One template, ready to render.

    Args:
        template: Its source.
        special_tokens: Texts by name, bos_token among them; one that is declared as
            null is None, and renders as nothing.
        template_args: Its other variables, by name.
    """

    def __init__(
        self,
        template: str,
        special_tokens: dict[str, str | None],
        template_args: dict[str, object] | None = None,
    ) -> None:
        self.read_clock = False
        sandbox = make_sandbox()
        sandbox.globals["strftime_now"] = self._strftime_now
        self._template = sandbox.from_string(template)
        self._variables: dict[str, object] = {"tools": None, "documents": None}
        for name, text in special_tokens.items():
            absent = jinja2.Undefined(name=name)
            self._variables[name] = absent if text is None else text
        self._variables |= template_args or {}
        self._own_text = template + json.dumps(template_args, ensure_ascii=False)
        self.unread_args = sorted(set(template_args or ()) - _names(sandbox, template))

    def render(
        self, messages: list[dict[str, Any]], add_generation_prompt: bool, given: str
    ) -> str:
        """Render one conversation, unless it grows out of all proportion.

        Args:
            messages: The turns.
            add_generation_prompt: Whether to open the assistant's next turn.
            given: All that was sent, as text.
        """
        max_text = MAX_ADDED + MAX_TIMES * (len(given) + len(self._own_text))
        # The filter `random` has to choose the same in every run.
        random.seed(0)
        pieces: list[str] = []
        length = 0
        variables = self._variables | {
            "messages": messages,
            "add_generation_prompt": add_generation_prompt,
        }
        for piece in self._template.generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > max_text:
                raise TooLargeError("it writes more text than any model takes")
        text = "".join(pieces)
        self._refuse_addresses(text, given)
        return text

    def _refuse_addresses(self, text: str, given: str) -> None:
        """Refuse a text with an object's address, which differs from run to run."""
        found = set(_ADDRESS.findall(text.lower()))
        known = self._own_text + given if found else ""
        if not found <= set(_ADDRESS.findall(known.lower())):
            raise UnstableError(
                "it writes where an object lies in memory, which differs in every run"
            )

    def reply(self, request: bytes) -> dict[str, object]:
        """Reply to a request's line with a text."""
        text = self.render(**json.loads(request), given=request.decode("ascii"))
        return {"text": text, "clock": self.read_clock, "unread": self.unread_args}

    def _strftime_now(self, format: str) -> str:
        self.read_clock = True
        return datetime.now().strftime(format)


class Answering:
    """Answers the first request, which brings the template, and those that follow."""

    def __init__(self) -> None:
        self._renderer: Renderer | None = None

    def __call__(self, request: bytes) -> dict[str, object]:
        """Reply to a request's line."""
        stage = "parse" if self._renderer is None else "render"
        try:
            if self._renderer is not None:
                return self._renderer.reply(request)
            self._renderer = Renderer(**json.loads(request))
        except Exception as error:  # noqa: BLE001
            return _refusal(stage, error)
        return {}


def main() -> None:
    """Answer requests until the parent hangs up."""
    confine(MEMORY_BYTES)
    serve(Answering(), lambda _: ALARM_SECONDS)


def _names(sandbox: Sandbox, template: str) -> set[str]:
    """Collect the names that a template uses."""
    return {node.name for node in sandbox.parse(template).find_all(nodes.Name)}


def _refusal(stage: str, error: Exception) -> dict[str, object]:
    """Say what went wrong and when; the parent cuts it to one line."""
    text = str(error)
    if not isinstance(error, jinja2.TemplateError):
        text = text or type(error).__name__
    if isinstance(error, MissingTokenError):
        stage = "token"
    elif isinstance(error, MemoryError):
        stage, text = "render", "it needs too much memory"
    elif isinstance(error, jinja2.TemplateSyntaxError):
        text = f"{error.message} (line {error.lineno})"
    return {"error": stage, "text": text[:4000]}
