"""What comparisons, projections and learning curves show in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ster.html import MAX_ROWS, Card, Table
from ster.layers import abridge, name_layers
from ster.text import counted, decimal

if TYPE_CHECKING:
    from ster.vectors.comparison import Comparison
    from ster.vectors.learning_curves import LearningCurve
    from ster.vectors.projection import Projection


def describe_comparison(found: Comparison) -> str:
    """Write a comparison on one line."""
    alike = found.most_similar
    return (
        f"Comparison({counted(len(found.labels), 'vector')}, "
        f"{name_layers(found.layers)}, {counted(len({*found.clusters}), 'cluster')}, "
        f"most similar: {alike.a!r} and {alike.b!r}, cosine {alike.cosine:.4g})"
    )


def comparison_card(found: Comparison) -> Card:
    """Show the cosine of each two vectors, and their groups."""
    labels = found.labels[:MAX_ROWS]
    rows = [
        [label, found.clusters[index], found.uniqueness[index], *cosines]
        for index, (label, cosines) in enumerate(
            zip(labels, found.similarity[:, : len(labels)].tolist(), strict=False)
        )
    ]
    alike, apart = found.most_similar, found.most_different
    return Card(
        title=f"Comparison of {counted(len(found.labels), 'vector')}",
        facts=[
            ("model", found.model),
            ("layers", abridge(found.layers)),
            ("most similar", f"{alike.a}, {alike.b}: {alike.cosine:.4g}"),
            ("most different", f"{apart.a}, {apart.b}: {apart.cosine:.4g}"),
            ("silhouette", found.silhouette),
        ],
        tables=[
            Table(
                header=["vector", "cluster", "unique share", *labels],
                rows=rows,
                num_rows=len(found.labels),
                noun="vector",
            )
        ],
    )


def describe_projection(found: Projection) -> str:
    """Write a projection on one line."""
    parts = [
        repr(found.vector.trait_name),
        f"strength {found.spelled}",
        f"read at layer {found.layer}",
        counted(found.num_pairs, "pair"),
    ]
    if found.shift_along_direction is not None:
        parts.append(f"shift {found.shift_along_direction:.4g}")
    parts.append(f"{found.moved_toward_positive:.4g} of negative sides moved closer")
    return f"Projection({', '.join(parts)})"


def projection_card(found: Projection) -> Card:
    """Show the mean place of each side, unsteered and steered."""
    components = range(min(len(found.explained), MAX_ROWS))
    names = [f"component {i + 1} ({found.explained[i]:.0%})" for i in components]
    means = found.coordinates.mean(axis=1)
    rows = [
        [side, steered, *means[int(steered == "yes"), index, : len(names)].tolist()]
        for index, side in enumerate(("positive", "negative"))
        for steered in ("no", "yes")
    ]
    strength = found.strength.word or decimal(found.strength.value)
    return Card(
        title=f"Projection of {found.vector.trait_name!r} at strength "
        f"{strength}, read at layer {found.layer}",
        facts=[
            ("model", found.vector.model),
            ("applied", found.applying.remark),
            ("pairs", found.num_pairs),
            ("chat template", found.chat_template),
            ("mean shift along the direction", found.shift_along_direction),
            (
                "negative sides, distance to the positive mean",
                f"{found.unsteered_distance:.4g}, steered {found.steered_distance:.4g}",
            ),
            ("negative sides that moved closer", found.moved_toward_positive),
        ],
        tables=[Table(header=["side (mean)", "steered", *names], rows=rows)],
    )


def describe_curve(found: LearningCurve) -> str:
    """Write a learning curve on one line."""
    best = found.best
    return (
        f"LearningCurve({found.trait_name!r}, {found.method}, "
        f"{counted(len(found.sizes), 'size')}, on "
        f"{counted(found.num_holdout, 'held-out pair')}, best: layer {best.layer}, "
        f"accuracy {best.best_accuracy:.4g} from {counted(best.smallest_size, 'pair')})"
    )


def curve_card(found: LearningCurve) -> Card:
    """Show the accuracy of each layer by the pairs that it was fitted on."""
    layers = found.most_accurate(MAX_ROWS)
    enough = {each.layer: each for each in found.enough}
    sizes = found.sizes[:MAX_ROWS]
    rows = []
    for layer in layers:
        by_size = {each.size: each.accuracy for each in found.at_layer(layer)}
        shares = [by_size[size] for size in sizes]
        rows.append([layer, *shares, enough[layer].smallest_size])
    return Card(
        title=f"Learning curve of {found.trait_name!r} ({found.method})",
        facts=[
            ("measured", f"on {counted(found.num_holdout, 'held-out pair')}"),
            ("pairs to fit on", found.num_fit),
            ("chat template", found.chat_template),
        ],
        tables=[
            Table(
                header=["layer", *(counted(size, "pair") for size in sizes), "enough"],
                rows=rows,
                num_rows=len(found.layers),
                noun="layer",
                remark=", none more accurate",
                marked=[layers.index(found.best.layer)],
            )
        ],
    )
