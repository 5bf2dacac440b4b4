"""Reading pairs unsteered and steered, to see where a vector moves them."""

from __future__ import annotations

from dataclasses import replace

from ster.documents.pairs import PairSet
from ster.documents.prompt_sets.value import PromptSet
from ster.errors import require_type
from ster.layers import check_layers
from ster.runs.session import Session
from ster.vectors.projection import Projection, check_components, project_pairs
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import StrengthLike, take_strength
from ster.workflows.pairs import plan_pairs, read_pairs
from ster.workflows.steering import norms_of, take_steering


def project_vector(
    session: Session,
    pairs: PairSet,
    vector: SteeringVector,
    *,
    layer: int,
    strength: StrengthLike = 1.0,
    components: int = 2,
) -> Projection:
    """Read pairs at one layer with and without a vector, and measure what moved.

    Args:
        session: What reads the pairs.
        pairs: The pairs.
        vector: What is added to the stream, at all of its layers below the one that is
            read; of this session's model.
        layer: The block after which rows are read.
        strength: How much of the vector is added.
        components: How many principal components at most.

    Raises:
        SterError: The vector, a word or a side is refused, the run does not fit, or the
            rows are all alike.
    """
    require_type(pairs, PairSet, "pairs")
    require_type(vector, SteeringVector, "vector")
    check_components(components)
    layers = check_layers([layer], session.spec.num_hidden_layers)
    amount = take_strength(strength)
    steering = take_steering((vector, amount), session)
    reading = plan_pairs(session, pairs, layers, repeats=True)
    if amount.value and vector.layers[0] >= layer:
        session.reporter.warn(
            f"rows of layer {layer} are read before anything is added there, and the "
            f"vector begins at layer {vector.layers[0]}: nothing moves"
        )
    measure = norms_of(session, PromptSet.of(pairs.prompts), pairs.asked)
    (deltas,) = steering.deltas(measure)
    unsteered = read_pairs(reading)
    steered = read_pairs(replace(reading, deltas=deltas, label="reading steered pair"))
    return project_pairs(
        vector,
        amount,
        layers[0],
        components,
        unsteered=unsteered,
        steered=steered,
        chat_template=session.encoder.chat_template,
    )
