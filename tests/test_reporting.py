"""What the library says where nobody listens."""

from __future__ import annotations

import warnings

import pytest

from ster.reporting import Progress, QuietReporter, SterWarning


def test_a_warning_becomes_a_python_warning_with_the_bare_sentence():
    with pytest.warns(SterWarning) as caught:
        QuietReporter().warn("mind the gap")
    assert [str(warning.message) for warning in caught] == ["mind the gap"]


def test_a_ster_warning_can_be_silenced_like_any_user_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        QuietReporter().warn("mind the gap")


def test_notes_and_progress_are_dropped(capsys):
    reporter = QuietReporter()
    reporter.note("a fact")
    reporter.progress(
        Progress(
            prompts_done=1,
            num_prompts=1,
            layer=0,
            num_layers=1,
            tokens_done=1,
            num_tokens=1,
        )
    )
    assert capsys.readouterr() == ("", "")
