"""``python -m ster``."""

from __future__ import annotations

from ster.cli import main

if __name__ == "__main__":
    main()
