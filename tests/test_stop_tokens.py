"""Which tokens end a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ster.checkpoint.stop_tokens import read_stop_ids
from ster.errors import ConfigError
from tests.light import Folder


def stop_ids(folder: Path, config: object, generation: object = None) -> frozenset[int]:
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return read_stop_ids(Folder(folder))


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        ({"eos_token_id": 2}, None, {2}),
        ({"eos_token_id": [2, 7]}, None, {2, 7}),
        ({"eos_token_id": 2}, {"eos_token_id": [2, 9]}, {2, 9}),
        ({}, {"eos_token_id": 5}, {5}),
        ({"eos_token_id": None}, {}, set()),
        ({"eos_token_id": 0}, None, {0}),
    ],
)
def test_both_files_count_as_a_number_or_a_list(tmp_path, config, generation, expected):
    assert stop_ids(tmp_path, config, generation) == expected


@pytest.mark.parametrize("declared", ["2", True, [2, "3"], {"id": 2}, 2.5])
def test_what_is_no_token_id_is_refused(tmp_path, declared):
    with pytest.raises(ConfigError, match="invalid model config") as refusal:
        stop_ids(tmp_path, {"eos_token_id": declared})
    assert refusal.value.causes == (
        "`eos_token_id` is neither a token id nor a list of them",
    )


def test_a_broken_generation_config_is_refused_by_its_path(tmp_path):
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"generation_config\.json"):
        stop_ids(tmp_path, {"eos_token_id": 2})
