"""Families that run through mlx-lm, against numbers of transformers in float64."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ster
from ster.architecture.families import FAMILIES
from ster.architecture.wide import WideSpec
from ster.architecture.wide_families import CHECKED, WRONG
from ster.decoder.devices import MLX_CPU
from ster.runs.reading import plan_reading
from ster.workflows.steering import sum_deltas
from tests.checkpoints import text
from tests.conformance.compare import assert_close, tolerance
from tests.conftest import devices
from tests.golden.golden import fingerprint
from tests.golden.wide import NAMES, deltas, draw_tensors
from tests.grown import grow_tokens
from tests.wide_checkpoints import read_wide_golden, residuals, write_wide

SOME = ("stablelm", "phi", "olmoe")
pytestmark = pytest.mark.skipif(
    find_spec("mlx_lm") is None, reason="the extra mlx-lm is not installed"
)


def is_right(name: str) -> bool:
    return family_of(name) in CHECKED


def family_of(name: str) -> str:
    return name.split("-")[0]


RIGHT = [name for name in NAMES if is_right(name)]


@pytest.fixture(params=[each for each in devices() if each != "cpu"])
def gpu(request: pytest.FixtureRequest) -> str:
    """Return each device on which mlx-lm runs."""
    name: str = request.param
    return name


def load(tmp_path: Path, name: str, device: str, **how: Any) -> ster.Runtime:
    runtime = ster.load(write_wide(tmp_path, name), device=device, **how)
    # A family that ster comes to own is held to its truth all the same.
    assert isinstance(runtime.config, WideSpec) or family_of(name) in FAMILIES
    return runtime


def prompts_of(golden: Mapping[str, Any]) -> list[str]:
    return [text(record["token_ids"]) for record in golden["records"]]


def test_every_family_on_the_list_has_golden_numbers():
    assert {family_of(name) for name in NAMES} == CHECKED.keys() | WRONG.keys()
    assert not CHECKED.keys() & WRONG.keys()


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_those_that_the_numbers_belong_to(name: str):
    golden = read_wide_golden(name)
    drawn = draw_tensors(golden["shapes"], golden["seed"])
    assert fingerprint(drawn) == golden["fingerprint"]


@pytest.mark.parametrize("name", RIGHT)
def test_a_checked_family_has_the_rows_scores_and_texts_of_transformers(
    tmp_path: Path, name: str, gpu: str
):
    golden = read_wide_golden(name)
    runtime = load(tmp_path, name, gpu)
    prompts, records = prompts_of(golden), golden["records"]
    assert_close(runtime.activations(prompts).array, residuals(name), 5e-5)
    scores = runtime.score_responses(prompts[1:])
    assert scores == pytest.approx([r["score"] for r in records[1:]], rel=1e-4)
    for record in records:
        assert written(runtime, record["token_ids"], {}) == record["next"]


@pytest.mark.parametrize("name", RIGHT)
def test_a_checked_family_is_steered_at_every_layer(
    tmp_path: Path, name: str, gpu: str
):
    steered = read_wide_golden(name)["steered"]
    runtime = load(tmp_path, name, gpu)
    expected = np.array([steered["residuals"]])
    added = deltas(*expected.shape[1:])
    reading = plan_reading(
        runtime._session,
        [text(steered["token_ids"])],
        tuple(range(expected.shape[1])),
        repeats=True,
        deltas=added,
    )
    rows = np.concatenate([rows for _, (rows,) in reading.waves()])
    assert_close(rows, expected, 5e-5)
    assert written(runtime, steered["token_ids"], added) == steered["next"]


def written(
    runtime: ster.Runtime, ids: Sequence[int], added: Mapping[int, Any]
) -> list[int]:
    (made,) = grow_tokens(runtime._session, [ids], 6, [added])
    return made


# MLX's own cpu backend multiplies no experts at half width.
@pytest.mark.parametrize("precision", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["stablelm", "phi", "cohere"])
def test_half_width_stays_near(tmp_path: Path, name: str, precision: str, gpu: str):
    golden = read_wide_golden(name)
    runtime = load(tmp_path, name, gpu, precision=precision)
    rows = runtime.activations(prompts_of(golden)).array
    assert_close(rows, residuals(name), 4 * tolerance(gpu, precision))


@pytest.mark.parametrize("name", SOME)
def test_prompts_have_the_same_rows_alone_and_in_any_company(
    tmp_path: Path, name: str, gpu: str
):
    runtime = load(tmp_path, name, gpu)
    prompts = [text([3 + i, 9, 4 + i]) for i in range(20)] + [text([5]), text([5, 6])]
    together = runtime.activations(prompts).array
    alone = np.concatenate([runtime.activations([each]).array for each in prompts])
    assert_close(together, alone.astype(np.float64), 1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if not is_right(name)])
def test_a_family_on_the_list_of_wrong_ones_is_wrong_still(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ster.decoder.wide.WRONG", {})
    monkeypatch.setattr("ster.architecture.wide._NEUTRAL", {})
    # One drops a tensor that counts, which would be refused by its name.
    monkeypatch.setattr("ster.decoder.mlx.whole_filling._KNOWN_TO_DROP", re.compile(""))
    folder = write_wide(tmp_path, name)
    with pytest.warns(ster.SterWarning, match="nobody has checked"):
        runtime = ster.load(folder, device=MLX_CPU)
    rows = runtime.activations(prompts_of(read_wide_golden(name))).array
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close(rows, residuals(name), 5e-5)


@pytest.mark.parametrize("name", SOME)
def test_vectors_are_applied_in_every_way_and_place(
    tmp_path: Path, name: str, gpu: str
):
    """What is done in parts, or in other ways that come to the same, is the same."""
    runtime = load(tmp_path, name, gpu)
    tokens = [[3, 9, 4], [5], [3, 9, 4, 7]]
    prompts = [*map(text, tokens)]
    drawn = np.random.default_rng(1).standard_normal(runtime.config.hidden_size)
    vector = ster.SteeringVector.of(drawn, layers=1, model=runtime.model)
    take = ster.Intervention

    def read(*steer: Any) -> Any:
        return runtime.activations(prompts, tokens="all", steer=steer).array

    def scored(*steer: Any) -> list[float]:
        return runtime.score_responses(prompts, prompts=prompts, steer=steer)

    def wrote(*steer: Any) -> list[list[int]]:
        session = runtime._session
        return grow_tokens(session, tokens, 4, [sum_deltas(steer, session)])

    added = take(vector, 2.0)
    for steer in (
        [take(vector, 2.0, how="add-below", below=1e6)],
        [take(vector, 2.0, where="..1"), take(vector, 2.0, where="1..")],
        [take(vector, 2.0, where="..-1"), take(vector, 2.0, where="-1..")],
    ):
        assert read(*steer) == pytest.approx(read(added), abs=1e-4)
        assert scored(*steer) == pytest.approx(scored(added), abs=1e-3)
        assert wrote(*steer) == wrote(added)
    replaced = take(vector, 3.0, how="replace")
    both = take(vector, how="remove"), take(vector, 3.0)
    assert read(*both) == pytest.approx(read(replaced), abs=1e-4)
    assert np.abs(read(replaced) - read(added)).max() > 1e-2
    inside, after = take(vector, 9.0, where="prompt"), take(vector, 9.0, where="2..")
    assert scored(inside) != pytest.approx(scored(), abs=1e-2)
    plain, late = read(), read(after)
    first = [0, 1, 3, 4, 5]  # rows of tokens before the third
    assert (late[first] == plain[first]).all()
    assert np.abs(late[[2, 6, 7]] - plain[[2, 6, 7]]).max() > 1e-2
    generated = wrote(take(vector, 9.0, where="generated"))
    assert [ids[0] for ids in generated] == [ids[0] for ids in wrote()]
    assert generated != wrote()
