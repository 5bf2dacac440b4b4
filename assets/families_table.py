"""Write the table of docs/models.md anew: ``python -m assets.families_table``."""

from __future__ import annotations

from pathlib import Path

from ster.architecture.catalogue import markdown_table

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
BEGIN = "<!-- families: python -m assets.families_table -->\n"
END = "<!-- /families -->"


def with_table(text: str) -> str:
    """Put the table of today between the marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{markdown_table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
