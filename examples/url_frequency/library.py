"""Count of URL access frequency as a library."""
import pathlib
import sys

import mrstream as mr

HERE = pathlib.Path(__file__).resolve().parent


def url(line):
    yield line.split('"')[1].split()[1], 1


def total(url, ones):
    yield url, sum(ones)


for line in mr.Job(HERE / "input", mapper=url, combiner=total, reducer=total, writes=mr.text).run().lines():
    sys.stdout.buffer.write(line + b"\n")
