"""What a ``Runtime`` reports of pairs beside how a vector orders them."""

from __future__ import annotations

from collections.abc import Iterable

from ster.documents.pairs import PairSet
from ster.layers import Layers, select_layers
from ster.runs.session import Session
from ster.token_choice import Tokens
from ster.vectors.learning_curves import LearningCurve
from ster.vectors.projection import Projection
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import StrengthLike
from ster.workflows.pairs import choose_reading
from ster.workflows.projecting import project_vector
from ster.workflows.sizing import measure_curve


class Reports:
    """The methods of a ``Runtime`` that show what a vector moves and what it needs."""

    _session: Session

    def project(
        self,
        pairs: PairSet,
        vector: SteeringVector,
        *,
        layer: int,
        strength: StrengthLike = 1.0,
        components: int = 2,
        tokens: Tokens | None = None,
        role: str | None = None,
    ) -> Projection:
        """See where a vector moves the sides of pairs.

        They are read at one layer with and without the vector, and placed on the
        principal components of the rows without it.

        Args:
            pairs: The contrastive pairs.
            vector: What is added to the residual stream. A layer is read before the
                vector's own direction of that layer is added: choose one above its
                first.
            layer: The block after which rows are read.
            strength: How much of the vector is added: a number, or ``"0.05n"``.
            components: How many principal components at most.
            tokens: As for ``train``; unless given, what the vector was fitted to.
            role: As for ``train``; unless given, what the vector was fitted to.

        Returns:
            ``.coordinates``, how far rows moved along the direction, and whether the
            negative sides came nearer to the positive ones; ``ster.plots.movement``
            draws it.

        Raises:
            SterError: The vector, the layer or a side is refused, the run does not fit,
                or the rows are all alike.
        """
        return project_vector(
            self._session,
            pairs,
            vector,
            layer=layer,
            strength=strength,
            components=components,
            tokens=tokens,
            role=role,
        )

    def curve(
        self,
        pairs: PairSet,
        *,
        sizes: Iterable[int],
        method: str = "caa",
        layers: Layers = "all",
        holdout: float = 0.2,
        tokens: Tokens = "last",
        role: str = "user",
    ) -> LearningCurve:
        """See how many pairs a direction needs.

        Directions are fitted on the first pairs, so many as each size says, and all
        measured on the same held-out ones.

        Args:
            pairs: The contrastive pairs; the last of them are held out.
            sizes: How many pairs to fit on, such as ``[5, 10, 20, 40]``.
            method: As for ``train``.
            layers: As for ``activations``.
            holdout: The share that is held out.
            tokens: As for ``train``.
            role: As for ``train``.

        Returns:
            ``.points``, one for each layer and size, and ``.enough``, the smallest size
            that reaches a layer's best accuracy; ``ster.plots.curve`` draws it.

        Raises:
            SterError: As for ``train``, or a size is more than there are pairs to fit
                on.
        """
        return measure_curve(
            self._session,
            pairs,
            select_layers(layers, self._session.spec.num_hidden_layers),
            sizes=sizes,
            method=method,
            holdout=holdout,
            choice=choose_reading(tokens, role),
        )
