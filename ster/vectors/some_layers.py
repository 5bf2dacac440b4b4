"""A steering vector of some of another's layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ster.errors import LayerError
from ster.layers import Layers, select_layers
from ster.vectors.norms import note_norms
from ster.vectors.steering import SteeringVector


def take_layers(vector: SteeringVector, layers: Layers) -> SteeringVector:
    """Take some layers of a vector, with their norms and training numbers.

    Args:
        vector: The vector.
        layers: ``"all"``, a selection such as ``"1..30"``, an index, or indices.

    Raises:
        LayerError: The vector lacks one of them.
    """
    if layers == "all":
        return vector
    try:
        chosen = select_layers(layers, vector.layers[-1] + 1)
    except LayerError as error:
        if error.layer is not None:  # the vector lacks it, whatever the model has
            vector.direction(error.layer)
        raise
    array = np.stack([vector.direction(layer) for layer in chosen])
    places = [vector.layers.index(layer) for layer in chosen]
    norms, metadata = vector.residual_norms, {**vector.metadata}
    if norms is not None:
        metadata |= note_norms(norms[place] for place in places)
    return replace(
        vector,
        layers=chosen,
        array=array,
        train_margin=tuple(vector.train_margin[place] for place in places),
        train_accuracy=tuple(vector.train_accuracy[place] for place in places),
        metadata=metadata,
    )
