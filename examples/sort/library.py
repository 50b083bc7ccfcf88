"""Distributed sort as a library: a partition function with cut points, taken from the keys themselves."""
import pathlib
import sys
from bisect import bisect_right

import mrstream as mr

HERE = pathlib.Path(__file__).resolve().parent
PARTS = 3
keys = sorted({line.split("\t")[0] for path in (HERE / "input").iterdir() for line in path.read_text().splitlines()})
cuts = [keys[len(keys) * n // PARTS] for n in range(1, PARTS)]


def same(key, value):
    yield key, value


def each(key, values):
    for value in values:
        yield key, value


job = mr.Job(
    HERE / "input", mapper=same, reducer=each, reduces=PARTS, codec=mr.text,
    partition=lambda key, reduces: bisect_right(cuts, key),
)
for line in job.run().lines():
    sys.stdout.buffer.write(line + b"\n")
