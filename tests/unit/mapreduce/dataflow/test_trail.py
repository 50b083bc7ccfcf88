"""mapreduce.dataflow.mapper.Trail: which bytes of which file a command was given."""

from __future__ import annotations

from collections.abc import Iterator

from mrstream.mapreduce.dataflow.mapper import Trail
from mrstream.mapreduce.program.flow import Flow, InputRange


class Script:
    """A reader whose blobs and positions are given."""

    def __init__(self, *steps: tuple[bytes, str, int]) -> None:
        self._steps = steps
        self._at = ("", 0)

    def __iter__(self) -> Iterator[bytes]:
        for blob, source, offset in self._steps:
            self._at = (source, offset)
            yield blob

    def position(self) -> tuple[str, int]:
        return self._at


def test_bytes_of_plain_text_are_found_exactly() -> None:
    trail = Trail(Script((b"x" * 10, "f", 110), (b"y" * 10, "f", 120)), ("f", 100))
    list(trail)

    assert trail.at(0) == ("f", 100)
    assert trail.at(7) == ("f", 107)
    assert trail.at(20) == ("f", 120)


def test_bytes_that_were_changed_on_the_way_are_found_by_blob() -> None:
    """Offsets in front of lines, or line ends of two bytes: only the blob's borders are sure."""
    trail = Trail(Script((b"x" * 10, "f", 110), (b"y" * 30, "f", 120)), ("f", 100))
    list(trail)

    assert trail.at(25) == ("f", 110)


def test_a_range_names_the_file_that_was_given_last() -> None:
    trail = Trail(Script((b"x" * 10, "f", 10), (b"y" * 10, "g", 10)), ("f", 0))
    list(trail)

    flow = Flow(given_bytes=20, read_bytes=15, left_bytes=0, is_broken=False)

    assert trail.range(flow, 50) == InputRange("g", 0, 0, 10, 50)
