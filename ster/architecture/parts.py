"""What a block is made of: attention, and a feed-forward part or experts.

Names are the checkpoint's own, relative to the block.
"""

from __future__ import annotations

from dataclasses import dataclass

from ster.architecture.modules import Matrix, Module, Norm, Values, present
from ster.architecture.rotary import QueryScaling, RopeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """How queries and keys are turned by their positions.

    Args:
        scaling: Theta, and what becomes of the frequencies.
        dim: Channels of a head that turn, in halves, from the first on.
        query_scaling: Multiplies queries, if anything does.
    """

    scaling: RopeConfig
    dim: int
    query_scaling: QueryScaling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query self-attention.

    Args:
        num_heads: Query heads.
        num_key_value_heads: Key and value heads; divides the query heads.
        head_dim: Width of one head.
        scale: Multiplies the scores.
        softcap: Scores become softcap · tanh(score / softcap).
        window: How many tokens a query sees, itself included; None sees all before it.
        rotary: None leaves queries and keys as they are.
        q_norm: Normalises queries before the rotation: each head where its size is
            ``head_dim``, else all heads as one row.
        k_norm: The same for keys.
        sinks: One score a query head, which takes its share of the attention and gives
            nothing.
    """

    q_proj: Matrix
    k_proj: Matrix
    v_proj: Matrix
    o_proj: Matrix
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    scale: float
    softcap: float | None = None
    window: int | None = None
    rotary: Rotary | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    sinks: Values | None = None

    @property
    def query_size(self) -> int:
        """The width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """The width of all key heads together, and of all value heads."""
        return self.num_key_value_heads * self.head_dim

    @property
    def modules(self) -> tuple[Module, ...]:
        """List what it is made of."""
        parts = (self.q_proj, self.k_proj, self.v_proj, self.q_norm, self.k_norm)
        return present(*parts, self.o_proj, self.sinks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedSwiglu:
    """(u + 1) · g · σ(αg), with g at most the limit and u within it on both sides.

    Source: OpenAI 2025, gpt-oss; transformers 5.24, models/gpt_oss.
    """

    alpha: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """down(act(gate(x)) · up(x)), or down(act(up(x))) without a gate.

    Args:
        activation: ``silu``, ``gelu`` (by the error function) or ``gelu_tanh``; a
            ``ClampedSwiglu`` says how gate and up meet as well.
        gate_proj: None where there is no gate.
    """

    activation: str | ClampedSwiglu
    gate_proj: Matrix | None
    up_proj: Matrix
    down_proj: Matrix

    @property
    def intermediate_size(self) -> int:
        """The width of what down takes."""
        return self.down_proj.inputs

    @property
    def inner(self) -> tuple[Matrix, ...]:
        """Gate, if there is one, and up, which read the same input."""
        gate = () if self.gate_proj is None else (self.gate_proj,)
        return (*gate, self.up_proj)

    @property
    def widest(self) -> int:
        """The width of gate and up together."""
        return sum(each.outputs for each in self.inner)

    @property
    def modules(self) -> tuple[Module, ...]:
        """List what it is made of."""
        return present(self.gate_proj, self.up_proj, self.down_proj)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The sum over a token's chosen experts of weight · expert(x), and a shared one's.

    The router's scores go through a softmax over all experts; the largest are chosen,
    and their shares are the weights.

    Args:
        router: Makes a score for each expert.
        experts: All alike.
        num_chosen: How many serve a token.
        normalized: The weights of the chosen are divided by their sum.
        shared: Serves every token.
        shared_gate: Makes the score whose sigmoid multiplies what the shared one gives.
    """

    router: Matrix
    experts: tuple[FeedForward, ...]
    num_chosen: int
    normalized: bool
    shared: FeedForward | None = None
    shared_gate: Matrix | None = None

    @property
    def inner(self) -> tuple[Matrix, ...]:
        """Gate and up of the widest part, which read the same input."""
        return self._widest_part.inner

    @property
    def intermediate_size(self) -> int:
        """The width of what the widest part's down takes."""
        return self._widest_part.intermediate_size

    @property
    def widest(self) -> int:
        """The width of gate and up together."""
        return self._widest_part.widest

    @property
    def _widest_part(self) -> FeedForward:
        first, shared = self.experts[0], self.shared
        return first if shared is None or shared.widest < first.widest else shared

    @property
    def common(self) -> tuple[Module, ...]:
        """List what serves every token."""
        shared = () if self.shared is None else self.shared.modules
        return present(self.router, *shared, self.shared_gate)

    @property
    def modules(self) -> tuple[Module, ...]:
        """List what it is made of."""
        return (*self.common, *(each for one in self.experts for each in one.modules))
