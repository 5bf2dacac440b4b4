"""Whether vectors can be compared: of one model, at layers that all of them have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ster.documents.control_vectors import FOREIGN_METHOD
from ster.errors import DirectionError, LayerError, UsageError, require_whole_number
from ster.layers import Layers, name_layers, select_layers
from ster.text import quoted
from ster.vectors.origins import is_same_model, spell_term

if TYPE_CHECKING:
    from ster.vectors.steering import SteeringVector

# What helps where vectors were fitted at different layers.
SAME_LAYERS = "vector train --layers, in Python layers=, fits at the same layers"


def check_numbers(num_vectors: int, clusters: int) -> None:
    """Refuse numbers of vectors and groups with which there is nothing to compare.

    Raises:
        UsageError: The number of groups is none.
        DirectionError: There are fewer than two vectors, or more groups than vectors.
    """
    if require_whole_number(clusters, "clusters") < 1:
        raise UsageError(
            f"clusters must be at least 1, not {clusters}",
            field="clusters",
            found=clusters,
        )
    if num_vectors < 2:
        raise DirectionError(
            f"a comparison needs at least two vectors, not {num_vectors}",
            found=num_vectors,
            expected=2,
        )
    if clusters > num_vectors:
        raise DirectionError(
            f"{num_vectors} vectors make no {clusters} clusters",
            f"clusters may be 1 to {num_vectors}",
            field="clusters",
            found=clusters,
            expected=num_vectors,
        )


def label_vectors(vectors: Sequence[SteeringVector]) -> tuple[str, ...]:
    """Name vectors by their traits.

    Where these repeat, how they were made is said too; where that repeats, the file or
    else a number.
    """
    traits = Counter(each.trait_name for each in vectors)
    named = [
        spell_term(each.trait_name, each.method, each.metadata)
        if traits[each.trait_name] > 1
        else each.trait_name
        for each in vectors
    ]
    repeated, seen = Counter(named), Counter[str]()
    labels = []
    for name, each in zip(named, vectors, strict=True):
        seen[name] += 1
        mark = each.source or str(seen[name])
        labels.append(f"{name} {mark}" if repeated[name] > 1 else name)
    return tuple(labels)


def check_one_model(vectors: Sequence[SteeringVector], labels: Sequence[str]) -> None:
    """Refuse vectors of several models; one of another program names none.

    Raises:
        DirectionError: Their models or hidden sizes differ.
    """
    both = [*zip(labels, vectors, strict=True)]
    named = [(label, v.model) for label, v in both if v.method != FOREIGN_METHOD]
    for label, model in named[1:]:
        first, expected = named[0]
        if not is_same_model(model, expected):
            raise DirectionError(
                "vectors of different models have no directions in common",
                f"{quoted(first)} is of model {quoted(expected)}, {quoted(label)} of "
                f"{quoted(model)}",
                field="model",
                found=model,
                expected=expected,
            )
    for label, vector in both[1:]:
        first, expected_size = labels[0], vectors[0].hidden_size
        if vector.hidden_size != expected_size:
            raise DirectionError(
                "vectors of different hidden sizes have no directions in common",
                f"that of {quoted(first)} is {expected_size}, that of {quoted(label)} "
                f"{vector.hidden_size}",
                field="hidden_size",
                found=vector.hidden_size,
                expected=expected_size,
            )


def choose_layers(
    vectors: Sequence[SteeringVector], labels: Sequence[str], layers: Layers
) -> tuple[int, ...]:
    """Choose layers that all vectors have: those asked for, or all of them.

    Raises:
        LayerError: A vector lacks a layer that is asked for.
        DirectionError: They have none in common.
    """
    both = [*zip(labels, vectors, strict=True)]
    if isinstance(layers, str) and layers == "all":
        common = set.intersection(*(set(each.layers) for each in vectors))
        if common:
            return tuple(sorted(common))
        sentence = "the vectors have no layer in common"
        if len(vectors) > 2:  # some of them may have one
            sentence = f"no layer is common to all {len(vectors)} vectors"
        raise DirectionError(
            sentence,
            *(f"{quoted(label)} has {name_layers(v.layers)}" for label, v in both),
            SAME_LAYERS,
            field="layers",
        )
    most = 1 + max(each.layers[-1] for each in vectors)
    try:
        chosen = select_layers(layers, most)
    except LayerError as error:
        if error.layer is None:
            raise
        raise LayerError(
            f"no vector has layer {error.layer}", field="layers", layer=error.layer
        ) from error
    for label, vector in both:
        for layer in chosen:
            if layer not in vector.layers:
                there = name_layers(vector.layers)
                raise LayerError(
                    f"{quoted(label)} has no layer {layer}, only {there}",
                    field="layers",
                    layer=layer,
                    expected=vector.layers,
                )
    return chosen
