"""An intervention: a vector, how much of it, how it is applied, and where.

A value like a vector: runs take it wherever they take a vector to steer with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ster.errors import UsageError, require_type
from ster.layers import Layers, select_layers
from ster.stream.where import EVERYWHERE
from ster.vectors.applying import Applying
from ster.vectors.norms import RESIDUAL_NORMS
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strength, StrengthLike, take_strength
from ster.vectors.trials import StrengthTrial


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Intervention:
    """What is done along a vector to the residual stream, and to which tokens.

    With u the vector's direction at a layer, of length 1, and p = h·u how far a token's
    row h lies along it:

    ``"add"``: h + strength · v. ``"remove"``: h - strength · p · u; 1 takes out all
    that lies along u. ``"replace"``: removed, then added. ``"clamp"``: p is limited to
    -c..c, with c the length of strength · v. ``"at-least"`` and ``"at-most"``: p is
    raised, or lowered, to what ``"replace"`` makes it. ``"add-below"``: added where p
    is below a threshold.

    Args:
        vector: The direction at each of some layers.
        strength: How much of it: a number, or ``"0.05n"``, so many times each layer's
            own mean residual norm. Of ``"remove"``, the share that is taken out.
        how: One of the ways above.
        where: ``"all"`` tokens; those of the ``"prompt"``; ``"generated"``, those after
            it; ``"last"``, the prompt's last one; an index such as ``"0"``; or a
            half-open range such as ``"4.."`` or ``"-2.."``, negative ones counted from
            the prompt's end.
        below: The threshold of ``"add-below"``: a number, or ``"0.05n"``.
        keep_norm: A row that is changed is scaled back to the length that it had.
        layers: Where it is applied, as for ``activations``: some of the vector's
            layers, or any, if the vector has one. Its own unless given.

    Raises:
        UsageError: A word is unknown, or the parts contradict each other.
        DirectionError: A number is not finite.

    Example:
        >>> import numpy as np
        >>> from ster import Intervention, SteeringVector
        >>> calm = SteeringVector(
        ...     layers=(1,), array=np.ones((1, 4), "f4"), model="toy",
        ...     trait_name="calm", method="caa",
        ... )
        >>> Intervention(calm, "0.1n", where="generated", keep_norm=True)
        Intervention('calm' at 0.1n, add, where='generated', keep_norm=True)
    """

    vector: SteeringVector
    strength: Strength
    applying: Applying

    def __init__(
        self,
        vector: SteeringVector,
        strength: StrengthLike = 1.0,
        *,
        how: str = "add",
        where: str = "all",
        below: StrengthLike | None = None,
        keep_norm: bool = False,
        layers: Layers | None = None,
    ) -> None:
        require_type(vector, SteeringVector, "vector")
        applying = Applying.of(
            how=how, where=where, below=below, keep_norm=keep_norm, layers=layers
        )
        taken = take_strength(strength)
        applying.check(taken)
        object.__setattr__(self, "vector", vector)
        object.__setattr__(self, "strength", taken)
        object.__setattr__(self, "applying", applying)

    def __repr__(self) -> str:
        """Show what is done with which vector, not the numbers."""
        applying = self.applying
        parts = [f"{self.vector.trait_name!r} at {self.strength}", applying.how]
        if applying.where != EVERYWHERE:
            parts.append(f"where={applying.where.words!r}")
        if applying.below is not None:
            parts.append(f"below={applying.below}")
        if applying.keep_norm:
            parts.append("keep_norm=True")
        if applying.layers is not None:
            parts.append(f"layers={applying.layers!r}")
        return f"Intervention({', '.join(parts)})"

    @classmethod
    def applied(
        cls, vector: SteeringVector, strength: StrengthLike, applying: Applying
    ) -> Intervention:
        """Make one of parts that were taken before."""
        made = cls(vector, strength)
        applying.check(made.strength)
        object.__setattr__(made, "applying", applying)
        return made

    def at(self, strength: StrengthLike) -> Intervention:
        """Multiply the strength.

        Raises:
            UsageError: It is no strength for this way, or counts in norms twice.
            DirectionError: It is not finite.
        """
        times = self.strength * take_strength(strength)
        return Intervention.applied(self.vector, times, self.applying)

    def in_trial(self, trial: StrengthTrial | None) -> StrengthTrial | None:
        """Let a trial apply vectors as this does, at the trial's strengths.

        Raises:
            UsageError: This has a strength of its own, or one of the trial's means
                nothing this way.
        """
        if self.strength != Strength(value=1.0):
            raise UsageError(
                f"a trial says how much: an intervention at {self.strength} cannot be "
                "measured",
                "give it no strength, and the trial its strengths",
                field="strength",
                found=str(self.strength),
            )
        return None if trial is None else replace(trial, applying=self.applying)

    def spread(self, num_hidden_layers: int) -> SteeringVector:
        """Return the vector at the layers where it is applied.

        Raises:
            LayerError: The model or the vector lacks one of them.
        """
        vector, asked = self.vector, self.applying.layers
        if asked is None:
            return vector
        layers = select_layers(asked, num_hidden_layers)
        if len(vector.layers) > 1:
            rows = [vector.direction(layer) for layer in layers]
        else:
            rows = [vector.array[0]] * len(layers)
        known = dict(zip(vector.layers, vector.residual_norms or (), strict=False))
        metadata = {**vector.metadata}
        metadata.pop(RESIDUAL_NORMS, None)
        made = vector.replaced(
            layers=layers,
            array=np.stack(rows),
            train_margin=(),
            train_accuracy=(),
            metadata=metadata,
        )
        if known.keys() >= {*layers}:
            return made.with_norms(known[layer] for layer in layers)
        return made
