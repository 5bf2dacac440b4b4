"""Activations and their documents, made for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ster.documents.activations.description import Description
from ster.documents.activations.files import open_writer
from ster.documents.activations.read_tokens import ReadTokens
from ster.documents.activations.value import Activations

Piece = np.ndarray | tuple[Any, ...] | Callable[[], object]


def described(**parts: Any) -> Description:
    """Describe a row of one prompt at layer 0, of width 2, unless told otherwise."""
    whole: dict[str, Any] = {"prompts": ("a",), "layers": (0,), "model": "m"}
    return Description(**({**whole, "hidden_size": 2} | parts))


def write_pieces(path: Path, description: Description, *pieces: Piece, **how: Any):
    """Write rows piece by piece: an array, one for each point, or what is called."""
    with open_writer(path, description, **how) as writer:
        for piece in pieces:
            if callable(piece):
                piece()
            else:
                writer.write(*piece if isinstance(piece, tuple) else [piece])


def read_tokens(counts: tuple[int, ...] = (3, 2)) -> ReadTokens:
    """Say that the first tokens of prompts were read, so many of each; two are more."""
    index = np.repeat(np.arange(len(counts)), counts)
    position = np.concatenate([np.arange(count) for count in counts])
    return ReadTokens(
        prompt_index=index,
        position=position,
        token_id=100 + position,
        text=tuple(f"é{at}\n" for at in position),
        in_template=position == 0,
        num_tokens=np.array(counts) + 2,
        num_bos=np.array(counts) % 2,
    )


def whole_activations(points: tuple[str, ...] = ("resid_post",)) -> Activations:
    """Make activations with everything that a document can say of them."""
    draw = np.random.default_rng(7)
    first, *others = [draw.normal(size=(5, 2, 3)).astype(np.float32) for _ in points]
    return Activations(
        array=first,
        others=dict(zip(points[1:], others, strict=True)),
        points=points,
        layers=(2, 10),
        prompts=("one 🦙\n", "two"),
        model='a/"b"',
        model_revision="main",
        hidden_size=3,
        read="all",
        tokens=read_tokens(),
        labels={"kind": ("x", None), "score": (1.5, -2)},
        precision="f16",
        chat_template="applied",
    )
