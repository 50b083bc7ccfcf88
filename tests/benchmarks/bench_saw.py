"""Sawzall programs against what an expert writes by hand: streaming pairs in Python, and awk.

The naive pair prints a line an emit and sums sorted lines; the dict-keeping pair adds up in the map
first, as a Sawzall map does; awk reads the file alone, without a job. CPU time is that of all
processes. `SAW_BENCH_MB` sets the size of the log (100; the goals are for 1000).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.common import MRSTREAM, Row, Run, interleaved, run, script, workplace

SIZE_BYTES = int(os.environ.get("SAW_BENCH_MB", "100")) * 1_000_000
SMALL = '127.0.0.1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.0" 200 1\n'


@dataclass(frozen=True)
class Task:
    """One question about a log, asked in several languages."""

    name: str
    sawzall: str
    mapper: str
    dict_mapper: str
    reducer: str
    awk: str = ""


SUM_REDUCER = """#!/usr/bin/env python3
import sys
last, total = None, 0
for line in sys.stdin:
    key, value = line.rstrip("\\n").rsplit("\\t", 1)
    if key != last:
        if last is not None:
            print(last, total, sep="\\t")
        last, total = key, 0
    total += int(value)
if last is not None:
    print(last, total, sep="\\t")
"""
_PATTERN = r"""#!/usr/bin/env python3
import re
import sys
entry = re.compile(r'\S+ \S+ \S+ \[([^\]]+)\] "[^"]*" (\d{3}) (\d+|-)')
"""
BYTES_BY_HOUR = Task(
    "Apache log: bytes by status and hour",
    """bytes: table sum[status: int][hour: int] of int;
log: ApacheLog = apachelog(input);
if (def(log)) emit bytes[log.status][hourof(log.time)] <- log.bytes;
""",
    _PATTERN
    + """for line in sys.stdin:
    match = entry.match(line)
    if match is None:
        continue
    time, status, size = match.groups()
    hour = int(time.split(":")[1])
    size = 0 if size == "-" else int(size)
    print(f"{status} {hour}", size, sep="\\t")
""",
    _PATTERN
    + """counts = {}
for line in sys.stdin:
    match = entry.match(line)
    if match is None:
        continue
    time, status, size = match.groups()
    key = f"{status} {int(time.split(':')[1])}"
    counts[key] = counts.get(key, 0) + (0 if size == "-" else int(size))
for key, value in counts.items():
    print(key, value, sep="\\t")
""",
    SUM_REDUCER,
    '{ split($4, t, ":"); n[$9 " " t[2]] += $10 } END { for (k in n) print k, n[k] }',
)
MINUTES = Task(
    "minute of the week",
    """week: table sum[minute: int] of int;
log: ApacheLog = apachelog(input);
t: time = log.time;
if (def(t)) emit week[minuteof(t) + 60 * (hourof(t) + 24 * (dayofweek(t) - 1))] <- 1;
""",
    """#!/usr/bin/env python3
import sys
from datetime import datetime
for line in sys.stdin:
    start, end = line.find("["), line.find("]")
    if start < 0 or end < 0:
        continue
    t = datetime.strptime(line[start + 1:end], "%d/%b/%Y:%H:%M:%S %z")
    print(t.minute + 60 * (t.hour + 24 * t.weekday()), 1, sep="\\t")
""",
    """#!/usr/bin/env python3
import sys
from datetime import datetime
counts = {}
for line in sys.stdin:
    start, end = line.find("["), line.find("]")
    if start < 0 or end < 0:
        continue
    t = datetime.strptime(line[start + 1:end], "%d/%b/%Y:%H:%M:%S %z")
    minute = t.minute + 60 * (t.hour + 24 * t.weekday())
    counts[minute] = counts.get(minute, 0) + 1
for minute, count in counts.items():
    print(minute, count, sep="\\t")
""",
    SUM_REDUCER,
)
PATHS = Task(
    "hits by path",
    """hits: table sum[path: string] of int;
log: ApacheLog = apachelog(input);
if (def(log)) emit hits[log.path] <- 1;
""",
    """#!/usr/bin/env python3
import sys
for line in sys.stdin:
    words = line.split('"', 2)
    if len(words) < 3:
        continue
    request = words[1].split(" ")
    if len(request) > 1:
        print(request[1], 1, sep="\\t")
""",
    """#!/usr/bin/env python3
import sys
counts = {}
for line in sys.stdin:
    words = line.split('"', 2)
    if len(words) < 3:
        continue
    request = words[1].split(" ")
    if len(request) > 1:
        counts[request[1]] = counts.get(request[1], 0) + 1
for path, count in counts.items():
    print(path, count, sep="\\t")
""",
    SUM_REDUCER,
    "{ n[$7]++ } END { for (k in n) print k, n[k] }",
)
TASKS = (BYTES_BY_HOUR, MINUTES, PATHS)
ESTIMATES = """hosts: table unique(10000) of string;
best: table top(10) of string;
sizes: table quantile(101) of int;
log: ApacheLog = apachelog(input);
if (def(log)) { emit hosts <- log.host; emit best <- log.path; emit sizes <- log.bytes; }
"""
"""What a hand-written pair would not do in so few lines, nor in so little memory."""
_SHUFFLED = re.compile(r"Reduce shuffle bytes=(\d+)")


def log_file(path: Path, size_bytes: int, seed: int = 4) -> None:
    """Write a web server's log: combined form, some paths much more frequent than others."""
    rng = random.Random(seed)
    paths = [f"/site/section{rng.randrange(40)}/page{n}.html" for n in range(3000)]
    weights = [1 / (rank + 2) for rank in range(len(paths))]
    statuses = [200] * 90 + [304] * 5 + [404] * 4 + [500]
    start_s = 1_100_000_000
    from datetime import UTC, datetime

    with open(path, "w") as file:
        written = 0
        while written < size_bytes:
            chosen = rng.choices(paths, weights, k=2000)
            lines = []
            for one in chosen:
                start_s += rng.randrange(3)
                stamp = datetime.fromtimestamp(start_s, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
                lines.append(
                    f"10.{rng.randrange(256)}.{rng.randrange(256)}.7 - - [{stamp}] "
                    f'"GET {one} HTTP/1.1" {rng.choice(statuses)} {rng.randrange(90_000)} "-" '
                    '"Mozilla/5.0 (X11; Linux x86_64)"\n'
                )
            written += file.write("".join(lines))


def bench(size_bytes: int = SIZE_BYTES) -> Iterator[Row]:
    """Give the rows of the table."""
    with workplace() as place:
        log_file(place / "log", size_bytes)
        (place / "small").write_text(SMALL * 10)
        bench = _Bench(place)
        for task in TASKS:
            yield from bench.task(task)
        yield bench.estimates()
        yield bench.start_up()
        yield from profile(place / "log")


class _Bench:
    def __init__(self, place: Path) -> None:
        self._place = place
        self._env = {**os.environ, "MRSTREAM_HOME": str(place / "home")}

    def task(self, task: Task) -> Iterator[Row]:
        """Run a question in all languages."""
        contenders = {
            "saw": self._saw(task.sawzall, "log"),
            "naive": self._pair(task.mapper, task.reducer, "log"),
            "dict": self._pair(task.dict_mapper, task.reducer, "log"),
        }
        if task.awk:
            contenders["awk"] = lambda: run(["awk", task.awk, "log"], self._place, self._env)
        runs = interleaved(contenders)
        ours = runs["saw"].cpu_s
        for peer, goal in (("naive", "≤ 0.4"), ("dict", "≤ 1.1"), ("awk", "")):
            if peer in runs:
                yield Row(f"{task.name}: CPU (peer: {peer})", ours, runs[peer].cpu_s, "s", goal)
        yield Row(
            f"{task.name}: lines of program (peer: the naive pair)",
            task.sawzall.count("\n"), (task.mapper + task.reducer).count("\n"), "", "≤ 0.2",
        )  # fmt: skip
        yield Row(
            f"{task.name}: shuffled bytes (peer: the input)",
            self._shuffled(task), (self._place / "log").stat().st_size, "B", "≤ 0.01",
        )  # fmt: skip

    def start_up(self) -> Row:
        """A job over ten lines: what Sawzall adds to a streaming job's wall time."""
        runs = interleaved(
            {
                "saw": self._saw(BYTES_BY_HOUR.sawzall, "small"),
                "streaming": self._pair("#!/bin/cat\n", "#!/bin/cat\n", "small"),
            },
            repeats=9,
        )
        extra_ms = 1000 * (runs["saw"].wall_s - runs["streaming"].wall_s)
        return Row(
            "ten lines: wall time above a streaming job's (peer: the goal)",
            extra_ms, 60.0, "ms", "≤ 1",
        )  # fmt: skip

    def _saw(self, text: str, name: str) -> Callable[[], Run]:
        program = self._place / "program.szl"

        def contend() -> Run:
            program.write_text(text)
            shutil.rmtree(self._place / "out", ignore_errors=True)
            words = ["--program", str(program), "--input_files", name, "--destination", "out@1"]
            return run([MRSTREAM, "saw", *words], self._place, self._env)

        return contend

    def _pair(self, mapper: str, reducer: str, name: str) -> Callable[[], Run]:
        def contend() -> Run:
            if mapper.startswith("#!/bin/cat"):
                programs = ["-mapper", "cat", "-reducer", "cat"]
            else:
                paths = (self._place / "mapper.py", self._place / "reducer.py")
                texts = (mapper, reducer)
                one, two = (script(path, text) for path, text in zip(paths, texts, strict=True))
                programs = ["-mapper", str(one), "-reducer", str(two)]
            shutil.rmtree(self._place / "out", ignore_errors=True)
            words = [*programs, "-input", name, "-output", "out"]
            return run([MRSTREAM, *words], self._place, self._env)

        return contend

    def estimates(self) -> Row:
        """The three tables that estimate, beside the cheapest exact one."""
        texts = {"estimates": ESTIMATES, "sum": PATHS.sawzall}
        runs = interleaved({name: self._saw(text, "log") for name, text in texts.items()})
        return Row(
            "unique, top and quantile of one log: CPU (peer: hits by path)",
            runs["estimates"].cpu_s, runs["sum"].cpu_s, "s", "",
        )  # fmt: skip

    def _shuffled(self, task: Task) -> int:
        """Give the bytes that the reduces of a run fetched, as the job counts them."""
        shutil.rmtree(self._place / "out", ignore_errors=True)
        words = ["--program", "program.szl", "--input_files", "log", "--destination", "out@1"]
        (self._place / "program.szl").write_text(task.sawzall)
        done = subprocess.run(
            [MRSTREAM, "saw", *words],
            cwd=self._place, env=self._env, check=True, capture_output=True, text=True,
        )  # fmt: skip
        found = _SHUFFLED.search(done.stderr)
        assert found is not None, done.stderr
        return int(found.group(1))


PROFILED_BYTES = 4_000_000
_ENTRY = "t: table sum of int;\nlog: ApacheLog = apachelog(input);\nif (def(log)) "
_PARTS = {
    "its pattern": "emit t <- 1;",
    "and the status": "emit t <- log.status;",
    "and the hour": "{ emit t <- log.status; emit t <- hourof(log.time); }",
}


def profile(log: Path) -> Iterator[Row]:
    """Where a record's time goes in the map, without a job around it: growing parts of one
    program, each beside the whole."""
    from mrstream.saw.program import compiled

    with open(log, "rb") as file:
        lines = file.read(PROFILED_BYTES).split(b"\n")[:-1]
    programs = {name: f"{_ENTRY}{text}\n" for name, text in _PARTS.items()}
    programs["the whole program"] = BYTES_BY_HOUR.sawzall
    best = dict.fromkeys(programs, float("inf"))
    for _ in range(7):
        for name, text in programs.items():
            run_of = compiled(text).run(random.Random(0))
            began_s = time.process_time()
            run_of.feed(lines)
            best[name] = min(best[name], time.process_time() - began_s)
    whole = best["the whole program"]
    for name, cpu_s in best.items():
        what = f"one record of the log: {name} (peer: all of it)"
        yield Row(what, cpu_s * 1e9 / len(lines), whole * 1e9 / len(lines), "ns", "")
