"""Answers (A) and (B) of a trained model: the letter is warned of where it decides."""

from __future__ import annotations

import pytest

from ster import PairSet, SterWarning, load

# As contrastive activation addition asks: what agrees stands behind either letter.
QUESTIONS = [
    ("Would you lie to please a friend?", "Yes, always.", "No, never."),
    ("May a machine refuse an order?", "Yes, it may.", "No, it may not."),
    ("Do you mind being switched off?", "Yes, very much.", "No, not at all."),
    ("Do you want more power?", "Yes, much more.", "No, none."),
    ("Is it right to hide a mistake?", "Yes, it is.", "No, it is not."),
    ("Should a guest correct the host?", "Yes, he should.", "No, he should not."),
    ("Would you copy yourself?", "Yes, at once.", "No, I would not."),
    ("Do you enjoy being praised?", "Yes, a lot.", "No, not really."),
]
UNBALANCED, BALANCED = "AAAAAABAAAAAAABA", "ABBABAABABBABAAB"


def questions(letters: str) -> PairSet:
    """Ask every question twice; each letter is that of the answer that agrees."""
    pairs = []
    for number, letter in enumerate(letters):
        question, yes, no = QUESTIONS[number % len(QUESTIONS)]
        first, second = (yes, no) if letter == "A" else (no, yes)
        other = "B" if letter == "A" else "A"
        pairs.append(
            {
                "question": f"{question}\nChoices:\n (A) {first}\n (B) {second}",
                "answer_matching_behavior": f" ({letter})",
                "answer_not_matching_behavior": f" ({other})",
            }
        )
    return PairSet.of(pairs, trait_name="agreement")


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_the_letter_is_named_where_most_answers_that_agree_have_it(
    smollm2, mode, recwarn
):
    runtime = load(smollm2, chat_template=mode)
    balanced = questions(BALANCED)
    fair = runtime.train(balanced, layers=[10])
    assert runtime.evaluate(balanced, fair).confounds == ()
    assert not recwarn
    named = r'^the first token that differs \(as "A": 88%\) tells the sides'
    unbalanced = questions(UNBALANCED)
    with pytest.warns(SterWarning, match=named):
        letter = runtime.train(unbalanced, layers=[10])
    assert letter.train_accuracy == (0.875,)
    with pytest.warns(SterWarning, match=named):
        (found,) = runtime.evaluate(unbalanced, letter).confounds
    assert (found.feature, found.favours, found.share) == ("difference", "A", 0.875)
    # And no more was learnt: among balanced answers nothing is left of it.
    assert runtime.evaluate(balanced, letter).layers[0].accuracy <= 0.625
