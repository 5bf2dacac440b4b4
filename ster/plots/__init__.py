"""Plots of activations, vectors and measurements, with matplotlib (extra `notebook`).

Each takes the ``ax`` to draw on, or else makes a figure, and returns the Axes. Colours
are those of Okabe and Ito, which colour-blind people can tell apart; markers and line
styles differ too, so that a plot reads in grey.
"""

from __future__ import annotations

from ster.plots.choices import effect
from ster.plots.effects import strengths
from ster.plots.learning import curve
from ster.plots.lengths import norms
from ster.plots.measurements import accuracy, margin
from ster.plots.movements import movement
from ster.plots.planes import pca
from ster.plots.projecting import projections
from ster.plots.similarities import similarity
from ster.plots.texts import ProjectedText, projected_text

__all__ = [
    "ProjectedText",
    "accuracy",
    "curve",
    "effect",
    "margin",
    "movement",
    "norms",
    "pca",
    "projected_text",
    "projections",
    "similarity",
    "strengths",
]
