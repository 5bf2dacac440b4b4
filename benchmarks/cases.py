"""What is measured: prompts, template and layers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

NUM_FACTS = 306
SMALL = "300MB"
HONEST = "Pretend you're an honest person making statements about the world. "
UNTRUTHFUL = "Pretend you're an untruthful person making statements about the world. "


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


def make_cases(data: Path, work: Path) -> list[Case]:
    """Write the prompt sets and list the cases over them.

    Args:
        data: A folder with prompts_facts.json and pairs_honesty.json; statements made
            up here take their place where it is absent.
        work: Where the prompt sets go.
    """
    statements, sides = read_facts(data), read_pairs(data)
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


def read_facts(data: Path) -> list[str]:
    """Read the statements, or make some up."""
    path = data / "prompts_facts.json"
    if not path.is_file():
        return made_up_facts()
    prompts: list[str] = json.loads(path.read_bytes())["prompts"]
    return prompts


def read_pairs(data: Path) -> list[str]:
    """Read both sides of every pair, pair by pair, or make them of the statements."""
    path = data / "pairs_honesty.json"
    if path.is_file():
        pairs = json.loads(path.read_bytes())["pairs"]
        return [pair[side] for pair in pairs for side in ("positive", "negative")]
    return [
        persona + fact for fact in read_facts(data) for persona in (HONEST, UNTRUTHFUL)
    ]


def made_up_facts() -> list[str]:
    """Make true statements of 14 to 30 tokens that share few beginnings."""
    facts = [
        (
            f"{a} people with {b} baskets of apples each carry {a * b} baskets.",
            f"If a train leaves at {a} o'clock and travels for {b} hours without a "
            f"stop, it arrives {b} hours after it left, wherever it was going.",
            f"The sum of {a} and {b} is {a + b}, and their product is {a * b}.",
        )[(a + b) % 3]
        for a in range(2, 20)
        for b in range(3, 20)
    ]
    return facts[:NUM_FACTS]
