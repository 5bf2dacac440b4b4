"""config.json's quantization -> formats, or the checkpoint refused by name."""

from __future__ import annotations

import pytest

from ster.architecture.fields import Fields
from ster.architecture.foreign_quantization import METHODS
from ster.architecture.quantization import Format, Quantization, read_quantization
from ster.checkpoint.lookalikes import explain_tensors
from ster.errors import ConfigError

PATH = "m/config.json"
GATE = "model.layers.0.mlp.gate"
Q4 = Format(mode="affine", bits=4, group_size=64)
MLX = {"group_size": 64, "bits": 4}
GPTQ = {"quantization_config": {"quant_method": "gptq"}}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def read(**document) -> Quantization | None:
    return read_quantization(
        Fields(values=document, path=PATH, model_type=document.get("model_type", "x"))
    )


def mlx(**declared) -> Quantization:
    found = read(quantization=declared)
    assert found is not None
    return found


def refusal(**document) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(**document)
    error = caught.value
    assert error.path == PATH
    assert "\n" not in str(error)
    return error


class TestMlx:
    @pytest.mark.parametrize(
        "document", [{}, {"quantization": None}, {"quantization_config": {}}]
    )
    def test_a_checkpoint_that_declares_nothing_is_not_quantized(self, document):
        assert read(**document) is None

    @pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
    @pytest.mark.parametrize("group_size", [32, 64, 128])
    def test_affine_is_read_where_no_mode_is_declared(self, bits, group_size):
        expected = Format(mode="affine", bits=bits, group_size=group_size)
        assert mlx(bits=bits, group_size=group_size).default == expected

    @pytest.mark.parametrize(
        ("mode", "bits", "group_size"),
        [("affine", 4, 64), ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)],
    )
    def test_bits_and_groups_that_are_not_declared_are_mlxs_own(
        self, mode, bits, group_size
    ):
        expected = Format(mode=mode, bits=bits, group_size=group_size)
        assert mlx(mode=mode).default == expected
        assert mlx(mode=mode, bits=bits, group_size=group_size).default == expected

    @pytest.mark.parametrize(
        ("field", "value", "others"),
        [
            ("bits", 7, {}),
            ("bits", 1, {}),
            ("bits", "4", {}),
            ("bits", True, {}),
            ("group_size", 16, {}),
            ("group_size", 256, {}),
            ("group_size", 64.0, {}),
            ("bits", 8, {"mode": "mxfp4"}),
            ("group_size", 64, {"mode": "mxfp4"}),
            ("bits", 4, {"mode": "mxfp8"}),
            ("group_size", 32, {"mode": "nvfp4"}),
            ("mode", "mxfp6", {}),
            ("mode", "fp8", {}),
            ("mode", 4, {}),
            ("sym", 0.5, {}),
            ("lm_head", "no", {}),
        ],
    )
    @pytest.mark.parametrize("within", ["", GATE])
    def test_what_mlx_does_not_make_is_refused_by_field(
        self, field, value, others, within
    ):
        if within:
            declared = {**MLX, within: {**others, field: value}}
        else:
            declared = {"mode": "affine", **others, field: value}
        error = refusal(quantization=declared, model_type="llama")
        place = f"quantization.{within}." if within else "quantization."
        assert (error.field, error.found) == (place + field, value)
        assert error.expected is not None
        assert error.sentence == f"invalid llama config {PATH}"

    def test_a_modules_entry_is_its_own_and_takes_nothing_from_the_default(self):
        found = mlx(
            mode="mxfp4",
            group_size=32,
            bits=4,
            **{
                GATE: {"bits": 8},
                "lm_head": {"group_size": 32},
                "a": {"mode": "nvfp4"},
            },
        )
        assert found.of(GATE) == Format(mode="affine", bits=8, group_size=64)
        assert found.of("lm_head") == Format(mode="affine", bits=4, group_size=32)
        assert found.of("a") == Format(mode="nvfp4", bits=4, group_size=16)
        assert found.of("model.layers.1.mlp.gate") == found.default

    def test_true_is_the_default_and_false_null_and_empty_are_not_quantized(self):
        found = mlx(**MLX, a=True, b=False, c=None, d={})
        assert found == Quantization(
            default=Q4, overrides={"a": Q4, "b": None, "c": None, "d": None}
        )
        assert found.of("a") == Q4
        assert found.of("b") is None
        assert found.of("e") == Q4

    def test_an_entry_that_is_no_modules_is_refused(self):
        error = refusal(quantization=MLX | {"version": 2})
        assert (error.field, error.found) == ("quantization.version", 2)

    @pytest.mark.parametrize("value", [2, {"bits": 7}, False])
    def test_a_path_that_would_break_the_line_is_refused(self, value):
        error = refusal(quantization=MLX | {"a\nb": value})
        assert error.field == "a\nb"

    @pytest.mark.parametrize("key", ["quantize_input", "global_scale"])
    def test_what_else_a_modules_entry_may_ask_for_is_refused_by_name(self, key):
        assert mlx(**MLX, **{GATE: {**MLX, key: False}}).of(GATE) == Q4
        error = refusal(quantization=MLX | {GATE: {**MLX, key: True}})
        assert error.field == f"quantization.{GATE}.{key}"

    def test_rounded_activations_are_refused(self):
        assert refusal(quantization=MLX, quantize_activations=True).field == (
            "quantize_activations"
        )
        assert read(quantization=MLX, quantize_activations=False) is not None


class TestPlaces:
    @pytest.mark.parametrize("name", ["quantization", "quantization_config"])
    def test_either_name_stands_alone_at_the_top_or_in_the_text_model(self, name):
        expected = Quantization(default=Q4, overrides={})
        assert read(**{name: MLX}) == expected
        assert read(text_config={name: MLX}) == expected
        assert read(**{name: {**MLX, "quant_method": "mlx"}}) == expected

    def test_both_may_say_the_same_in_other_words(self):
        spelled = {**MLX, "mode": "affine", "quant_method": "mlx"}
        found = read(quantization=MLX, quantization_config=spelled)
        assert found == Quantization(default=Q4, overrides={})

    @pytest.mark.parametrize(
        "other",
        [{"bits": 8}, MLX | {"lm_head": False}, {"quant_method": "mxfp4"}, FP8],
    )
    def test_two_that_differ_are_refused(self, other):
        error = refusal(quantization=MLX, quantization_config=other)
        assert (error.field, error.found) == ("quantization_config", other)
        assert error.expected == "the same as `quantization`"

    def test_what_the_text_model_declares_counts_only_where_the_top_is_silent(self):
        assert read(quantization=MLX, text_config=GPTQ) is not None
        assert refusal(text_config=GPTQ).field == (
            "text_config.quantization_config.quant_method"
        )
        document = {"quantization": None, "text_config": {"quantization": {"bits": 7}}}
        assert refusal(**document).field == "text_config.quantization.bits"

    @pytest.mark.parametrize("value", [True, 4, [MLX]])
    def test_what_is_no_object_is_refused(self, value):
        error = refusal(quantization=value)
        assert (error.field, error.found) == ("quantization", value)
        assert error.expected == "an object"


class TestPublished:
    def test_mxfp4_as_openai_publishes_it_is_read(self):
        kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
        declared = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
        found = read(quantization_config=declared)
        assert found is not None
        assert found.default == Format(mode="mxfp4", bits=4, group_size=32)
        assert found.of("model.layers.3.mlp.experts") == found.default
        assert found.of("lm_head") is None

    @pytest.mark.parametrize(
        "extra",
        [
            {},
            {"fmt": "e4m3", "activation_scheme": "dynamic", "scale_fmt": "ue8m0"},
            {"modules_to_not_convert": None, "ignored_layers": ["lm_head"]},
        ],
    )
    def test_fp8_with_scales_for_blocks_is_read(self, extra):
        declared = {"quant_method": "fp8", "weight_block_size": [128, 64], **extra}
        found = read(quantization_config=declared)
        assert found is not None
        assert found.default == Format(
            mode="fp8", bits=8, group_size=64, block_rows=128
        )
        assert (found.of("lm_head") is None) == ("ignored_layers" in extra)

    @pytest.mark.parametrize(
        ("field", "value", "expected"),
        [
            ("weight_block_size", None, "two whole numbers"),
            ("activation_scheme", "static", "dynamic"),
            ("fmt", "e5m2", "e4m3"),
        ],
    )
    def test_other_fp8_is_refused_as_quantized(self, field, value, expected):
        error = refusal(quantization_config=FP8 | {field: value})
        assert error.field == f"quantization_config.{field}"
        assert (error.found, error.expected) == (value, expected)
        assert error.sentence.startswith(f"{PATH} is a quantized checkpoint (it ")

    @pytest.mark.parametrize(
        "size", [[128], [128, 0], [128, "128"], [True, 128], 128, [2**40, 1]]
    )
    def test_a_size_of_blocks_that_makes_no_sense_is_refused(self, size):
        error = refusal(quantization_config=FP8 | {"weight_block_size": size})
        assert error.field == "quantization_config.weight_block_size"
        assert error.found == size
        assert error.sentence == f"invalid x config {PATH}"

    @pytest.mark.parametrize("listed", ["lm_head", [1], {"a": 1}])
    def test_a_list_of_modules_that_is_none_is_refused(self, listed):
        error = refusal(quantization_config=FP8 | {"modules_to_not_convert": listed})
        assert error.field == "quantization_config.modules_to_not_convert"


class TestForeign:
    @pytest.mark.parametrize("method", [*sorted(set(METHODS) - {"fp8"}), "new", "?"])
    def test_every_other_method_is_refused_with_the_way_out(self, method):
        declared = {"quant_method": method, "bits": 4, "group_size": 128}
        error = refusal(quantization_config=declared)
        assert error.sentence == (
            f"{PATH} is a quantized checkpoint (it declares quantization_config); Ster "
            "maps unquantized safetensors only, so use the checkpoint it was quantized "
            "from"
        )
        assert error.field == "quantization_config.quant_method"
        assert error.found == declared["quant_method"]
        [cause] = error.causes
        assert f"quant_method `{error.found}`" in cause
        assert "mlx_lm.convert --hf-path <that model> -q" in cause

    @pytest.mark.parametrize(
        ("declared", "method"),
        [
            ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bitsandbytes"),
            ({"load_in_8bit": True}, "bitsandbytes"),
            ({"bits": 4, "group_size": 128, "desc_act": False}, "gptq"),
            ({"w_bit": 4, "q_group_size": 128, "zero_point": True}, "awq"),
            ({"config_groups": {}, "format": "pack-quantized"}, "compressed-tensors"),
            ({"version": 1}, None),
        ],
    )
    def test_a_method_that_is_not_named_is_told_by_its_keys(self, declared, method):
        error = refusal(quantization_config=declared)
        assert error.found == method
        named = "does not say by which" if method is None else f"`{method}`"
        assert named in error.causes[0]

    def test_a_word_in_place_of_an_object_is_taken_for_the_method(self):
        error = refusal(quantization="gptq")
        assert (error.field, error.found) == ("quantization", "gptq")
        assert "it declares quantization)" in error.sentence

    def test_a_word_that_would_break_the_line_is_shown_as_in_the_file(self):
        error = refusal(quantization_config={"quant_method": "a\n\x1b[2J"})
        assert r"`a\n\u001b[2J`" in error.causes[0]

    def test_a_method_that_is_no_word_is_refused(self):
        error = refusal(quantization_config={"quant_method": 8})
        assert error.field == "quantization_config.quant_method"

    def test_an_older_name_of_compressed_tensors_is_found(self):
        error = refusal(compression_config={"format": "dense", "config_groups": {}})
        assert error.field == "compression_config.quant_method"

    @pytest.mark.parametrize(
        ("name", "is_named"),
        [
            ("org/Model-7B", True),
            ("org/Model-7B-AWQ", False),
            ("org/Model-7B-bnb-4bit", False),
            ("/m/model", False),
            ("./model", False),
            ("a/b/c", False),
            ("org/model; rm -r x", False),
            (7, False),
        ],
    )
    def test_the_model_that_it_was_made_from_is_named_where_the_config_says_it(
        self, name, is_named
    ):
        declared = {"quant_method": "awq"}
        error = refusal(quantization_config=declared, _name_or_path=name)
        shown = name if is_named else "<that model>"
        assert error.causes[0].endswith(f"mlx_lm.convert --hf-path {shown} -q")


class TestUndeclared:
    """Tensors that tell of a quantization of which config.json says nothing."""

    @pytest.mark.parametrize(
        ("name", "whose"),
        [
            ("q_proj.qweight", "GPTQ's and AWQ's"),
            ("q_proj.weight.absmax", "bitsandbytes'"),
            ("q_proj.weight_packed", "compressed-tensors'"),
            ("q_proj.weight_scale_2", "NVIDIA ModelOpt's"),
            ("q_proj.weight_scale", "fp8 with a scale"),
        ],
    )
    def test_whose_they_are_is_said_with_the_way_out(self, name, whose):
        [cause] = explain_tensors(["model.norm.weight", "q_proj.weight_scale", name])
        assert whose in cause
        assert "mlx_lm.convert" in cause

    @pytest.mark.parametrize(
        "name", ["q_proj.weight", "q_proj.scales", "q_proj.weight_scale_inv"]
    )
    def test_nothing_is_said_of_those_that_are_read(self, name):
        assert explain_tensors(["model.norm.weight", name]) == []
