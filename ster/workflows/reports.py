"""What a ``Runtime`` reports: of pairs, of what vectors move, and of itself."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ster.documents.pair_sets.inspection import PairInspection
from ster.documents.pairs import PairSet
from ster.documents.reference_states import Reference, read_reference
from ster.layers import Layers, select_layers
from ster.runs.session import Session
from ster.token_choice import Tokens
from ster.vectors.interventions import Intervention
from ster.vectors.learning_curves import LearningCurve
from ster.vectors.projection import Projection
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import StrengthLike
from ster.workflows.inspecting import inspect_tokens
from ster.workflows.pairs import choose_reading
from ster.workflows.parity import Parity, compare_states
from ster.workflows.projecting import project_vector
from ster.workflows.sizing import measure_curve

Path = str | os.PathLike[str]


class Reports:
    """The methods of a ``Runtime`` that look closer and fit nothing that is kept."""

    _session: Session

    def project(
        self,
        pairs: PairSet,
        vector: SteeringVector | Intervention,
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
            vector: What is added to the residual stream, or an ``Intervention``, which
                says how it is applied, and where. A layer is read before the vector's
                own direction of that layer is applied: choose one above its first.
            layer: The block after which rows are read.
            strength: How much of the vector: a number, or ``"0.05n"``. The strength of
                an intervention is multiplied by it.
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

    def inspect(self, pairs: PairSet) -> PairInspection:
        """Say what a pair set is like, in this model's tokens.

        As ``pairs.inspect()``, but lengths are counted and sides compared in the tokens
        that are the texts' own, as training encodes them.

        Raises:
            SterError: A side is refused.
        """
        return inspect_tokens(self._session, pairs)

    def parity(self, reference: Path | Reference) -> Parity:
        """Compare hidden states with those that another implementation computed.

        Args:
            reference: The reference document: JSON, safetensors or npz. A prompt in it
                that has no tokens is encoded as this runtime encodes prompts.

        Raises:
            SterError: The reference does not suit the model, or the run is refused.
        """
        if not isinstance(reference, Reference):
            reference = read_reference(reference)
        return compare_states(self._session, reference)
