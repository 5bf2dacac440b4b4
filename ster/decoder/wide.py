"""Which families go through mlx-lm, said before it is imported."""

from __future__ import annotations

import importlib
from typing import Any, cast

from ster.architecture.config import unsupported
from ster.architecture.strangers import explain_stranger
from ster.architecture.wide import WideSpec
from ster.architecture.wide_families import CHECKED, INSTALL, WRONG
from ster.errors import ConfigError
from ster.reporting import Reporter


def open_wide(
    document: dict[str, object],
    path: str,
    reporter: Reporter,
    *,
    device: str,
    precision: str,
) -> WideSpec:
    """Open a family that ster does not own, on a device of MLX's.

    Args:
        document: config.json.
        path: The file, for sentences.
        reporter: Is warned where nobody has checked the family.
        device: Where it will run.
        precision: At which width.

    Raises:
        ConfigError: mlx-lm is not installed or does not have the family, its rows are
            known to be wrong, or it is no model that writes from left to right.
        DeviceError: The device has not all its products at that width.
    """
    family = document.get("model_type")
    if not isinstance(family, str) or explain_stranger(document):
        raise unsupported(document, path)
    if family in WRONG:
        raise ConfigError(
            f"mlx-lm computes {family} wrongly: {WRONG[family]}",
            "use a checkpoint of another family; `ster models` lists those that were "
            "checked",
            path=path,
            field="model_type",
            found=family,
        )
    module: Any = importlib.import_module("ster.decoder.mlx_lm")
    try:
        spec = cast("WideSpec", module.read_wide(document, path))
    except module.NoMLXLM as error:
        way = str(error) if error.installed else INSTALL
        raise unsupported(document, path, way) from error
    module.check_precision(spec, device=device, precision=precision)
    if family not in CHECKED:
        reporter.warn(
            f"nobody has checked {family} against a reference; its rows come from "
            f"mlx-lm {module.version()} as they are"
        )
    return spec
