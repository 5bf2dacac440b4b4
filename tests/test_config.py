"""config.json -> DecoderConfig: right for every family, or refused by name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ster.architecture.config import read_config, resolve_config
from ster.architecture.families import FAMILIES as READ
from ster.architecture.parts import FeedForward
from ster.architecture.rotary import DefaultRope, RopeConfig
from ster.architecture.spec import LayerSpec, ModelSpec
from ster.errors import ConfigError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
REQUIRED = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flat:
    """A spec in the words of config.json; its layers are alike but for windows."""

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
    rope: RopeConfig | None
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    sliding_windows: tuple[int | None, ...]
    tie_word_embeddings: bool


def flatten(spec: ModelSpec) -> Flat:
    block = spec.layers[0]
    attention, feed_forward = block.attention, block.feed_forward
    assert isinstance(feed_forward, FeedForward)
    assert all(alike(other) == alike(block) for other in spec.layers)
    assert block.attention_norm is not None
    return Flat(
        model_type=spec.model_type,
        hidden_size=spec.hidden_size,
        intermediate_size=feed_forward.intermediate_size,
        num_hidden_layers=spec.num_hidden_layers,
        num_attention_heads=attention.num_heads,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        vocab_size=spec.vocab_size,
        max_position_embeddings=spec.max_position_embeddings,
        rms_norm_eps=block.attention_norm.eps,
        rope=attention.rotary.scaling if attention.rotary else None,
        qkv_bias=attention.q_proj.bias,
        o_bias=attention.o_proj.bias,
        mlp_bias=feed_forward.up_proj.bias,
        qk_norm=attention.q_norm is not None,
        sliding_windows=tuple(each.attention.window for each in spec.layers),
        tie_word_embeddings=spec.head is None,
    )


def alike(block: LayerSpec) -> LayerSpec:
    attention = dataclasses.replace(block.attention, window=None)
    return dataclasses.replace(block, prefix="", attention=attention)


def resolve(family: object = "llama", /, **changes: object) -> Flat:
    """Resolve a config; a change to ``...`` removes the field."""
    document = {"model_type": family} | REQUIRED | changes
    document = {k: v for k, v in document.items() if v is not ...}
    return flatten(resolve_config(document, "m/config.json"))


def refusal(family: object = "llama", /, **changes: object) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(family, **changes)
    return str(caught.value)


# What AutoConfig.for_model(family, **REQUIRED) of transformers 5.24 has for a field
# that the file leaves out; its biases stand in modeling_<family>.py. The key-value
# heads are ours: absent or null, they equal the query heads.
DEFAULTS = Flat(
    model_type="llama",
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=16,
    vocab_size=50,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
    rope=DefaultRope(theta=10000.0),
    qkv_bias=False,
    o_bias=False,
    mlp_bias=False,
    qk_norm=False,
    sliding_windows=(None, None, None),
    tie_word_embeddings=False,
)


@pytest.mark.parametrize(
    ("family", "differences"),
    [
        ("llama", {}),
        ("mistral", {"sliding_windows": (4096, 4096, 4096)}),
        ("qwen2", {"qkv_bias": True}),
        ("qwen3", {"qk_norm": True, "head_dim": 128}),
    ],
)
def test_absent_fields_are_what_the_family_gives_them(family, differences):
    expected = dataclasses.replace(DEFAULTS, model_type=family, **differences)
    assert resolve(family) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_null_is_absent(family):
    names = (
        "num_key_value_heads head_dim hidden_act tie_word_embeddings attention_bias "
        "mlp_bias rope_theta layer_types use_sliding_window max_window_layers "
        "quantization_config"
    )
    nulls = dict.fromkeys(names.split())
    assert resolve(family, **nulls) == resolve(family)


# What some published files leave out, and transformers 5.24 has for the family.
LEFT_OUT = {
    "llama": (2048, 1e-6),
    "mistral": (131_072, 1e-6),
    "qwen2": (32_768, 1e-6),
    "qwen3": (32_768, 1e-6),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_trained_length_and_the_eps_may_be_the_familys_own(family):
    found = resolve(family, max_position_embeddings=..., rms_norm_eps=...)
    assert (found.max_position_embeddings, found.rms_norm_eps) == LEFT_OUT[family]


@pytest.mark.parametrize(
    "field", sorted(REQUIRED.keys() - {"max_position_embeddings", "rms_norm_eps"})
)
def test_a_field_that_no_default_can_replace_is_required(field):
    assert refusal(**{field: ...}) == (
        f"invalid llama config m/config.json: missing field `{field}`"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_width_of_the_weights_is_neither_needed_nor_a_matter(family):
    for dtype in ("float32", "bfloat16", None, 3):
        assert resolve(family, dtype=dtype) == resolve(family)
        assert resolve(family, torch_dtype=dtype) == resolve(family)


def test_fields_of_other_tools_are_ignored():
    assert resolve(auto_map={"a": 1}, pretraining_tp=1, eos_token_id=[1]) == DEFAULTS


def test_query_and_key_widths_follow_the_heads():
    document = {"model_type": "llama", "head_dim": 10, "num_key_value_heads": 2}
    spec = resolve_config(dict(REQUIRED | document), "c")
    attention = spec.layers[0].attention
    assert (attention.query_size, attention.key_value_size) == (40, 20)


def test_an_embedding_model_is_refused():
    """Its tokens see those after them too, which would change every row."""
    with pytest.raises(ConfigError) as caught:
        resolve("qwen2", is_causal=False)
    assert (caught.value.field, caught.value.found) == ("is_causal", False)
    assert "embedding model" in caught.value.causes[0]
    assert resolve("qwen2", is_causal=True) == resolve("qwen2", is_causal=None)


def test_a_window_that_a_family_does_not_have_is_refused_truly():
    cause = refusal(layer_types=[SLIDING] * 3, sliding_window=8)
    assert cause.endswith(
        '`layer_types` is "sliding_attention", not full_attention in every layer'
    )


@pytest.mark.parametrize(
    ("family", "biases"),
    [
        # Mistral has none, Qwen2 always those three; neither asks the field.
        ("llama", (True, True)),
        ("mistral", (False, False)),
        ("qwen2", (True, False)),
        ("qwen3", (True, True)),
    ],
)
def test_attention_bias_is_used_where_the_family_has_it(family, biases):
    config = resolve(family, attention_bias=True)
    assert (config.qkv_bias, config.o_bias) == biases
    off = resolve(family, attention_bias=False)
    assert (off.qkv_bias, off.o_bias) == (family == "qwen2", False)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_llama_has_biases_in_its_feed_forward(family):
    assert resolve(family, mlp_bias=True).mlp_bias == (family == "llama")


COUNT, NUMBER, FLAG = "a whole number", "a number", "true or false"


@pytest.mark.parametrize(
    ("family", "field", "kind"),
    [
        ("llama", "hidden_size", COUNT),
        ("llama", "intermediate_size", COUNT),
        ("llama", "num_hidden_layers", COUNT),
        ("llama", "num_attention_heads", COUNT),
        ("llama", "num_key_value_heads", COUNT),
        ("llama", "head_dim", COUNT),
        ("llama", "vocab_size", COUNT),
        ("llama", "max_position_embeddings", COUNT),
        ("mistral", "sliding_window", COUNT),
        ("qwen2", "max_window_layers", COUNT),
        ("llama", "rms_norm_eps", NUMBER),
        ("llama", "attention_bias", FLAG),
        ("llama", "mlp_bias", FLAG),
        ("llama", "tie_word_embeddings", FLAG),
        ("qwen2", "use_sliding_window", FLAG),
        ("llama", "hidden_act", "a string"),
        ("llama", "layer_types", "a list"),
    ],
)
def test_a_field_of_another_type_is_refused(family, field, kind):
    """What a count, a number or a flag may be is a matter of ``Fields``."""
    value, shown = ("64", '"64"') if kind != "a string" else (3, "3")
    assert refusal(family, **{field: value}) == (
        f"invalid {family} config m/config.json: `{field}` is {shown}, not {kind}"
    )


class TestFamilies:
    @pytest.mark.parametrize("declared", ["bert", "LLAMA", "", None, 3, ["llama"], ...])
    def test_an_unknown_one_is_refused_by_its_name(self, declared):
        shown = declared if isinstance(declared, str) else ""
        with pytest.raises(ConfigError) as caught:
            resolve(declared)
        assert caught.value.sentence == (
            f'model architecture "{shown}" is unsupported by this Ster build; use a '
            "Hugging Face checkpoint whose model_type is one of " + ", ".join(READ)
        )
        assert len(caught.value.causes) == 1

    def test_an_odd_name_is_quoted_on_one_line(self):
        assert refusal('a"\nb').startswith(r'model architecture "a\"\nb" is')

    def test_is_checked_before_any_field(self):
        assert "unsupported" in refusal("bert", hidden_size=None, hidden_act="gelu")


@pytest.mark.parametrize("name", ["quantization_config", "quantization"])
def test_a_checkpoint_that_another_tool_quantized_is_refused(name):
    said = refusal(**{name: {"quant_method": "gptq", "bits": 4}})
    assert said.startswith(
        f"m/config.json is a quantized checkpoint (it declares {name}); Ster maps "
        "unquantized safetensors only, so use the checkpoint it was quantized from"
    )


@pytest.mark.parametrize("activation", ["silu", "swish"])
def test_both_names_of_the_activation_are_read(activation):
    assert resolve(hidden_act=activation) == DEFAULTS


@pytest.mark.parametrize("family", FAMILIES)
def test_another_activation_is_refused(family):
    assert refusal(family, hidden_act="gelu") == (
        f'm/config.json declares hidden_act "gelu" for its {family} feed-forward; '
        "Ster implements silu, swish"
    )


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_key_value_heads": 3}, "is 3, not a divisor of num_attention_heads, "),
        ({"num_key_value_heads": 8}, "is 8, not a divisor of num_attention_heads, "),
        ({"hidden_size": 66}, "is 66, not a multiple of num_attention_heads, 4"),
        ({"head_dim": 15}, "is 15, not even and above two, as the rotation needs"),
        ({"head_dim": 2}, "is 2, not even and above two, as the rotation needs"),
        ({"hidden_size": 8}, "`head_dim` is 2, not even and above two"),
        ({"num_hidden_layers": 10_001}, "is 10001, not between 0 and 10000"),
        ({"num_hidden_layers": -1}, "is -1, not between 0 and 10000"),
        ({"rms_norm_eps": 0}, "`rms_norm_eps` is 0, not a finite number above zero"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(changes, complaint):
    sentence, cause = refusal(**changes).split(": ", 1)
    assert sentence == "invalid llama config m/config.json"
    assert complaint in cause


def test_a_head_dim_of_its_own_need_not_fit_the_hidden_size():
    assert resolve(hidden_size=66, head_dim=24).head_dim == 24


def test_a_model_without_layers_is_a_config():
    document = {**REQUIRED, "model_type": "llama", "num_hidden_layers": 0}
    assert resolve_config(document, "c").layers == ()


class TestWindows:
    @pytest.mark.parametrize(
        ("declared", "windows"),
        [(..., (4096,) * 3), (None, (None,) * 3), (7, (7,) * 3)],
        ids=["absent", "null", "seven"],
    )
    def test_of_mistral_are_the_same_in_every_layer(self, declared, windows):
        assert resolve("mistral", sliding_window=declared).sliding_windows == windows

    def test_are_not_for_llama(self):
        assert resolve("llama", sliding_window=7) == DEFAULTS

    @pytest.mark.parametrize("family", ["qwen2", "qwen3"])
    @pytest.mark.parametrize(
        ("changes", "windows"),
        [
            # The layer_types that transformers 5.24's Qwen2Config makes of these.
            ({"sliding_window": 8}, (None, None, None)),
            ({"sliding_window": 8, "max_window_layers": 0}, (None, None, None)),
            ({"use_sliding_window": True, "sliding_window": 8}, (None, None, None)),
            (
                {
                    "use_sliding_window": True,
                    "sliding_window": 8,
                    "max_window_layers": 1,
                },
                (None, 8, 8),
            ),
            (
                {
                    "use_sliding_window": True,
                    "sliding_window": 8,
                    "max_window_layers": 0,
                    "layer_types": [SLIDING, FULL, SLIDING],
                },
                (8, None, 8),
            ),
            ({"layer_types": [FULL] * 3}, (None, None, None)),
        ],
    )
    def test_of_qwen_are_in_the_layers_that_have_them(self, family, changes, windows):
        assert resolve(family, **changes).sliding_windows == windows

    @pytest.mark.parametrize(
        ("family", "changes"),
        [
            ("qwen2", {"use_sliding_window": True, "max_window_layers": 0}),
            ("qwen2", {"layer_types": [SLIDING] * 3, "sliding_window": 8}),
            ("qwen3", {"layer_types": [FULL, FULL, SLIDING]}),
            ("mistral", {"layer_types": [SLIDING] * 3, "sliding_window": None}),
            ("llama", {"layer_types": [FULL, SLIDING, FULL]}),
        ],
    )
    def test_that_are_used_must_be_declared(self, family, changes):
        assert refusal(family, **changes) == (
            "m/config.json makes some layers sliding-window but declares no "
            "sliding_window"
        )

    @pytest.mark.parametrize("family", FAMILIES)
    def test_are_listed_for_every_layer_or_for_none(self, family):
        assert refusal(family, layer_types=[FULL] * 2) == (
            "m/config.json lists 2 layer_types for 3 layers"
        )

    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("kind", ["chunked_attention", 1, None])
    def test_are_of_two_kinds(self, family, kind):
        cause = refusal(family, layer_types=[kind] * 3)
        assert cause.endswith(
            f"`layer_types` is {json.dumps(kind)}, not full_attention or "
            "sliding_attention"
        )

    def test_of_mistral_may_not_be_in_some_layers(self):
        assert refusal("mistral", layer_types=[SLIDING, FULL, SLIDING]).endswith(
            '`layer_types` is "full_attention", not sliding_attention in every layer'
        )

    def test_may_be_listed_where_they_are_everywhere(self):
        config = resolve("mistral", sliding_window=7, layer_types=[SLIDING] * 3)
        assert config.sliding_windows == (7, 7, 7)
        assert resolve("llama", layer_types=[FULL] * 3) == DEFAULTS

    def test_are_positive(self):
        assert "`sliding_window` is 0" in refusal("mistral", sliding_window=0)


class TestFile:
    def test_is_read(self, tmp_path):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"model_type": "llama"} | REQUIRED))
        assert flatten(read_config(path)) == DEFAULTS

    @pytest.mark.parametrize("text", ["[1]", "null", '{"a": 1, "a": 1}'])
    def test_that_is_no_json_object_is_refused(self, tmp_path, text):
        path = tmp_path / "config.json"
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            read_config(path)
        assert caught.value.sentence == f"invalid model config {path}"
        assert len(caught.value.causes) == 1

    def test_that_cannot_be_read_is_named(self, tmp_path):
        with pytest.raises(ConfigError) as caught:
            read_config(Path(tmp_path / "config.json"))
        assert caught.value.sentence == f"failed to read {tmp_path}/config.json"
        assert caught.value.causes == ("No such file or directory (os error 2)",)
