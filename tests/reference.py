"""The oracle: one prompt through the formulas, in float64, with nothing clever.

Written from the papers and config.json alone; it shares no code with ster. Only rotary
angles are float32, because the models were trained with angles of that width:
frequencies and products are rounded where transformers rounds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference_experts import Watch, has_experts, run_experts, watch_nothing

F64 = NDArray[np.float64]
Config = Mapping[str, Any]
Tensors = Mapping[str, NDArray[Any]]
# For some layers, a vector (hidden_size,) that is added to every position after them,
# or what makes other rows of the stream's.
Steering = Mapping[int, NDArray[Any] | Callable[[F64], F64]]
NO_STEERING: Steering = {}
# Multiplies rows by a layer's matrix of some name, and adds its bias.
Product = Callable[[Mapping[str, F64], str, F64], F64]


def exact(x: F64) -> F64:
    return x


def residuals(
    config: Config,
    tensors: Tensors,
    token_ids: Sequence[int],
    narrow: Callable[[F64], F64] = exact,
    steering: Steering = NO_STEERING,
    made: Callable[[F64], F64] = exact,
) -> F64:
    """Run one prompt.

    Args:
        config: config.json.
        tensors: By the names of the files, with ``model.`` in front.
        token_ids: The prompt.
        narrow: Rounds what has half width in a run at it: weights, the inputs of
            products, keys and values.
        steering: What is added after some layers; a layer is read before.
        made: Rounds what a product makes, before anything is added to it.

    Returns:
        The residual stream after every block, (num_layers, num_tokens, hidden_size).
    """
    return run_blocks(config, tensors, token_ids, narrow, steering, made=made)[0]


def run_blocks(
    config: Config,
    tensors: Tensors,
    token_ids: Sequence[int],
    narrow: Callable[[F64], F64],
    steering: Steering,
    watch: Watch = watch_nothing,
    made: Callable[[F64], F64] = exact,
) -> tuple[F64, F64]:
    """Return the stream after every block, and what the last one hands on."""
    linear = products(narrow, made)
    wide = {name: narrow(np.asarray(t, np.float64)) for name, t in tensors.items()}
    h = wide["model.embed_tokens.weight"][list(token_ids)]
    h = h * config.get("embedding_multiplier", 1.0)
    share = config.get("residual_multiplier", 1.0)
    turns = rotary(config, len(token_ids))
    after = []
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        block = {
            name.removeprefix(prefix): tensor
            for name, tensor in wide.items()
            if name.startswith(prefix)
        }
        before = norms_of(config, block)
        q, k, v = projections(config, block, before[0](h), layer, turns, linear)
        width, sinks = window(config, layer), block.get("self_attn.sinks")
        context = attention(q, narrow(k), narrow(v), width, config, sinks)
        h = h + share * before[1](linear(block, "self_attn.o_proj", context))
        added = feed_forward(config, block, before[2](h), watch, linear)
        h = h + share * before[3](added)
        after.append(h)
        if layer in steering:
            steer = steering[layer]
            h = steer(h) if callable(steer) else h + steer
    return np.stack(after), h


def last_rows(
    config: Config,
    tensors: Tensors,
    token_ids: Sequence[int],
    narrow: Callable[[F64], F64] = exact,
    steering: Steering = NO_STEERING,
    made: Callable[[F64], F64] = exact,
) -> F64:
    """Return the last token's residual after every block, (num_layers, hidden_size)."""
    return residuals(config, tensors, token_ids, narrow, steering, made)[:, -1]


def logits(
    config: Config,
    tensors: Tensors,
    token_ids: Sequence[int],
    steering: Steering = NO_STEERING,
) -> F64:
    """Return the scores of every token's successors, (num_tokens, vocab_size)."""
    _, h = run_blocks(config, tensors, token_ids, exact, steering)
    norm = np.asarray(tensors["model.norm.weight"], np.float64)
    tied = config.get("tie_word_embeddings", config["model_type"] == "smollm3")
    head = tensors["model.embed_tokens.weight" if tied else "lm_head.weight"]
    h = rms_norm(h, norm, config["rms_norm_eps"])
    scores: F64 = h @ np.asarray(head, np.float64).T
    return scores / float(config.get("logits_scaling", 1.0))


def log_probability(
    config: Config,
    tensors: Tensors,
    token_ids: Sequence[int],
    steering: Steering = NO_STEERING,
) -> float:
    """Sum the log-probabilities of tokens, each given those before it.

    The first has none before it and does not count.
    """
    total = 0.0
    scores = logits(config, tensors, token_ids, steering)
    for row, following in zip(scores, token_ids[1:], strict=False):
        total += row[following] - math.log(np.exp(row - row.max()).sum()) - row.max()
    return total


def norms_of(
    config: Config, block: Mapping[str, F64]
) -> tuple[Callable[[F64], F64], ...]:
    """Return what is done before and after attention, and around the feed-forward."""

    def norm(name: str) -> Callable[[F64], F64]:
        weight = block[f"{name}_layernorm.weight"]
        return lambda x: rms_norm(x, weight, config["rms_norm_eps"])

    if config["model_type"] == "olmo2":
        return exact, norm("post_attention"), exact, norm("post_feedforward")
    return norm("input"), exact, norm("post_attention"), exact


def rms_norm(x: F64, weight: F64, eps: float) -> F64:
    size: F64 = np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    return x / size * weight


def products(narrow: Callable[[F64], F64], made: Callable[[F64], F64]) -> Product:
    """Return what multiplies rows by a layer's matrix, and adds its bias."""

    def linear(block: Mapping[str, F64], name: str, x: F64) -> F64:
        y = made(narrow(x) @ block[f"{name}.weight"].T)
        return y + block[f"{name}.bias"] if f"{name}.bias" in block else y

    return linear


def feed_forward(
    config: Config,
    block: Mapping[str, F64],
    x: F64,
    watch: Watch,
    linear: Product,
) -> F64:
    if has_experts(block):
        return run_experts(config, block, x, watch)
    gate, up = linear(block, "mlp.gate_proj", x), linear(block, "mlp.up_proj", x)
    return linear(block, "mlp.down_proj", gate / (1 + np.exp(-gate)) * up)


def projections(
    config: Config,
    block: Mapping[str, F64],
    x: F64,
    layer: int,
    turns: tuple[F64, F64],
    linear: Product,
) -> tuple[F64, F64, F64]:
    """Return queries, keys and values, (num_heads, num_tokens, head_dim)."""
    eps, whole = config["rms_norm_eps"], config["model_type"] == "olmo2"

    def heads(name: str) -> F64:
        rows = linear(block, f"self_attn.{name}_proj", x)
        weight = block.get(f"self_attn.{name}_norm.weight")
        if weight is not None and whole:
            rows = rms_norm(rows, weight, eps)
        split = rows.reshape(len(x), -1, head_size(config)).swapaxes(0, 1)
        if weight is not None and not whole:
            split = rms_norm(split, weight, eps)
        return split

    q, k, v = heads("q"), heads("k"), heads("v")
    if has_rotation(config, layer):
        q, k = rotate(q, *turns), rotate(k, *turns)
    return q, k, v


def has_rotation(config: Config, layer: int) -> bool:
    """Tell whether a layer turns its queries and keys."""
    if config["model_type"] != "smollm3":
        return True
    if config.get("no_rope_layers") is not None:
        return bool(config["no_rope_layers"][layer])
    return (layer + 1) % int(config.get("no_rope_layer_interval", 4)) != 0


def attention(
    q: F64, k: F64, v: F64, width: int | None, config: Config, sinks: F64 | None
) -> F64:
    """Return the context of every token, (num_tokens, num_heads * head_dim).

    A sink is a score that every query of a head has beside those of the tokens, and
    nothing comes of what falls to it.
    """
    num_heads, num_tokens, head_dim = q.shape
    scale = 1 / math.sqrt(head_dim)
    if config["model_type"] == "granite":
        scale = config.get("attention_multiplier", 1.0)
    position = np.arange(num_tokens)
    hidden = position[None, :] > position[:, None]
    if width is not None:
        hidden |= position[None, :] <= position[:, None] - width
    context = np.empty((num_tokens, num_heads, head_dim))
    for head in range(num_heads):
        shared = head * len(k) // num_heads
        scores = q[head] @ k[shared].T * scale
        scores[hidden] = -np.inf
        largest = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - largest)
        total = weights.sum(axis=-1, keepdims=True)
        if sinks is not None:
            total += np.exp(sinks[head] - largest)
        weights /= total
        context[:, head] = weights @ v[shared]
    return context.reshape(num_tokens, -1)


def rotate(x: F64, cos: F64, sin: F64) -> F64:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def head_size(config: Config) -> int:
    explicit: int | None = config.get("head_dim")
    return explicit or config["hidden_size"] // config["num_attention_heads"]


WITH_WINDOWS = ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gpt_oss")


def window(config: Config, layer: int) -> int | None:
    """Return how many tokens a query of a layer sees."""
    family = config["model_type"]
    width: int | None = config.get("sliding_window", 4096)
    if family in ("mistral", "mixtral"):
        return width
    slides = family == "gpt_oss" or config.get("use_sliding_window", False)
    if family not in WITH_WINDOWS or not slides:
        return None
    if config.get("layer_types"):
        return width if config["layer_types"][layer] == "sliding_attention" else None
    if family == "gpt_oss":
        return None if layer % 2 else width
    if family == "qwen2_moe":
        below = layer < config.get("max_window_layers", 28)
        return width if below and not layer % 2 else None
    if family == "qwen3_moe":
        return width
    return width if layer >= config.get("max_window_layers", 28) else None


def rotary(config: Config, num_tokens: int) -> tuple[F64, F64]:
    """Return cosines and sines, (num_tokens, head_dim / 2)."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    frequencies = rotary_frequencies(config, scaling, num_tokens)
    positions = np.arange(num_tokens, dtype=np.float32)
    angles = (positions[:, None] * frequencies[None, :]).astype(np.float64)
    scale = 1.0
    if kind(scaling) == "yarn":
        scale = scaling.get("attention_factor") or (
            0.1 * math.log(scaling["factor"]) + 1.0
        )
    return np.cos(angles) * scale, np.sin(angles) * scale


def plain_theta(config: Config) -> float:
    """Return the family's own theta, where the file names none."""
    return {"smollm3": 2e6, "mixtral": 1e6, "gpt_oss": 150000.0}.get(
        config["model_type"], 10_000.0
    )


def kind(scaling: Config) -> str:
    named: str = scaling.get("rope_type", scaling.get("type", "default"))
    return named


def rotary_frequencies(
    config: Config, scaling: Config, num_tokens: int
) -> NDArray[np.float32]:
    theta = scaling.get("rope_theta") or config.get("rope_theta", plain_theta(config))
    dim, trained = head_size(config), config["max_position_embeddings"]
    factor = scaling.get("factor", 1.0)
    named = kind(scaling)
    if named == "dynamic":
        grown = factor * max(num_tokens, trained) / trained - (factor - 1)
        theta *= grown ** (dim / (dim - 2))
    plain = np.array([theta ** (-i / dim) for i in range(0, dim, 2)])
    trained = scaling.get("original_max_position_embeddings", trained)
    scaled = plain
    if named == "linear":
        scaled = plain / factor
    elif named == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        # How many turns a pair of channels makes over the trained length.
        turns = trained * plain / (2 * math.pi)
        keep = np.clip((turns - low) / (high - low), 0, 1)
        scaled = keep * plain + (1 - keep) * plain / factor
    elif named == "yarn":
        low, high = (
            dim
            * math.log(trained / (scaling.get(name, default) * 2 * math.pi))
            / (2 * math.log(theta))
            for name, default in (("beta_fast", 32), ("beta_slow", 1))
        )
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        ramp = (np.arange(dim // 2) - low) / max(high - low, 0.001)
        keep = 1 - np.clip(ramp, 0, 1)
        scaled = keep * plain + (1 - keep) * plain / factor
    return scaled.astype(np.float32)
