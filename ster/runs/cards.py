"""What an open checkpoint shows of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ster.html import Card
from ster.text import counted

if TYPE_CHECKING:
    from ster.runs.session import Session


def describe_session(session: Session) -> str:
    """Write on one line which model it is and how it runs."""
    spec = session.spec
    return (
        f"Runtime(model={session.files.model!r}, {spec.model_type}, "
        f"{counted(spec.num_hidden_layers, 'layer')}, "
        f"hidden_size={spec.hidden_size}, device={session.device!r}, "
        f"precision={session.precision!r}, "
        f"chat_template={session.encoder.chat_template!r})"
    )


def session_card(session: Session) -> Card:
    """Show which model it is and how it runs."""
    spec = session.spec
    return Card(
        title=f"Runtime: {session.files.model}",
        facts=[
            ("revision", session.files.revision),
            ("family", spec.model_type),
            ("layers", spec.num_hidden_layers),
            ("hidden size", spec.hidden_size),
            ("device", session.device),
            ("precision", session.precision),
            ("chat template", session.encoder.chat_template),
        ],
    )
