"""How a wide family's checkpoint is quantized: as MLX does it, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from ster.architecture.fields import Fields
from ster.architecture.foreign_quantization import foreign
from ster.architecture.quantization import Quantization, read_quantization

_PLACES = ("quantization", "quantization_config")


def read_wide_quantization(
    document: Mapping[str, Any], path: str
) -> Quantization | None:
    """Read how the checkpoint is quantized; None where it is not.

    Args:
        document: All of config.json.
        path: For sentences.

    Raises:
        ConfigError: It is quantized in another format than MLX's, or declares it twice
            and not alike.
    """
    family = str(document.get("model_type"))
    fields = Fields(values=document, path=path, model_type=family)
    quantization = read_quantization(fields)
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
    return quantization
