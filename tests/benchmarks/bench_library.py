"""Python functions against the same code in programs written by hand, as whole jobs and alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.benchmarks.common import MRSTREAM, Row, Run, interleaved, run, script, words, workplace

MAPPER = """#!/usr/bin/env python3
import sys
for line in sys.stdin:
    for word in line.split():
        print(word, 1, sep="\\t")
"""
TERSE_MAPPER = """#!/usr/bin/env python3
import sys
write = sys.stdout.write
for line in sys.stdin:
    for word in line.split():
        write(word + "\\t1\\n")
"""
REDUCER = """#!/usr/bin/env python3
import sys
from itertools import groupby
pairs = (line.rstrip("\\n").split("\\t") for line in sys.stdin)
for word, group in groupby(pairs, key=lambda pair: pair[0]):
    print(word, sum(int(number) for _, number in group), sep="\\t")
"""
LIBRARY = """
import sys
import mrstream as mr

def words(line):
    for word in line.split():
        yield word, 1

def total(word, counts):
    yield word, sum(map(int, counts))

codec = {"text": mr.text, "json": mr.json}[sys.argv[2]]
job = mr.Job(sys.argv[1], mapper=words, reducer=total, codec=codec, local=True)
if sys.argv[3:] == ["keep"]:
    print(next(w for w in job.words() if "#" in w).partition("#")[0])
else:
    for line in job.run().lines():
        pass
"""


def _command(place: Path, source: Path, mapper: Path, reducer: Path) -> Run:
    words = [
        "-jt",
        "local",
        "-input",
        str(source),
        "-mapper",
        str(mapper),
        "-reducer",
        str(reducer),
    ]
    return run([MRSTREAM, *words], place)


def _library(place: Path, source: Path, codec: str) -> Run:
    return run([sys.executable, str(place / "library.py"), str(source), codec], place)


def _alone(place: Path, source: Path, command: str) -> Run:
    return run(["sh", "-c", f"{command} < {source} > /dev/null"], place)


def bench(size_bytes: int = 50_000_000) -> list[Row]:
    """Give the rows of the table."""
    with workplace() as place:
        source = place / "words.txt"
        words(source, size_bytes)
        mapper, terse = script(place / "m.py", MAPPER), script(place / "t.py", TERSE_MAPPER)
        reducer = script(place / "r.py", REDUCER)
        (place / "library.py").write_text(LIBRARY)
        child = f"{sys.executable} -P -m mrstream.api.child -map"
        jobs = interleaved(
            {
                "by hand": lambda: _command(place, source, mapper, reducer),
                "tersely": lambda: _command(place, source, terse, reducer),
                "text": lambda: _library(place, source, "text"),
                "json": lambda: _library(place, source, "json"),
            }
        )
        alone = interleaved(
            {
                "by hand": lambda: _alone(place, source, str(mapper)),
                "tersely": lambda: _alone(place, source, str(terse)),
                **{
                    codec: lambda codec=codec: _alone(_kept(place, source, codec), source, child)
                    for codec in ("text", "json")
                },
            },
            repeats=5,
        )
    pairs = (
        ("text", "by hand", "≤ 1.15"),
        ("json", "by hand", "≤ 1.15"),
        ("text", "tersely", ""),
    )
    rows = []
    for ours, theirs, goal in pairs:
        what = f"word count as a job, {ours}, against programs {theirs}"
        rows.append(Row(what, jobs[ours].wall_s, jobs[theirs].wall_s, "s", goal))
    for ours, theirs, goal in pairs:
        what = f"its mapper alone, {ours}, against a program {theirs}"
        rows.append(Row(what, alone[ours].cpu_s, alone[theirs].cpu_s, "CPU s", goal))
    return rows


def _kept(place: Path, source: Path, codec: str) -> Path:
    """A directory with the functions of the job, as a task has it."""
    room = place / codec
    if not room.exists():
        room.mkdir()
        made = os.popen(f"{sys.executable} {place / 'library.py'} {source} {codec} keep").read()
        os.symlink(made.strip(), room / "mrstream.functions")
    return room


if __name__ == "__main__":
    for row in bench(int(sys.argv[1]) if sys.argv[1:] else 20_000_000):
        print(row)
