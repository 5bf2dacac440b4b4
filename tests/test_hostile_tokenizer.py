"""A tokenizer.json that loops, grows or aborts is a refusal, and Ctrl-C ends it."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ster.checkpoint.confined import process as confined_process
from ster.checkpoint.tokenizer import load_encoder, start_ahead
from ster.checkpoint.tokens import process as tokenizer_process
from ster.checkpoint.tokens.bounds import max_tokens, pack, seconds_for, unpack
from ster.checkpoint.tokens.process import TokenizerProcess
from ster.checkpoint.tokens.worker import LoadedTokenizer, TooManyTokensError
from ster.errors import PromptError, TokenizerError
from tests.checkpoints import byte_tokenizer, word_tokenizer
from tests.light import Folder, Notes
from tests.processes import LIMIT

TIMES_1000 = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 1000}
FOUR_TIMES = {"type": "Sequence", "normalizers": [TIMES_1000] * 4}
ENDLESS_WORD = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "",
    "max_input_chars_per_word": 10**12,
    "vocab": {"[UNK]": 0, "a": 1},
}


@pytest.fixture
def no_spares() -> Iterator[None]:
    confined_process._end_spares()
    yield
    confined_process._end_spares()


def tokenizer(folder: Path, **changes: object) -> TokenizerProcess:
    path = folder / "tokenizer.json"
    word_tokenizer(60).save(str(path))
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))
    return TokenizerProcess(path, [])


def encode(process: TokenizerProcess, *texts: str) -> list[list[int]]:
    return [
        ids.tolist()
        for ids in process.locate(texts, add_special_tokens=False).token_ids
    ]


def child(process: TokenizerProcess):
    started = process.confined._process
    assert started is not None
    return started


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds address space")
def test_text_that_grows_a_million_millionfold_is_refused(tmp_path):
    process = tokenizer(tmp_path, normalizer=FOUR_TIMES)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(PromptError) as refused:
        encode(process, "the sea")
    assert refused.value.sentence == (
        "failed to tokenize prompt: the process that tokenizes ended with exit status "
        f"{-signal.SIGABRT}"
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    assert encode(process, "w3") == encode(tokenizer(tmp_path), "w3")


def test_a_word_without_a_longest_length_is_refused_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_process, "seconds_for", lambda _: 1.0)
    process = tokenizer(tmp_path, model=ENDLESS_WORD, added_tokens=[])
    with pytest.raises(PromptError) as refused:
        encode(process, "a" * 300_000 + "c")
    sentence = "failed to tokenize prompt: it took longer than 1 seconds"
    assert refused.value.sentence == sentence


def test_the_time_and_the_tokens_allowed_grow_with_the_text():
    assert seconds_for(10_000_000) > 100
    assert max_tokens(1_000_000) > 33_000_000


def test_ctrl_c_ends_a_tokenizer_that_does_not_end(tmp_path):
    process = tokenizer(tmp_path, model=ENDLESS_WORD, added_tokens=[])
    process.check()
    first = child(process)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        encode(process, "a" * 300_000 + "c")
    assert first.returncode == -signal.SIGKILL


def test_a_tokenizer_that_aborts_while_it_loads_is_refused(tmp_path, monkeypatch):
    bootstrap = "import os, sys; print('{}', flush=True); os.abort()"
    monkeypatch.setattr(confined_process, "_BOOTSTRAP", bootstrap)
    process = tokenizer(tmp_path)
    with pytest.raises(TokenizerError) as refused:
        process.check()
    assert refused.value.sentence == (
        f"failed to load tokenizer {tmp_path}/tokenizer.json: the process that "
        f"tokenizes ended with exit status {-signal.SIGABRT}"
    )
    assert refused.value.path == f"{tmp_path}/tokenizer.json"


@pytest.mark.parametrize(
    "answer", ['{"ids": "AAAA"}', '{"ids": "!", "lengths": ""}', "[]", "x"]
)
def test_an_answer_that_makes_no_sense_is_refused(tmp_path, monkeypatch, answer):
    bootstrap = f"""
import sys
for _ in range(2): sys.stdin.readline(); print("{{}}", flush=True)
for _ in sys.stdin: print({answer!r}, flush=True)
"""
    monkeypatch.setattr(confined_process, "_BOOTSTRAP", bootstrap)
    with pytest.raises(PromptError, match="makes no sense|answered nonsense"):
        encode(tokenizer(tmp_path), "w3")


def test_more_tokens_than_any_tokenizer_makes_are_refused():
    loaded = LoadedTokenizer(byte_tokenizer(259))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ster.checkpoint.tokens.worker.max_tokens", lambda _: 3)
        with pytest.raises(TooManyTokensError, match="it becomes 4 tokens"):
            loaded.encode(["abcd"], add_special_tokens=False)


def test_a_refused_text_of_many_is_named(tmp_path):
    model = {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None}
    process = tokenizer(tmp_path, model=model, added_tokens=[], post_processor=None)
    with pytest.raises(PromptError, match="`unk_id` is missing") as refused:
        process.locate(["a", "a", "b"], add_special_tokens=False, first=11)
    assert refused.value.prompt == 13


def test_packed_ids_are_the_ids_and_too_large_ones_are_refused():
    ids = [0, 1, 2**31 - 1]
    assert unpack(pack(ids)).tolist() == ids
    with pytest.raises(OverflowError, match="a token id needs more than 31 bits"):
        pack([2**31])


def test_a_tokenizer_that_was_killed_starts_again_with_its_declared_tokens(tmp_path):
    path = tmp_path / "tokenizer.json"
    word_tokenizer(60).save(str(path))
    process = TokenizerProcess(path, [{"content": "<|a|>", "special": True}])
    before = encode(process, "w3<|a|>")
    child(process).kill()
    child(process).wait(timeout=LIMIT)
    assert encode(process, "w3<|a|>") == before


@pytest.mark.usefixtures("no_spares")
def test_a_process_started_ahead_is_the_one_that_tokenizes(tmp_path):
    tokenizer(tmp_path)
    start_ahead(str(tmp_path), "auto")
    assert len(confined_process._spares) == 1  # the folder has no template
    ((_, spare),) = confined_process._spares.values()
    encoder = load_encoder(Folder(tmp_path), "auto", Notes())
    assert child(encoder._tokenizer) is spare
    assert not confined_process._spares


@pytest.mark.usefixtures("no_spares")
def test_processes_started_ahead_and_not_needed_are_ended(tmp_path):
    (tmp_path / "chat_template.jinja").touch()
    start_ahead(str(tmp_path), "auto")
    spares = [spare for _, spare in confined_process._spares.values()]
    assert len(spares) == 2
    confined_process._end_spares()
    assert [spare.returncode for spare in spares] == [-signal.SIGKILL] * 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on
def test_a_fork_tokenizes_in_a_process_of_its_own(tmp_path):
    process = tokenizer(tmp_path)
    ids = encode(process, "w3")
    first = child(process).pid
    pid = os.fork()
    if pid == 0:  # it must not run the rest of the tests
        good = encode(process, "w3") == ids and child(process).pid != first
        process.confined.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert encode(process, "w3") == ids
