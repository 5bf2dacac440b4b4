"""What a ``Runtime`` makes of pairs: directions, and what they are worth."""

from __future__ import annotations

import os
from typing import Literal, overload

from ster.documents.pairs import PairSet
from ster.errors import require_number
from ster.layers import Layers, select_layers
from ster.runs.session import Session
from ster.token_choice import Tokens
from ster.vectors.effect_selection import EffectSelection
from ster.vectors.interventions import Intervention
from ster.vectors.rules import check_rule
from ster.vectors.selection import Evaluation, Selection
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import StrengthLike
from ster.vectors.trials import StrengthTrial
from ster.workflows.choosing import HOLDOUT, optimize_vector
from ster.workflows.choosing_by_effect import STRENGTH, optimize_by_effect
from ster.workflows.evaluating import evaluate_vector
from ster.workflows.pairs import choose_reading
from ster.workflows.training import train_vector

Path = str | os.PathLike[str]


class Directions:
    """The methods of a ``Runtime`` that fit, choose and measure directions."""

    _session: Session

    def train(
        self,
        pairs: PairSet,
        *,
        method: str = "caa",
        layers: Layers = "all",
        tokens: Tokens = "last",
        role: str = "user",
        output: Path | None = None,
    ) -> SteeringVector:
        """Fit a direction at every layer.

        Args:
            pairs: The contrastive pairs.
            method: ``caa``, ``pca``, ``logistic``, ``logreg`` or ``pca-uncentred``.
            layers: As for ``activations``.
            tokens: Which token of each side: ``"last"``, ``"text"``, an index, or
                ``"mean"``; see ``activations``.
            role: Whose turn a side without a prompt is under a template. Strengths are
                measured on the ``"assistant"``'s.
            output: Where the steering artifact goes, if anywhere.

        Raises:
            SterError: A side is refused, the run does not fit, nothing can be fitted,
                or the artifact cannot be written.
        """
        choice = choose_reading(tokens, role)
        return train_vector(
            self._session,
            pairs,
            select_layers(layers, self._session.spec.num_hidden_layers),
            method=method,
            output=output,
            choice=choice,
        )

    @overload
    def optimize(
        self,
        pairs: PairSet,
        *,
        by: Literal["effect"] | None = None,
        layers: Layers = "all",
        strength: StrengthLike | None = None,
        seed: int | None = None,
        tokens: Tokens = "last",
        role: str = "user",
        output: Path | None = None,
        write_anyway: bool = False,
    ) -> EffectSelection: ...

    @overload
    def optimize(
        self,
        pairs: PairSet,
        *,
        by: Literal["accuracy"] | None = None,
        layers: Layers = "all",
        holdout: float,
        tokens: Tokens = "last",
        role: str = "user",
        output: Path | None = None,
    ) -> Selection: ...

    @overload
    def optimize(
        self,
        pairs: PairSet,
        *,
        by: Literal["accuracy"],
        layers: Layers = "all",
        tokens: Tokens = "last",
        role: str = "user",
        output: Path | None = None,
    ) -> Selection: ...

    def optimize(
        self,
        pairs: PairSet,
        *,
        by: str | None = None,
        layers: Layers = "all",
        holdout: float | None = None,
        strength: StrengthLike | None = None,
        seed: int | None = None,
        tokens: Tokens = "last",
        role: str = "user",
        output: Path | None = None,
        write_anyway: bool = False,
    ) -> EffectSelection | Selection:
        """Choose method and layer, and fit the best again on all pairs.

        By effect, every candidate is fitted on one half of the pairs and steers the
        other half; by accuracy, it is ranked by how it orders held-out pairs, which
        says little of what it does to what the model writes.

        Args:
            pairs: The contrastive pairs.
            by: ``"effect"``, or ``"accuracy"``, which ``holdout`` means too.
            layers: As for ``activations``.
            holdout: By accuracy, the share of pairs, the last ones, that is held out;
                0.2 unless given.
            strength: By effect, what candidates are steered with, plus and minus: a
                share of their layer's norm, ``"0.1n"`` unless given.
            seed: By effect, what decides which pairs are in which part; 0 unless given.
            tokens: As for ``train``.
            role: As for ``train``.
            output: Where the steering artifact goes, if anywhere.
            write_anyway: By effect, write the artifact though its direction steers the
                wrong way, or no better than a random one.

        Returns:
            ``.vector``, and how every candidate did.

        Raises:
            WeakDirectionError: By effect, the best direction is not worth writing; its
                ``selection`` is what was found.
            SterError: As for ``train``, a share leaves nothing to fit or to rank on, or
                an argument belongs to the other way of choosing.
        """
        by = check_rule(by, holdout, strength, seed, write_anyway=write_anyway)
        chosen = select_layers(layers, self._session.spec.num_hidden_layers)
        choice = choose_reading(tokens, role)
        if by == "accuracy":
            share = HOLDOUT if holdout is None else holdout
            require_number(share, "holdout")
            return optimize_vector(
                self._session,
                pairs,
                chosen,
                holdout=share,
                output=output,
                choice=choice,
            )
        return optimize_by_effect(
            self._session,
            pairs,
            chosen,
            strength=STRENGTH if strength is None else strength,
            seed=0 if seed is None else seed,
            output=output,
            write_anyway=write_anyway,
            choice=choice,
        )

    def evaluate(
        self,
        pairs: PairSet,
        vector: SteeringVector | Intervention,
        trial: StrengthTrial | None = None,
        *,
        tokens: Tokens | None = None,
        role: str | None = None,
    ) -> Evaluation:
        """Measure how well a vector tells the sides of pairs apart.

        Args:
            pairs: The pairs, if possible others than the vector was fitted on.
            vector: The vector; or an intervention of strength 1, which says how the
                trial applies its vector.
            trial: Strengths to measure, if any: how much more steering raises the
                log-probability of the positive sides than that of the negative ones.
            tokens: As for ``train``; unless given, what the vector was fitted to.
            role: As for ``train``; unless given, what the vector was fitted to.

        Raises:
            SterError: A side or a strength is refused, or the run does not fit.
        """
        if isinstance(vector, Intervention):
            trial = vector.in_trial(trial)
            vector = vector.vector
        return evaluate_vector(
            self._session, pairs, vector, trial, tokens=tokens, role=role
        )
