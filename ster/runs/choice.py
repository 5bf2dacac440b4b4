"""Which checkpoint is opened, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ster.errors import require_string


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """What a person chooses before a checkpoint is opened; words as they were given.

    Args:
        model: A directory, or the id of a model on the Hugging Face Hub.
        revision: Branch, tag or commit on the Hub.
        device: Where to compute.
        precision: The width of the weights and of what products take.
        chat_template: ``auto`` or ``off``.
        template_args: Variables of the chat template, by name.
        memory: Bytes that the process may take; None is a share of what is free.
        verbose: Say how a run is planned.

    Raises:
        UsageError: A word is no string, or an argument of the template has no name.
    """

    model: str
    revision: str | None = None
    device: str = "cpu"
    precision: str = "f32"
    chat_template: str = "auto"
    template_args: Mapping[str, object] = field(default_factory=dict)
    memory: int | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no string; unknown words are refused where they are used."""
        for name in ("model", "device", "precision", "chat_template"):
            require_string(getattr(self, name), name)
        if self.revision is not None:
            require_string(self.revision, "revision")
        for name in self.template_args:
            require_string(name, "the name of a template argument")
