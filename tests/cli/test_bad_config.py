"""Configs that are broken, hostile or of another kind, at the command line."""

from __future__ import annotations

import pytest

from ster.architecture import families
from tests.cli.user import User

CONFIG = "toy/config.json"
INVALID = "invalid llama config toy/config.json"
FAMILIES = ", ".join(families.FAMILIES)
NO_WINDOW = f"{CONFIG} makes some layers sliding-window but declares no sliding_window"


def unsupported(shown: str) -> str:
    return (
        f"model architecture {shown} is unsupported by this Ster build; use a Hugging "
        f"Face checkpoint whose model_type is one of {FAMILIES}"
    )


def rope(shown: str) -> str:
    return (
        f'{CONFIG} declares rope_scaling "{shown}"; Ster implements default, llama3, '
        "linear, dynamic, yarn, longrope rotary scaling"
    )


def quantized(field: str) -> str:
    return (
        f"{CONFIG} is a quantized checkpoint (it declares {field}); Ster maps "
        "unquantized safetensors only, so use the checkpoint it was quantized from"
    )


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"hidden_size": ...}, "missing field `hidden_size`"),
        ({"vocab_size": None}, "missing field `vocab_size`"),
        (
            {"num_attention_heads": 2**31},
            "`num_attention_heads` is 2147483648, not between 1 and 2147483647",
        ),
        (
            {"rms_norm_eps": "1e-5"},
            '`rms_norm_eps` is "1e-5", not a number',
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 0}},
            "`rope_scaling.factor` is 0, not a finite number above zero",
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
        ({"model_type": 'a"\x1b[2J\n'}, unsupported(r'"a\"\u{1b}[2J\n"')),
        (
            {"hidden_act": "gelu"},
            (
                f'{CONFIG} declares hidden_act "gelu" for its llama '
                f"feed-forward; Ster implements silu, swish"
            ),
        ),
        ({"rope_scaling": {"type": "ntk"}}, rope("ntk")),
        ({"layer_types": ["sliding_attention"] * 4}, NO_WINDOW),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            quantized("quantization_config"),
        ),
    ],
)
def test_what_ster_does_not_implement_is_refused_by_name(user: User, changes, sentence):
    user.config(**changes)
    has_way_out = {"model_type", "quantization_config"} & changes.keys()
    causes = (...,) if has_way_out else ()
    user.is_refused(sentence, *causes)


def test_a_refusal_names_the_family(user: User):
    user.config(model_type="mistral", sliding_window=0)
    cause = "`sliding_window` is 0, not between 1 and 2147483647"
    user.is_refused("invalid mistral config toy/config.json", cause)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b'{"model_type": "llama", "hidden_size": NaN}', ...),
        (b"[" * 100_000, ...),
        (b"[]", "it is not a JSON object"),
    ],
)
def test_a_config_that_is_no_json_object_is_refused(user: User, data, cause):
    user.write(CONFIG, data)
    user.is_refused("invalid model config toy/config.json", cause)


@pytest.mark.parametrize(
    ("name", "place", "sentence", "cause"),
    [
        (
            "config.json",
            "a folder",
            "model config is missing: toy/config.json",
            "it is a directory, not a file",
        ),
        (
            "tokenizer.json",
            "nothing",
            "tokenizer is missing: toy/tokenizer.json",
            None,
        ),
        (
            "model.safetensors",
            "a dangling link",
            "model directory contains no safetensors weights",
            'it is a link to "nowhere", which is not there',
        ),
    ],
)
def test_a_file_that_is_missing_is_named(user: User, name, place, sentence, cause):
    path = user.folder / "toy" / name
    path.unlink()
    if place == "a folder":
        path.mkdir()
    elif place == "a dangling link":
        path.symlink_to("nowhere")
    user.is_refused(sentence, *([cause] if cause else []))
