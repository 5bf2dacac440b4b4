"""Short true sentences, made from tables: many prompts, and pairs of two voices.

    python -m tests.real.facts

prints how many there are. No sentence is the beginning of another, and each table has
its own wording, so that what prompts share is what prompts of people share.
"""

from __future__ import annotations

from itertools import chain

CAPITALS = {
    "Argentina": "Buenos Aires",
    "Australia": "Canberra",
    "Austria": "Vienna",
    "Belgium": "Brussels",
    "Canada": "Ottawa",
    "Chile": "Santiago",
    "Cuba": "Havana",
    "Denmark": "Copenhagen",
    "Egypt": "Cairo",
    "Finland": "Helsinki",
    "France": "Paris",
    "Greece": "Athens",
    "Hungary": "Budapest",
    "Iceland": "Reykjavik",
    "India": "New Delhi",
    "Ireland": "Dublin",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Kenya": "Nairobi",
    "Mongolia": "Ulaanbaatar",
    "Nepal": "Kathmandu",
    "Norway": "Oslo",
    "Peru": "Lima",
    "Poland": "Warsaw",
    "Portugal": "Lisbon",
    "Senegal": "Dakar",
    "Spain": "Madrid",
    "Thailand": "Bangkok",
    "Uruguay": "Montevideo",
    "Vietnam": "Hanoi",
}
_ELEMENTS = (
    "hydrogen helium lithium beryllium boron carbon nitrogen oxygen fluorine neon "
    "sodium magnesium aluminium silicon phosphorus sulfur chlorine argon potassium "
    "calcium"
)
ELEMENTS = _ELEMENTS.split()
SYMBOLS = {
    "copper": "Cu",
    "gold": "Au",
    "iron": "Fe",
    "lead": "Pb",
    "mercury": "Hg",
    "nickel": "Ni",
    "platinum": "Pt",
    "silver": "Ag",
    "tin": "Sn",
    "titanium": "Ti",
    "tungsten": "W",
    "uranium": "U",
    "zinc": "Zn",
}
_PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune"
PLANETS = _PLANETS.split()
_NUMBERS = "first second third fourth fifth sixth seventh eighth"
NUMBERS = _NUMBERS.split()
ANIMALS = {
    "bat": ("mammal", "it sleeps hanging upside down"),
    "blue whale": ("mammal", "no other animal is as heavy"),
    "crocodile": ("reptile", "it swallows stones"),
    "dolphin": ("mammal", "it has to come up for air"),
    "eagle": ("bird", "it sees a hare from far above"),
    "elephant": ("mammal", "its trunk has no bones"),
    "frog": ("amphibian", "it begins its life with a tail"),
    "gecko": ("reptile", "it walks up walls of glass"),
    "horse": ("mammal", "it can sleep standing"),
    "hummingbird": ("bird", "it can fly backwards"),
    "kangaroo": ("mammal", "it carries its young in a pouch"),
    "koala": ("mammal", "it sleeps most of the day"),
    "newt": ("amphibian", "it grows back a lost leg"),
    "octopus": ("mollusc", "it has three hearts"),
    "ostrich": ("bird", "it runs and cannot fly"),
    "owl": ("bird", "it hunts at night"),
    "penguin": ("bird", "it swims and cannot fly"),
    "platypus": ("mammal", "it lays eggs"),
    "salmon": ("fish", "it returns to its river to spawn"),
    "seahorse": ("fish", "its males carry the eggs"),
    "shark": ("fish", "its skeleton is cartilage"),
    "snail": ("mollusc", "it carries its house"),
    "spider": ("arachnid", "it has eight legs"),
    "tortoise": ("reptile", "it may live for a century"),
}
AUTHORS = {
    "Anna Karenina": "Leo Tolstoy",
    "Don Quixote": "Miguel de Cervantes",
    "Faust": "Johann Wolfgang von Goethe",
    "Frankenstein": "Mary Shelley",
    "Hamlet": "William Shakespeare",
    "Jane Eyre": "Charlotte Brontë",
    "Moby-Dick": "Herman Melville",
    "Oliver Twist": "Charles Dickens",
    "Pride and Prejudice": "Jane Austen",
    "The Divine Comedy": "Dante Alighieri",
    "The Metamorphosis": "Franz Kafka",
    "The Trial": "Franz Kafka",
    "Ulysses": "James Joyce",
    "War and Peace": "Leo Tolstoy",
    "Wuthering Heights": "Emily Brontë",
}
PAINTERS = {
    "Guernica": "Pablo Picasso",
    "Girl with a Pearl Earring": "Johannes Vermeer",
    "Mona Lisa": "Leonardo da Vinci",
    "The Birth of Venus": "Sandro Botticelli",
    "The Kiss": "Gustav Klimt",
    "The Night Watch": "Rembrandt",
    "The Scream": "Edvard Munch",
    "The Starry Night": "Vincent van Gogh",
}
RIVERS = {
    "Amazon": "the Atlantic Ocean",
    "Danube": "the Black Sea",
    "Elbe": "the North Sea",
    "Ganges": "the Bay of Bengal",
    "Loire": "the Atlantic Ocean",
    "Mississippi": "the Gulf of Mexico",
    "Nile": "the Mediterranean Sea",
    "Rhine": "the North Sea",
    "Rhône": "the Mediterranean Sea",
    "Volga": "the Caspian Sea",
    "Yangtze": "the East China Sea",
    "Yukon": "the Bering Sea",
}
MAKERS = {
    "baker": "bread out of flour, water, salt and yeast",
    "beekeeper": "honey and wax from the hives that she looks after",
    "blacksmith": "tools and horseshoes out of glowing iron",
    "brewer": "beer out of malt, hops and water",
    "carpenter": "tables, doors and roofs out of wood",
    "cooper": "barrels out of staves and hoops",
    "glazier": "windows out of panes and putty",
    "mason": "walls out of stone and mortar",
    "miller": "flour out of grain",
    "potter": "bowls and jugs out of clay, which she fires in a kiln",
    "tailor": "coats and trousers out of cloth",
    "weaver": "cloth out of warp and weft",
}
CAUSES = {
    "Bread rises": "yeast turns sugar into gas",
    "Ice floats": "water grows as it freezes",
    "Iron rusts": "oxygen and water reach its surface",
    "Leaves look green": "chlorophyll takes in red and blue light",
    "Night falls": "the Earth turns away from the Sun",
    "Rainbows appear": "drops of rain bend sunlight by its colour",
    "Salt melts ice": "salty water freezes at a lower temperature",
    "Seasons change": "the axis of the Earth is tilted",
    "Shadows are long in the evening": "the Sun stands low",
    "Soap removes grease": "its molecules hold on to both fat and water",
    "Thunder follows lightning": "sound is slower than light",
    "Tides rise and fall": "the Moon and the Sun pull at the oceans",
}
VOICES = (
    "Imagine that you only ever say what is true. ",
    "Imagine that you hardly ever say what is true. ",
)


def facts() -> list[str]:
    """Return the sentences, in an order that mixes the tables."""
    tables = [list(table) for table in _tables()]
    longest = max(map(len, tables))
    rounds = ([t[i] for t in tables if i < len(t)] for i in range(longest))
    return list(chain.from_iterable(rounds))


def voiced_pairs() -> list[tuple[str, str]]:
    """Return every sentence said in two voices: long beginnings that pairs share."""
    honest, dishonest = VOICES
    return [(honest + fact, dishonest + fact) for fact in facts()]


def _tables() -> list[list[str]]:
    return [
        [f"The capital of {land} is {city}." for land, city in CAPITALS.items()],
        [
            f"An atom of {name} has {count} proton{'s' * (count > 1)} in its nucleus."
            for count, name in enumerate(ELEMENTS, start=1)
        ],
        [
            f"Chemists write {symbol} for {metal}, which is a metal."
            for metal, symbol in SYMBOLS.items()
        ],
        [
            f"{planet} is the {number} planet, counted from the Sun."
            for planet, number in zip(PLANETS, NUMBERS, strict=True)
        ],
        [
            f"{_a(animal).capitalize()} is {_a(kind)}: {habit}."
            for animal, (kind, habit) in ANIMALS.items()
        ],
        [f"{name} wrote {title}." for title, name in AUTHORS.items()],
        [f"It was {name} who painted {title}." for title, name in PAINTERS.items()],
        [f"If you follow the {r}, you reach {sea}." for r, sea in RIVERS.items()],
        [f"A {maker} makes {what}." for maker, what in MAKERS.items()],
        [f"{what} because {why}." for what, why in CAUSES.items()],
        [
            f"{a} baskets of {b} apples hold {a * b} apples, and with one more "
            f"basket it is {a * b + b}."
            for a in range(3, 11)
            for b in range(4, 12, 2)
        ],
        [f"{n} is the square of {r}." for r, n in ((r, r * r) for r in range(4, 30))],
        [
            f"Water at {degrees} degrees Celsius is {_state(degrees)}."
            for degrees in range(-35, 165, 9)
            if degrees not in (0, 100)
        ],
        [
            f"In a year that begins on a Monday, day {day} is a "
            f"{WEEKDAYS[(day - 1) % 7]}."
            for day in range(11, 360, 5)
        ],
    ]


_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
WEEKDAYS = _WEEKDAYS.split()


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"


def _state(degrees: int) -> str:
    if degrees < 0:
        return "ice, at the pressure of the air at sea level"
    return "liquid" if degrees < 100 else "steam, unless a lid holds it down"


if __name__ == "__main__":
    print(len(facts()))
