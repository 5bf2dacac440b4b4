"""How clearly a model's routers choose, and the seed of a model where all do.

Which experts a token takes is not continuous: where two scores are near, a run at
another width may take the other expert, and rightly so. A case with experts has no
such token, so that its numbers hold at every width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.checkpoints import Config, Tensors, make_tensors, random_ids
from tests.expert_families import EXPERT_DIFFERENCES
from tests.golden import peer
from tests.quantized import plain_twin
from tests.reference import exact, run_blocks

Vectors = Mapping[int, NDArray[Any]]

# Between the last score taken and the first left: for any token that a run at half
# width is compared at, and for those that only f32 runs are.
CLEAR, APART = 0.12, 1e-2
SEEDS = range(20, 6000)


def has_routers(config: Mapping[str, Any]) -> bool:
    """Tell whether a family has experts."""
    return config["model_type"] in EXPERT_DIFFERENCES


class Gaps:
    """Collects the smallest gap of every router that runs."""

    def __init__(self) -> None:
        self.smallest = float("inf")

    def __call__(self, router: Any, inputs: Any, output: Any) -> None:
        scores = output[0].double().sort(dim=-1, descending=True).values
        apart = scores[:, router.top_k - 1] - scores[:, router.top_k]
        self.smallest = min(self.smallest, float(apart.min()))


@contextmanager
def watched(model: Any) -> Iterator[Gaps]:
    """Watch the routers of a model."""
    gaps = Gaps()
    routers = [each for each in model.modules() if hasattr(each, "top_k")]
    routers = [each for each in routers if type(each).__name__.endswith("TopKRouter")]
    assert bool(routers) == has_routers(model.config.to_dict())
    hooks = [each.register_forward_hook(gaps) for each in routers]
    try:
        yield gaps
    finally:
        for hook in hooks:
            hook.remove()


def find_seed(
    config: Config,
    prompts: Sequence[Sequence[int]],
    middle: Sequence[int],
    steering: peer.Steering,
) -> int:
    """Return the first seed whose routers are clear about every token of a case.

    The oracle is asked, which is quick; ``watched`` tells whether it was right.
    """
    response = random_ids(12, seed=12)
    vectors = {layer: np.array(vector) for layer, vector in steering.items()}
    runs: list[tuple[Sequence[int], Vectors, float]] = [
        *((prompt, {}, CLEAR) for prompt in sorted(prompts, key=len)),
        (middle, vectors, APART),
        (response, {}, APART),
        (response, vectors, APART),
    ]
    for seed in SEEDS:
        twin, tensors = plain_twin(config, make_tensors(config, seed))
        if all(is_clear(twin, tensors, *each) for each in runs):
            return seed
    raise AssertionError("no seed is clear enough")


class Unclear(Exception):
    """A router's scores are too near each other."""


def is_clear(
    config: Config,
    tensors: Tensors,
    token_ids: Sequence[int],
    steering: Vectors,
    apart: float,
) -> bool:
    def watch(scores: NDArray[np.float64], top_k: int) -> None:
        falling = -np.sort(-scores, axis=-1)
        if (falling[:, top_k - 1] - falling[:, top_k]).min() <= apart:
            raise Unclear

    try:
        run_blocks(config, tensors, token_ids, exact, steering, watch)
    except Unclear:
        return False
    return True
