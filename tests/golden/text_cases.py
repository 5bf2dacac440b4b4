"""Small checkpoints with a tokenizer and a chat template: text in, numbers out.

Between them: templates in tokenizer_config.json, in a file of their own and in a list;
a BOS that the template spells, that the tokenizer adds, both, and neither; byte-level
tokens and byte fallback; shards with an index; weights stored f32, f16 and bf16.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from tests.checkpoints import (
    SPECIAL_TOKENS,
    Checkpoint,
    Config,
    make_config,
    make_tensors,
    write_checkpoint,
)

SEED = 21
MARKS = ("<|system|>", "<|user|>", "<|assistant|>", "<think>")
_WORDS = (
    "the of and sea wind water lies still what is why does how quiet tonight stone "
    "harbour tell me about light there here not"
)
WORDS = _WORDS.split()
PROMPTS = (
    "Why is the sea quiet tonight?",
    "stone",
    "  two spaces before, one after ",
    "Größe 水 🌊 – naïve\n\tsecond line",
    "the text says </s> and <s> in the middle, 1234567 times",
    "Tell me about the wind, the water and the light of the harbour; why the water "
    "lies still here and not there, and what the stone does about it.",
)
HEADERS = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|' + message['role'] + '|>\n' }}
    {{- message['content'] | trim + eos_token + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\n' }}
{%- endif %}
"""
DEFAULT_SYSTEM = """{% if messages[0].role != 'system' %}<|system|>
You answer in few words.</s>
{% endif %}
{% for message in messages %}
<|{{ message.role }}|>
{{ message.content }}</s>
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{% endif %}
"""
ALTERNATING = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('user and assistant take turns') }}
{% endif %}
{% if message['role'] == 'user' %}
{{ '[ASK] ' + message['content'] + ' [/ASK]' }}
{% else %}
{{ ' ' + message['content'] + eos_token }}
{% endif %}
{% endfor %}
"""
THINKING = """{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
<|{{ message.role }}|>{{ message.content }}</s>
{%- endfor -%}
{%- if add_generation_prompt -%}
<|assistant|>
{%- if enable_thinking is not defined or enable_thinking %}<think>
{% endif %}
{%- endif -%}
"""
NEVER = "{{ raise_exception('this template must not be chosen') }}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCase:
    """What a folder holds.

    Args:
        config: config.json; its vocabulary is as large as the tokenizer.
        template: ``chat_template`` of tokenizer_config.json.
        file: ``chat_template.jinja``, which comes first.
        tokenizer: ``bytes`` or ``pieces``.
        adds_bos: Whether the tokenizer puts ``<s>`` before a raw text.
        dtype: How weights are stored.
        shards: In how many files.
    """

    config: Config
    template: Any = None
    file: str | None = None
    tokenizer: str = "bytes"
    adds_bos: bool = False
    dtype: str = "f32"
    shards: int = 1


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
TEXT_CASES: Mapping[str, TextCase] = {
    "llama-default-system": TextCase(
        config=make_config(tie_word_embeddings=False), template=DEFAULT_SYSTEM
    ),
    "llama3-tied-sharded": TextCase(
        config=make_config(
            tie_word_embeddings=True, rope_theta=500000.0, rope_scaling=LLAMA3
        ),
        template=HEADERS,
        adds_bos=True,
        dtype="bf16",
        shards=3,
    ),
    "mistral-window-file": TextCase(
        config=make_config("mistral", sliding_window=16),
        template=NEVER,
        file=ALTERNATING,
        tokenizer="pieces",
        adds_bos=True,
        dtype="f16",
    ),
    "qwen2-list-of-templates": TextCase(
        config=make_config("qwen2", tie_word_embeddings=True),
        template=[
            {"name": "tool_use", "template": NEVER},
            {"name": "default", "template": THINKING},
        ],
    ),
}


def write_text_case(directory: Path, case: TextCase) -> Checkpoint:
    """Write the folder."""
    make = {"bytes": byte_level, "pieces": byte_fallback}[case.tokenizer]
    tokenizer = make(adds_bos=case.adds_bos)
    config = case.config | {"vocab_size": tokenizer.get_vocab_size()}
    made = write_checkpoint(
        directory,
        config,
        tensors=make_tensors(config, SEED),
        dtype=case.dtype,
        shards=case.shards,
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    words = {
        # The file as it is, whatever tokenizer the family had in its first release.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": case.template,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(words))
    if case.file is not None:
        (directory / "chat_template.jinja").write_text(case.file)
    return made


def byte_level(*, adds_bos: bool) -> Tokenizer:
    """Make a tokenizer of bytes that knows some words, each with a space before it."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = merges_of([f"Ġ{word}" for word in WORDS])
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary(letters, merges), merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return with_specials(tokenizer, adds_bos)


def byte_fallback(*, adds_bos: bool) -> Tokenizer:
    """Make a tokenizer of pieces, a space being part of the word that follows it."""
    single = [f"<0x{byte:02X}>" for byte in range(256)]
    single += sorted(set("▁ABCDEFGHIJKLMNOPQRSTUVWXYZ?.,;[]/" + "".join(WORDS)))
    merges = merges_of([f"▁{word}" for word in WORDS])
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary(single, merges),
            merges=merges,
            unk_token="[UNK]",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return with_specials(tokenizer, adds_bos)


def merges_of(words: Sequence[str]) -> list[tuple[str, str]]:
    """List what joins each word from its left, letter by letter, once each."""
    joined = [(word[:i], word[i]) for word in words for i in range(1, len(word))]
    return list(dict.fromkeys(joined))


def vocabulary(
    single: Sequence[str], merges: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Number all tokens: special ones first, then the single ones, then the joined."""
    tokens = [*SPECIAL_TOKENS, *MARKS, *single, *(a + b for a, b in merges)]
    return {token: number for number, token in enumerate(tokens)}


def with_specials(tokenizer: Tokenizer, adds_bos: bool) -> Tokenizer:
    """Declare the special tokens, and a BOS where the tokenizer adds one."""
    names = (*SPECIAL_TOKENS, *MARKS)
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in names]
    )
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    return tokenizer
