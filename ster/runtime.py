"""One loaded checkpoint: what notebooks hold, and what the commands go through.

Everything that can be refused without opening a weight is refused before one is opened:
loading reads config, tokenizer and template, and the first run maps the weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from ster.architecture.spec import ModelSpec
from ster.architecture.wide import WideSpec
from ster.documents.activations.files import check_suffix
from ster.documents.activations.shown import ShownTokens
from ster.documents.activations.value import Activations
from ster.documents.pairs import PairSet
from ster.documents.prompt_sets.value import Prompts, PromptSet
from ster.documents.prompts import check_asked_of
from ster.errors import check_word
from ster.html import to_html
from ster.layers import Layers, select_layers
from ster.points import RESID_POST, select_points
from ster.reporting import Reporter
from ster.runs.cards import describe_session, session_card
from ster.runs.plan import Plan
from ster.runs.reading import ReadingChoice, plan_reading
from ster.runs.session import Session
from ster.token_choice import Tokens, choose_tokens
from ster.workflows.answers import Answers
from ster.workflows.directions import Directions
from ster.workflows.extracting import (
    collect,
    show_tokens,
    write_activations,
)
from ster.workflows.reports import Reports
from ster.workflows.steering import Steer, describe_steering, norms_of, sum_deltas

Path = str | os.PathLike[str]


class Runtime(Answers, Directions, Reports):
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
        return describe_session(self._session)

    def _repr_html_(self) -> str:
        return to_html(session_card(self._session))

    def activations(
        self,
        prompts: Prompts | PairSet,
        layers: Layers = "all",
        *,
        tokens: Tokens = "last",
        points: str | Iterable[str] = RESID_POST,
        role: str = "user",
        asked: Iterable[str | None] | None = None,
        steer: Steer = (),
        on_interrupt: str = "raise",
    ) -> Activations:
        """Read the residual stream at the last token of every prompt, or at others.

        Args:
            prompts: Whatever ``PromptSet.of`` takes. Each becomes one user message
                under a chat template; a chat is read whole. Of a pair set the sides are
                read as training reads them, each positive one first; labels say the
                ``pair`` of each, from 0, and its ``side``.
            layers: ``"all"``, a ``--layers`` value such as ``"0,8..12"``, an index, or
                indices. A row is read after that block, before the next.
            tokens: ``"last"``; ``"text"``, the last token of the text itself inside the
                template; ``"all"``; ``"mean"``, the mean over the text's own tokens; an
                index, indices, a slice or a ``--tokens`` value such as ``"0,-3.."``; or
                a function that takes a prompt's ``ReadTokens`` and returns indices or a
                mask.
            points: Where in a block: ``"resid_post"``, after it; ``"resid_mid"``,
                between its halves; ``"attn_out"`` or ``"mlp_out"``, what a half adds;
                or several of them.
            role: Whose turn a text is under a template: the ``"user"``'s, or the
                ``"assistant"``'s.
            asked: What each text answers, None where it answers nothing; such a text is
                the assistant's.
            steer: As for ``generate``, applied to the stream while it is read. A layer
                is read before its own vector is applied. A text is a prompt, unless it
                answers one: then what it answers with is ``"generated"``.
            on_interrupt: What Ctrl-C or a notebook's stop button does: ``"raise"``, or
                ``"keep"`` the prompts that are done, if there are any.

        Returns:
            The rows in prompt order, with ``.array`` (num_rows, num_layers,
            hidden_size) f32 and ``.tokens``, which says what each row was read at.

        Raises:
            SterError: A prompt, layer or weight is refused, or the run does not fit.
        """
        check_word("on_interrupt", on_interrupt, ("raise", "keep"))
        if isinstance(prompts, PairSet):
            sides, asked = prompts.to_read()
            checked = replace(PromptSet.of(sides), labels=prompts.side_labels)
        else:
            checked = PromptSet.of(prompts)
        known = None if asked is None else check_asked_of(checked, asked)
        measure = norms_of(self._session, checked, known)
        reading = plan_reading(
            self._session,
            checked,
            self._select(layers),
            repeats=True,
            choice=ReadingChoice(
                tokens=choose_tokens(tokens),
                points=select_points(points),
                asked=known,
                role=role,
                describe=True,
            ),
            deltas=sum_deltas(steer, self._session, measure),
        )
        steered = describe_steering(steer, self._session)
        return collect(reading, keep=on_interrupt == "keep", steered=steered)

    def show(
        self,
        text: str,
        *,
        tokens: Tokens = "last",
        role: str = "user",
        asked: str | None = None,
    ) -> ShownTokens:
        """Show how a text is encoded, and which of its tokens ``activations`` reads.

        Args:
            text: As one of ``activations``' prompts.
            tokens: As for ``activations``.
            role: As for ``activations``.
            asked: What the text answers, if anything.

        Raises:
            SterError: The text or the choice of tokens is refused.
        """
        return show_tokens(self._session, text, choose_tokens(tokens), role, asked)

    def write_activations(
        self,
        prompts: Prompts,
        output: Path,
        layers: Layers = "all",
        *,
        tokens: Tokens = "last",
        points: str | Iterable[str] = RESID_POST,
        role: str = "user",
        store: str = "f32",
    ) -> Plan:
        """Read as ``activations`` does, and write the rows to a document as they come.

        Memory does not grow with the number of prompts.

        Args:
            prompts: As for ``activations``.
            output: Where the document goes: ``.json``, for one row a prompt,
                ``.safetensors`` or ``.npz``.
            layers: As for ``activations``.
            tokens: As for ``activations``.
            points: As for ``activations``.
            role: As for ``activations``.
            store: ``f32``, or ``f16`` for half the bytes; not for JSON.

        Raises:
            SterError: As for ``activations``, or the output cannot be written. An old
                document then stays as it was, and nothing else is left behind.
        """
        chosen, places = choose_tokens(tokens), select_points(points)
        form = check_suffix(
            output, points=places, one_row=chosen.may_be_one, store=store
        )
        reading = plan_reading(
            self._session,
            prompts,
            self._select(layers),
            repeats=self._session.keeps_blocks,
            choice=ReadingChoice(
                tokens=chosen,
                points=places,
                role=role,
                describe=form != "json",  # which does not say it
            ),
        )
        return write_activations(reading, output, store=store)

    def _select(self, layers: Layers) -> tuple[int, ...]:
        return select_layers(layers, self.config.num_hidden_layers)
