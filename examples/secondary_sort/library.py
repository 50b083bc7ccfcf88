"""Secondary sort as a library: the temperatures of a year come hottest first."""
import pathlib
import sys

import mrstream as mr

HERE = pathlib.Path(__file__).resolve().parent


def reading(line):
    year, _, degrees = line.partition(".")
    yield year, int(degrees)


def hottest(year, degrees):
    yield year, next(degrees)


job = mr.Job(
    HERE / "input", mapper=reading, reducer=hottest, reduces=2, codec=mr.text, sort_values=lambda degrees: -int(degrees)
)
for line in job.run().lines():
    sys.stdout.buffer.write(line + b"\n")
