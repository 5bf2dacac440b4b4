"""Qwen 1.5 to 3, experts. Source: transformers 5.24, models/qwen2_moe, qwen3_moe."""

from __future__ import annotations

from collections.abc import Sequence

from ster.architecture.blocks import BlockMaker, check_activation, make_model
from ster.architecture.experts import ExpertMaker, read_num_experts
from ster.architecture.fields import Fields
from ster.architecture.modules import Matrix
from ster.architecture.parts import Experts, Rotary
from ster.architecture.sizes import Sizes, read_rotary, read_sizes
from ster.architecture.spec import ModelSpec
from ster.architecture.windows import require_full_attention, switched_windows

POSITIONS, EPS = 32_768, 1e-6
# Qwen2MoeConfig and Qwen3MoeConfig, where the file does not say.
MAX_WINDOW_LAYERS, WINDOW = 28, 4096


def read_qwen2_moe(fields: Fields) -> ModelSpec:
    """Read a Qwen 2 with experts: one more serves every token, as much as it says."""
    check_activation(fields)
    sizes = _read_sizes(fields, num_key_value_heads=16)
    rotary, num_layers = read_rotary(fields, sizes), sizes.num_hidden_layers
    maker = BlockMaker(sizes=sizes, qkv_bias=fields.flag("qkv_bias", default=True))
    experts = _experts(fields, maker, num_experts=60, num_chosen=4, inner=1408)
    shared = maker.feed_forward(
        fields.count("shared_expert_intermediate_size", 5632), "mlp.shared_expert."
    )
    gate = Matrix(name="mlp.shared_expert_gate", outputs=1, inputs=sizes.hidden_size)
    served = experts.make(shared=shared, shared_gate=gate)
    # Every other layer slides, of those below max_window_layers.
    first_full = fields.count("max_window_layers", MAX_WINDOW_LAYERS, least=0)
    slides = [layer % 2 == 0 and layer < first_full for layer in range(num_layers)]
    windows = switched_windows(fields, slides, WINDOW)
    return _make(fields, maker, rotary, windows, served)


def read_qwen3_moe(fields: Fields) -> ModelSpec:
    """Read a Qwen 3 with experts: its window is that of all layers or of none."""
    check_activation(fields)
    sizes = _read_sizes(fields, num_key_value_heads=4)
    rotary, num_layers = read_rotary(fields, sizes), sizes.num_hidden_layers
    bias = fields.flag("attention_bias", default=False)
    maker = BlockMaker(sizes=sizes, qkv_bias=bias, o_bias=bias, qk_norm="head")
    experts = _experts(fields, maker, num_experts=128, num_chosen=8, inner=768).make()
    # An explicit null is no window; an absent field is the family's own.
    slides = fields.flag("use_sliding_window", default=False)
    slides = slides and fields.values.get("sliding_window", WINDOW) is not None
    window = fields.count("sliding_window", WINDOW) if slides else None
    require_full_attention(fields, num_layers)
    return _make(fields, maker, rotary, (window,) * num_layers, experts)


def _read_sizes(fields: Fields, num_key_value_heads: int) -> Sizes:
    return read_sizes(
        fields,
        num_key_value_heads=num_key_value_heads,
        max_position_embeddings=POSITIONS,
        rms_norm_eps=EPS,
    )


def _make(
    fields: Fields,
    maker: BlockMaker,
    rotary: Rotary,
    windows: Sequence[int | None],
    experts: Experts,
) -> ModelSpec:
    """Give the layers that have experts theirs, and the others the usual part."""
    sparse = _read_sparse(fields, len(windows))
    layers = [
        maker.block(i, rotary, window, experts if sparse[i] else None)
        for i, window in enumerate(windows)
    ]
    return make_model(fields, maker.sizes, layers)


def _experts(
    fields: Fields, maker: BlockMaker, *, num_experts: int, num_chosen: int, inner: int
) -> ExpertMaker:
    return ExpertMaker(
        block=maker,
        num_experts=read_num_experts(fields, num_experts),
        num_chosen=fields.count("num_experts_per_tok", num_chosen),
        normalized=fields.flag("norm_topk_prob", default=False),
        intermediate_size=fields.count("moe_intermediate_size", inner),
        router="mlp.gate",
        within="mlp.",
    )


def _read_sparse(fields: Fields, num_layers: int) -> list[bool]:
    """Tell which layers have experts: every so manieth, without those listed."""
    dense = fields.values.get("mlp_only_layers")
    if dense is None:
        dense = []
    if not isinstance(dense, list) or not all(type(each) is int for each in dense):
        fields.refuse("mlp_only_layers", dense, "a list of layers")
    step = fields.count("decoder_sparse_step", 1)
    return [i not in dense and (i + 1) % step == 0 for i in range(num_layers)]
