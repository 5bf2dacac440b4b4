"""Quantized checkpoints that are not read: whose they are, and the way out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ster.architecture.fields import Fields, shown
from ster.errors import ConfigError

# What quant_method names, in words for whoever did not make the checkpoint.
METHODS = {
    "aqlm": "AQLM's, sums of codebook entries",
    "auto-round": "AutoRound's packed integers",
    "auto_round": "AutoRound's packed integers",
    "awq": "AWQ's packed integers",
    "bitnet": "BitNet's, of three values",
    "bitsandbytes": "bitsandbytes' 4- or 8-bit blocks",
    "compressed-tensors": "compressed-tensors'",
    "eetq": "EETQ's 8-bit integers",
    "exl2": "ExLlama's",
    "exl3": "ExLlama's",
    "fbgemm_fp8": "FBGEMM's fp8 with a scale for each row",
    "fp_quant": "FP-Quant's",
    "fp8": "fp8",
    "gguf": "GGUF's, llama.cpp's format",
    "gptq": "GPTQ's packed integers",
    "higgs": "HIGGS', entries of a grid",
    "hqq": "HQQ's packed integers",
    "modelopt": "NVIDIA ModelOpt's",
    "modelopt_fp4": "NVIDIA ModelOpt's",
    "quanto": "Quanto's",
    "quark": "AMD Quark's",
    "quip": "QuIP#'s, entries of a codebook",
    "sinq": "SINQ's packed integers",
    "spqr": "SpQR's",
    "torchao": "torchao's",
    "vptq": "VPTQ's, entries of a codebook",
}
READ = "mlx, mxfp4, fp8 in blocks"
# Keys that give away a method that is not named, as in checkpoints of its first days.
_TELLTALES = {
    "load_in_4bit": "bitsandbytes",
    "load_in_8bit": "bitsandbytes",
    "_load_in_4bit": "bitsandbytes",
    "_load_in_8bit": "bitsandbytes",
    "config_groups": "compressed-tensors",
    "desc_act": "gptq",
    "quant_algo": "modelopt",
    "w_bit": "awq",
    "zero_point": "awq",
}
# Of fp8: what is read, and why the rest is not.
_FP8 = {
    "fmt": ("e4m3", "no other fp8 is read"),
    "activation_scheme": (
        "dynamic",
        "inputs are rounded by a fixed scale, which is not computed",
    ),
    "weight_block_size": (
        "two whole numbers",
        "one scale is for a whole matrix or row, and fp8 is read with one for each "
        "block",
    ),
}
_MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
# In the name of a model that is quantized itself.
_QUANTIZED_NAME = re.compile(
    r"awq|bnb|exl\d|fp[48]|ggml|gguf|gptq|hqq|int[248]|quant|w\da\d|[2-8]-?bit", re.I
)


def guess_method(declared: Mapping[str, object]) -> str | None:
    """Tell whose quantization it is that does not name its method.

    Args:
        declared: The object in config.json.

    Returns:
        A method, ``mlx`` for MLX's own, which never names one, or None.
    """
    for key, method in _TELLTALES.items():
        if key in declared:
            return method
    own = ("bits", "group_size", "mode")
    return "mlx" if any(key in declared for key in own) else None


def explain_foreign(
    document: Mapping[str, object],
    method: str | None,
    key: str | None = None,
    found: object = None,
) -> str:
    """Say what a checkpoint is quantized with, and what to use instead.

    Args:
        document: All of config.json.
        method: The quant_method, as it is named or by what gives it away.
        key: The field that is to blame where the method itself is not.
        found: Its value.
    """
    if method is None:
        what = "it does not say by which quant_method"
    else:
        whose = METHODS.get(method.lower(), "a format that is not known here")
        what = f"its weights are {whose} (quant_method `{shown(method)[1:-1]}`)"
    if key is not None:
        what += f" and `{key}` is {shown(found)}: {_FP8[key][1]}"
    base = _base_model(document)
    if base is None:
        model, place = "the model it was quantized from", "<that model>"
    else:
        model = place = base
    return (
        f"{what}; use {model}, or MLX's quantized edition of it, which Ster reads: "
        f"mlx_lm.convert --hf-path {place} -q"
    )


def foreign(
    document: Fields,
    place: Fields,
    name: str,
    method: str | None,
    key: str | None = None,
    found: object = None,
) -> ConfigError:
    """Make the refusal of a checkpoint that is quantized in a way that is not read.

    Args:
        document: All of config.json.
        place: What declares it: the document or its ``text_config``.
        name: As what.
        method: As of ``explain_foreign``, and so are the others.
        key: The field to blame.
        found: Its value.
    """
    blamed = f"{place.within}{name}"
    if isinstance(place.values.get(name), Mapping):
        blamed += "." + (key or "quant_method")
    return ConfigError(
        f"{document.path} is a quantized checkpoint (it declares {name}); Ster maps "
        "unquantized safetensors only, so use the checkpoint it was quantized from",
        explain_foreign(document.values, method, key, found),
        path=document.path,
        field=blamed,
        found=found if key else method,
        expected=_FP8[key][0] if key else READ,
    )


def _base_model(document: Mapping[str, object]) -> str | None:
    """Read which model on the Hub the config was saved from, if it is another."""
    name = document.get("_name_or_path")
    if not isinstance(name, str) or not _MODEL_ID.fullmatch(name):
        return None
    return None if _QUANTIZED_NAME.search(name) else name
