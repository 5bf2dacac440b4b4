"""Which points a checkpoint's blocks have, asked before a weight is mapped."""

from __future__ import annotations

from collections.abc import Sequence

from ster.architecture.spec import ModelSpec
from ster.architecture.wide import WideSpec
from ster.errors import CheckpointError
from ster.points import ATTN_OUT, MLP_OUT, RESID_MID, RESID_POST, inner_points


def check_model_has(points: Sequence[str], model: ModelSpec | WideSpec) -> None:
    """Refuse points that the blocks of a checkpoint do not have.

    Args:
        points: As ``points.check_points`` returns them.
        model: What config.json says of the decoder.

    Raises:
        CheckpointError: The decoder runs as a whole, or adds both halves at once.
    """
    if isinstance(model, WideSpec):
        inner = inner_points(points)
        asked = next((point for point in points if point in inner), None)
        if asked is not None:
            raise _refusal(
                f"--points {asked} needs a family that ster computes itself; "
                f"{model.model_type} runs through mlx-lm, which shows what a layer "
                f"hands on and nothing inside it: leave out --points, or ask for "
                f"{RESID_POST}",
                asked,
                [RESID_POST],
            )
    elif RESID_MID in points and any(layer.parallel for layer in model.layers):
        raise _refusal(
            f"blocks of {model.model_type} add both halves to the stream at once, so "
            f"there is no {RESID_MID} between them; ask for {RESID_POST}, {ATTN_OUT}, "
            f"or {MLP_OUT}",
            RESID_MID,
            [RESID_POST, ATTN_OUT, MLP_OUT],
        )


def _refusal(sentence: str, found: str, expected: Sequence[str]) -> CheckpointError:
    return CheckpointError(sentence, field="points", found=found, expected=expected)
