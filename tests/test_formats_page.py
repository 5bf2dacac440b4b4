"""The tables of docs/formats.md name what the files hold; its code runs elsewhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors import safe_open

from ster.documents.activations.value import Activations
from ster.documents.answers import Answer, AnswerWriter
from ster.vectors.applying import Applying
from ster.vectors.steering import SteeringVector
from tests.activation_documents import whole_activations

PAGE = (Path(__file__).resolve().parents[1] / "docs/formats.md").read_text("utf-8")


def named_in(section: str, part: str) -> set[str]:
    """List what the first columns of a part's tables name."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    text = text.split(f"\n### {part}")[1].split("\n### ")[0]
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", text, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def test_the_tables_name_every_array_and_key_of_activations(tmp_path: Path):
    found: set[str] = set()
    for points in (("resid_post",), ("resid_post", "attn_out")):
        whole = replace(whole_activations(points), steered=("calm (caa) at layer 1",))
        whole.save(tmp_path / "a.safetensors")
        with safe_open(tmp_path / "a.safetensors", framework="numpy") as file:
            found |= {*file.keys(), *file.metadata()}
    of_points = {"activations.resid_post", "activations.attn_out"}
    assert found - of_points | {"activations.<point>"} == named_in(
        "Activations", "`.safetensors` and `.npz`"
    )
    array = np.ones((1, 1, 2), np.float32)
    parts: dict[str, Any] = {"layers": (0,), "prompts": ("a",), "model": "m"}
    Activations(array=array, hidden_size=2, **parts).save(tmp_path / "a.json")
    keys = set(json.loads((tmp_path / "a.json").read_bytes()))
    assert keys == named_in("Activations", "`.json`")


def test_the_tables_name_every_key_of_answers(tmp_path: Path):
    applying = Applying.of(how="add-below", below=1, where="last", layers=[1])
    answer = Answer(
        prompt="p",
        strength=None,
        strength_word="1n",
        text="t",
        token_ids=(1,),
        ended="stop",
        interventions=(applying.document,),
    )
    path = tmp_path / "a.json"
    with AnswerWriter(path, model="m", model_revision=None) as writer:
        writer.write(answer)
    document = json.loads(path.read_bytes())
    assert set(document) == named_in("Answers", "The document")
    (written,) = document["answers"]
    assert set(written) == named_in("Answers", "An answer")
    assert set(written["interventions"][0]) == named_in("Answers", "An intervention")


def test_the_tables_name_every_array_and_key_of_vectors(tmp_path: Path):
    vector = SteeringVector(
        layers=(1,),
        array=np.ones((1, 2), np.float32),
        model="m",
        model_revision="r",
        precision="f32",
        chat_template="off",
        trait_name="t",
        method="caa",
    )
    for suffix in ("safetensors", "json", "gguf"):
        vector.save(tmp_path / f"v.{suffix}")
    with safe_open(tmp_path / "v.safetensors", framework="numpy") as file:
        found = {*file.keys(), *file.metadata()}
    common = {"product", "schema_version", "model", "model_revision", "precision"}
    common |= {"chat_template", "ster_version"}
    assert common < found
    assert found - common == named_in("Steering vectors", "`.safetensors` and `.npz`")
    keys = set(json.loads((tmp_path / "v.json").read_bytes()))
    assert keys == named_in("Steering vectors", "`.json`")
    fields = gguf.GGUFReader(tmp_path / "v.gguf").fields
    keys = {name for name in fields if not name.startswith("GGUF.")}
    assert keys | {"direction.N"} == named_in("Steering vectors", "`.gguf`")
