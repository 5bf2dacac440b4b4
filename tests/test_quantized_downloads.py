"""A run fetches the shards that it needs, of quantized checkpoints and experts too.

The checkpoints here have a shard for what comes before the layers, one for what comes
after, and two of each layer: a file may end between a weight and its scales.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ster
from tests.checkpoints import make_config, text, word_tokenizer
from tests.hub_model import INDEX, MODEL
from tests.hub_server import (  # noqa: F401
    Hub,
    serve_hub,
    set_client,
    set_environment,
)

pytestmark = pytest.mark.usefixtures("hub_client")

BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U32": 4, "U8": 1}
LAYERS, HIDDEN, INNER, EXPERTS, HEAD_DIM = 3, 64, 96, 4, 32
# Beside the weights, OpenAI's repositories hold them twice more.
BESIDE = {
    "original/model.safetensors": b"not these",
    "original/config.json": b"{}",
    "metal/model.bin": b"nor these",
}


@dataclass
class Stored:
    """A checkpoint of random bytes that make sense: dtype, shape and data by name."""

    tensors: dict[str, tuple[str, tuple[int, ...], bytes]] = field(default_factory=dict)

    def add(self, name: str, dtype: str, *shape: int) -> None:
        draw, count = random.Random(name), 1
        for size in shape:
            count *= size
        if dtype == "BF16":  # around 1, or around 1/16
            top = 0x3F if name.endswith("norm.weight") else 0x3D
            data = b"".join(bytes([draw.randrange(256), top]) for _ in range(count))
        elif dtype == "F32":
            data = b"\0\0\x80\x3d" * count
        elif dtype == "U8" and "scales" in name:  # powers of two
            data = bytes(draw.randrange(120, 124) for _ in range(count))
        elif dtype == "F8_E4M3":
            data = bytes(draw.randrange(0x40) for _ in range(count))
        else:
            data = draw.randbytes(count * BYTES[dtype])
        self.tensors[name] = dtype, shape, data

    def affine(self, name: str, *shape: int, bits: int = 4, group: int = 32) -> None:
        *outer, inputs = shape
        self.add(f"{name}.weight", "U32", *outer, inputs * bits // 32)
        self.add(f"{name}.scales", "BF16", *outer, inputs // group)
        self.add(f"{name}.biases", "BF16", *outer, inputs // group)

    def attention(self, at: str, kind: str, *, bias: bool = False) -> None:
        for name, outputs, inputs in (
            ("q_proj", 4 * HEAD_DIM, HIDDEN),
            ("k_proj", 2 * HEAD_DIM, HIDDEN),
            ("v_proj", 2 * HEAD_DIM, HIDDEN),
            ("o_proj", HIDDEN, 4 * HEAD_DIM),
        ):
            self.matrix(f"{at}self_attn.{name}", kind, outputs, inputs)
            if bias:
                self.add(f"{at}self_attn.{name}.bias", "BF16", outputs)

    def matrix(self, name: str, kind: str, outputs: int, inputs: int) -> None:
        if kind == "affine":
            self.affine(name, outputs, inputs)
        elif kind == "fp8":
            self.add(f"{name}.weight", "F8_E4M3", outputs, inputs)
            blocks = -(-outputs // 32), -(-inputs // 32)
            self.add(f"{name}.weight_scale_inv", "F32", *blocks)
        else:
            self.add(f"{name}.weight", "BF16", outputs, inputs)

    def mlp(self, at: str, kind: str) -> None:
        for name, outputs, inputs in (
            ("gate_proj", INNER, HIDDEN),
            ("up_proj", INNER, HIDDEN),
            ("down_proj", HIDDEN, INNER),
        ):
            self.matrix(f"{at}mlp.{name}", kind, outputs, inputs)

    def files(self) -> dict[str, bytes]:
        """Lay the tensors out in shards, with an index."""
        weight_map = {name: shard_of(name) for name in self.tensors}
        files = {INDEX: json.dumps({"metadata": {}, "weight_map": weight_map}).encode()}
        for shard in set(weight_map.values()):
            header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
            data = b""
            for name, (dtype, shape, stored) in self.tensors.items():
                if weight_map[name] == shard:
                    offsets = [len(data), len(data) + len(stored)]
                    header[name] = {
                        "dtype": dtype,
                        "shape": shape,
                        "data_offsets": offsets,
                    }
                    data += stored
            head = json.dumps(header).encode()
            head += b" " * (-len(head) % 8)
            files[shard] = len(head).to_bytes(8, "little") + head + data
        return files


def shard_of(name: str) -> str:
    if ".layers." not in name:
        part = "first" if "embed" in name else "last"
        return f"model-{part}.safetensors"
    layer = name.split(".layers.")[1].split(".")[0]
    seconds = "scales", "biases", "weight_scale_inv", "norm.weight"
    return f"model-{layer}-{2 if name.endswith(seconds) else 1}.safetensors"


def plain_llama() -> tuple[dict[str, Any], Stored]:
    stored = Stored()
    stored.matrix("model.embed_tokens", "plain", 60, HIDDEN)
    stored.matrix("lm_head", "plain", 60, HIDDEN)
    for layer in range(LAYERS):
        stored.attention(f"model.layers.{layer}.", "plain")
        stored.mlp(f"model.layers.{layer}.", "plain")
    return make_config(), stored


def affine_llama() -> tuple[dict[str, Any], Stored]:
    config = make_config(quantization={"group_size": 32, "bits": 4})
    stored = Stored()
    stored.affine("model.embed_tokens", 60, HIDDEN)
    stored.affine("lm_head", 60, HIDDEN)
    for layer in range(LAYERS):
        stored.attention(f"model.layers.{layer}.", "affine")
        stored.mlp(f"model.layers.{layer}.", "affine")
    return config, stored


def fp8_llama() -> tuple[dict[str, Any], Stored]:
    declared = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    config = make_config(quantization_config=declared)
    stored = Stored()
    stored.matrix("model.embed_tokens", "plain", 60, HIDDEN)
    stored.matrix("lm_head", "plain", 60, HIDDEN)
    for layer in range(LAYERS):
        stored.attention(f"model.layers.{layer}.", "fp8")
        stored.mlp(f"model.layers.{layer}.", "fp8")
    return config, stored


def affine_qwen3_moe() -> tuple[dict[str, Any], Stored]:
    gates = {
        f"model.layers.{layer}.mlp.gate": {"group_size": 64, "bits": 8}
        for layer in range(LAYERS)
    }
    config = make_config(
        "qwen3_moe",
        moe_intermediate_size=INNER,
        num_experts=EXPERTS,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        quantization={"group_size": 32, "bits": 4, **gates},
    )
    stored = Stored()
    stored.affine("model.embed_tokens", 60, HIDDEN)
    stored.affine("lm_head", 60, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        stored.attention(at, "affine")
        for name in ("q_norm", "k_norm"):
            stored.add(f"{at}self_attn.{name}.weight", "BF16", HEAD_DIM)
        stored.affine(f"{at}mlp.gate", EXPERTS, HIDDEN, bits=8, group=64)
        experts = f"{at}mlp.switch_mlp."
        stored.affine(f"{experts}gate_proj", EXPERTS, INNER, HIDDEN)
        stored.affine(f"{experts}up_proj", EXPERTS, INNER, HIDDEN)
        stored.affine(f"{experts}down_proj", EXPERTS, HIDDEN, INNER)
    return config, stored


def openai_gpt_oss() -> tuple[dict[str, Any], Stored]:
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    declared = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    config = make_config(
        "gpt_oss",
        attention_bias=True,
        num_local_experts=EXPERTS,
        num_experts_per_tok=2,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        swiglu_limit=7.0,
        quantization_config=declared,
    )
    stored = Stored()
    stored.matrix("model.embed_tokens", "plain", 60, HIDDEN)
    stored.matrix("lm_head", "plain", 60, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        stored.attention(at, "plain", bias=True)
        stored.add(f"{at}self_attn.sinks", "BF16", 4)
        stored.matrix(f"{at}mlp.router", "plain", EXPERTS, HIDDEN)
        stored.add(f"{at}mlp.router.bias", "BF16", EXPERTS)
        for name, outputs, inputs in (
            ("gate_up_proj", 2 * INNER, HIDDEN),
            ("down_proj", HIDDEN, INNER),
        ):
            name, groups = f"{at}mlp.experts.{name}", inputs // 32
            stored.add(f"{name}_blocks", "U8", EXPERTS, outputs, groups, 16)
            stored.add(f"{name}_scales", "U8", EXPERTS, outputs, groups)
            stored.add(f"{name}_bias", "BF16", EXPERTS, outputs)
    return config, stored


MAKERS = (plain_llama, affine_llama, fp8_llama, affine_qwen3_moe, openai_gpt_oss)


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__)
def published(request, hub: Hub, tmp_path: Path) -> Hub:
    config, stored = request.param()
    config |= {"hidden_size": HIDDEN, "intermediate_size": INNER, "head_dim": HEAD_DIM}
    stored.add("model.norm.weight", "BF16", HIDDEN)
    for layer in range(LAYERS):
        for name in ("input_layernorm", "post_attention_layernorm"):
            stored.add(f"model.layers.{layer}.{name}.weight", "BF16", HIDDEN)
    word_tokenizer(60).save(str(tmp_path / "tokenizer.json"))
    light = {
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": (tmp_path / "tokenizer.json").read_bytes(),
        "tokenizer_config.json": b"{}",
    }
    hub.publish(MODEL, {**light, **stored.files(), **BESIDE})
    return hub


def fetched(hub: Hub) -> set[str]:
    """Name the weight files that were sent, and forget them."""
    paths = {one.path for one in hub.asked if one.method == "GET"}
    hub.asked.clear()
    return {
        path.split("/resolve/")[1].split("/", 1)[1].split("?")[0]
        for path in paths
        if path.split("?")[0].endswith((".safetensors", ".bin"))
    }


def layer(index: int) -> set[str]:
    return {f"model-{index}-{part}.safetensors" for part in (1, 2)}


def test_a_run_up_to_a_layer_fetches_the_shards_below_it_and_no_others(published):
    model = ster.load(MODEL)
    prompts = [text([3, 4, 5])]
    model.activations(prompts, "0")
    assert fetched(published) == {"model-first.safetensors"} | layer(0)
    model.activations(prompts, "1")
    assert fetched(published) == layer(1)
    ster.load(MODEL).activations(prompts, "0,1")
    assert fetched(published) == set()


def test_only_a_run_that_writes_text_fetches_the_head(published):
    model = ster.load(MODEL)
    model.activations([text([3, 4, 5])], "all")
    assert fetched(published) == {"model-first.safetensors"}.union(
        *(layer(index) for index in range(LAYERS))
    )
    model.generate(text([3, 4]), max_new_tokens=1)
    assert fetched(published) == {"model-last.safetensors"}
