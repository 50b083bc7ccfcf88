"""The local engine against the shell, GNU parallel and mrjob: same executables on both sides."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.common import (
    MRSTREAM,
    Row,
    Run,
    interleaved,
    records,
    run,
    script,
    words,
    workplace,
)

SMALL_MAPS = 1_000
MAPPER = """#!/usr/bin/env python3
import sys
write = sys.stdout.write
for line in sys.stdin:
    for word in line.split():
        write(word + "\\t1\\n")
"""
REDUCER = """#!/usr/bin/env python3
import sys
last, total = None, 0
for line in sys.stdin:
    word, _, number = line.rstrip("\\n").partition("\\t")
    if word != last:
        if last is not None:
            print(last, total, sep="\\t")
        last, total = word, 0
    total += int(number)
if last is not None:
    print(last, total, sep="\\t")
"""
MRJOB = """
from mrjob.job import MRJob
class Job(MRJob):
    def mapper_cmd(self):
        return {mapper!r}
    def reducer_cmd(self):
        return {reducer!r}
if __name__ == "__main__":
    Job.run()
"""


def _ours(place: Path, source: Path, mapper: str, reducer: str, reduces: int = 1) -> Run:
    out = place / "out"
    shutil.rmtree(out, ignore_errors=True)
    argv = [MRSTREAM, "-jt", "local", "-input", str(source), "-output", str(out)]
    argv += ["-numReduceTasks", str(reduces)]
    return run([*argv, "-mapper", mapper, "-reducer", reducer], place)


def _shell(place: Path, source: Path, mapper: str, reducer: str) -> Run:
    line = f"set -o pipefail; cat {source} | {mapper} | LC_ALL=C sort | {reducer} > out.shell"
    return run(["bash", "-c", line], place)


def _parallel(place: Path, source: Path, mapper: str, reducer: str) -> Run:
    line = (
        f"set -o pipefail; rm -rf p; mkdir p; "
        f"parallel --will-cite --pipepart -a {source} --block -1 "
        f"'{mapper} | LC_ALL=C sort > p/{{#}}' && LC_ALL=C sort -m p/* | {reducer} > out.parallel"
    )
    return run(["bash", "-c", line], place)


def _mrjob(place: Path, source: Path, mapper: str, reducer: str, python: str) -> Run:
    job = place / "job.py"
    job.write_text(MRJOB.format(mapper=mapper, reducer=reducer))
    line = f"{python} {job} -r local --no-read-logs {source} > out.mrjob"
    return run(["bash", "-c", line], place)


def mrjob_python(place: Path) -> str:
    """An environment with mrjob in it; its last release needs an older setuptools."""
    home = place / "mrjob"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = str(home / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "mrjob", "setuptools<81"], check=True)
    return python


def bench(size_bytes: int = 100_000_000) -> list[Row]:
    """Give the rows of the table."""
    rows: list[Row] = []
    with workplace() as place:
        mapper = str(script(place / "m.py", MAPPER))
        reducer = str(script(place / "r.py", REDUCER))
        words(place / "words.txt", size_bytes)
        records(place / "records.txt", size_bytes)
        python = mrjob_python(place)
        for label, source, map_with, reduce_with, wall_goal, cpu_goal in (
            ("word count", place / "words.txt", mapper, reducer, "≤ 0.50", "≤ 0.80"),
            ("sort", place / "records.txt", "cat", "cat", "≤ 0.50", ""),
        ):
            rows += _against_peers(
                place, label, source, map_with, reduce_with, python, wall_goal, cpu_goal
            )
        rows.append(_tiny(place))
        rows.append(_small_maps(place))
        rows += _long_lines(place)
    return rows


def _against_peers(
    place: Path, label: str, source: Path, mapper: str, reducer: str, python: str,
    wall_goal: str, cpu_goal: str,
) -> list[Row]:  # fmt: skip
    contenders: dict[str, Callable[[], Run]] = {
        "mrstream": lambda: _ours(place, source, mapper, reducer),
        "two reduces": lambda: _ours(place, source, mapper, reducer, 2),
        "shell": lambda: _shell(place, source, mapper, reducer),
        "mrjob": lambda: _mrjob(place, source, mapper, reducer, python),
    }
    if shutil.which("parallel"):
        contenders["parallel"] = lambda: _parallel(place, source, mapper, reducer)
    medians = interleaved(contenders)
    ours, shell = medians["mrstream"], medians["shell"]
    two, mrjob = medians["two reduces"], medians["mrjob"]  # mrjob has as many as there are cores
    rows = [
        Row(f"{label}, wall, against the shell", ours.wall_s, shell.wall_s, "s", wall_goal),
        Row(f"{label}, CPU, against the shell", ours.cpu_s, shell.cpu_s, "s", cpu_goal),
        Row(f"{label}, two reduces, against the shell", two.wall_s, shell.wall_s, "s", ""),
        Row(f"{label}, two reduces, against mrjob", two.wall_s, mrjob.wall_s, "s", "≤ 0.25"),
    ]
    if "parallel" in medians:
        peer = medians["parallel"].wall_s
        rows.append(Row(f"{label}, wall, against parallel + sort -m", ours.wall_s, peer, "s", ""))
    return rows


def _tiny(place: Path) -> Row:
    small = place / "small.txt"
    small.write_bytes(b"the quick brown fox\n" * 51)
    env = dict(os.environ)
    medians = interleaved(
        {
            "mrstream": lambda: _ours(place, small, "cat", "cat"),
            "python": lambda: run([sys.executable, "-c", "import asyncio, msgspec"], place, env),
        },
        repeats=9,
    )
    return Row(
        "a job over one 1 KB file, wall, against `import asyncio, msgspec`",
        medians["mrstream"].wall_s, medians["python"].wall_s, "s", "≤ 4",
    )  # fmt: skip


def _small_maps(place: Path) -> Row:
    lines = place / "lines.txt"
    lines.write_text("".join(f"line {number}\n" for number in range(SMALL_MAPS)))
    argv = [MRSTREAM, "-jt", "local", "-inputformat", "NLineInputFormat", "-input", str(lines)]

    def maps() -> Run:
        shutil.rmtree(place / "out", ignore_errors=True)
        words = ["-output", str(place / "out"), "-mapper", "cat", "-numReduceTasks", "0"]
        return run([*argv, *words], place)

    cpu_s = interleaved({"maps": maps})["maps"].cpu_s
    return Row(
        f"{SMALL_MAPS} maps of `cat`, CPU each (peer: the goal)",
        1000 * cpu_s / SMALL_MAPS, 8, "ms", "≤ 1",
    )  # fmt: skip


def _long_lines(place: Path) -> list[Row]:
    """What a line costs must grow as its length does."""
    for name, size_mb in (("line50", 50), ("line500", 500)):
        with open(place / name, "wb") as file:
            for _ in range(size_mb):
                file.write(b"x" * 1_000_000)
            file.write(b"\n")
    rows = []
    for reduces in (0, 1):
        medians = interleaved(
            {
                name: lambda name=name: _ours(place, place / name, "cat", "cat", reduces)  # type: ignore[misc]  # noqa: B023
                for name in ("line500", "line50")
            }
        )
        rows.append(
            Row(
                f"one line of 500 MB, {reduces or 'no'} reduce, CPU, against one of 50 MB",
                medians["line500"].cpu_s, medians["line50"].cpu_s, "s", "≤ 12",
            )
        )  # fmt: skip
    return rows
