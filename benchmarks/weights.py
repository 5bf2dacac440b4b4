"""What one token reads of a decoder's weights: ``weights MODEL`` prints the counts.

A token that is written is multiplied by every matrix of every block (of experts, by
those that it chooses) and by the head, so each of their values is read once for it. Of
the embedding it reads one row, which is left out; where embedding and head are one
matrix, that is read as the head.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ster import load
from ster.architecture.modules import Matrix, Module, count_values
from ster.architecture.parts import Experts
from ster.architecture.spec import ModelSpec

# Bytes of one value as it lies in memory while a token is written.
WIDTHS = {"f32": 4, "f16": 2, "bf16": 2}
# As benchmarks.quantizer packs: codes, and for each group scale and bias in bf16.
PACKED = "4-bit"
PACKED_BITS, GROUP = 4, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenValues:
    """Values that one token reads.

    Args:
        matrices: Of matrices, which quantization packs.
        others: Of norms, biases and the like, which it leaves as they are.
    """

    matrices: int
    others: int

    def num_bytes(self, width: str) -> int:
        """Count the bytes of them at a width: f32, f16, bf16 or 4-bit."""
        if width != PACKED:
            return (self.matrices + self.others) * WIDTHS[width]
        packed_bits = self.matrices * PACKED_BITS + self.matrices // GROUP * 2 * 16
        return packed_bits // 8 + self.others * WIDTHS["bf16"]


def main() -> None:
    """Print the counts of a model, or null where its blocks are not ster's own."""
    found = token_values_of(sys.argv[1])
    print(json.dumps(None if found is None else asdict(found)))


def token_values_of(model: str) -> TokenValues | None:
    """Count for a model by its name; None where its blocks are not ster's own."""
    spec = load(model).config
    return token_values(spec) if isinstance(spec, ModelSpec) else None


def token_values(spec: ModelSpec) -> TokenValues:
    """Count what one token reads."""
    modules: list[Module] = [spec.final_norm, spec.output]
    for layer in spec.layers:
        modules += layer.common
        if isinstance(layer.feed_forward, Experts):
            chosen = layer.feed_forward.experts[: layer.feed_forward.num_chosen]
            modules += [each for one in chosen for each in one.modules]
    return count(modules)


def count(modules: Sequence[Module]) -> TokenValues:
    """Count the values of modules, of each its own share of a tensor."""
    matrices = sum(each.num_values for each in modules if isinstance(each, Matrix))
    return TokenValues(matrices=matrices, others=count_values(modules) - matrices)


if __name__ == "__main__":
    main()
