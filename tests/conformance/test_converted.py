"""Checkpoints as mlx-lm itself writes them, of every family that it knows, at 4 bits.

Its converter names, stacks, splits and transposes tensors in its own way. A twin with
the values that the quantized words stand for is written as transformers writes it, and
both are read.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import ster
from tests.checkpoints import (
    ALL_FAMILIES,
    Config,
    Tensors,
    make_config,
    make_tensors,
    random_ids,
    text,
    write_checkpoint,
)
from tests.conformance.compare import assert_close, tolerance

pytest.importorskip("mlx_lm")
import mlx.core as mx
from mlx_lm.utils import (
    load_model,
    quantize_model,
    save_config,
    save_model,
)

F32 = NDArray[np.float32]
GROUP, BITS = 32, 4
# Wide enough for whole groups, also of routers, which mlx-lm quantizes in groups of 64.
WIDE = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 64}
HEADS = {"head_dim": 16}
# What mlx-lm needs in a config, and transformers does not.
NEEDED: dict[str, Config] = {
    "granite": {"attention_bias": False, "mlp_bias": False},
    "cohere2": HEADS,
    "glm4": {**HEADS, "attention_bias": False},
    "seed_oss": {**HEADS, "attention_bias": True, "attention_out_bias": False},
    "gpt2": {"n_embd": 64, "n_ctx": 512, **dict.fromkeys(WIDE, ...), "vocab_size": 64},
    "gpt_neox": {
        "intermediate_size": 256,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "use_parallel_residual": True,
    },
    "qwen3_moe": {**HEADS, "moe_intermediate_size": 64, "rope_theta": 10000.0},
    "qwen2_moe": {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64},
    **dict.fromkeys(("qwen3", "gemma", "gemma2", "gemma3_text"), HEADS),
}
# Those that mlx-lm 0.32.2 cannot read as transformers writes them.
UNREAD = ("exaone4", "ministral3", "gpt_oss")


def convert(plain: Path, quantized: Path) -> Config:
    """Convert a checkpoint as ``mlx_lm.convert`` does, but for its tokenizer."""
    with mx.stream(mx.cpu):
        model, config = load_model(plain, lazy=True)
        model, config = quantize_model(model, config, GROUP, BITS)
        save_model(quantized, model)
    save_config(config, quantized / "config.json")
    for file in plain.glob("tokenizer*"):
        shutil.copy(file, quantized / file.name)
    declared: Config = json.loads((quantized / "config.json").read_text())
    return dict(declared["quantization"])


def rounded(weight: F32, group_size: int, bits: int) -> F32:
    """Return the values that a matrix has once it is quantized."""
    if weight.shape[-1] % group_size:
        return weight
    with mx.stream(mx.cpu):
        words = mx.quantize(mx.array(weight), group_size, bits)
        return np.array(mx.dequantize(*words, group_size=group_size, bits=bits))


def as_quantized(tensors: Tensors, family: str, declared: Config) -> Tensors:
    """Round all matrices as the converter did."""

    def made(name: str, weight: F32) -> F32:
        module = name.removesuffix(".weight")
        own = declared.get(module)
        if weight.ndim == 1 or own is False:
            return weight
        # GPT-2's products are stored as (inputs, outputs).
        turned = family == "gpt2" and ".c_" in name
        weight = weight.swapaxes(-1, -2) if turned else weight
        how = own if isinstance(own, dict) else declared
        weight = rounded(weight, how["group_size"], how["bits"])
        return weight.swapaxes(-1, -2) if turned else weight

    return {name: made(name, each) for name, each in tensors.items()}


@pytest.mark.parametrize(
    "family", [each for each in ALL_FAMILIES if each not in UNREAD]
)
def test_what_mlx_lm_wrote_is_read_as_the_values_that_it_stands_for(
    tmp_path: Path, device: str, family: str
):
    config = make_config(family, **{**WIDE, **NEEDED.get(family, {})})
    # GPT-2's published files have nothing before the names.
    published = {
        name.removeprefix("transformer."): each
        for name, each in make_tensors(config).items()
    }
    front = "" if family == "gpt2" else "model."
    plain = write_checkpoint(
        tmp_path / "plain", config, tensors=published, prefix=front
    )
    declared = convert(plain.directory, tmp_path / "quantized")
    tensors = as_quantized(plain.tensors, family, declared)
    write_checkpoint(tmp_path / "twin", config, tensors=tensors, prefix=front)
    prompts = [text(random_ids(length, seed=length)) for length in (12, 3)]

    def run(name: str) -> tuple[F32, str]:
        runtime = ster.load(tmp_path / name, device=device)
        rows = runtime.activations(prompts).array
        return rows, runtime.generate(prompts[0], max_new_tokens=4)

    (found, said), (expected, expected_said) = run("quantized"), run("twin")
    assert_close(found, expected, tolerance(device, "f32"))
    assert said == expected_said
    # They are quantized: the plain checkpoint's rows are others.
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close(run("plain")[0], expected, tolerance(device, "f32"))
