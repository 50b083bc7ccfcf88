"""Distributed grep as a library: a mapper that gives some lines back, and no reducer."""
import pathlib
import sys

import mrstream as mr

HERE = pathlib.Path(__file__).resolve().parent


def errors(line):
    return [line] if "disk error" in line else None


for line in mr.Job(HERE / "input", mapper=errors, writes=mr.text).run().lines():
    sys.stdout.buffer.write(line + b"\n")
