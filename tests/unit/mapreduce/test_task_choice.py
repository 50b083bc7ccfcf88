"""mapreduce.job.task_choice: `-tasks m0,m3-5`."""

from __future__ import annotations

import pytest

from mrstream.mapreduce.job.task_choice import BadTaskChoice, chosen_maps


@pytest.mark.parametrize(
    ("choice", "maps"),
    [("", [0, 1, 2, 3, 4, 5]), ("m0", [0]), ("m3-5,m0", [0, 3, 4, 5]), ("m1-m2, m2", [1, 2])],
)
def test_maps_are_chosen_by_number_and_range(choice: str, maps: list[int]) -> None:
    assert chosen_maps(choice, 6) == maps


@pytest.mark.parametrize("choice", ["0", "r1", "m", "m6", "m4-2", "m1,,m2", "m-1"])
def test_what_names_no_map_is_refused(choice: str) -> None:
    with pytest.raises(BadTaskChoice):
        chosen_maps(choice, 6)
