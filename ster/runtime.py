"""One loaded checkpoint: what notebooks hold, and what the commands go through.

Everything that can be refused without opening a weight is refused before one is opened:
loading reads config, tokenizer and template, and the first run maps the weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Unpack

from ster.architecture.spec import ModelSpec
from ster.architecture.wide import WideSpec
from ster.documents.activations.value import Activations
from ster.documents.answers import Answer
from ster.documents.pairs import PairSet
from ster.documents.prompts import check_prompts
from ster.errors import require_number
from ster.layers import Layers, select_layers
from ster.reporting import Reporter
from ster.runs.plan import Plan
from ster.runs.reading import plan_reading
from ster.runs.sampling import Answering, AnsweringKeywords
from ster.runs.session import Session
from ster.runs.writing import plan_writing
from ster.text import counted
from ster.vectors.selection import Evaluation, Selection
from ster.vectors.steering import SteeringVector
from ster.vectors.strengths import Strengths, StrengthTrial
from ster.workflows.answering import answer_prompts
from ster.workflows.choosing import optimize_vector
from ster.workflows.evaluating import evaluate_vector
from ster.workflows.extracting import collect, write_activations
from ster.workflows.scoring import score_texts
from ster.workflows.steering import Steer, sum_deltas
from ster.workflows.training import train_vector

Path = str | os.PathLike[str]


class Runtime:
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

    def generate(
        self, prompt: str, *, steer: Steer = (), **how: Unpack[AnsweringKeywords]
    ) -> str:
        """Answer a prompt.

        Args:
            prompt: One user message under a chat template, else a text to continue.
            steer: One vector, or several whose sum is added to every token's residual
                stream, in prompt and answer alike.
            **how: ``system``, the system's message before the prompt;
                ``max_new_tokens`` (128); ``temperature`` (0, the likeliest token each
                time), ``top_p`` and ``seed``, or all three as ``sampling``; or all of
                it as ``answering``.

        Returns:
            The answer without special tokens.

        Raises:
            SterError: The prompt, the steering or a weight is refused.

        Example:
            >>> from ster import load, write_toy_checkpoint
            >>> write_toy_checkpoint("toy")
            >>> load("toy").generate("describe the evening lake .", max_new_tokens=4)
            'loud sea hard hard'
        """
        return "".join(self.stream(prompt, steer=steer, **how))

    def stream(
        self, prompt: str, *, steer: Steer = (), **how: Unpack[AnsweringKeywords]
    ) -> Iterator[str]:
        """Answer as ``generate`` does, yielding text as it becomes readable.

        Raises:
            SterError: As for ``generate``. What can be refused without weights is
                refused by the call itself, before any text is asked for.
        """
        answering = Answering.of(**how)
        deltas = sum_deltas(steer, self._session)
        return plan_writing(self._session, [prompt], answering, [deltas]).stream()

    def generate_all(
        self,
        prompts: Iterable[str],
        *,
        steer: Steer = (),
        **how: Unpack[AnsweringKeywords],
    ) -> Iterator[str]:
        """Answer many prompts at once, each as ``generate`` does, in their order.

        Raises:
            SterError: As for ``generate``; every prompt is checked before the first is
                answered.
        """
        answers = self.answers(prompts, steer=steer, **how)
        return (answer.text for answer in answers)

    def answers(
        self,
        prompts: Iterable[str],
        *,
        steer: Steer = (),
        strengths: Strengths | None = None,
        **how: Unpack[AnsweringKeywords],
    ) -> Iterator[Answer]:
        """Answer prompts at several strengths, and say how each answer came about.

        Args:
            prompts: As for ``generate``.
            steer: As for ``generate``.
            strengths: What ``steer`` is multiplied by; every prompt is answered at
                each. Once, as it is, if not given.
            **how: As for ``generate``.

        Returns:
            The answers to the first prompt, one for each strength, then those to the
            next.

        Raises:
            SterError: As for ``generate_all``, or a strength is refused.
        """
        answering = Answering.of(**how)
        return answer_prompts(self._session, prompts, answering, steer, strengths)

    def response_tokens(self, text: str) -> list[int]:
        """Encode a whole response; under a template it is an assistant's turn."""
        return self._session.encoder.encode_response(text)

    def score_responses(
        self,
        texts: Iterable[str],
        *,
        prompts: Iterable[str | None] | None = None,
        steer: Steer = (),
        batch_size: int | None = None,
    ) -> list[float]:
        """Sum the log-probabilities of each response's tokens, the first left out.

        Args:
            texts: Whole responses.
            prompts: What each of them answers; None where it answers nothing. Of an
                answer all tokens count, and none of its prompt.
            steer: As for ``generate``.
            batch_size: How many responses run as one stream; as many as memory allows
                unless given.

        Raises:
            SterError: A text or a weight is refused.
        """
        return score_texts(self._session, texts, prompts, steer, batch_size)

    def _select(self, layers: Layers) -> tuple[int, ...]:
        return select_layers(layers, self.config.num_hidden_layers)
