"""One loaded checkpoint: what notebooks hold, and what the commands go through.

Everything that can be refused without opening a weight is refused before one is opened:
loading reads config, tokenizer and template, and the first run maps the weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ster.architecture.spec import ModelSpec
from ster.architecture.wide import WideSpec
from ster.documents.activations.value import Activations
from ster.documents.pairs import PairSet
from ster.documents.prompts import check_prompts
from ster.errors import require_number
from ster.layers import Layers, select_layers
from ster.reporting import Reporter
from ster.runs.plan import Plan
from ster.runs.reading import plan_reading
from ster.runs.session import Session
from ster.text import counted
from ster.vectors.selection import Evaluation, Selection
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import StrengthTrial
from ster.workflows.answers import Answers
from ster.workflows.choosing import optimize_vector
from ster.workflows.evaluating import evaluate_vector
from ster.workflows.extracting import collect, write_activations
from ster.workflows.steering import Steer, sum_deltas
from ster.workflows.training import train_vector

Path = str | os.PathLike[str]


class Runtime(Answers):
    """A checkpoint that is ready to read residual streams. Made by ``load``.

    Example:
        >>> from ster import load, write_toy_checkpoint
        >>> write_toy_checkpoint("toy")
        >>> runtime = load("toy")
        >>> runtime.activations(["the sea is calm ."], layers=[0, 3]).array.shape
        (1, 2, 64)
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def config(self) -> ModelSpec | WideSpec:
        """Return the description of the decoder that config.json gives."""
        return self._session.spec

    @property
    def device(self) -> str:
        """Return the device that computes."""
        return self._session.device

    @property
    def precision(self) -> str:
        """Return the width of the weights and of what products take."""
        return self._session.precision

    @property
    def model(self) -> str:
        """Return the model as it was named."""
        return self._session.files.model

    @property
    def model_revision(self) -> str | None:
        """Return the commit or the given revision that documents record."""
        return self._session.files.revision

    @property
    def chat_template(self) -> str:
        """Return whether the chat template is ``applied``, ``absent`` or ``off``."""
        return self._session.encoder.chat_template

    @property
    def reporter(self) -> Reporter:
        """Return what receives notes, warnings and progress."""
        return self._session.reporter

    @property
    def held_memory(self) -> int:
        """Return the bytes that the process holds now, those on a GPU with them."""
        return self._session.held_memory

    def closing_line(self, seconds: float) -> str:
        """Say what all runs so far did, and the most memory that they took.

        Args:
            seconds: The time that they took.
        """
        return self._session.closing_line(seconds)

    def __repr__(self) -> str:
        """Show the model and how it runs."""
        config = self.config
        layers = counted(config.num_hidden_layers, "layer")
        return (
            f"Runtime(model={self.model!r}, {config.model_type}, "
            f"{layers}, hidden_size={config.hidden_size}, "
            f"device={self.device!r}, precision={self.precision!r}, "
            f"chat_template={self.chat_template!r})"
        )

    def activations(
        self,
        prompts: Iterable[str] | PairSet,
        layers: Layers = "all",
        *,
        steer: Steer = (),
    ) -> Activations:
        """Read the residual stream at the last token of every prompt.

        Args:
            prompts: Each becomes one user message under a chat template. Of a pair set
                the sides are read as training reads them, each positive one first.
            layers: ``"all"``, a ``--layers`` value such as ``"0,8..12"``, an index, or
                indices. A row is read after that block, before the next.
            steer: One vector or several, added to the stream while it is read. A layer
                is read before its own vector is added.

        Returns:
            The rows in prompt order, with ``.array`` (num_prompts, num_layers,
            hidden_size) f32.

        Raises:
            SterError: A prompt, layer or weight is refused, or the run does not fit.
        """
        asked = None
        if isinstance(prompts, PairSet):
            asked, prompts = prompts.asked, prompts.prompts
        reading = plan_reading(
            self._session,
            check_prompts(prompts),
            self._select(layers),
            repeats=True,
            asked=asked,
            deltas=sum_deltas(steer, self._session),
        )
        return collect(reading)

    def train(
        self,
        pairs: PairSet,
        *,
        method: str = "caa",
        layers: Layers = "all",
        output: Path | None = None,
    ) -> SteeringVector:
        """Fit a direction at every layer.

        Args:
            pairs: The contrastive pairs.
            method: ``caa``, ``pca`` or ``logistic``.
            layers: As for ``activations``.
            output: Where the steering artifact goes, if anywhere.

        Raises:
            SterError: A side is refused, the run does not fit, nothing can be fitted,
                or the artifact cannot be written.
        """
        selected = self._select(layers)
        return train_vector(
            self._session, pairs, selected, method=method, output=output
        )

    def optimize(
        self,
        pairs: PairSet,
        *,
        layers: Layers = "all",
        holdout: float = 0.2,
        output: Path | None = None,
    ) -> Selection:
        """Choose method and layer on held-out pairs, and refit the best on all.

        Args:
            pairs: The contrastive pairs; the last of them are held out.
            layers: As for ``activations``.
            holdout: The share that is held out.
            output: Where the steering artifact goes, if anywhere.

        Returns:
            ``.vector``, and how every candidate did.

        Raises:
            SterError: As for ``train``, or a share leaves nothing to fit or to rank on.
        """
        require_number(holdout, "holdout")
        return optimize_vector(
            self._session, pairs, self._select(layers), holdout=holdout, output=output
        )

    def evaluate(
        self, pairs: PairSet, vector: SteeringVector, trial: StrengthTrial | None = None
    ) -> Evaluation:
        """Measure how well a vector tells the sides of pairs apart.

        Args:
            pairs: The pairs, if possible others than the vector was fitted on.
            vector: The vector.
            trial: Strengths to measure, if any: how much more steering raises the
                log-probability of the positive sides than that of the negative ones.

        Raises:
            SterError: A side or a strength is refused, or the run does not fit.
        """
        return evaluate_vector(self._session, pairs, vector, trial)

    def write_activations(
        self,
        prompts: Sequence[str],
        output: str | os.PathLike[str],
        layers: Layers = "all",
    ) -> Plan:
        """Read as ``activations`` does, and write the rows to a document as they come.

        Memory does not grow with the number of prompts.

        Raises:
            SterError: As for ``activations``, or the output cannot be written. An old
                document then stays as it was, and nothing else is left behind.
        """
        selected = self._select(layers)
        return write_activations(self._session, prompts, selected, output)

    def _select(self, layers: Layers) -> tuple[int, ...]:
        return select_layers(layers, self.config.num_hidden_layers)
