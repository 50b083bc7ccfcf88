"""How often does each word occur? As a library: python library.py"""
import pathlib
import sys

import mrstream as mr

HERE = pathlib.Path(__file__).resolve().parent


def words(line):
    for word in line.split():
        yield word, 1


def total(word, numbers):
    yield word, sum(numbers)


job = mr.Job(HERE / "input", mapper=words, combiner=total, reducer=total, writes=mr.text)
for line in job.run().lines():
    sys.stdout.buffer.write(line + b"\n")
