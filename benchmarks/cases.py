"""What is measured: prompts, template and layers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.real.facts import facts, voiced_pairs

SMALL = "300MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of the table.

    Args:
        key: The letter by which it is chosen.
        title: How the table names it.
        prompts: A prompt set.
        chat_template: auto or off.
        num_layers: How many of the first blocks are read; None is all.
        cut: The peer's model is cut by hand to the blocks that are read.
        batch_of: The case whose best batch size the peer takes; None measures some.
        bf16: The weights are stored in bf16.
        memory: What ster is told that it may take.
    """

    key: str
    title: str
    prompts: Path
    chat_template: str = "auto"
    num_layers: int | None = None
    cut: bool = False
    batch_of: str | None = None
    bf16: bool = False
    memory: str | None = None

    @property
    def layers(self) -> str:
        """Return the value of ``--layers``."""
        return "all" if self.num_layers is None else f"0..{self.num_layers}"


def make_cases(data: Path | None, work: Path) -> list[Case]:
    """Write the prompt sets and list the cases over them.

    Args:
        data: A folder with prompts_facts.json and pairs_honesty.json, in place of the
            sentences that the tests of a trained model have.
        work: Where the prompt sets go.
    """
    statements, sides = read_facts(data), read_sides(data)
    facts = write_prompts(work / "facts.json", statements)
    pairs = write_prompts(work / "pairs.json", sides)
    one = write_prompts(work / "one.json", ["What is the capital of France?"])
    named, layers = f"{len(statements)} facts", "layers 0..8"
    return [
        Case(key="a", title=f"{named}, template, all layers", prompts=facts),
        Case(
            key="b",
            title=f"{named}, raw, all layers",
            prompts=facts,
            chat_template="off",
        ),
        Case(
            key="c",
            title=f"{len(sides) // 2} pairs, template, all layers",
            prompts=pairs,
        ),
        Case(
            key="d",
            title=f"{named}, template, {layers}",
            prompts=facts,
            num_layers=8,
            batch_of="a",
        ),
        Case(
            key="x",
            title=f"{named}, template, {layers}, the script cut to 8 blocks by hand",
            prompts=facts,
            num_layers=8,
            cut=True,
            batch_of="a",
        ),
        Case(key="e", title="one prompt, template, all layers", prompts=one),
        Case(
            key="f",
            title=f"as (a), weights stored bf16, --memory {SMALL}",
            prompts=facts,
            batch_of="a",
            bf16=True,
            memory=SMALL,
        ),
    ]


def write_prompts(path: Path, prompts: list[str]) -> Path:
    """Write a prompt set."""
    path.write_text(json.dumps({"prompts": prompts}), encoding="utf-8")
    return path


def read_facts(data: Path | None) -> list[str]:
    """Take the tests' own statements, or a folder's."""
    if data is None:
        return facts()
    prompts: list[str] = json.loads((data / "prompts_facts.json").read_bytes())[
        "prompts"
    ]
    return prompts


def read_sides(data: Path | None) -> list[str]:
    """List both sides of every pair, pair by pair."""
    if data is None:
        return [side for pair in voiced_pairs() for side in pair]
    pairs = json.loads((data / "pairs_honesty.json").read_bytes())["pairs"]
    return [pair[side] for pair in pairs for side in ("positive", "negative")]
