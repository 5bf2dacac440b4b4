"""Says how far the peer's rows are from ster's: ``compare.py DOCUMENT ROWS``.

Prints the largest difference, measured by its layer's largest value.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from ster import Activations


def main() -> None:
    """Compare every row of every layer."""
    document, peer = sys.argv[1:]
    rows, expected = Activations.load(document).array, np.load(peer)
    if rows.shape != expected.shape:
        raise SystemExit(f"ster wrote rows {rows.shape}, the peer {expected.shape}")
    difference = np.abs(rows - expected).max(axis=(0, 2))
    largest = np.abs(expected).max(axis=(0, 2))
    print(json.dumps(float((difference / largest).max())))


if __name__ == "__main__":
    main()
