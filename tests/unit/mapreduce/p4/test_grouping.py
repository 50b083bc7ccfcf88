"""Lines cut by their keys into the inputs of reduces: one file for each, all of them used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mrstream.mapreduce.p4.grouping import cut_files, deal_files

KEYS = [f"key {number}" for number in range(60)]
VALUES = ["", "\t", "\t1", "\t2", "\t3\tb", "\t4 c"]
"""Of one key, no two lines are equal: whoever looks at more than the key tears them apart."""
Cut = Callable[[Sequence[str], Sequence[str]], None]


def cut_lines(cut: Cut, place: Path, reduces: int) -> list[list[str]]:
    """The lines of each reduce's input."""
    source = place / "sorted_0"
    source.write_text("".join(f"{key}{value}\n" for value in VALUES for key in KEYS))
    targets = [place / f"input_{number}" for number in range(reduces)]

    cut([str(source)], [str(target) for target in targets])
    assert sorted(place.iterdir()) == sorted([source, *targets])
    return [target.read_text().splitlines() for target in targets]


def key_of(line: str) -> str:
    return line.partition("\t")[0]


@pytest.mark.parametrize("cut", [cut_files, deal_files])
@pytest.mark.parametrize("reduces", range(1, 11))
def test_a_key_is_in_one_file_and_no_file_is_left_out(
    cut: Cut, reduces: int, tmp_path: Path
) -> None:
    """P4-17, P4-18, R9: exactly R files, and enough keys for each of them."""
    parts = cut_lines(cut, tmp_path, reduces)

    assert all(parts)
    assert sum(map(len, parts)) == len(KEYS) * len(VALUES)
    assert sorted(key for part in parts for key in set(map(key_of, part))) == sorted(KEYS)
    assert all(part == sorted(part) for part in parts)
