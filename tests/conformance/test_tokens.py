"""Rows at every token, held to transformers in float64."""

from __future__ import annotations

import numpy as np
import pytest

from ster.runs.rows import WantedRows
from ster.runs.wave import read_rows
from tests.checkpoints import make_tensors, write_checkpoint
from tests.conformance.running import open_decoder
from tests.golden.golden import fingerprint, read_golden
from tests.golden.tokens import CASES, read_tokens_of


@pytest.mark.parametrize("name", CASES)
def test_every_token_and_their_mean_are_those_of_transformers(tmp_path, device, name):
    golden, (prompt, streams) = read_golden(name), read_tokens_of(name)
    tensors = make_tensors(golden.config, golden.seed)
    assert fingerprint(tensors) == golden.fingerprint
    made = write_checkpoint(tmp_path, golden.config, tensors=tensors)
    decoder = open_decoder(made, device, keep=True)
    layers = range(len(streams))
    # The other prompt shares a beginning, and is another length.
    prompts = [prompt[:4], prompt, prompt]
    wanted = [[0, 3], [*range(len(prompt))], [2, 5, 6]]
    for is_mean in (False, True):
        [rows] = read_rows(
            decoder,
            prompts,
            layers,
            {},
            lambda layer: None,
            wanted=WantedRows(positions=wanted, is_mean=is_mean),
        )
        each = [streams[:, places].swapaxes(0, 1) for places in wanted]
        if is_mean:
            each = [rows_of.mean(axis=0, keepdims=True) for rows_of in each]
        expected = np.concatenate(each)
        largest = np.abs(expected).max(axis=(0, 2), keepdims=True)
        assert rows.shape == expected.shape
        assert (np.abs(rows - expected) <= 1e-5 * largest).all()
