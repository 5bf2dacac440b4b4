"""Counts of a wide family's config, held to what they can be before mlx-lm sees them.

mlx-lm takes them as they come: some end the process, some make it build modules for
hours, and some are only found out, or never, once a prompt runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

MAX_LAYERS = 4096
WIDTHS = ("hidden_size", "n_embd", "d_model")
_WINDOWS = ("sliding_window", "attention_chunk_size", "attention_window_size")
_EXPERTS = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
)
_CHOSEN = ("num_experts_per_tok", "top_k_experts", "moe_k", "moe_topk")
Refuse = Callable[[str, object, str], NoReturn]


def check_counts(values: Mapping[str, Any], refuse: Refuse) -> None:
    """Refuse counts that no model has.

    Args:
        values: The language model's config.
        refuse: Takes a field, its value and what was expected, and raises.

    Raises:
        ConfigError: One is out of bounds; it is named.
    """
    for name, value in values.items():
        _check_count(name, value, refuse)
    for name in _WINDOWS:
        value = values.get(name)
        if value is not None and (not _is_count(value) or value < 1):
            refuse(name, value, "a whole number of tokens, at least 1, or null")
    _check_experts(values, refuse)


def _check_count(name: str, value: object, refuse: Refuse) -> None:
    if not isinstance(value, int):
        return
    if "layers" in name and value > MAX_LAYERS:
        refuse(name, value, f"at most {MAX_LAYERS}")
    is_divisor = "head" in name or name in WIDTHS or name == "vocab_size"
    is_count = name.startswith(("num_", "n_")) or name.endswith(("_size", "_dim"))
    least = 1 if is_divisor and is_count else 0
    if (is_divisor or is_count) and value < least:
        refuse(name, value, f"at least {least}")


def _check_experts(values: Mapping[str, Any], refuse: Refuse) -> None:
    experts = next((values[n] for n in _EXPERTS if values.get(n) is not None), None)
    if experts is None or not _is_count(experts) or experts < 1:
        return
    for name in _CHOSEN:
        chosen = values.get(name)
        if chosen is not None and (not _is_count(chosen) or not 1 <= chosen <= experts):
            refuse(name, chosen, f"between 1 and the {experts} experts that there are")
    groups, kept = values.get("n_group"), values.get("topk_group")
    if groups is None:
        return
    if not _is_count(groups) or groups < 1 or experts % groups:
        refuse("n_group", groups, f"a divisor of the {experts} experts that there are")
    if kept is not None and (not _is_count(kept) or not 1 <= kept <= groups):
        refuse("topk_group", kept, f"between 1 and the n_group of {groups}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
