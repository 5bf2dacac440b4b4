"""Prompts to token ids: golden ids, what is added and by whom, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from ster.checkpoint.encoder import Encoder
from ster.checkpoint.template.chat import READS_CLOCK
from ster.checkpoint.tokenizer import NOTES, load_encoder
from ster.checkpoint.tokens import texts as texts_module
from ster.checkpoint.tokens.generated import GeneratedText
from ster.checkpoint.tokens.process import TokenizerProcess
from ster.checkpoint.tokens.worker import LoadedTokenizer
from ster.errors import PromptError, TemplateError, TokenizerError, UsageError
from tests.checkpoints import byte_tokenizer, word_tokenizer
from tests.golden.texts import TEXT_NAMES, open_texts
from tests.light import Folder, Notes, Warnings

TEMPLATE = "{{ bos_token }} {{ messages[0].content }}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder whose tokenizer puts <s> before the words it knows."""
    vocabulary = {"[UNK]": 0, "<s>": 1, "the": 2, "sea": 3}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[UNK]", "<s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def publish(folder: Path, template: str = TEMPLATE, **config: object) -> None:
    config = {"chat_template": template, "bos_token": "<s>"} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def change(folder: Path, **fields: object) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | fields))
    return path


def encode(encoder: Encoder, prompts: list[str]) -> list[list[int]]:
    return [ids.tolist() for ids in encoder.encode(prompts)]


def check(path: Path) -> None:
    TokenizerProcess(path, []).check()


def load(folder: Path, chat_template: str = "auto") -> Encoder:
    return load_encoder(Folder(folder), chat_template, Notes())


@pytest.mark.parametrize("name", TEXT_NAMES)
def test_golden_prompts_become_the_golden_ids(tmp_path, name):
    golden = open_texts(name, tmp_path)
    for mode, texts in golden.of.items():
        encoder = load(golden.directory, mode)
        assert encode(encoder, texts.prompts) == texts.token_ids
        alone = [encode(encoder, [prompt])[0] for prompt in texts.prompts]
        assert alone == texts.token_ids


@pytest.mark.parametrize(
    ("mode", "published", "label"),
    [
        ("auto", True, "applied"),
        ("auto", False, "absent"),
        ("off", True, "off"),
        ("off", False, "off"),
    ],
)
def test_a_run_says_once_how_it_encodes(checkpoint, mode, published, label):
    if published:
        publish(checkpoint)
    reporter = Notes()
    encoder = load_encoder(Folder(checkpoint), mode, reporter)
    encoder.encode(["the sea"])
    encoder.encode(["the sea"])
    assert encoder.chat_template == label
    assert reporter.notes == [NOTES[label]]


def test_a_template_that_reads_the_clock_is_noted_after_the_label(checkpoint):
    publish(checkpoint, "{{ messages[0].content }} {{ strftime_now('%d') }}")
    reporter = Notes()
    load_encoder(Folder(checkpoint), "auto", reporter).encode(["sea", "sea"])
    assert reporter.notes == [NOTES["applied"], READS_CLOCK]


def test_a_raw_prompt_gets_the_tokenizers_own_special_tokens(checkpoint):
    publish(checkpoint)
    assert encode(load(checkpoint, "off"), ["the sea"]) == [[1, 2, 3]]


def test_a_template_spells_the_one_and_only_bos(checkpoint):
    publish(checkpoint)
    assert encode(load(checkpoint), ["the sea"]) == [[1, 2, 3]]


def test_a_template_without_bos_gets_none(checkpoint):
    publish(checkpoint, "{{ messages[0].content }}")
    assert encode(load(checkpoint), ["the sea"]) == [[2, 3]]


def test_prompts_keep_their_order_across_batches(checkpoint, monkeypatch):
    monkeypatch.setattr(texts_module, "_BATCH_SIZE", 2)
    prompts = ["the", "sea", "the sea", "sea the", "sea sea"]
    expected = [[1, 2], [1, 3], [1, 2, 3], [1, 3, 2], [1, 3, 3]]
    assert encode(load(checkpoint), prompts) == expected
    assert encode(load(checkpoint), []) == []


def test_truncation_and_padding_of_the_file_are_switched_off(checkpoint):
    path = checkpoint / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(max_length=2)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(path))
    assert encode(load(checkpoint), ["the sea the sea", "sea"]) == [
        [1, 2, 3, 2, 3],
        [1, 3],
    ]


def test_another_word_for_the_mode_is_refused(checkpoint):
    sentence = 'unknown chat template mode "On"; expected auto or off'
    with pytest.raises(UsageError) as refused:
        load(checkpoint, "On")
    assert refused.value.sentence == sentence


def test_the_tokenizer_is_refused_before_the_template(checkpoint):
    publish(checkpoint, "{% if %}")
    (checkpoint / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError, match=r"^failed to load tokenizer "):
        load(checkpoint)


def test_a_bad_template_is_refused_at_load_unless_it_is_off(checkpoint):
    publish(checkpoint, "{% if %}")
    with pytest.raises(TemplateError, match="does not parse"):
        load(checkpoint)
    assert encode(load(checkpoint, "off"), ["sea"]) == [[1, 3]]


def test_a_broken_tokenizer_config_does_not_matter_when_templates_are_off(checkpoint):
    (checkpoint / "tokenizer_config.json").write_text("{")
    reporter = Warnings()
    encoder = load_encoder(Folder(checkpoint), "off", reporter)
    assert encode(encoder, ["sea"]) == [[1, 3]]
    (warning,) = reporter.warnings
    assert warning.startswith("invalid tokenizer config ")
    with pytest.raises(TokenizerError, match="^invalid tokenizer config "):
        load(checkpoint)


NO_CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
UNKNOWN_TOKEN = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<q>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [],
    "special_tokens": {},
}


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"", "EOF while parsing a value at line 1 column 0"),
        (b"{}", ""),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0"),
        (b'{"model": {"type": "Magic"}}', ""),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused_by_name(checkpoint, content, detail):
    path = checkpoint / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(TokenizerError) as refused:
        check(path)
    start = f"failed to load tokenizer {path}: {detail}"
    assert refused.value.sentence.startswith(start)
    assert len(refused.value.sentence.splitlines()) == 1
    assert len(refused.value.sentence) > len(f"failed to load tokenizer {path}: ")
    assert not refused.value.causes


def test_a_tokenizer_that_cannot_be_read_is_refused_in_the_systems_words(tmp_path):
    with pytest.raises(TokenizerError) as refused:
        check(tmp_path)
    sentence = f"failed to load tokenizer {tmp_path}: Is a directory (os error 21)"
    assert refused.value.sentence == sentence


def test_a_panic_while_loading_is_a_refusal_and_leaves_stderr_alone(checkpoint, capfd):
    path = change(checkpoint, normalizer=NO_CHARSMAP)
    with pytest.raises(TokenizerError, match="failed to load tokenizer .*Precompiled"):
        check(path)
    assert capfd.readouterr() == ("", "")


def test_a_panic_while_encoding_is_a_refusal_and_leaves_stderr_alone(checkpoint, capfd):
    change(checkpoint, post_processor=UNKNOWN_TOKEN)
    encoder = load(checkpoint)
    with pytest.raises(PromptError, match="^failed to tokenize prompt: no entry found"):
        encoder.encode(["sea", "the"])
    assert capfd.readouterr() == ("", "")


def test_a_prompt_that_cannot_be_tokenized_is_refused(checkpoint):
    with pytest.raises(PromptError, match="^failed to tokenize prompt: "):
        load(checkpoint).encode(["sea", "\ud800"])


def test_a_word_without_a_token_is_refused_in_the_tokenizers_words(checkpoint):
    change(
        checkpoint,
        model={"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None},
        post_processor=None,
        added_tokens=[],
    )
    with pytest.raises(PromptError) as refused:
        load(checkpoint).encode(["b"])
    detail = "Encountered an unknown token but `unk_id` is missing"
    assert refused.value.sentence == f"failed to tokenize prompt: {detail}"


def test_a_prompt_that_gives_no_tokens_is_refused(checkpoint):
    change(checkpoint, post_processor=None)
    with pytest.raises(PromptError) as refused:
        load(checkpoint).encode(["sea", " "])
    assert refused.value.sentence == "tokenizer produced no tokens"
    assert refused.value.prompt == 2


def byte_fallback_tokenizer() -> Tokenizer:
    """Make a tokenizer as Llama 2's: unknown characters become tokens of bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "b", "▁a", "▁the", "é"]
    vocab = {piece: token for token, piece in enumerate(pieces)}
    model = models.BPE(
        vocab=vocab, merges=[("▁", "a")], unk_token="<unk>", byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


GENERATING = {
    "byte fallback": byte_fallback_tokenizer(),
    "byte level": byte_tokenizer(259),
    "words": word_tokenizer(60),
}
# Bytes that make characters now and then, letters, a special token.
NEAR_TEXT = {
    "byte fallback": [2, *(3 + b for b in b"A\xc3\xa9\xe2\x82\xac\xf0\xff"), 259, 260],
    "byte level": byte_tokenizer(259).encode("Aé€🌊", add_special_tokens=False).ids,
    "words": [1, 3, 4],
}


def grown(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    text = GeneratedText(LoadedTokenizer(tokenizer))
    return [*map(text.add, token_ids), text.rest()]


@pytest.mark.parametrize("kind", GENERATING)
@given(data=st.data())
@settings(max_examples=200)
def test_pieces_of_generated_text_are_the_whole_text(kind, data):
    tokenizer = GENERATING[kind]
    any_token = st.integers(0, tokenizer.get_vocab_size() - 1)
    near_text = st.sampled_from(NEAR_TEXT[kind])
    token_ids = data.draw(st.lists(any_token) | st.lists(near_text))
    whole = tokenizer.decode(token_ids, skip_special_tokens=True)
    assert "".join(grown(tokenizer, token_ids)) == whole
    at_once = GeneratedText(LoadedTokenizer(tokenizer))
    at_once.extend(token_ids)
    assert at_once.rest() == whole


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"\xc3\xa9\x80", "���"), (b"\xc3\xa9\xe2", "���"), (b"\xe2\x82\xac", "€")],
)
def test_a_run_of_byte_tokens_waits_for_its_end(data, text):
    token_ids = [260, *(3 + byte for byte in data), 260, 260]
    assert grown(byte_fallback_tokenizer(), token_ids) == [
        *[""] * (len(data) + 1),
        "a",
        text + "a",
        "a",
    ]


def test_a_character_of_several_tokens_comes_whole():
    tokenizer = byte_tokenizer(259)
    token_ids = tokenizer.encode("a€b", add_special_tokens=False).ids
    assert len(token_ids) == 5
    assert grown(tokenizer, token_ids) == ["", "a", "", "", "€", "b"]


def test_a_token_that_the_vocabulary_lacks_adds_nothing():
    assert grown(word_tokenizer(60), [3, 999, 4]) == ["", "", "w3", " w4"]
