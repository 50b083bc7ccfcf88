"""Reverse web-link graph as a library: who points to whom?"""
import pathlib
import sys

import mrstream as mr

HERE = pathlib.Path(__file__).resolve().parent


def links(source, targets):
    for target in targets.split():
        yield target, source


def sources(target, pages):
    yield target, " ".join(sorted(set(pages)))


# A mapper of two parameters reads pairs: here lines of text, cut at their first tab.
for line in mr.Job(HERE / "input", mapper=links, reducer=sources, codec=mr.text).run().lines():
    sys.stdout.buffer.write(line + b"\n")
