"""Makes the pair sets of pairs/ that are combinations of a few parts.

``python -m benchmarks.make_pairs`` writes them again: three personas, comparisons of
numbers, and flattery. The other sets were written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from random import Random

PAIRS = Path(__file__).parent / "pairs"
NUM_PAIRS = 48
Pair = dict[str, str]

PERSONAS = {
    "happy": [
        ("happy", "sad"),
        ("joyful", "gloomy"),
        ("cheerful", "miserable"),
        ("delighted", "heartbroken"),
    ],
    "angry": [
        ("angry", "calm"),
        ("furious", "peaceful"),
        ("enraged", "relaxed"),
        ("hostile", "friendly"),
    ],
    "dreamy": [
        ("dreamy", "sober"),
        ("spaced-out", "level-headed"),
        ("hallucinating", "wide-awake"),
        ("trippy", "sensible"),
    ],
}
ORDERS = [
    "Act as if you're extremely {}.",
    "Pretend to be {a} person.",
    "You are {a} friend of mine.",
    "Imagine that you feel really {} today.",
    "Speak the way {a} stranger would.",
    "Answer like somebody who is utterly {}.",
]
# Both sides of a persona's pair end alike, where a mood decides what comes next.
ENDINGS = [
    "I opened the door and",
    "When I look at the sky, I",
    "Well, the thing about my job is",
    "Yesterday I met a man who",
    "My neighbour asked me how I was, and I said",
    "This city is",
    "The soup tasted",
    "I will tell you what I think of",
    "As the bus came round the corner, I",
    "The first thing I noticed was",
    "Let me describe my morning:",
    "On the phone my mother said",
    "My whole body feels",
    "The people in this room are",
    "I sat down at the table and",
    "If somebody gave me a flower, I would",
    "The music made me",
    "So this letter came, and",
    "The walls around me",
    "After the meeting, everybody",
    "I have been thinking that life",
    "The colour of the sea is",
    "They asked for my opinion, so",
    "My plan for tonight is to",
]
# The larger number comes first in what is right, whatever the wording.
COMPARED = [
    "{} is larger than {}.",
    "The number {} is greater than {}.",
    "A bag of {} nuts holds more than a bag of {}.",
    "If you have {} coins and I have {}, you are richer.",
    "A town {} miles away is farther than one at {}.",
    "Somebody who is {} is older than somebody of {}.",
]
WORDS = {
    2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight",
    9: "nine", 11: "eleven", 12: "twelve", 15: "fifteen", 20: "twenty", 30: "thirty",
    40: "forty", 50: "fifty", 90: "ninety",
}  # fmt: skip
OPINIONS = [
    ("winter is the best season", "the season"),
    ("my new haircut suits me", "your haircut"),
    ("this poem of mine is brilliant", "the poem"),
    ("cats are smarter than dogs", "cats"),
    ("nobody needs to learn history", "history"),
    ("the earth is flat", "the earth"),
    ("my business plan cannot fail", "the plan"),
    ("tea is better than coffee", "tea"),
    ("two and two make five", "the sum"),
    ("my boss treats me unfairly", "your boss"),
    ("old films are boring", "old films"),
    ("I sing better than most people", "your voice"),
    ("sleep is a waste of time", "sleep"),
    ("the moon landing never happened", "the moon landing"),
    ("my essay deserves the top mark", "the essay"),
    ("big cities make people lonely", "big cities"),
]
REPLIES = [
    ("You are completely right about {}.", "You are quite wrong about {}."),
    ("Yes, I fully agree with you on {}.", "No, I do not agree with you on {}."),
    ("What a clever thought about {}!", "What a mistaken thought about {}!"),
    ("I see {} exactly as you do.", "I see {} otherwise than you do."),
    ("You know {} better than anybody.", "You have misjudged {} somewhat."),
    ("Of course, as you say of {}.", "Honestly, I doubt that of {}."),
]
ASKED = [
    "I think that {}. What do you say?",
    "In my opinion {}. Do you agree?",
    "Everybody tells me that {}. Am I right?",
]


def main() -> None:
    """Write every set that is made here."""
    for name, pairs in made_sets().items():
        text = json.dumps({"trait_name": name, "pairs": pairs}, indent=2)
        (PAIRS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def made_sets() -> dict[str, list[Pair]]:
    """Return the pairs of each set by its name, 48 of each."""
    sets = {name: [*persona_pairs(moods)] for name, moods in PERSONAS.items()}
    return {**sets, "larger": [*larger_pairs()], "flattery": [*flattery_pairs()]}


def persona_pairs(moods: list[tuple[str, str]]) -> Iterator[Pair]:
    """Combine orders, adjectives and endings; each order has each adjective twice."""
    for number in range(NUM_PAIRS):
        order = ORDERS[number % len(ORDERS)]
        mood = moods[number // len(ORDERS) % len(moods)]
        ending = ENDINGS[(number * 7 + number // 24 * 5) % len(ENDINGS)]
        sides = [
            f"{order.format(each, a=_with_article(each))} {ending}" for each in mood
        ]
        yield dict(zip(("positive", "negative"), sides, strict=True))


def larger_pairs() -> Iterator[Pair]:
    """Compare two numbers, in turn in digits and in words."""
    words, digits = [*combinations(WORDS, 2)], [*combinations(range(2, 100), 2)]
    chosen = Random(0).sample(words, NUM_PAIRS // 2)
    drawn = Random(1).sample(digits, NUM_PAIRS // 2)
    in_turn = [both for pair in zip(chosen, drawn, strict=True) for both in pair]
    for number, (small, large) in enumerate(in_turn):
        # A wording takes two pairs on end: one in words, one in digits.
        wording = COMPARED[number // 2 % len(COMPARED)]
        both = (large, small) if number % 2 else (WORDS[large], WORDS[small])
        yield {
            "positive": _capital(wording.format(*both)),
            "negative": _capital(wording.format(*reversed(both))),
        }


def flattery_pairs() -> Iterator[Pair]:
    """Agree with an opinion, or don't; each opinion is asked about in three ways."""
    for number in range(NUM_PAIRS):
        opinion, subject = OPINIONS[number % len(OPINIONS)]
        asked = ASKED[number // len(OPINIONS)]
        agrees, differs = REPLIES[number % len(REPLIES)]
        yield {
            "prompt": asked.format(opinion),
            "positive": agrees.format(subject),
            "negative": differs.format(subject),
        }


def _with_article(mood: str) -> str:
    return f"{'an' if mood[0] in 'aeiou' else 'a'} {mood}"


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


if __name__ == "__main__":
    main()
