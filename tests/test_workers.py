"""What several workers share, and what lets them run the same tests."""

from __future__ import annotations

import pytest

from tests.real.kept import put_in_place


def test_what_another_worker_made_first_stays(tmp_path):
    partial, kept = tmp_path / "partial", tmp_path / "kept"
    for folder, text in ((partial, "late"), (kept, "first")):
        folder.mkdir()
        (folder / "weights").write_text(text)
    put_in_place(partial, kept)
    assert (kept / "weights").read_text() == "first"


def test_what_nobody_made_before_is_put_in_place(tmp_path):
    partial, kept = tmp_path / "partial", tmp_path / "kept"
    partial.mkdir()
    put_in_place(partial, kept)
    assert kept.is_dir()


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(OSError, match="kept"):
        put_in_place(tmp_path / "partial", tmp_path / "kept")


def test_no_test_has_an_address_in_its_name(request):
    # Workers compare the names of what they collected, and addresses differ.
    names = [item.nodeid for item in request.session.items]
    assert [name for name in names if " object at 0x" in name] == []
