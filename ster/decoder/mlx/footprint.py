"""What the MLX decoder takes of a GPU's memory, counted for the plan."""

from __future__ import annotations

from ster.architecture import parts
from ster.architecture.modules import Matrix, Module, count_values
from ster.architecture.quantization import Format
from ster.architecture.spec import LayerSpec, ModelSpec
from ster.decoder.contract import Footprint
from ster.decoder.mlx.attention import MAX_GATHERED, MAX_SCORES
from ster.decoder.mlx.block import (
    expert_values,
    multiplied_outputs,
    rows_at_once,
)
from ster.decoder.mlx.parts import multiplied
from ster.stream.attention import MIN_QUERIES

# Rows that experts take together in a wave of usual size.
WAVE_TOKENS = 16384
# Bytes of a value, by precision.
WIDTHS = {"f32": 4, "f16": 2, "bf16": 2}
# Packing and positions, for a token.
INDEX_BYTES = 128
# A key and its position in attention's lists, and while they are made.
KEY_BYTES = 24
# Freed buffers that MLX keeps for reuse, at least; prompts of many lengths would pile
# them up without a limit.
CACHE_BYTES = 1 << 28


def footprint(model: ModelSpec, *, precision: str, longest_prompt: int) -> Footprint:
    """Count what a decoder takes; see ``contract.Footprint``."""
    width = WIDTHS[precision]
    heads, keys = model.max_heads, model.max_key_value_size
    scores = max(MAX_SCORES, MIN_QUERIES * longest_prompt * heads)
    gathered = max(MAX_GATHERED, longest_prompt * keys)
    token = max((_token_bytes(model, each, width) for each in model.layers), default=0)
    # Lists of long prompts are on the device once for each group of their queries.
    lists = 8 * longest_prompt // MIN_QUERIES
    return Footprint(
        blocks=tuple(block_bytes(model, each, width) for each in model.layers),
        open_bytes=max((_open_bytes(model, x, width) for x in model.layers), default=0),
        head_bytes=head_bytes(model) + _narrow_head(model, width),
        embedding_bytes=embedding_bytes(model, width),
        token_bytes=token + INDEX_BYTES + lists,
        # Its parts, and the whole that they are joined to.
        point_bytes=8 * model.hidden_size,
        key_bytes=KEY_BYTES,
        row_bytes=4 * model.hidden_size,
        # On the device and on the host.
        logit_bytes=8 * model.vocab_size,
        choice_bytes=12 * model.vocab_size,
        cache_bytes=_cache_bytes(model, width),
        # Keys and values of a batch, gathered, widened and laid out for the kernel, and
        # those of the batch before: seven times, as measured.
        fixed_bytes=4 * (2 * scores + 7 * 2 * gathered)
        + max((_expert_bytes(each)[1] for each in model.layers), default=0)
        + CACHE_BYTES,
    )


def model_bytes(model: ModelSpec, width: int, num_tokens: int) -> int:
    """Count all that stays in a run that keeps the weights, with so many tokens."""
    blocks = sum(block_bytes(model, each, width) for each in model.layers)
    tables = head_bytes(model) + embedding_bytes(model, width)
    return blocks + tables + num_tokens * _cache_bytes(model, width)


def _cache_bytes(model: ModelSpec, width: int) -> int:
    """Count keys and values of one token, in all layers."""
    return sum(2 * width * each.attention.key_value_size for each in model.layers)


def block_bytes(model: ModelSpec, block: LayerSpec, width: int) -> int:
    """Count a block that stays, its weights in their formats or at a width."""
    made = block.feed_forward
    wide = made.router if isinstance(made, parts.Experts) else None
    return sum(
        _module_bytes(model, block.prefix, each, 4 if each == wide else width)
        for each in block.modules
    )


def head_bytes(model: ModelSpec) -> int:
    """Count final norm and head as they are held: f32 whatever the precision."""
    return _module_bytes(model, "", model.output, 4) + 4 * model.hidden_size


def embedding_bytes(model: ModelSpec, width: int) -> int:
    """Count the embedding where it is on the device, unless it is the head as well."""
    return 0 if model.head is None else _module_bytes(model, "", model.embedding, width)


def _narrow_head(model: ModelSpec, width: int) -> int:
    """Count what stands beside a head while it is widened."""
    if width == 4 or _multiplied_format(model, "", model.output) is not None:
        return 0
    return width * model.output.num_values


def _module_bytes(model: ModelSpec, prefix: str, module: Module, width: int) -> int:
    return _held_bytes(module, _multiplied_format(model, prefix, module), width)


def _held_bytes(module: Module, packing: Format | None, width: int) -> int:
    """Count a module in a format, or at a width."""
    if packing is None or not isinstance(module, Matrix):
        return width * count_values([module])
    # Affine scales and biases are f32; those of other formats are bytes.
    for_group = 8 if packing.mode == "affine" else 1
    groups = module.num_values // packing.group_size
    bias = 4 * module.outputs if module.bias else 0
    return module.num_values * packing.bits // 8 + groups * for_group + bias


def _multiplied_format(model: ModelSpec, prefix: str, module: Module) -> Format | None:
    """Tell the format that a weight is multiplied in; None where it is a plain one."""
    if not isinstance(module, Matrix):
        return None
    return multiplied(model.format_of(prefix, module), module.inputs)


def _open_bytes(model: ModelSpec, block: LayerSpec, width: int) -> int:
    """Count a block that is opened and closed.

    A plain weight is there at the run's width, and the next block's as stored, on the
    host and on the device, and at the run's width: 12 bytes at most, since what has a
    width already is not copied. One that is stored in a format that MLX lacks is
    unpacked on the host. A quantized one is there, and the next block's on the host, on
    the device, and with wide scales.
    """
    opened = 0
    for module in block.modules:
        packing = _multiplied_format(model, block.prefix, module)
        unpacked = isinstance(module, Matrix) and model.format_of(block.prefix, module)
        plain = (16 if unpacked else 12) * count_values([module])
        opened += plain if packing is None else 4 * _held_bytes(module, packing, width)
    return opened


def _expert_bytes(block: LayerSpec) -> tuple[int, int]:
    """Count what experts take for each token, and what they take at most.

    Where a wave's rows go through them together, they grow with the wave. Else it is as
    much as goes through at once, and what went before.
    """
    row = 4 * expert_values(block)
    rows = rows_at_once(block, multiplied_outputs(block))
    return (row, 0) if rows >= WAVE_TOKENS else (0, 2 * rows * row)


def _token_bytes(model: ModelSpec, block: LayerSpec, width: int) -> int:
    """Count what a token has while a block is evaluated.

    The values are f32; at half width, products take and give narrow ones beside them.
    """
    attention = block.attention
    projected = attention.query_size + 2 * attention.key_value_size
    stream = 3 * model.hidden_size + 3 * projected + 3 * attention.query_size
    widest = block.feed_forward.widest
    experts, _ = _expert_bytes(block)
    narrow = 0 if width == 4 else width * (model.hidden_size + projected + widest)
    return 4 * (stream + 2 * widest) + narrow + experts
