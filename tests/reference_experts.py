"""The oracle's experts: every token by itself, every expert that it takes in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Config = Mapping[str, Any]
Block = Mapping[str, F64]
# Told of a router's scores, (num_tokens, num_experts), and how many experts are taken.
Watch = Callable[[F64, int], None]


def watch_nothing(scores: F64, top_k: int) -> None:
    """Let the scores pass."""


def has_experts(block: Block) -> bool:
    return any(".experts." in name for name in block)


def run_experts(config: Config, block: Block, x: F64, watch: Watch) -> F64:
    """Return what the experts of a layer make of every token."""
    router = next(name for name in block if name.endswith(_ROUTERS))
    scores = x @ block[router].T
    if router.endswith("router.weight"):
        scores = scores + block["mlp.router.bias"]
    top_k = int(config["num_experts_per_tok"])
    watch(scores, top_k)
    y = np.empty_like(x)
    for token, row in enumerate(scores):
        taken = np.argsort(-row)[:top_k]
        shares = softmax(row)[taken]
        if takes_shares_of_those_taken(config):
            shares = shares / shares.sum()
        parts = [run_one(config, block, x[token], int(each)) for each in taken]
        y[token] = sum(share * part for share, part in zip(shares, parts, strict=True))
    if "mlp.shared_expert_gate.weight" in block:
        open_ = sigmoid(x @ block["mlp.shared_expert_gate.weight"].T)
        y = y + open_ * gated(block, "mlp.shared_expert.{}_proj.weight", x)
    return y


_ROUTERS = ("mlp.gate.weight", "block_sparse_moe.gate.weight", "mlp.router.weight")


def takes_shares_of_those_taken(config: Config) -> bool:
    """Tell whether the experts taken share the whole, or what all left to them."""
    if config["model_type"] in ("mixtral", "gpt_oss"):
        return True
    return bool(config.get("norm_topk_prob", False))


def run_one(config: Config, block: Block, x: F64, number: int) -> F64:
    if config["model_type"] == "gpt_oss":
        return clamped(config, block, x, number)
    if config["model_type"] == "mixtral":
        at = f"block_sparse_moe.experts.{number}."
        gate, up = x @ block[f"{at}w1.weight"].T, x @ block[f"{at}w3.weight"].T
        return gate * sigmoid(gate) * up @ block[f"{at}w2.weight"].T
    return gated(block, f"mlp.experts.{number}.{{}}_proj.weight", x)


def gated(block: Block, names: str, x: F64) -> F64:
    gate, up = x @ block[names.format("gate")].T, x @ block[names.format("up")].T
    return gate * sigmoid(gate) * up @ block[names.format("down")].T


def clamped(config: Config, block: Block, x: F64, number: int) -> F64:
    """Run an expert of gpt-oss: gate and up take turns in one matrix."""
    at, limit = "mlp.experts.", config.get("swiglu_limit", 7.0)
    both = x @ block[f"{at}gate_up_proj"][number]
    both = both + block[f"{at}gate_up_proj_bias"][number]
    gate, up = np.minimum(both[0::2], limit), np.clip(both[1::2], -limit, limit)
    gate = gate * sigmoid(config.get("swiglu_alpha", 1.702) * gate)
    y = (gate * (up + 1)) @ block[f"{at}down_proj"][number]
    made: F64 = y + block[f"{at}down_proj_bias"][number]
    return made


def softmax(row: F64) -> F64:
    powers = np.exp(row - row.max())
    shares: F64 = powers / powers.sum()
    return shares


def sigmoid(x: F64) -> F64:
    share: F64 = 1 / (1 + np.exp(-x))
    return share
