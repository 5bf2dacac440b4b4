"""How a wide family's checkpoint is quantized: as MLX does it, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from ster.architecture.fields import Fields
from ster.architecture.foreign_quantization import foreign
from ster.architecture.quantization import read_quantization

_PLACES = ("quantization", "quantization_config")


def check_wide_quantization(document: Mapping[str, Any], path: str) -> None:
    """Refuse quantizations that mlx-lm does not read.

    Args:
        document: All of config.json.
        path: For sentences.

    Raises:
        ConfigError: It is quantized in another format than MLX's, declares it twice and
            not alike, or says less of it than mlx-lm looks for.
    """
    family = str(document.get("model_type"))
    fields = Fields(values=document, path=path, model_type=family)
    # mlx-lm would round what goes into each product too.
    if fields.flag("quantize_activations", default=False):
        fields.refuse("quantize_activations", True, "left unset")
    if read_quantization(fields) is None:
        return
    # What ster reads of other tools in families of its own, mlx-lm's code does not.
    wraps = isinstance(document.get("text_config"), dict)
    inner = fields.inner("text_config") if wraps else None
    for place, name in product((fields, inner or fields), _PLACES):
        declared = place.values.get(name)
        method = declared.get("quant_method") if isinstance(declared, dict) else None
        if method in ("fp8", "mxfp4"):
            refused = foreign(fields, place, name, method)
            refused.expected = "mlx"
            raise refused
    packing = fields.inner("quantization")
    for name in ("group_size", "bits"):
        if packing is not None:
            packing.count(name)
