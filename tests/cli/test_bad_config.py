"""Configs that are broken, hostile or of another kind, at the command line."""

from __future__ import annotations

import pytest

from tests.cli.user import User

CONFIG = "toy/config.json"
INVALID = "invalid llama config toy/config.json"
FAMILIES = "llama, mistral, qwen2, qwen3"
NO_WINDOW = f"{CONFIG} makes some layers sliding-window but declares no sliding_window"


def unsupported(shown: str) -> str:
    return (
        f"model architecture {shown} is unsupported by this Ster build; use a Hugging "
        f"Face checkpoint whose model_type is one of {FAMILIES}"
    )


def rope(shown: str) -> str:
    return (
        f'{CONFIG} declares rope_scaling "{shown}"; Ster implements default, llama3, '
        "linear, dynamic, yarn rotary scaling"
    )


def quantized(field: str) -> str:
    return (
        f"{CONFIG} is a quantized checkpoint (it declares {field}); Ster maps "
        "unquantized safetensors only, so use the checkpoint it was quantized from"
    )


@pytest.mark.parametrize(
    "field",
    [
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "rms_norm_eps",
        "vocab_size",
    ],
)
@pytest.mark.parametrize("value", [..., None])
def test_a_field_that_is_missing_or_null_is_named(user: User, field, value):
    user.config(**{field: value})
    user.is_refused(INVALID, f"missing field `{field}`")


COUNT = "between 1 and 2147483647"
POSITIVE = "a finite number above zero"
COUNTS = [
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "head_dim",
]


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize(
    ("value", "shown", "expected"),
    [
        (0, "0", COUNT),
        (-64, "-64", COUNT),
        (2**31, "2147483648", COUNT),
        (64.0, "64.0", "a whole number"),
        (1e300, "1e+300", "a whole number"),
        (True, "true", "a whole number"),
        ("64", '"64"', "a whole number"),
        ([64], "[64]", "a whole number"),
        ({}, "{}", "a whole number"),
    ],
)
def test_a_count_that_is_none_is_named_with_its_value(
    user: User, field, value, shown, expected
):
    user.config(**{field: value})
    user.is_refused(INVALID, f"`{field}` is {shown}, not {expected}")


@pytest.mark.parametrize("field", ["rms_norm_eps", "rope_theta"])
@pytest.mark.parametrize(
    ("value", "shown", "expected"),
    [
        (0, "0", POSITIVE),
        (-1e-5, "-1e-05", POSITIVE),
        (1e300, "1e+300", POSITIVE),
        (False, "false", "a number"),
        ("1e-5", '"1e-5"', "a number"),
        ([], "[]", "a number"),
    ],
)
def test_a_number_that_is_none_is_named_with_its_value(
    user: User, field, value, shown, expected
):
    user.config(**{field: value})
    user.is_refused(INVALID, f"`{field}` is {shown}, not {expected}")


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        (
            {"num_hidden_layers": -1},
            "`num_hidden_layers` is -1, not between 0 and 10000",
        ),
        (
            {"num_hidden_layers": 10**6},
            "`num_hidden_layers` is 1000000, not between 0 and 10000",
        ),
        ({"num_hidden_layers": 4.0}, "`num_hidden_layers` is 4.0, not a whole number"),
        (
            {"num_key_value_heads": 3},
            (
                "`num_key_value_heads` is 3, not a divisor of "
                "num_attention_heads, which is 4"
            ),
        ),
        (
            {"num_key_value_heads": 8},
            (
                "`num_key_value_heads` is 8, not a divisor of "
                "num_attention_heads, which is 4"
            ),
        ),
        (
            {"num_attention_heads": 6, "num_key_value_heads": 6},
            "`hidden_size` is 64, not a multiple of num_attention_heads, 6",
        ),
        (
            {"head_dim": 15},
            "`head_dim` is 15, not even and above two, as the rotation needs",
        ),
        ({"attention_bias": "true"}, '`attention_bias` is "true", not true or false'),
        ({"mlp_bias": 1}, "`mlp_bias` is 1, not true or false"),
        (
            {"tie_word_embeddings": "no"},
            '`tie_word_embeddings` is "no", not true or false',
        ),
        ({"hidden_act": 3}, "`hidden_act` is 3, not a string"),
        ({"partial_rotary_factor": 0.5}, "`partial_rotary_factor` is 0.5, not 1.0"),
        (
            {"layer_types": "full_attention"},
            '`layer_types` is "full_attention", not a list',
        ),
        (
            {"layer_types": ["chunked"] * 4},
            '`layer_types` is "chunked", not full_attention or sliding_attention',
        ),
        (
            {"layer_types": [None] * 4},
            "`layer_types` is null, not full_attention or sliding_attention",
        ),
        ({"rope_scaling": "linear"}, '`rope_scaling` is "linear", not an object'),
        ({"rope_scaling": [2.0]}, "`rope_scaling` is [2.0], not an object"),
        (
            {"rope_scaling": {"rope_type": 3}},
            "`rope_scaling.rope_type` is 3, not a string",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 0}},
            "`rope_scaling.factor` is 0, not a finite number above zero",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": "2"}},
            '`rope_scaling.factor` is "2", not a number',
        ),
        (
            {"rope_scaling": {"rope_type": "dynamic"}},
            "missing field `rope_scaling.factor`",
        ),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "missing field `rope_scaling.low_freq_factor`",
        ),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
            "`rope_theta` is 10000.0, but `rope_parameters.rope_theta` is 500000.0",
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "linear",
                    "factor": 2.0,
                    "rope_theta": 1e4,
                },
                "rope_scaling": {"type": "yarn", "factor": 2.0},
            },
            '`rope_scaling` is "yarn", but `rope_parameters` is "linear"',
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "linear",
                    "factor": 2.0,
                    "rope_theta": 1e4,
                },
                "rope_scaling": {"type": "linear", "factor": 4.0},
            },
            "`rope_scaling.factor` is 4.0, but `rope_parameters.factor` is 2.0",
        ),
    ],
)
def test_fields_that_do_not_make_sense_are_named(user: User, changes, cause):
    user.config(**changes)
    user.is_refused(INVALID, cause)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "phi3"}, unsupported('"phi3"')),
        ({"model_type": "Llama"}, unsupported('"Llama"')),
        ({"model_type": 'a"\x1b[2J\n'}, unsupported(r'"a\"\u{1b}[2J\n"')),
        ({"model_type": ...}, unsupported('""')),
        ({"model_type": None}, unsupported('""')),
        ({"model_type": ["llama"]}, unsupported('""')),
        (
            {"hidden_act": "gelu"},
            (
                f'{CONFIG} declares hidden_act "gelu" for its llama '
                f"feed-forward; Ster implements silu, swish"
            ),
        ),
        ({"rope_scaling": {"type": "longrope"}}, rope("longrope")),
        ({"rope_scaling": {"rope_type": "Linear", "factor": 2}}, rope("Linear")),
        (
            {"rope_theta": ..., "rope_parameters": {"rope_type": "proportional"}},
            rope("proportional"),
        ),
        (
            {"rope_scaling": {"type": "linear"}},
            f"{CONFIG} declares linear rope_scaling with no factor",
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": None}},
            f"{CONFIG} declares yarn rope_scaling with no factor",
        ),
        (
            {"layer_types": ["full_attention"] * 3},
            f"{CONFIG} lists 3 layer_types for 4 layers",
        ),
        ({"layer_types": []}, f"{CONFIG} lists 0 layer_types for 4 layers"),
        ({"layer_types": ["sliding_attention"] * 4}, NO_WINDOW),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2},
            NO_WINDOW,
        ),
        (
            {
                "model_type": "qwen3",
                "head_dim": 16,
                "layer_types": ["sliding_attention"] * 4,
            },
            NO_WINDOW,
        ),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            quantized("quantization_config"),
        ),
        ({"quantization": {"bits": 4}}, quantized("quantization")),
    ],
)
def test_what_ster_does_not_implement_is_refused_by_name(user: User, changes, sentence):
    user.config(**changes)
    user.is_refused(sentence)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"sliding_window": 0}, "`sliding_window` is 0, not between 1 and 2147483647"),
        ({"sliding_window": "8"}, '`sliding_window` is "8", not a whole number'),
        (
            {"sliding_window": 8, "layer_types": ["full_attention"] * 4},
            '`layer_types` is "full_attention", not sliding_attention in every layer',
        ),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(user: User, changes, cause):
    user.config(model_type="mistral", **changes)
    user.is_refused("invalid mistral config toy/config.json", cause)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", ...),
        (b"{", ...),
        (b'{"model_type": "llama", "hidden_size": NaN}', ...),
        (b'{"model_type": "llama"} ', None),
        (b'{"model_type": "llama"}}', ...),
        (b'{"model_type": "a", "model_type": "b"}', 'key "model_type" is given twice'),
        (b"{'model_type': 'llama'}", ...),
        ('{"model_type": "llama"}'.encode("utf-16"), "invalid UTF-8 at byte 0"),
        (b"[" * 100_000, ...),
        (b"[]", "it is not a JSON object"),
        (b"null", "it is not a JSON object"),
    ],
)
def test_a_config_that_is_no_json_object_is_refused(user: User, data, cause):
    user.write(CONFIG, data)
    if cause is None:
        user.is_refused(INVALID, ...)
    else:
        user.is_refused("invalid model config toy/config.json", cause)


@pytest.mark.parametrize(
    ("place", "causes"),
    [
        ("nothing", []),
        ("a folder", ["it is a directory, not a file"]),
        ("a dangling link", ['it is a link to "nowhere", which is not there']),
    ],
)
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("config.json", "model config is missing: toy/config.json"),
        ("tokenizer.json", "tokenizer is missing: toy/tokenizer.json"),
        ("model.safetensors", "model directory contains no safetensors weights"),
    ],
)
def test_a_file_that_is_missing_is_named(user: User, name, sentence, place, causes):
    path = user.folder / "toy" / name
    path.unlink()
    if place == "a folder":
        path.mkdir()
    elif place == "a dangling link":
        path.symlink_to("nowhere")
    user.is_refused(sentence, *causes)
