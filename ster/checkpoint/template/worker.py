"""Render one chat template in a process of its own: the child of ``process``.

A template comes with the checkpoint, so it is a stranger's program, and this process
may use little memory and time. Requests and replies are JSON, one a line. It imports
jinja2 and ``sandbox`` only, to start quickly, and nothing imports it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime
from typing import Any

import jinja2

from ster.checkpoint.template.sandbox import (
    MAX_TEXT,
    MissingTokenError,
    TooLargeError,
    make_sandbox,
)

MEMORY_BYTES = 640 << 20
# A backstop for when nobody is left to enforce the deadline of the parent.
ALARM_SECONDS = 15
OUT_OF_MEMORY = 86


class Renderer:
    """One template, ready to render.

    Args:
        template: Its source.
        special_tokens: Names and texts, bos_token among them.
    """

    def __init__(self, template: str, special_tokens: dict[str, str]) -> None:
        self.read_clock = False
        sandbox = make_sandbox()
        sandbox.globals["strftime_now"] = self._strftime_now
        self._template = sandbox.from_string(template)
        self._special_tokens: dict[str, object] = dict(special_tokens)

    def render(
        self, messages: list[dict[str, Any]], add_generation_prompt: bool, max_text: int
    ) -> str:
        """Render one conversation, at most ``max_text`` characters of it."""
        # The filter `random` has to say the same in every run.
        random.seed(0)
        pieces: list[str] = []
        length = 0
        variables = self._special_tokens | {
            "messages": messages,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        for piece in self._template.generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > max_text:
                raise TooLargeError("it writes more text than any model takes")
        return "".join(pieces)

    def _strftime_now(self, format: str) -> str:
        self.read_clock = True
        return datetime.now().strftime(format)


def main() -> None:
    """Answer requests until the parent hangs up."""
    _confine()
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    renderer: Renderer | None = None
    for request in requests:
        signal.alarm(ALARM_SECONDS)
        reply: dict[str, object] = {}
        if request == b"\n":
            pass  # the parent asks whether this process is up
        elif renderer is None:
            renderer, reply = _compile(request)
        else:
            reply = _render(renderer, request)
        text = json.dumps(reply, ensure_ascii=False)
        replies.write(text.encode("utf-8", "surrogatepass") + b"\n")
        replies.flush()
        signal.alarm(0)


def _compile(request: bytes) -> tuple[Renderer | None, dict[str, object]]:
    try:
        return Renderer(**json.loads(request)), {}
    except Exception as error:  # noqa: BLE001
        return None, _refusal("parse", error)


def _render(renderer: Renderer, request: bytes) -> dict[str, object]:
    max_text = MAX_TEXT + 4 * len(request)
    try:
        text = renderer.render(**json.loads(request), max_text=max_text)
    except Exception as error:  # noqa: BLE001
        return _refusal("render", error)
    return {"text": text, "clock": renderer.read_clock}


def _refusal(stage: str, error: Exception) -> dict[str, object]:
    """Say what went wrong and when; the parent cuts it to one line."""
    text = str(error) or type(error).__name__
    if isinstance(error, MissingTokenError):
        stage = "token"
    elif isinstance(error, MemoryError):
        stage, text = "render", "it needs too much memory"
    elif isinstance(error, jinja2.TemplateSyntaxError):
        text = f"{error.message} (line {error.lineno})"
    return {"error": stage, "text": text[:4000]}


def _confine() -> None:
    """Give up what rendering does not need."""
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_AS, MEMORY_BYTES),
    ):
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))
    if sys.platform != "linux":
        # Other systems take the limit and do not enforce it.
        threading.Thread(target=_watch_memory, daemon=True).start()


def _watch_memory() -> None:
    """End this process when it holds too much memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    # What counts is the growth: some systems start the count with the parent's peak.
    limit = _peak() + MEMORY_BYTES // unit
    while _peak() < limit:
        time.sleep(0.02)
    os._exit(OUT_OF_MEMORY)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
