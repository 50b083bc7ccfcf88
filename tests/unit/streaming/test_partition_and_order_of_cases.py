"""Partitioner, comparator and key/value rule against what a real Hadoop wrote.

A model of a job in a few lines: the reference functions of `streaming` over the golden
cases whose mapper and reducer are `cat`.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

from mrstream.streaming.command.command import StreamingCommand, command_of
from mrstream.streaming.command.options import parse
from mrstream.streaming.records.comparator import compare
from mrstream.streaming.records.key_value import split
from mrstream.streaming.records.partitioner import partition

CASES = Path(__file__).parents[2] / "conformance" / "cases"
NAMES = sorted(
    path.name
    for path in CASES.iterdir()
    if path.name.startswith(("kfbp_", "kfbc_", "hash_", "sort_bytes"))
    and '"-mapper", "cat"' in (path / "args").read_text()
)


def command_of_case(case: Path) -> StreamingCommand:
    words = json.loads((case / "args").read_text())
    places = {"{in}": str(case / "in"), "{out}": "out", "{case}": str(case)}
    for place, path in places.items():
        words = [word.replace(place, path) for word in words]
    return command_of(parse(words))


def parts_of(command: StreamingCommand, case: Path) -> list[list[bytes]]:
    conf = command.conf
    data = b"".join(path.read_bytes() for path in sorted((case / "in").rglob("*")))
    parts: list[list[tuple[bytes, bytes]]] = [[] for _ in range(command.reduces)]
    for line in re.split(rb"\r\n|\r|\n", data.removesuffix(b"\n")):
        key, value = split(line, conf.map_output_rule)
        index = partition(conf.partitioner_spec(), key, command.reduces)
        parts[index if command.reduces > 1 else 0].append((key, value))

    def order(a: tuple[bytes, bytes], b: tuple[bytes, bytes]) -> int:
        return compare(conf.comparator_spec, a[0], b[0])

    for part in parts:
        part.sort(key=functools.cmp_to_key(order))
    return [[key + b"\t" + value for key, value in part] for part in parts]


def test_there_are_such_cases() -> None:
    assert len(NAMES) > 20


@pytest.mark.parametrize("name", NAMES)
def test_each_key_goes_to_hadoops_partition_in_hadoops_order(name: str) -> None:
    """Spec 5.1 to 5.3; lines with equal keys may come in any order."""
    case = CASES / name
    command = command_of_case(case)
    ours = parts_of(command, case)

    expected = json.loads((case / "expected.json").read_text())
    for index, part in enumerate(ours):
        hadoops = (case / "expected" / f"part-{index:05d}").read_bytes().splitlines()
        assert sorted(part) == sorted(hadoops)
        if expected["compare"] == "exact":
            assert part == hadoops
