"""How a text is encoded, to be looked at."""

from __future__ import annotations

from dataclasses import dataclass

from ster.documents.activations.read_tokens import Bools, ReadTokens
from ster.documents.cards import shown_card
from ster.html import to_html
from ster.text import counted

# Longer texts are cut in the middle, where least is to be seen.
MAX_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ShownTokens:
    """The tokens of one text, and which of them are read. Its repr is a table.

    Args:
        tokens: All tokens of the text, in order.
        is_read: Which of them are read, (num_tokens,).
        read: The choice that says so, as ``--tokens`` says it.
        chat_template: How the text was encoded: applied, absent or off.
    """

    tokens: ReadTokens
    is_read: Bools
    read: str
    chat_template: str

    def __len__(self) -> int:
        """Count the tokens."""
        return len(self.tokens)

    @property
    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """The lines of the table: read or not, position, id, text, and whose it is."""
        tokens = self.tokens
        return [
            (
                "▸" if self.is_read[place] else "",
                str(place),
                str(tokens.token_id[place]),
                repr(tokens.text[place]),
                "template" if tokens.in_template[place] else "text",
            )
            for place in range(len(tokens))
        ]

    @property
    def shown_rows(self) -> list[tuple[str, str, str, str, str]]:
        """The lines of the table that are shown: of many, the first and the last."""
        rows = self.rows
        if len(rows) <= MAX_SHOWN:
            return rows
        half = MAX_SHOWN // 2
        return [*rows[:half], ("", "…", "", "", ""), *rows[-half:]]

    @property
    def summary(self) -> str:
        """One line about all of them."""
        own = len(self) - int(self.tokens.in_template.sum())
        return (
            f"{counted(len(self), 'token')}, {own} of them the text's own, "
            f"{int(self.tokens.num_bos[0])} BOS; chat template {self.chat_template}; "
            f"▸ read at tokens {self.read}"
        )

    def __repr__(self) -> str:
        """Show a table of the tokens."""
        table = [("", "position", "id", "text", "from"), *self.shown_rows]
        widths = [max(len(row[at]) for row in table) for at in range(5)]
        lines = [
            " ".join(
                cell.rjust(width) if at in (1, 2) else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        return "\n".join([self.summary, *lines])

    def _repr_html_(self) -> str:
        return to_html(shown_card(self))
