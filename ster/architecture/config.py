"""config.json -> DecoderConfig: every field resolved, or the checkpoint refused.

Nothing that changes the numbers has a silent default of ster's own; where a field may
be absent, the value is the one transformers gives that family.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ster.architecture.fields import Fields
from ster.architecture.rotary_config import RopeConfig, read_rope
from ster.documents.strict_json import read_json
from ster.errors import ConfigError
from ster.text import quoted

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ACTIVATIONS = ("silu", "swish")
# transformers 5.24, MistralConfig.sliding_window and Qwen2Config.max_window_layers.
MISTRAL_WINDOW = 4096
QWEN_MAX_WINDOW_LAYERS = 28
QWEN3_HEAD_DIM = 128
# Far above any model, and low enough that a list of all layers is small.
MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """What a decoder is, in the words of config.json.

    Args:
        model_type: The family: llama, mistral, qwen2 or qwen3.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the feed-forward part.
        num_hidden_layers: Number of blocks; zero is allowed here.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads; divides the query heads.
        head_dim: Width of one head; even.
        vocab_size: Rows of the embedding.
        max_position_embeddings: Trained length in tokens.
        rms_norm_eps: Added to the mean square in every RMSNorm.
        rope: Rotary scaling, the same in every layer.
        qkv_bias: q_proj, k_proj and v_proj have biases.
        o_bias: o_proj has one.
        mlp_bias: gate_proj, up_proj and down_proj have them.
        qk_norm: Queries and keys are normalised per head before the rotation.
        sliding_windows: Per layer, how many tokens a query sees, itself included;
            None sees all.
        tie_word_embeddings: The head is the embedding.
    """

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    sliding_windows: tuple[int | None, ...]
    tie_word_embeddings: bool

    @property
    def query_size(self) -> int:
        """Return the width of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        """Return the width of all key heads together, and of all value heads."""
        return self.num_key_value_heads * self.head_dim


def read_config(path: Path) -> DecoderConfig:
    """Read config.json.

    Raises:
        ConfigError: The file cannot be read, is no JSON, or asks for something that
            ster does not implement.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"failed to read {path}", error) from error
    try:
        document = read_json(data)
    except ValueError as error:
        raise ConfigError(f"invalid model config {path}", error) from error
    if not isinstance(document, dict):
        raise ConfigError(f"invalid model config {path}", "it is not a JSON object")
    return resolve_config(cast("dict[str, object]", document), str(path))


def resolve_config(document: dict[str, object], path: str) -> DecoderConfig:
    """Resolve a parsed config; ``path`` is for sentences.

    Raises:
        ConfigError: As for ``read_config``.
    """
    fields = _known_family(document, path)
    _refuse_quantized(fields)
    _check_activation(fields)
    num_layers = fields.count("num_hidden_layers", least=0, most=MOST_LAYERS)
    max_positions = fields.count("max_position_embeddings")
    heads = fields.count("num_attention_heads")
    qwen = fields.model_type in ("qwen2", "qwen3")
    # Mistral has no biases; Qwen2 always has three and never says so.
    attention_bias = fields.model_type in ("llama", "qwen3") and fields.flag(
        "attention_bias", default=False
    )
    return DecoderConfig(
        model_type=fields.model_type,
        hidden_size=fields.count("hidden_size"),
        intermediate_size=fields.count("intermediate_size"),
        num_hidden_layers=num_layers,
        num_attention_heads=heads,
        num_key_value_heads=_num_key_value_heads(fields, heads),
        head_dim=_head_dim(fields, heads),
        vocab_size=fields.count("vocab_size"),
        max_position_embeddings=max_positions,
        rms_norm_eps=fields.number("rms_norm_eps"),
        rope=read_rope(fields, max_positions),
        qkv_bias=attention_bias or fields.model_type == "qwen2",
        o_bias=attention_bias,
        mlp_bias=fields.model_type == "llama"
        and fields.flag("mlp_bias", default=False),
        qk_norm=fields.model_type == "qwen3",
        sliding_windows=(_qwen_windows if qwen else _family_windows)(
            fields, num_layers
        ),
        tie_word_embeddings=fields.flag("tie_word_embeddings", default=False),
    )


def _known_family(document: dict[str, object], path: str) -> Fields:
    declared = document.get("model_type")
    model_type = declared if isinstance(declared, str) else ""
    if model_type not in FAMILIES:
        raise ConfigError(
            f"model architecture {quoted(model_type)} is unsupported by this Ster "
            "build; use a Hugging Face checkpoint whose model_type is one of "
            + ", ".join(FAMILIES)
        )
    return Fields(values=document, path=path, model_type=model_type)


def _refuse_quantized(fields: Fields) -> None:
    # mlx-lm's converter writes the same thing under the shorter name.
    for name in ("quantization_config", "quantization"):
        if fields.has(name):
            raise ConfigError(
                f"{fields.path} is a quantized checkpoint (it declares {name}); Ster "
                "maps unquantized safetensors only, so use the checkpoint it was "
                "quantized from"
            )


def _check_activation(fields: Fields) -> None:
    declared = fields.word("hidden_act", "silu")
    if declared not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ConfigError(
            f"{fields.path} declares hidden_act {quoted(declared)} for its "
            f"{fields.model_type} feed-forward; Ster implements {known}"
        )


def _num_key_value_heads(fields: Fields, heads: int) -> int:
    key_value_heads = fields.count("num_key_value_heads", heads)
    if heads % key_value_heads:
        fields.refuse(
            "num_key_value_heads",
            key_value_heads,
            f"a divisor of num_attention_heads, which is {heads}",
        )
    return key_value_heads


def _head_dim(fields: Fields, heads: int) -> int:
    hidden_size = fields.count("hidden_size")
    if fields.has("head_dim"):
        head_dim = fields.count("head_dim")
    elif fields.model_type == "qwen3":
        head_dim = QWEN3_HEAD_DIM
    elif hidden_size % heads:
        fields.refuse(
            "hidden_size", hidden_size, f"a multiple of num_attention_heads, {heads}"
        )
    else:
        head_dim = hidden_size // heads
    # Dynamic scaling divides by head_dim - 2 on top.
    if head_dim % 2 or head_dim == 2:
        fields.refuse("head_dim", head_dim, "even and above two, as the rotation needs")
    return head_dim


def _family_windows(fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    """Read Llama's and Mistral's windows: the same in every layer."""
    window: int | None = None
    # An explicit null means no window, an absent field means the family's own.
    if fields.model_type == "mistral" and (
        fields.values.get("sliding_window", MISTRAL_WINDOW) is not None
    ):
        window = fields.count("sliding_window", MISTRAL_WINDOW)
    kind = "full_attention" if window is None else "sliding_attention"
    for declared in _layer_types(fields, num_layers) or ():
        if declared == "sliding_attention" and window is None:
            raise _no_window(fields)
        if declared != kind:
            fields.refuse("layer_types", declared, f"{kind} in every layer")
    return (window,) * num_layers


def _qwen_windows(fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    """Read Qwen's windows: in some layers only, and only when they are switched on."""
    enabled = fields.flag("use_sliding_window", default=False)
    types = _layer_types(fields, num_layers)
    if types is None:
        first = fields.count("max_window_layers", QWEN_MAX_WINDOW_LAYERS, least=0)
        types = [
            "sliding_attention" if enabled and layer >= first else "full_attention"
            for layer in range(num_layers)
        ]
    if "sliding_attention" not in types:
        return (None,) * num_layers
    if not (enabled and fields.has("sliding_window")):
        raise _no_window(fields)
    window = fields.count("sliding_window")
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _no_window(fields: Fields) -> ConfigError:
    return ConfigError(
        f"{fields.path} makes some layers sliding-window but declares no sliding_window"
    )


def _layer_types(fields: Fields, num_layers: int) -> list[str] | None:
    types = fields.values.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list):
        fields.refuse("layer_types", types, "a list")
    if len(types) != num_layers:
        raise ConfigError(
            f"{fields.path} lists {len(types)} layer_types for {num_layers} layers"
        )
    for kind in types:
        if kind not in ("full_attention", "sliding_attention"):
            fields.refuse("layer_types", kind, "full_attention or sliding_attention")
    return types
