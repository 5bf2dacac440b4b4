"""One chat template's process: its requests, and their bounds on time and size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ster.checkpoint.confined.process import (
    ConfinedProcess,
    ProcessFailure,
    Program,
    Reply,
)
from ster.errors import TemplateError

FAILED = "this model's chat template failed to render"
REPLY_SECONDS = 5.0
PROGRAM = Program(
    module="ster.checkpoint.template.worker",
    needs=("jinja2", "markupsafe"),
    work="renders it",
    set_up_seconds=REPLY_SECONDS,
)


class TemplateProcess:
    """Renders conversations with one template.

    Args:
        template: The source of the template.
        special_tokens: The tokens it may name, by name; None renders as nothing.
        template_args: Its other variables, by name.
    """

    def __init__(
        self,
        template: str,
        special_tokens: Mapping[str, str | None],
        template_args: Mapping[str, object] | None = None,
    ) -> None:
        setup = {
            "template": template,
            "special_tokens": dict(special_tokens),
            "template_args": dict(template_args or {}),
        }
        self.confined = ConfinedProcess(PROGRAM, setup)
        # What it may write at any request; JSON takes up to six bytes a character.
        self._free_bytes = (1 << 20) + 24 * len(json.dumps(setup))

    def start(self) -> None:
        """Start the process without waiting for it; ``ask`` waits.

        Raises:
            TemplateError: It cannot be started.
        """
        try:
            self.confined.start()
        except ProcessFailure as failure:
            raise _failed(failure) from failure.__cause__

    def ask(self, requests: Sequence[Mapping[str, object]]) -> list[Reply]:
        """Send conversations and return their replies: ``text`` or ``error``.

        Where the template does not parse, the refusal is the only reply.

        Raises:
            TemplateError: The process cannot be started, dies, or takes too long.
        """
        longest = max((len(json.dumps(request)) for request in requests), default=0)
        try:
            return self.confined.ask(
                requests,
                seconds=REPLY_SECONDS,
                max_reply_bytes=self._free_bytes + 24 * longest,
            )
        except ProcessFailure as failure:
            raise _failed(failure) from failure.__cause__

    def close(self) -> None:
        """End the process. A later ``ask`` starts another."""
        self.confined.close()


def _failed(failure: ProcessFailure) -> TemplateError:
    causes = [] if failure.__cause__ is None else [failure.__cause__]
    return TemplateError(f"{FAILED}: {failure}", *causes)
