"""``ster vector export``."""

from __future__ import annotations

from ster.cli.answer import render_beside
from ster.cli.model import check_output
from ster.cli.options import Text
from ster.cli.vector.options import Artifact, ExportedLayers, Output


def export(
    *,
    artifact: Artifact,
    output_path: Output,
    layers: ExportedLayers = "all",
    text: Text = None,
) -> str:
    """Write a steering artifact in another format.

    The suffix of the output says which: .json, .safetensors, .npz, or .gguf, a control
    vector for llama.cpp, which has no place for layer 0. Prints the output's path.
    """
    from ster.documents.steering import check_suffix
    from ster.vectors.some_layers import take_layers
    from ster.vectors.steering import SteeringVector

    check_output(output_path, [artifact])
    check_suffix(output_path)
    vector = take_layers(SteeringVector.load(artifact), layers)
    vector.save(output_path)
    return render_beside(output_path, output_path, text=text)
