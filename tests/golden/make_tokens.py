"""Make the golden files of all tokens of a prompt. Run by hand, see README.md.

    python -m tests.golden.make_tokens [CASE ...]

Configs, seeds and prompts are those of the cases' own golden files, whose rows have to
come out again at the last token.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints import make_tensors, write_checkpoint
from tests.golden import peer
from tests.golden.golden import fingerprint, read_golden, write_document
from tests.golden.tokens import CASES, FOLDER

PLAIN_TOKENS = 9


def main() -> None:
    """Make the cases that are named, or all."""
    for name in sys.argv[1:] or CASES:
        write_document(FOLDER / f"{name}.json", tokens_document(name))


def tokens_document(name: str) -> dict[str, Any]:
    """Run one prompt of a case."""
    golden = read_golden(name)
    tensors = make_tensors(golden.config, golden.seed)
    assert fingerprint(tensors) == golden.fingerprint
    number, prompt = next(
        each for each in enumerate(golden.prompts) if len(each[1]) == PLAIN_TOKENS
    )
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), golden.config, tensors=tensors)
        run = peer.run(peer.open_model(Path(folder)), prompt)
    known = golden.residuals[number]
    # Norms and softmax are float32, so another machine rounds otherwise.
    assert np.abs(run.residuals - known).max() < 1e-6 * np.abs(known).max()
    return {
        "fingerprint": golden.fingerprint,
        "token_ids": list(prompt),
        "streams": peer.shortest(run.streams),
    }


if __name__ == "__main__":
    main()
