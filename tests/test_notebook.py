"""Progress in a notebook, and that the stop button ends it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import ster
from ster.notebook import NotebookReporter, is_notebook
from ster.reporting import Progress


class Shown:
    """Stands for IPython's display, and remembers what is on the page."""

    def __init__(self) -> None:
        self.bars: list[list[str]] = []

    def display(self, page: Any, display_id: bool) -> Any:
        assert display_id
        self.bars.append([page])
        return SimpleNamespace(update=self.bars[-1].append)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    made, module = Shown(), ModuleType("IPython.display")
    module.HTML, module.display = str, made.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return made


def at(done: int, total: int = 4, label: str = "extracting prompt") -> Progress:
    return Progress(
        prompts_done=done,
        num_prompts=total,
        layer=2,
        num_layers=3,
        tokens_done=10 * done,
        num_tokens=10 * total,
        label=label,
    )


def test_a_long_run_shows_one_bar_with_speed_and_time_left(shown):
    seconds = iter([0.0, 0.0, 1.0, 1.0, 1.05, 1.05, 2.0, 2.0])
    reporter = NotebookReporter(lambda: next(seconds))
    for done in (0, 1, 2, 4):
        reporter.progress(at(done))
    assert shown.bars == [
        [
            '<div><progress value="10" max="40"></progress> extracting prompt: '
            "1/4 prompts, block 3/3, 10 tokens/s, 0:03 left</div>",
            '<div><progress value="40" max="40"></progress> extracting prompt: '
            "4/4 prompts, block 3/3, 20 tokens/s</div>",
        ]
    ]


def test_a_short_run_shows_nothing_and_each_run_has_its_own_bar(shown):
    now = [0.0]
    reporter = NotebookReporter(lambda: now[0])
    for done in range(5):
        reporter.progress(at(done))
    assert shown.bars == []
    for _ in range(2):
        for done in range(5):
            reporter.progress(at(done))
            now[0] += 1
    assert len(shown.bars) == 2


def test_words_of_a_label_are_escaped(shown):
    now = iter(range(99))
    reporter = NotebookReporter(lambda: float(next(now)))
    reporter.progress(at(0, label="<b> prompt"))
    reporter.progress(at(1, label="<b> prompt"))
    assert "&lt;b&gt; prompt" in shown.bars[0][0]


def test_progress_is_shown_where_a_kernel_runs_or_where_asked(monkeypatch, tmp_path):
    ster.write_toy_checkpoint(tmp_path / "toy")
    assert not is_notebook()
    assert not isinstance(ster.load(tmp_path / "toy").reporter, NotebookReporter)
    asked = ster.load(tmp_path / "toy", progress=True)
    assert isinstance(asked.reporter, NotebookReporter)
    kernel = ModuleType("IPython")
    kernel.get_ipython = lambda: SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert is_notebook()
    assert isinstance(ster.load(tmp_path / "toy").reporter, NotebookReporter)
    quiet = ster.load(tmp_path / "toy", progress=False)
    assert not isinstance(quiet.reporter, NotebookReporter)
