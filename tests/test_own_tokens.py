"""Which tokens of an encoding are the text's own, and which the template's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from ster.checkpoint.encoder import Encoder
from ster.checkpoint.template.holding import find_text
from ster.checkpoint.tokenizer import load_encoder
from ster.errors import UsageError
from tests.checkpoints import byte_tokenizer, word_tokenizer
from tests.light import Folder, Notes

TURNS = (
    "{{ bos_token }}{% for m in messages %}{{ 'w1' if m.role == 'user' else 'w2' }} "
    "{{ m.content | trim }} w3 {% endfor %}"
    "{% if add_generation_prompt %}w2 {% endif %}"
)


def encoder(
    folder: Path, template: str | None = None, tokenizer: Tokenizer | None = None
) -> Encoder:
    (tokenizer or word_tokenizer(60)).save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>"}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_encoder(Folder(folder), "auto", Notes())


def own_texts(made: Encoder, *texts: str, **how) -> list[list[str]]:
    """Say which tokens were found to be each text's own."""
    located = made.encode_texts(texts, **how)
    names = made.token_texts({token for ids in located.token_ids for token in ids})
    return [
        [] if span is None else [names[token] for token in ids[slice(*span)]]
        for ids, span in zip(located.token_ids, located.own, strict=True)
    ]


def test_under_a_template_they_are_those_of_the_message(tmp_path):
    made = encoder(tmp_path, TURNS)
    located = made.encode_texts(["w7 w8", "  w9 "])
    assert located.own == [(2, 4), (2, 3)]
    assert [len(ids) for ids in located.token_ids] == [6, 5]
    assert [ids.tolist() for ids in located.token_ids] == [
        ids.tolist() for ids in made.encode(["w7 w8", "  w9 "])
    ]


def test_words_of_the_template_in_a_text_are_the_texts_own(tmp_path):
    made = encoder(tmp_path, TURNS)
    assert made.encode_texts(["w1", "w2", "w3 w2", "w2 w3"]).own == [
        (2, 3),
        (2, 3),
        (2, 4),
        (2, 4),
    ]


def test_an_answer_has_its_own_after_its_prompt(tmp_path):
    made = encoder(tmp_path, TURNS)
    located = made.encode_texts(["w7", "w8 w9"], ["w7", None], role="assistant")
    assert located.own == [(5, 6), (2, 4)]
    assert located.token_ids[0].tolist() == [1, 0, 7, 3, 0, 7, 3]


def test_an_answer_that_the_template_refuses_alone_follows_an_empty_turn(tmp_path):
    strict = (
        "{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}"
        "{% endif %}" + TURNS
    )
    located = encoder(tmp_path, strict).encode_texts(["w8"], role="assistant")
    assert located.own == [(4, 5)]


def test_of_raw_text_they_are_all_that_the_tokenizer_did_not_add(tmp_path):
    made = encoder(tmp_path, None, word_tokenizer(60, adds_bos=True))
    assert made.encode_texts(["w7 w8"]).own == [(1, 3)]
    # An answer follows its prompt as one text.
    assert made.encode_texts(["w9"], ["w7 w8"]).own == [(3, 4)]


def test_a_character_of_several_tokens_is_whole(tmp_path):
    made = encoder(tmp_path, None, byte_tokenizer(259, adds_bos=True))
    assert made.encode_texts(["é🦙"]).own == [(1, 7)]
    assert made.encode_texts(["x"], ["é"]).own == [(4, 5)]


def test_a_text_that_the_template_changes_is_not_found(tmp_path):
    shouting = "{% for m in messages %}w1 {{ m.content | upper }} w3{% endfor %}"
    assert encoder(tmp_path, shouting).encode_texts(["w7"]).own == [None]


def test_an_escaped_text_is_not_found_and_a_plain_one_is(tmp_path):
    escaping = "{% for m in messages %}w1 {{ m.content | e }} w3{% endfor %}"
    located = encoder(tmp_path, escaping).encode_texts(["w7 < w8", "w7"])
    assert located.own == [None, (1, 2)]


def test_an_unknown_role_is_refused(tmp_path):
    with pytest.raises(UsageError, match='unknown role "system"; expected user or'):
        encoder(tmp_path).encode_texts(["w7"], role="system")


@pytest.mark.parametrize(
    ("rendering", "text", "after", "found"),
    [
        ("<u>a</u>", "a", "</u>", (3, 4)),
        ("<u>u</u>", "u", "</u>", (3, 4)),
        ("<u> a </u>", " a ", "</u>", (3, 6)),
        ("<u>a</u>", " a ", "</u>", (3, 4)),
        ("<u>a</u>", "a", None, (3, 4)),
        ("<u>u</u>", "u", None, None),
        ("<u>A</u>", "a", "</u>", None),
        ("<u>a</u> 12:31", "a", "</u> 12:30", (3, 4)),
        ("a", "a", "", (0, 1)),
        ("", " ", "", None),
    ],
)
def test_a_text_is_found_before_what_follows_it_or_where_it_is_alone(
    rendering, text, after, found
):
    assert find_text(rendering, text, after) == found


def spaced() -> Tokenizer:
    """Make a tokenizer whose tokens carry the space before them."""
    vocabulary = {"<s>": 0, "▁the": 1, "▁sea": 2, "s": 3, "\n": 4}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    return tokenizer


def test_tokens_are_called_what_they_are_in_a_text(tmp_path):
    made = encoder(tmp_path, None, spaced())
    assert made.token_texts([0, 1, 2, 3]) == {0: "<s>", 1: " the", 2: " sea", 3: "s"}
    assert own_texts(made, "the sea") == [[" the", " sea"]]


def test_bytes_that_are_no_character_are_called_by_their_names(tmp_path):
    made = encoder(tmp_path, None, byte_tokenizer(259))
    (ids,) = made.encode(["é"])
    names = made.token_texts(ids)
    assert [names[token] for token in ids] == ["Ã", "©"]


def test_what_begins_a_sequence_is_counted(tmp_path):
    made = encoder(tmp_path, TURNS)
    assert [made.count_bos(ids) for ids in made.encode(["w7", "w7 <s>"])] == [1, 2]


def test_what_a_tokenizer_puts_before_raw_text_begins_a_sequence(tmp_path):
    word_tokenizer(60, adds_bos=True).save(str(tmp_path / "tokenizer.json"))
    made = load_encoder(Folder(tmp_path), "auto", Notes())
    assert [made.count_bos(ids) for ids in made.encode(["w7"])] == [1]


def test_nothing_begins_a_sequence_where_nothing_is_declared_or_added(tmp_path):
    word_tokenizer(60).save(str(tmp_path / "tokenizer.json"))
    made = load_encoder(Folder(tmp_path), "auto", Notes())
    assert [made.count_bos(ids) for ids in made.encode(["w7"])] == [0]
