"""Run jobs on mrstream and on another side, and say where the two differ, job by job.

    python -m tests.conformance.differential --other recorded [CASE …]
    python -m tests.conformance.differential --other 'hadoop jar hadoop-streaming.jar' [CASE …]
    python -m tests.conformance.differential --other hadoop --jobs 300 --seed 7

The other side is any command that takes a streaming job's words; or `recorded`, the results that
the golden cases hold; or `hadoop`, a Hadoop that Maven fetches, with its local runner in one warm
JVM (Java and Maven needed; as its working directory is one for all jobs, generated jobs only).
Without --jobs the jobs are the golden cases, with it they are drawn at random (`generated.py`).
Compared are exit status, output files and counters. The status is 1 if any job differs in a way
that docs/guide/options.md does not list.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from tests.conformance import cases, generated
from tests.conformance.cases import Case, Outcome, printed_counters, visible_files

HERE = Path(__file__).parent
MRSTREAM = [sys.executable, "-P", "-m", "mrstream.streaming.cli"]
RECORDED, HADOOP = "recorded", "hadoop"
TIMEOUT_S = 300.0
COUNTED = (
    "Map input records", "Map output records", "Map output bytes", "Map output materialized bytes",
    "Combine input records", "Combine output records", "Reduce input groups",
    "Reduce shuffle bytes", "Reduce input records", "Reduce output records", "Spilled Records",
    "Shuffled Maps ", "Merged Map outputs",
)  # fmt: skip
Run = Callable[[list[str], Path], Outcome]
"""Runs a job of these words, whose output goes to the directory `out` of a room."""


def command_side(command: Sequence[str]) -> Run:
    """Give the side that is a command."""

    def run(words: list[str], room: Path) -> Outcome:
        (room / "cwd").mkdir()
        done = subprocess.run(
            [*command, *words],
            cwd=room / "cwd",
            env={**os.environ, "MRSTREAM_HOME": str(room / "home"), "PYTHONPATH": ""},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        return Outcome(done.returncode, out, err, visible_files(room / "out"))

    return run


class Hadoop:
    """Hadoop's local runner in a JVM of its own."""

    def __init__(self, place: Path) -> None:
        shutil.copytree(HERE / "hadoop", place, dirs_exist_ok=True)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={place / 'lib'}"]
        subprocess.run(["mvn", "-B", "-q", *copy], cwd=place, check=True)
        path = os.pathsep.join((str(place), f"{place}/lib/*"))
        subprocess.run(["javac", "-cp", path, "-d", str(place), "Jobs.java"], cwd=place, check=True)
        words = ["java", "-XX:TieredStopAtLevel=1", "-Xmx2g", "-Dfile.encoding=UTF-8", "-cp", path]
        self._jvm = subprocess.Popen(
            [*words, "Jobs"],
            cwd=place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __call__(self, words: list[str], room: Path) -> Outcome:
        assert self._jvm.stdin is not None and self._jvm.stdout is not None
        line = b" ".join(b"." + base64.b64encode(os.fsencode(word)) for word in words)
        self._jvm.stdin.write(line + b"\n")
        self._jvm.stdin.flush()
        status, out, err = self._jvm.stdout.readline().split()
        texts = (base64.b64decode(text[1:]).decode("utf-8", "replace") for text in (out, err))
        return Outcome(int(status), *texts, visible_files(room / "out"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._jvm.kill()
        self._jvm.wait()


@contextlib.contextmanager
def side(words: str) -> Iterator[Run]:
    """Give the other side that these words name, ready to run."""
    if words != HADOOP:
        yield command_side(shlex.split(words))
        return
    with tempfile.TemporaryDirectory() as place, Hadoop(Path(place)) as hadoop:
        yield hadoop


def listed(job: generated.Job, ours: Outcome, other: Outcome) -> str:
    """Give the line of the list of differences (docs/guide/options.md) that two outcomes of a job
    are an instance of; empty: of none."""
    if (
        any(word.endswith(".BinaryPartitioner") for word in job.words)
        and "ArithmeticException: / by zero" in other.stderr
        and (ours.status, other.status) == (0, 1)
    ):
        return "BinaryPartitioner on an empty key"
    return ""


def differences(job: generated.Job, ours: Outcome, other: Outcome) -> list[str]:
    """Say in words where two outcomes of a job differ."""
    found = []
    if ours.status != other.status:
        found.append(f"status {ours.status}, other {other.status}: {_last(ours)} | {_last(other)}")
    if sorted(ours.files) != sorted(other.files):
        found.append(f"files {sorted(ours.files)}, other {sorted(other.files)}")
    rule = {"compare": job.compare, "tie_key": job.tie_key}
    for name in sorted(set(ours.files) & set(other.files)):
        mine, theirs = (_content(name, of.files[name], rule) for of in (ours, other))
        if mine != theirs:
            found.append(f"{name} is {ours.files[name][:200]!r}, other {other.files[name][:200]!r}")
    if ours.status == other.status == 0:
        mine, theirs = _counters(ours), _counters(other)
        for counter in sorted({*mine, *theirs}):
            if mine.get(counter, 0) != theirs.get(counter, 0):
                found.append(f"{counter} is {mine.get(counter)}, other {theirs.get(counter)}")
    return found


def _content(name: str, data: bytes, rule: dict[str, str]) -> object:
    if data.startswith(b"SEQ"):
        return cases.sequence_file(data)
    plain = cases.normal(name, data, {"compare": "decompressed"})
    assert isinstance(plain, bytes)
    return cases.normal(name, plain, rule)


def _counters(outcome: Outcome) -> dict[str, int]:
    """Give what is counted alike on every run: records, their bytes, and users' own counters."""
    # Hadoop's local runner prints the counters of each task before those of the job.
    groups = printed_counters(outcome.stderr[max(0, outcome.stderr.rfind("Counters: ") - 200) :])
    framework = groups.get("Map-Reduce Framework", {})
    found = {name: framework.get(name) or 0 for name in COUNTED}
    found |= {f"users/{name}": value or 0 for name, value in groups.get("users", {}).items()}
    return found


def _last(outcome: Outcome) -> str:
    lines = [line for line in outcome.stderr.splitlines() if "xception" in line or "ERROR" in line]
    return (lines or outcome.stderr.splitlines() or [""])[0][-300:]


def compare_job(job: generated.Job, other: Run) -> tuple[list[str], str]:
    """Run a drawn job on both sides; say where they differ, and by which line of the list."""
    with tempfile.TemporaryDirectory() as place:
        room = Path(place)
        (room / "in").mkdir()
        for name, data in job.inputs.items():
            (room / "in" / name).write_bytes(data)
        outcomes = []
        for label, run in (("ours", command_side(MRSTREAM)), ("other", other)):
            (room / label).mkdir()
            places = {"{in}": str(room / "in"), "{out}": str(room / label / "out")}
            words = job.words
            for mark, path in places.items():
                words = [word.replace(mark, path) for word in words]
            outcomes.append(run(words, room / label))
        return differences(job, *outcomes), listed(job, *outcomes)


def compare_case(name: str, other: str) -> list[str]:
    """Run a golden case with mrstream, and with the other command; say where they differ from what
    is recorded."""
    found = []
    sides = [("mrstream", MRSTREAM)]
    if other != RECORDED:
        sides.append(("other", shlex.split(other)))
    for label, command in sides:
        with tempfile.TemporaryDirectory() as place:
            case = Case(name)
            outcome = case.run(command, Path(place), timeout_s=TIMEOUT_S)
            told = outcome.stderr
            # Hadoop's local runner prints the counters of each task before those of the job.
            before, word, last = told.rpartition("Counters: ")
            told = before.replace("Counters: ", "Counters of a task: ") + word + last
            outcome = dataclasses.replace(outcome, stderr=told)
            found += [f"{label}: {text}" for text in case.differences(outcome)]
    return found


def main(words: Sequence[str]) -> int:
    """Compare; print a line for each job that differs, and the ledger."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--other", default=RECORDED, help="recorded, hadoop, or a command")
    parser.add_argument("--jobs", type=int, default=0, help="so many jobs drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("cases", nargs="*", help="golden cases; none: all of them")
    said = parser.parse_args(words)
    differing = 0
    as_listed: list[str] = []
    if said.jobs:
        count = said.jobs
        with side(said.other) as other:
            for number in range(count):
                job = generated.draw(said.seed, number)
                found, line = compare_job(job, other)
                if found and line:
                    as_listed.append(line)
                else:
                    differing += _tell(job.name, found, job.words)
    else:
        names = said.cases or cases.names()
        count = len(names)
        differing = sum(_tell(name, compare_case(name, said.other), []) for name in names)
    for line in sorted(set(as_listed)):
        print(f"{as_listed.count(line)} differ as listed: {line}")
    agree = count - differing - len(as_listed)
    print(f"{agree} of {count} jobs agree in status, files and counters")
    return 1 if differing else 0


def _tell(name: str, found: list[str], words: list[str]) -> int:
    if found:
        print(f"{name} differs: {shlex.join(words)}", *found, sep="\n    ", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
