"""Cells and the filter (view/cells.py)."""

from __future__ import annotations

from mrstream.view.cells import passes


def test_a_row_passes_if_any_of_its_words_holds_what_is_wanted_in_any_case() -> None:
    assert passes("", "anything")
    assert passes("WORD", "job_7", "word count")
    assert not passes("sort", "job_7", "word count")
