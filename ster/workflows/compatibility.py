"""Whether a vector belongs to an open checkpoint: model, width, layers, encoding."""

from __future__ import annotations

from ster.architecture.spec import ModelSpec
from ster.architecture.wide import WideSpec
from ster.documents.control_vectors import FOREIGN_METHOD
from ster.errors import DocumentError
from ster.layers import check_layers
from ster.reporting import Reporter
from ster.runs.session import Session
from ster.text import quoted
from ster.vectors.origins import is_same_model
from ster.vectors.steering import SteeringVector

# Two labels for one encoding.
_RAW_TEXT = ("absent", "off")
_STEERED = "artifact was trained for model {}, current model is {}"


def check_measured(vector: SteeringVector, session: Session) -> None:
    """Refuse to measure a vector on a model that it does not belong to.

    Raises:
        DocumentError: It is of another model or hidden size.
        LayerError: The model lacks one of its layers.
    """
    _check(vector, session, "artifact model {} does not match runtime model {}")


def check_steering(vector: SteeringVector, session: Session) -> None:
    """Refuse to steer a model with a vector that does not belong to it.

    Raises:
        DocumentError: It is of another model or hidden size.
        LayerError: The model lacks one of its layers.
    """
    _check(vector, session, _STEERED)


def check_ablated(
    vector: SteeringVector, model: str, spec: ModelSpec, reporter: Reporter
) -> None:
    """Refuse to ablate a model by a vector that does not belong to it.

    No prompt is encoded, so the encoding of those that it was fitted on is no matter.

    Args:
        vector: The vector.
        model: The model as it is named now.
        spec: What config.json says of it.
        reporter: Is warned where another architecture is hinted at.

    Raises:
        DocumentError: It is of another model or hidden size.
        LayerError: The model lacks one of its layers.
    """
    _check_belongs(vector, model, spec, reporter, _STEERED)


def _check(vector: SteeringVector, session: Session, sentence: str) -> None:
    model, spec = session.files.model, session.spec
    _check_belongs(vector, model, spec, session.reporter, sentence)
    _warn(vector, session)


def _check_belongs(
    vector: SteeringVector,
    current: str,
    spec: ModelSpec | WideSpec,
    reporter: Reporter,
    sentence: str,
) -> None:
    if vector.method == FOREIGN_METHOD:
        _warn_of_another_architecture(vector, spec, reporter)
    elif not is_same_model(vector.model, current):
        raise DocumentError(
            sentence.format(quoted(vector.model), quoted(current)),
            field="model",
            found=vector.model,
            expected=current,
        )
    _check_shape(vector, spec)


def _warn_of_another_architecture(
    vector: SteeringVector, spec: ModelSpec | WideSpec, reporter: Reporter
) -> None:
    """Warn where a control vector from elsewhere hints at another architecture.

    It names no model, and programs spell architectures differently.
    """
    hint, current = vector.model, spec.model_type
    if hint not in ("", current):
        reporter.warn(
            f"this control vector says that it is for {quoted(hint)}, and this model "
            f"is of type {quoted(current)}"
        )


def _check_shape(vector: SteeringVector, spec: ModelSpec | WideSpec) -> None:
    width = spec.hidden_size
    if vector.hidden_size != width:
        raise DocumentError(
            f"artifact width {vector.hidden_size} does not match model width {width}",
            field="hidden_size",
            found=vector.hidden_size,
            expected=width,
        )
    check_layers(vector.layers, spec.num_hidden_layers)


def _warn(vector: SteeringVector, session: Session) -> None:
    """Warn of another encoding or precision; an artifact that names none passes."""
    trained, label = vector.chat_template, session.encoder.chat_template
    alike = trained == label or (trained in _RAW_TEXT and label in _RAW_TEXT)
    if trained is not None and not alike:
        session.reporter.warn(
            f"this direction was trained with chat template {trained} and this run "
            f"encodes {label}, so the number below describes a format it was not "
            "trained in"
        )
    if vector.precision not in (None, session.precision):
        session.reporter.warn(
            f"this direction was trained at precision {vector.precision} and this run "
            f"maps the base weights at {session.precision}, so it is being read in a "
            "different space than it was fitted in"
        )
