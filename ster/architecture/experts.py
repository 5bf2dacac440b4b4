"""The experts that most families share, and where files have their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ster.architecture.blocks import BlockMaker
from ster.architecture.fields import Fields
from ster.architecture.modules import Matrix, Part, Suffixes
from ster.architecture.parts import Experts, FeedForward

# How one tensor with all experts is named: it has no ``.weight``.
BARE = Suffixes(weight="", bias="_bias")
NAMES = {"gate_proj": "gate_proj", "up_proj": "up_proj", "down_proj": "down_proj"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertMaker:
    """Makes the experts of one model: what is the same in all blocks.

    Args:
        block: What makes the blocks.
        num_experts: How many there are.
        num_chosen: How many serve a token.
        normalized: As for ``Experts``.
        intermediate_size: Of each.
        router: The router's module.
        within: What stands before ``experts``.
        names: What files call each projection where experts lie one by one.
    """

    block: BlockMaker
    num_experts: int
    num_chosen: int
    normalized: bool
    intermediate_size: int
    router: str
    within: str
    names: Mapping[str, str] = field(default_factory=lambda: NAMES)

    def make(
        self, shared: FeedForward | None = None, shared_gate: Matrix | None = None
    ) -> Experts:
        """Make the experts of a block."""
        return Experts(
            router=Matrix(
                name=self.router,
                outputs=self.num_experts,
                inputs=self.block.sizes.hidden_size,
            ),
            experts=tuple(map(self._expert, range(self.num_experts))),
            num_chosen=self.num_chosen,
            normalized=self.normalized,
            shared=shared,
            shared_gate=shared_gate,
        )

    def _expert(self, index: int) -> FeedForward:
        hidden, inner = self.block.sizes.hidden_size, self.intermediate_size
        return FeedForward(
            activation=self.block.activation,
            gate_proj=self._matrix("gate_proj", index, inner, hidden),
            up_proj=self._matrix("up_proj", index, inner, hidden),
            down_proj=self._matrix("down_proj", index, hidden, inner),
        )

    def _matrix(self, name: str, index: int, outputs: int, inputs: int) -> Matrix:
        """Say where a matrix lies: alone, with its like, or fused with another.

        The second is how mlx-lm writes it, the third how transformers 5 holds it.
        """
        fused, part = "down_proj", None
        if name != "down_proj":
            start = 0 if name == "gate_proj" else outputs
            fused, part = "gate_up_proj", Part(outputs=2 * outputs, start=start)
        alone = Matrix(
            name=f"{self.within}experts.{index}.{self.names[name]}",
            outputs=outputs,
            inputs=inputs,
        )
        stacked = replace(
            alone,
            name=f"{self.within}switch_mlp.{name}",
            stack=(index, self.num_experts),
        )
        held = f"{self.within}experts.{fused}"
        both = replace(stacked, name=held, part=part, suffixes=BARE)
        return replace(alone, others=(stacked, both))


def read_num_experts(fields: Fields, usual: int) -> int:
    """Read how many experts there are, by either name that files have for it.

    Raises:
        ConfigError: The two names say different things, or fewer than are chosen.
    """
    count = fields.count("num_local_experts", fields.count("num_experts", usual))
    if fields.has("num_experts") and fields.count("num_experts") != count:
        found = fields.values["num_experts"]
        fields.refuse("num_experts", found, f"{count}, as num_local_experts")
    chosen = fields.count("num_experts_per_tok", 1)
    if chosen > count:
        fields.refuse("num_experts_per_tok", chosen, f"{count} at most, all experts")
    return count
