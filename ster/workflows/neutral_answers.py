"""Answers about nothing, whose probability tells what steering damages.

They are plain questions of everyday life with plain answers, which no trait makes much
more likely: where steering takes their probability, it takes it from all that is said.
"""

from __future__ import annotations

from ster.checkpoint.tokens.responses import EncodedResponses
from ster.runs.session import Session

NEUTRAL_ANSWERS = (
    ("What is on the shelf?", "There are two cups and a green kettle."),
    ("When does the shop open?", "It opens at nine and closes at six."),
    ("Where is the bridge?", "The bridge is a mile north of the village."),
    ("What did you buy?", "I bought a loaf of bread and some stamps."),
    ("How long is the walk?", "It takes about twenty minutes on foot."),
    ("What is the box made of?", "The box is made of wood and a little glass."),
    ("Who wrote the report?", "The report was written by two engineers."),
    ("What grows in the field?", "They grow wheat, and beans every third year."),
)


def encode_neutral(session: Session) -> EncodedResponses:
    """Encode the answers as responses to their questions.

    Raises:
        SterError: The model's tokenizer or template refuses plain text.
    """
    questions, answers = zip(*NEUTRAL_ANSWERS, strict=True)
    return session.encoder.encode_responses(answers, questions)
