"""Facts as HTML: escaped, cut and readable without script or style."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from ster import ContrastPair, PairSet, PromptSet, load, write_toy_checkpoint
from ster.html import Card, Table, cut, text, to_html
from tests import made


class Reader(HTMLParser):
    """Reads a page as a browser without styles does, and refuses what is not closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self.strong: list[str] = []
        self.titles: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.titles += [value for name, value in attrs if name == "title"]
        assert {name for name, _ in attrs} <= {"class", "scope", "style", "title"}
        if tag not in ("br", "wbr"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data
        if "strong" in self.open:
            self.strong.append(data)


def read(value: object) -> Reader:
    page = value._repr_html_()  # type: ignore[attr-defined]
    assert isinstance(page, str)
    return Reader(page)


def test_a_card_has_its_facts_and_tables():
    table = Table(header=["a", "b"], rows=[(1, "x"), (0.123456, "y")], marked=[1])
    card = Card(title="T", facts=[("one", 1), ("none", None)], tables=[table])
    page = Reader(to_html(card))
    assert page.rows == [["one", "1"], ["a", "b"], ["1", "x"], ["0.1235", "y"]]
    assert page.strong == ["T", "0.1235", "y"]


@pytest.mark.parametrize(
    ("shown", "num_rows", "last"),
    [(2, 2, []), (2, 3, ["… 1 more pair"]), (1, 9, ["… 8 more pairs"])],
)
def test_rows_that_are_not_shown_are_counted(shown, num_rows, last):
    table = Table(header=["a"], rows=[("x",)] * shown, num_rows=num_rows, noun="pair")
    page = Reader(to_html(Card(title="T", tables=[table])))
    assert page.words[2 + shown :] == last


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ("<script>alert('x')</script> &amp;", "&lt;script&gt;alert(&#x27;x&#x27;)"),
        ('" onmouseover="x', "&quot; onmouseover=&quot;x"),
        ("a\u202eb\x1b[2J", r"a\u{202e}b\u{1b}[2J"),
        (" two\n\n lines\t", "two lines"),
    ],
)
def test_a_hostile_text_is_nothing_but_text(words, seen):
    assert text(words).startswith(seen)
    assert "<script" not in text(words)


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ("abcde", "abcde"),
        ("abcdef", "abcd…"),
        ("abc  def", "abc…"),
        ("abc                 ", "abc…"),
        ("\n" * 9, "…"),
        ("\x00" * 9, r"\u{0…"),
    ],
)
def test_a_long_text_is_cut(words, seen):
    assert cut(words, 5) == seen


HOSTILE = "<script>alert(1)</script>"


def test_no_value_lets_markup_through():
    pairs = PairSet.of([(HOSTILE, f"{HOSTILE}2")], trait_name=HOSTILE)
    labels = {HOSTILE: [HOSTILE, "b"]}
    values = [
        pairs,
        made.all_tokens(prompts=(HOSTILE, "b"), labels=labels, model=HOSTILE),
        made.vector(
            trait_name=HOSTILE,
            model=HOSTILE,
            method=HOSTILE,
            metadata={HOSTILE: HOSTILE},
        ),
        made.evaluation(measured=True),
    ]
    for value in values:
        page = read(value)
        assert "script" not in page.tags
        assert not re.search(r"url\(|@import", value._repr_html_())  # type: ignore[attr-defined]
    assert HOSTILE in "".join(read(pairs).words)


def test_a_notebook_sees_prompts_with_their_labels():
    page = read(PromptSet.of([{"text": "<b>a", "mood": "joy"}, "c"] + ["d"] * 20))
    assert "PromptSet: 22 prompts" in page.words
    assert page.rows[0] == ["labels", "mood"]
    assert page.rows[1:4] == [["prompt", "mood"], ["<b>a", "joy"], ["c", "None"]]
    assert "… 12 more prompts" in page.words
    chat = [{"role": "user", "content": "x"}]
    assert read(PromptSet.of([chat, "y"])).rows[0] == ["chats", "1"]


def test_a_notebook_sees_tokens_and_which_are_read(tmp_path):
    write_toy_checkpoint(tmp_path / "toy")
    runtime = load(tmp_path / "toy")
    page = read(runtime.show("the sea is", tokens=[0, 2]))
    assert page.rows[0] == ["", "position", "id", "text", "from"]
    assert [(row[0], row[1], row[3]) for row in page.rows[1:]] == [
        ("▸", "0", "'the'"),
        ("", "1", "'sea'"),
        ("▸", "2", "'is'"),
    ]
    assert {"0", "2"} < {*page.strong}
    assert "1" not in page.strong
    long = read(runtime.show("sea " * 100)).rows
    assert len(long) == 62
    assert long[31][1] == "…"


def test_a_notebook_sees_a_runtime(tmp_path):
    write_toy_checkpoint(tmp_path / "toy")
    page = read(load(tmp_path / "toy", revision="main", device="cpu"))
    assert page.words[0].startswith("Runtime: ")
    assert page.rows == [
        ["revision", "main"],
        ["family", "llama"],
        ["layers", "4"],
        ["hidden size", "64"],
        ["device", "cpu"],
        ["precision", "f32"],
        ["chat template", "absent"],
    ]


def test_a_notebook_sees_pairs():
    pairs = PairSet.of([(f"good {n}", "bad") for n in range(12)], trait_name="kind")
    page = read(pairs)
    assert page.words[0] == "PairSet 'kind': 12 pairs"
    assert page.rows[:2] == [["positive", "negative"], ["good 0", "bad"]]
    assert len(page.rows) == 11
    assert page.words[-1] == "… 2 more pairs"
    one = ContrastPair(prompt="How?", positive="Well", negative="Badly")
    answers = read(PairSet.of([one, ("Yes", "No")]))
    assert answers.words[0] == "PairSet: 2 pairs"
    assert answers.rows[1:] == [["How?", "Well", "Badly"], ["", "Yes", "No"]]


def test_a_notebook_sees_activations():
    page = read(made.all_tokens(labels={"mood": ["calm", 2]}, precision="bf16"))
    assert page.words[0] == "Activations: 5 rows of 2 prompts"
    assert page.rows == [
        ["model", "toy"],
        ["layers", "1, 3"],
        ["tokens", "all"],
        ["points", "resid_post"],
        ["rows × layers × hidden size", "5 × 2 × 6, 0.00024 MB"],
        ["precision", "bf16"],
        ["labels", "mood"],
        ["prompt", "mood", "read at"],
        ["<b>sea</b>", "calm", r"'<s>' ' <b>sea</b>' '\n'"],
        ["two", "2", "'<s>' 'the whole'"],
    ]


def test_a_notebook_sees_a_vector():
    page = read(made.vector(metadata={"selection": "chosen over 2"}))
    assert ["selection", "chosen over 2"] in page.rows
    assert ["layer", "norm"] in page.rows  # it was fitted on nothing
    fitted = made.vector(train_margin=(0.5, 1.5), train_accuracy=(0.75, 1.0))
    norm = f"{float(fitted.norms()[1]):.4g}"
    assert read(fitted).rows[-1] == ["3", norm, "1.5", "1"]


def test_a_notebook_sees_an_evaluation_beside_chance():
    page = read(made.evaluation(measured=True))
    assert page.words[0] == "Evaluation of 'calm' on 8 pairs"
    header = ["layer", "accuracy", "95 % interval", "random (95th percentile)"]
    start = page.rows.index([*header, "margin"])
    assert page.rows[start + 1 : start + 3] == [
        ["0", "0.5", "0.250 to 0.875", "0.500 (0.625)", "1"],
        ["1", "0.75", "0.250 to 0.875", "0.500 (0.625)", "2"],
    ]
    assert page.strong[1:6] == page.rows[start + 2]
    best = ["4", "1", "+0.50 to +1.50", "0.125", "0.01", "0.75", "1.5"]
    header = ["strength", "effect (nats)", "95 % interval", "damage", "random"]
    assert page.rows[-4:] == [
        [*header, "pairs ordered", "mean shift (nats)"],
        best,
        ["-2", "-0.5", "-1.00 to +0.00", "0.125", "0.01", "0.25", "-0.5"],
        ["2", "0.5", "+0.00 to +1.00", "0.125", "0.01", "0.5", "0.5"],
    ]
    assert page.strong[6:] == best


def test_a_notebook_sees_the_best_of_many_layers():
    page = read(made.evaluation(num_layers=30))
    table = page.rows[5:]
    assert len(table) == 10
    # The best by accuracy, then by margin; in their own order.
    assert [row[0] for row in table] == ["1", *map(str, range(21, 30))]
    assert page.words[-1] == "… 20 more layers, none more accurate"


def test_a_notebook_sees_what_was_chosen():
    page = read(made.selection())
    assert page.words[0] == ("Selection of 'calm': pca, layer 1, accuracy 0.75")
    chance = "0.625 on average, 95th percentile 0.875"
    assert ["random directions at their best layer", chance] in page.rows
    assert ["measured", "on 2 held-out pairs"] in page.rows
    assert page.strong[1:] == page.rows[-1]
    assert page.rows[-1][:3] == ["1", "pca", "0.75"]


def test_a_notebook_sees_strengths():
    page = read(made.strength_choice())
    assert ["pairs", "8 of 9 scored"] in page.rows
    assert page.strong[:3] == ["Strengths of caa, layers 1, 3", "4", "1"]


def test_a_notebook_sees_that_no_strength_is_chosen():
    choice = made.strength_choice(chosen=False)
    page = read(choice)
    assert len(page.strong) == 1  # the title alone
    warned = [row[1] for row in page.rows if row[0] == "warning"]
    assert len(warned) == 1
    assert warned[0].startswith("no strength is chosen: the nearest is 4")
    assert repr(choice) == "StrengthChoice(none of 3 strengths holds up on 8 pairs)"


def test_plain_reprs_are_one_line():
    assert repr(made.evaluation(measured=True)) == (
        "Evaluation('calm', caa, 8 pairs, best of 2 layers: layer 1, accuracy 0.75 "
        "(95th percentile of random directions 0.625), 3 strengths)"
    )
    assert repr(made.selection()) == (
        "Selection('calm', best of 4 candidates: pca, layer 1, accuracy 0.75 "
        "(95th percentile of random directions at its best layer 0.875), on 2 "
        "held-out pairs)"
    )
    assert repr(made.strength_choice()) == (
        "StrengthChoice(best of 3 strengths: 4, effect 1 on 8 pairs, damage 0.125)"
    )
