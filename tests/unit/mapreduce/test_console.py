"""mapreduce.console: Hadoop's lines for scripts, one live line for people (spec 8.5)."""

from __future__ import annotations

import io
import re

import pytest

from mrstream.mapreduce.console import Console
from mrstream.mapreduce.progress import JobProgress


def progress(maps: float, reduces: float, elapsed_s: float = 10.0) -> JobProgress:
    return JobProgress(maps, reduces, 1, 4, 0, 2, records=10, bytes_done=10, elapsed_s=elapsed_s)


def test_a_script_reads_percentages_only_when_they_change() -> None:
    stream = io.StringIO()
    console = Console(stream)

    for fraction in (0.0, 0.001, 0.5, 0.501, 1.0):
        console.progress(progress(fraction, 0.0))

    lines = stream.getvalue().splitlines()
    assert [line[24:] for line in lines] == [
        "INFO  map 0% reduce 0%",
        "INFO  map 50% reduce 0%",
        "INFO  map 100% reduce 0%",
    ]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO ", line) for line in lines)


@pytest.mark.parametrize(
    ("columns", "shown_map"), [("80", "map 25% 1/4"), ("120", "map [##........]  25% 1/4")]
)
def test_a_terminal_shows_one_line_that_gives_way_to_others(
    columns: str, shown_map: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.StringIO()
    console = Console(stream, is_live=True)

    console.progress(progress(0.25, 0.0), force=True)
    console.said(b"a word of the program\n")
    console.end_progress()

    shown = stream.getvalue()
    assert shown_map in shown
    assert "1 min 10 s left" in shown
    assert "\r\x1b[Ka word of the program\n\r\x1b[Kmap" in shown
    assert shown.endswith("\r\x1b[K")


def test_our_lines_begin_on_a_line_of_their_own() -> None:
    stream = io.StringIO()
    console = Console(stream)

    console.said(b"no end of line")
    console.info("ours")

    assert re.match(r"no end of line\n\d{4}-", stream.getvalue())


def test_the_time_left_is_told_once_there_is_something_to_go_by() -> None:
    assert progress(0.0, 0.0).left_s is None
    assert progress(0.5, 0.0).left_s == pytest.approx(30.0)
    assert progress(0.5, 0.0, elapsed_s=0.5).left_s is None
