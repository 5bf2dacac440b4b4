"""Make the golden files of the points inside blocks. Run by hand, see README.md.

    python -m tests.golden.make_points [CASE ...]

Configs, seeds and prompts are those of the cases' own golden files, whose streams have
to come out again. Hooks read what each half of transformers' blocks gives, and what is
put into the second; a multiplier that stands outside of any module is applied here.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints import Config, make_tensors, write_checkpoint
from tests.golden import peer
from tests.golden.golden import fingerprint, read_golden, write_document
from tests.golden.points import INNER, POINTS_FOLDER
from tests.quantized import plain_twin

CASES = (
    *("llama-biases", "granite", "gemma2", "olmo2", "glm4", "gpt2"),
    *("gpt-neox", "gpt-neox-v4", "cohere2"),
    *("qwen3-moe", "gpt-oss", "q-gemma2", "q-qwen3-moe"),
)
# A prompt of this many tokens is in every case.
PLAIN_TOKENS = 9
# What gives attention's part, what takes the stream between the halves, and what gives
# the feed-forward part: modules of a block, by family.
Places = tuple[str, str, str]
LIKE_LLAMA: Places = ("self_attn", "post_attention_layernorm", "mlp")
PLACES: Mapping[str, Places] = {
    "gemma2": (
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    "olmo2": ("post_attention_layernorm", "mlp", "post_feedforward_layernorm"),
    "glm4": (
        "post_self_attn_layernorm",
        "post_attention_layernorm",
        "post_mlp_layernorm",
    ),
    "gpt2": ("attn", "ln_2", "mlp"),
    "gpt_neox": ("attention", "post_attention_layernorm", "mlp"),
    "cohere2": ("self_attn", "", "mlp"),
}


def main() -> None:
    """Make the cases that are named, or all."""
    for name in sys.argv[1:] or CASES:
        write_document(POINTS_FOLDER / f"{name}.json", points_document(name))


def points_document(name: str) -> dict[str, Any]:
    """Run two prompts of a case, one of them steered."""
    golden = read_golden(name)
    tensors = make_tensors(golden.config, golden.seed)
    assert fingerprint(tensors) == golden.fingerprint
    plain = next(p for p in golden.prompts if len(p) == PLAIN_TOKENS)
    steering = {k: v.tolist() for k, v in golden.steered.vectors.items()}
    with tempfile.TemporaryDirectory() as folder:
        twin, twin_tensors = plain_twin(golden.config, tensors)
        write_checkpoint(Path(folder), twin, tensors=twin_tensors)

        def record(prompt: Sequence[int], how: peer.Steering) -> dict[str, Any]:
            model = peer.open_model(Path(folder))
            points, streams = run(model, golden.config, prompt, how)
            check_sums(points, streams, how)
            known = golden.residuals[golden.prompts.index(plain)]
            known = golden.steered.residuals if how else known
            # Norms and softmax are float32, so another machine rounds otherwise.
            assert np.abs(streams - known).max() < 1e-6 * np.abs(known).max()
            shown = {each: peer.shortest(rows) for each, rows in points.items()}
            return {"token_ids": list(prompt), **shown}

        return {
            "fingerprint": golden.fingerprint,
            "plain": record(plain, {}),
            "steered": record(golden.steered.prompt, steering),
        }


def run(
    model: Any, config: Config, token_ids: Sequence[int], steering: peer.Steering
) -> tuple[dict[str, peer.F64], peer.F64]:
    """Return the points of every block, and its stream, at the last token."""
    rows: dict[str, list[peer.F64]] = {point: [] for point in INNER}
    resid_mid, attn_out, mlp_out = (rows[each] for each in INNER)
    multiplier = float(config.get("residual_multiplier", 1.0))

    def keep(into: list[peer.F64], given: Any, times: float = 1.0) -> None:
        hidden = given[0] if isinstance(given, tuple) else given
        into.append(times * hidden.reshape(-1, hidden.shape[-1])[-1].numpy())

    attention, middle, feed_forward = PLACES.get(config["model_type"], LIKE_LLAMA)
    is_parallel = not middle or (
        config["model_type"] == "gpt_neox" and config.get("use_parallel_residual", True)
    )
    hooks = []
    body = model.base_model
    for block in body.h if hasattr(body, "h") else body.layers:
        hooks.append(
            getattr(block, attention).register_forward_hook(
                lambda module, given, made: keep(attn_out, made, multiplier)
            )
        )
        hooks.append(
            getattr(block, feed_forward).register_forward_hook(
                lambda module, given, made: keep(mlp_out, made, multiplier)
            )
        )
        if not is_parallel:
            hooks.append(
                getattr(block, middle).register_forward_pre_hook(
                    lambda module, given: keep(resid_mid, given)
                )
            )
    try:
        streams = peer.run(model, token_ids, steering).residuals
    finally:
        for hook in hooks:
            hook.remove()
    return {point: np.stack(each) for point, each in rows.items() if each}, streams


def check_sums(
    points: Mapping[str, peer.F64], streams: peer.F64, steering: peer.Steering
) -> None:
    """Hold the hooks to what the points mean: the halves make the stream."""
    resid_pre = streams[:-1].copy()
    for layer, vector in steering.items():
        if layer < len(resid_pre):
            resid_pre[layer] += vector
    attn_out, mlp_out = points["attn_out"][1:], points["mlp_out"][1:]
    near = 1e-12 * np.abs(streams).max()
    assert np.abs(resid_pre + attn_out + mlp_out - streams[1:]).max() < near
    if "resid_mid" in points:
        between = points["resid_mid"]
        assert np.abs(resid_pre + attn_out - between[1:]).max() < near
        assert np.abs(between + points["mlp_out"] - streams).max() < near


if __name__ == "__main__":
    main()
