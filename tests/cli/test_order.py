"""Which of several faults is reported: always the one that is cheapest to find."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from ster.checkpoint.weight_file import WeightFile
from tests.cli.user import OLD, User


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong, and how its refusal begins.

    Args:
        at: What it changes; two faults in one place cannot stand together.
    """

    name: str
    says: str
    at: str
    words: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    break_it: Callable[[User], object] = lambda user: None


def break_index(user: User) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "gone.safetensors"}}
    user.write("toy/model.safetensors.index.json", json.dumps(index))


# In the order in which they have to be found.
FAULTS = [
    Fault(
        name="template word",
        says='unknown chat template mode "on"',
        at="mode",
        words=("--chat-template", "on"),
    ),
    Fault(
        name="memory word",
        says='invalid memory size "-1"',
        at="memory",
        words=("--memory", "-1"),
    ),
    Fault(
        name="device word",
        says='unknown device "tpu"',
        at="device",
        words=("--device", "tpu"),
    ),
    Fault(
        name="precision word",
        says='unknown precision "f8"',
        at="precision",
        words=("--precision", "f8"),
    ),
    Fault(
        name="precision on device",
        says="bf16 has no CPU matmul kernel in this Candle build;",
        at="precision and device",
        words=("--precision", "bf16"),
    ),
    Fault(
        name="prompts",
        says="invalid prompt JSON in prompts.json",
        at="prompts.json",
        break_it=lambda user: user.write("prompts.json", "{"),
    ),
    Fault(
        name="checkpoint files",
        says="failed to map 2 model weight files",
        at="index",
        break_it=break_index,
    ),
    Fault(
        name="config",
        says="invalid llama config toy/config.json",
        at="config.json",
        break_it=lambda user: user.config(hidden_size=0),
    ),
    Fault(
        name="layers",
        says="layer 9 is outside the model's 0..3 range",
        at="layers",
        words=("--layers", "9"),
    ),
    Fault(
        name="tokenizer",
        says="failed to load tokenizer toy/tokenizer.json: ",
        at="tokenizer.json",
        break_it=lambda user: user.write("toy/tokenizer.json", "{}"),
    ),
    Fault(
        name="choice of a template",
        says="this model publishes several named chat templates ",
        at="tokenizer_config.json",
        break_it=lambda user: user.tokenizer_config(
            chat_template=[{"name": n, "template": "x"} for n in ("rag", "tool_use")]
        ),
    ),
    Fault(
        name="template",
        says="this model's chat template does not parse: ",
        at="tokenizer_config.json",
        break_it=lambda user: user.tokenizer_config(chat_template="{% if %}"),
    ),
    Fault(
        name="a prompt's tokens",
        says="failed to tokenize prompt: token id ",
        at="config.json",
        break_it=lambda user: user.config(vocab_size=4),
    ),
    Fault(
        name="output",
        says="failed to write toy",
        at="output",
        flags={"output": "toy"},
    ),
    Fault(
        name="weights",
        says="failed to map 1 model weight files",
        at="weights",
        break_it=User.damage_weights,
    ),
]


def with_all_later(first: int) -> list[Fault]:
    """Return a fault and all after it that can stand beside it and each other."""
    chosen: list[Fault] = []
    taken: set[str] = set()
    for fault in FAULTS[first:]:
        changes = set(fault.at.split(" and "))
        if taken.isdisjoint(changes):
            taken |= changes
            chosen.append(fault)
    return chosen


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """The names of the weight files that a run opens."""
    names: list[str] = []

    open_file = WeightFile.open

    def watch(path):
        names.append(path.name)
        return open_file(path)

    monkeypatch.setattr(WeightFile, "open", watch)
    return names


def test_a_run_without_a_fault_opens_the_weights(user: User, opened):
    assert user.runs().code == 0
    assert opened == ["model.safetensors"]


@pytest.mark.parametrize("first", range(len(FAULTS)), ids=[f.name for f in FAULTS])
def test_a_fault_is_reported_before_all_that_are_dearer_to_find(
    user: User, opened, first: int
):
    fault, *later = with_all_later(first)
    user.write("o.json", OLD)
    for each in (*reversed(later), fault):
        each.break_it(user)
    before = user.snapshot()
    words = [word for each in (fault, *later) for word in each.words]
    flags = {name: flag for each in later for name, flag in each.flags.items()}
    ran = user.runs(*words, **(flags | dict(fault.flags)))
    said = [line for line in ran.err.splitlines() if line.startswith("Error: ")]
    assert len(said) == 1
    assert said[0].startswith(f"Error: {fault.says}")
    assert (ran.code, ran.out) == (2 if "word" in fault.name else 1, "")
    assert opened == (["model.safetensors"] if fault.name == "weights" else [])
    assert user.snapshot() == before


def test_a_directory_is_missed_then_its_config_tokenizer_and_weights(user: User):
    folder = user.folder / "toy"
    parts = ("config.json", "tokenizer.json", "model.safetensors")
    kept = {name: (folder / name).read_bytes() for name in parts}
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    for name, says in {
        "": "failed to list ./toy",
        "config.json": "model config is missing: ./toy/config.json",
        "tokenizer.json": "tokenizer is missing: ./toy/tokenizer.json",
        "model.safetensors": "model directory contains no safetensors weights",
    }.items():
        ran = user.runs(model="./toy")
        assert ran.err.splitlines()[0] == f"Error: {says}"
        folder.mkdir(exist_ok=True)
        for part in parts[: parts.index(name) + 1] if name else ():
            (folder / part).write_bytes(kept[part])
    assert user.runs(model="./toy").code == 0


def test_the_second_prompt_is_refused_before_the_weights_are_opened(user: User):
    user.prompts("the sea", "\t")
    user.damage_weights()
    user.is_refused("prompt must not be empty", "prompt 2 is blank")


def test_the_folders_of_an_output_are_gone_again_after_damaged_weights(user: User):
    user.damage_weights()
    before = user.snapshot()
    assert user.runs(output="new/deep/o.json").code == 1
    assert user.snapshot() == before
