"""Reads the golden texts: checkpoints with tokenizer and template, and their numbers.

More of the same may lie in a folder beside the repository; they are run where they are,
and where they are not there is nothing to skip.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.golden.golden import TEXTS, fingerprint
from tests.golden.text_cases import TEXT_CASES, write_text_case

MODES = ("auto", "off")
BESIDE = (
    Path(os.environ.get("STER_SHARED", Path(__file__).resolve().parents[3] / "shared"))
    / "golden"
)
HANDED_OVER = (
    "llama-gqa",
    "llama-mha-f16-template-file",
    "llama3-tied-sharded",
    "mistral-window",
    "qwen2",
    "families/cohere2",
    "families/gemma",
    "families/gemma2",
    "families/gemma3",
    "families/glm4",
    "families/gpt-neox",
    "families/gpt2",
    "families/granite",
    "families/ministral3",
    "families/olmo2",
    "families/olmo3",
    "families/phi3",
    "families/smollm3",
    "families/gpt-oss",
    "families/mixtral",
    "families/qwen3-moe",
    "wide/qwen2_moe",
    "quantized/mixed36-llama-tied",
    "quantized/mxfp4-llama",
    "quantized/q4-g32-qwen3-moe",
    "quantized/q4-g64-llama",
    "quantized/q8-g32-qwen3",
)
# Nobody saw to it that no token is near a tie of two experts.
NEAR_TIES = tuple(
    f"beside/{name}"
    for name in HANDED_OVER
    if name.endswith(("moe", "mixtral", "gpt-oss"))
)
TEXT_NAMES = (
    *TEXT_CASES,
    *(f"beside/{name}" for name in HANDED_OVER if (BESIDE / name).is_dir()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What transformers makes of some texts, in one mode.

    Args:
        prompts: The texts.
        token_ids: What they are encoded to.
        residuals: At the last token, (num_prompts, num_layers, hidden_size).
        next: The likeliest token after each; None where that was not recorded.
    """

    prompts: list[str]
    token_ids: list[list[int]]
    residuals: NDArray[np.float64]
    next: list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenTexts:
    """A folder, and what it gives under its template (``auto``) and raw (``off``)."""

    directory: Path
    of: Mapping[str, Texts]


def open_texts(name: str, directory: Path) -> GoldenTexts:
    """Write a checkpoint into a directory, or take it from where it lies."""
    if name.startswith("beside/"):
        directory = BESIDE / name.removeprefix("beside/")
        document = json.loads((directory / "expected.json").read_bytes())
    else:
        made = write_text_case(directory, TEXT_CASES[name])
        document = json.loads((TEXTS / f"{name}.json").read_bytes())
        found = fingerprint(made.tensors)
        assert found == document["fingerprint"], "these are not the same weights"
    of = {mode: _texts(document[mode]) for mode in MODES}
    return GoldenTexts(directory=directory, of=of)


def _texts(records: Sequence[Mapping[str, Any]]) -> Texts:
    rows = [
        record["residuals"] if "residuals" in record else [*record["layers"].values()]
        for record in records
    ]
    followed = all("next" in record for record in records)
    return Texts(
        prompts=[record["prompt"] for record in records],
        token_ids=[record.get("token_ids", record.get("ids")) for record in records],
        residuals=np.array(rows),
        next=[record["next"] for record in records] if followed else None,
    )
