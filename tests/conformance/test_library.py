"""`import mrstream`: jobs from Python, run as the command runs them; every example both ways."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mrstream as mr
from mrstream.cluster.errors import UserError
from tests.conformance.test_examples import EXAMPLES, NAMES, run
from tests.support.local_jobs import TREE, processes_with


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory and a working directory of our own, no cluster."""
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MRSTREAM_CLUSTER", raising=False)
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    (cwd / "in").write_text("b a\na c\n")
    return cwd


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, 1


def total(word: str, counts: Iterable[int]) -> Iterator[tuple[str, int]]:
    yield word, sum(counts)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_gives_the_same_bytes_as_command_and_as_library(
    name: str, tmp_path: Path
) -> None:
    command = run(name, tmp_path / "home")
    library = subprocess.run(
        [sys.executable, EXAMPLES / name / "library.py"],
        env={**os.environ, "PYTHONPATH": str(TREE)}, capture_output=True, timeout=120, check=False,
    )  # fmt: skip

    assert library.returncode == 0, library.stderr.decode()
    assert library.stdout == command.stdout == (EXAMPLES / name / "expected").read_bytes()


def test_a_job_gives_records_counters_and_a_report() -> None:
    result = mr.Job("in", mapper=words, combiner=total, reducer=total, reduces=2).run()

    assert sorted(result) == [("a", 2), ("b", 1), ("c", 1)]
    assert sorted(result) == sorted(result), "it can be read again"
    assert result.counter("Map-Reduce Framework", "Map input records") == 2
    assert result.counter("no such", "counter") == 0
    assert result.report["state"] == result.state == "succeeded"
    assert result.report["job_id"] == result.job_id
    assert "completed successfully" in result.log
    assert "<progress" in result._repr_html_() and "Map input records" in result._repr_html_()


class Table:
    """An input that is no file; its splits have what is hard to pass on."""

    SPLITS = ("it's", 'a "b" é', ["x\ty", {"n": 1}], "two\nlines\\", None)

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def splits(self) -> Iterable[Any]:
        return self.SPLITS

    def records(self, split: Any) -> Iterator[tuple[Any, int]]:
        for number in range(self.rows):
            yield split, number


class Pages:
    """As a class, with lines for mappers of lines and for commands."""

    def splits(self) -> Iterable[int]:
        return range(3)

    def records(self, page: int) -> list[str]:
        print("what it prints is no record")
        return [f"a page{page}", "a\tb"]


def test_an_input_may_be_an_object_with_splits_and_records() -> None:
    """MapReduce §4.4: a reader of one's own, not of files; each split is read by a map."""
    pairs = mr.Job(Table(5), mapper=lambda key, number: [(key, number)], reducer=total).run()
    lines = mr.Job(Pages, mapper=words, combiner=total, reducer=total).run()
    command = mr.Job(Pages, mapper="cut -f2 -d ' '").run()

    assert sorted(map(repr, pairs)) == sorted(repr((split, 10)) for split in Table.SPLITS)
    assert pairs.counter("Map-Reduce Framework", "Map input records") == 25
    assert sorted(lines) == [("a", 6), ("b", 3), ("page0", 1), ("page1", 1), ("page2", 1)]
    assert sorted(command.lines())[-3:] == [b"page0\t", b"page1\t", b"page2\t"]


def test_an_input_that_fails_says_where() -> None:
    class Broken(Pages):
        def records(self, page: int) -> list[str]:
            raise LookupError(f"no page {page}")

    class Open(Pages):
        def splits(self) -> Iterable[Any]:
            return [object()]

    class TwoLines(Pages):
        def records(self, page: int) -> list[str]:
            return ["one\ntwo"]

    says = {Broken: "no page", Open: "cannot be written as JSON", TwoLines: "have a newline"}
    for source, words_ in says.items():
        with pytest.raises(mr.JobFailed, match=words_):
            mr.Job(source, mapper="cat").run()
    with pytest.raises(ValueError, match="its own -inputformat"):
        mr.Job(Pages, mapper="cat", options=["-inputformat", "csv"])


def test_an_output_directory_is_read_also_compressed(desk: Path) -> None:
    codec = "org.apache.hadoop.io.compress.GzipCodec"
    job = mr.Job(
        "in", mapper=words, reducer=total, output=desk / "out", reduces=2,
        D={"mapreduce.output.fileoutputformat.compress": True,
           "mapreduce.output.fileoutputformat.compress.codec": codec},
    )  # fmt: skip

    result = job.run()

    assert result.output == str(desk / "out")
    assert sorted(path.name for path in (desk / "out").glob("part*")) == [
        "part-00000.gz", "part-00001.gz",
    ]  # fmt: skip
    assert sorted(result) == [("a", 2), ("b", 1), ("c", 1)]
    with pytest.raises(mr.JobFailed, match="already exists") as failed:
        job.run()
    assert failed.value.status == 5


class Tally:
    """Counts inside of the mapper, and gives what it has at the end."""

    def setup(self) -> None:
        self.seen: dict[str, int] = {}
        print("what a function prints is no record")

    def map(self, line: str) -> None:
        for word in line.split():
            self.seen[word] = self.seen.get(word, 0) + 1
            mr.count("tally", "words", 2)
        mr.status(f"at {line}\nand on")

    def close(self) -> Iterator[tuple[str, int]]:
        yield from self.seen.items()


def test_a_class_has_a_life_and_counts() -> None:
    result = mr.Job("in", mapper=Tally, reducer=total).run()

    assert list(result) == [("a", 2), ("b", 1), ("c", 1)]
    assert result.counter("tally", "words") == 8
    assert "what a function prints is no record" in result.log


def test_the_output_of_one_job_is_the_input_of_the_next(desk: Path) -> None:
    mr.Job("in", mapper=words, reducer=total, output="counts").run()

    def by_count(word: str, count: int) -> Iterator[tuple[int, str]]:
        yield count, word

    found = mr.Job("counts", mapper=by_count, reducer=lambda n, ws: [(n, sorted(ws))]).run()

    assert list(found) == [(1, ["b", "c"]), (2, ["a"])]


def test_commands_and_functions_mix() -> None:
    upper = mr.Job("in", mapper="tr a-z A-Z", reducer=lambda key, values: [(key, "x")]).run()
    counted = mr.Job("in", mapper=words, reducer="sort -c", codec=mr.text)

    assert list(upper) == [("A C", "x"), ("B A", "x")]
    assert list(counted.run()) == []


def test_sorting_and_cutting_by_functions() -> None:
    """Numbers, not their digits: 10 behind 9, which JSON's bytes would not give."""
    (Path("numbers")).write_text("".join(f"{n % 3} {n}\n" for n in range(30)))

    def pairs(line: str) -> Iterator[tuple[int, int]]:
        key, value = line.split()
        yield int(key), int(value)

    result = mr.Job(
        "numbers", mapper=pairs, reducer=lambda key, values: [(key, list(values))], reduces=2,
        partition=lambda key, reduces: key % reduces, sort_key=lambda key: -key,
        sort_values=lambda value: -value, output="out",
    ).run()  # fmt: skip

    assert list(result) == [
        (key, [n for n in range(29, -1, -1) if n % 3 == key]) for key in (2, 0, 1)
    ]
    assert Path("out/part-00001").read_text().startswith("1\t")


def test_a_failure_names_record_program_and_the_way_to_repeat_it(desk: Path) -> None:
    """The same report that the command prints, as values; `-repeat` and `-bisect` work on it."""

    def fails(line: str) -> Iterator[tuple[str, int]]:
        if "c" in line:
            raise ValueError(f"cannot take {line}")
        yield line, 1

    with pytest.raises(mr.JobFailed, match="cannot take a c") as failed:
        mr.Job("in", mapper=fails).run()

    error = failed.value
    assert (error.exit_code, error.record, error.status) == (1, "'a c'", 1)
    assert error.repeat == f"mrstream -repeat {error.attempt_id}"
    assert "ValueError: cannot take a c" in error.stderr
    assert "loops.py" not in error.stderr, "the traceback begins in the user's own code"
    for verb, wanted in (("-repeat", "ValueError: cannot take a c"), ("-bisect", "a c")):
        again = subprocess.run(
            [sys.executable, "-P", "-m", "mrstream.streaming.cli", verb, error.attempt_id],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert wanted in again.stdout + again.stderr


def test_bad_records_are_skipped_as_those_of_any_program() -> None:
    """MapReduce §4.6."""
    (Path("many")).write_text("".join(f"{n}\n" for n in range(40)))

    def fails(line: str) -> Iterator[tuple[str, int]]:
        assert line != "17"
        yield line, 1

    result = mr.Job(
        "many", mapper=fails,
        D={"mapreduce.map.skip.maxrecords": 1, "mapreduce.task.skip.start.attempts": 1},
    ).run()  # fmt: skip

    assert len(list(result)) == 39
    assert result.counter("Map-Reduce Framework", "Map skipped records") == 1


@pytest.mark.parametrize(
    ("wrong", "words_of_it"),
    [
        ({"input": "nowhere", "mapper": "cat"}, "Input path does not exist"),
        ({"input": "in", "mapper": "cat", "options": ["-nonsense"]}, "Unrecognized option"),
        ({"input": "in", "mapper": "no-such-program"}, "no-such-program"),
    ],
)
def test_a_job_that_cannot_start_says_why(wrong: dict[str, Any], words_of_it: str) -> None:
    with pytest.raises(Exception, match=words_of_it):
        mr.Job(**wrong).run()


def test_a_submitted_job_can_be_killed_and_leaves_nothing(desk: Path) -> None:
    result = mr.Job("in", mapper="sleep 1000", name="to be killed").submit()
    with pytest.raises(TimeoutError):
        result.wait(0.4)
    assert result.state == "running"

    result.kill()

    assert result.state == "killed"
    with pytest.raises(mr.JobFailed, match="was killed"):
        result.wait()
    assert list((desk.parent / "home").rglob("work")) == []


INTERRUPTED = """
import mrstream as mr
result = mr.Job("in", mapper="sleep 1000", D={"mark": "MARK"}).submit()
try:
    result.wait()
except KeyboardInterrupt:
    print(result.state, flush=True)
"""


def test_an_interrupt_kills_the_job() -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    screen, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.replace("MARK", mark)],
        stdout=subprocess.PIPE, stderr=terminal, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    drawn = b""
    while b"map 0%" not in drawn:  # now it waits
        drawn += os.read(screen, 1 << 12)

    process.send_signal(signal.SIGINT)

    assert process.communicate(timeout=60)[0] == b"killed\n"
    assert processes_with(mark) == []
    os.close(screen)
    os.close(terminal)


KILLED = """
import time
import mrstream as mr
result = mr.Job("in", mapper="sleep 1000", output="out", D={"mark": "MARK"}).submit()
while "map 100% reduce 0%" not in result.log:  # all is read; the last word for 1,000 s
    time.sleep(0.02)
print("quiet", flush=True)
result.wait()
"""


def test_a_job_ends_with_the_python_that_submitted_it_however_that_ends(desk: Path) -> None:
    """A job that has nothing to say does not notice that nobody listens."""
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED.replace("MARK", mark)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == b"quiet\n"

    process.kill()
    process.communicate(timeout=60)

    until = time.monotonic() + 60
    while processes_with(mark):
        assert time.monotonic() < until, "the job goes on for nobody"
        time.sleep(0.05)
    assert not (desk / "out").exists()


def test_check_finds_a_combiner_that_does_not_take_its_own_output() -> None:
    def shout(word: str, counts: Iterable[int]) -> Iterator[tuple[str, int]]:
        yield word, sum(counts) + 1

    good = mr.check(mr.Job("in", mapper=words, reducer=total))
    bad = mr.check(mr.Job("in", mapper=words, combiner=shout, reducer=total))

    assert good and "All runs agree" in good.text
    assert not bad and "DIFFERENT" in bad.text


def test_files_travel_and_the_file_system_is_fsspecs(desk: Path) -> None:
    (desk / "stop").write_text("a\n")

    class Kept:
        def setup(self) -> None:
            self.stop = set(Path("stop").read_text().split())

        def map(self, line: str) -> list[str]:
            return [word for word in line.split() if word not in self.stop]

    assert list(mr.Job("in", mapper=Kept, files=["stop"], writes=mr.text).run()) == ["b", "c"]
    assert mr.fs().cat(str(desk / "in")) == b"b a\na c\n"


def test_bytes_that_are_no_utf8_come_through_text_and_are_marked_in_json(desk: Path) -> None:
    (desk / "odd").write_bytes(b"caf\xe9\n")

    def same(line: str) -> list[tuple[str, int]]:
        return [(line, 1)]

    assert list(mr.Job("odd", mapper=same, writes=mr.text).run().lines()) == [b"caf\xe9\t1"]
    assert list(mr.Job("odd", mapper=same).run()) == [("caf\ufffd", 1)]


def test_a_live_line_is_drawn_on_a_terminal_and_taken_away() -> None:
    code = "import mrstream as mr; mr.Job('in', mapper='sleep 0.5', reducer='cat').run()"
    screen, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=terminal, env={**os.environ, "TERM": "xterm"}
    )
    os.close(terminal)
    drawn = b""
    with contextlib.suppress(OSError):  # how a terminal tells that nobody holds its other end
        while data := os.read(screen, 1 << 12):
            drawn += data
    os.close(screen)

    assert process.wait(60) == 0
    assert b"map 0%  reduce 0%" in drawn
    assert drawn.endswith(b"\r\x1b[K")


# What Hadoop 3.4's own client says of a job, and its way to end one, to read and to fail.
MAPRED = """#!/bin/sh
if [ "$1" = job ]; then echo "$*" > "$HADOOP_HOME/asked"; exit 0; fi
say() { echo "2026-11-18 06:00:01,234 $*" >&2; }
say INFO mapreduce.Job: Running job: job_1794981628959_0002
say "INFO mapreduce.Job:  map 50% reduce 0%"
case "$*" in
*sleep*) : > "$HADOOP_HOME/runs"; exec sleep 1000;;
*false*)
  say INFO mapreduce.Job: Task Id : attempt_1794981628959_0002_m_000000_2, Status : FAILED
  echo "Error: java.lang.RuntimeException: PipeMapRed.waitOutputThreads(): subprocess failed with code 3" >&2
  printf '\tat org.apache.hadoop.streaming.PipeMapRed.waitOutputThreads(PipeMapRed.java:326)\n\n' >&2
  say INFO mapreduce.Job: Job job_1794981628959_0002 failed with state FAILED due to: Task failed task_1794981628959_0002_m_000000
  say ERROR streaming.StreamJob: Job not successful!
  echo "Streaming Command Failed!" >&2
  exit 1;;
esac
say "INFO mapreduce.Job: Counters: 1"
printf '\tMap-Reduce Framework\n\t\tMap input records=7\n' >&2
say INFO mapreduce.Job: Job job_1794981628959_0002 completed successfully
say "INFO mapreduce.Job: Counters: 3"
printf '\tMap-Reduce Framework\n\t\tMap input records=2\n\t\tShuffled Maps =1\n\tmy = group\n\t\ta=b=40\n' >&2
say INFO streaming.StreamJob: Output directory: /there
"""  # noqa: E501
HADOOP = """#!/bin/sh
if [ "$*" != "fs -text /there/part-*" ]; then
  echo "text: No such file: $3" >&2
  printf '\\tat org.apache.hadoop.fs.FsShell.main(FsShell.java:390)\\n' >&2
  exit 1
fi
printf 'a\t2\nb\t1'
"""


@pytest.fixture
def hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of Hadoop whose client says what a real one did."""
    home = tmp_path / "hadoop"
    for name, text in (("mapred", MAPRED), ("hadoop", HADOOP)):
        program = home / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("HADOOP_HOME", str(home))
    return home


def on_hadoop(mapper: str = "cat", output: str = "/there") -> mr.Job:
    return mr.Job("in", mapper=mapper, reducer="cat", output=output, engine="hadoop")


@pytest.mark.usefixtures("hadoop")
def test_a_job_that_hadoop_ran_has_its_counters_and_records() -> None:
    """The job's counters are read, not those of a task before them; results by Hadoop's client."""
    result = on_hadoop().run()

    assert (result.job_id, result.state) == ("job_1794981628959_0002", "succeeded")
    assert result.counters == {
        "Map-Reduce Framework": {"Map input records": 2, "Shuffled Maps ": 1},
        "my = group": {"a=b": 40},
    }
    assert result.counter("my = group", "a=b") == 40
    assert list(result) == [("a", "2"), ("b", "1")]
    assert result.report["state"] == "succeeded"


@pytest.mark.usefixtures("hadoop")
def test_a_job_that_failed_on_hadoop_names_its_attempt_and_its_exit_code() -> None:
    with pytest.raises(mr.JobFailed) as failed:
        on_hadoop("false").run()

    assert failed.value.attempt_id == "attempt_1794981628959_0002_m_000000_2"
    assert (failed.value.exit_code, failed.value.job_id) == (3, "job_1794981628959_0002")
    assert str(failed.value).startswith(
        "Job job_1794981628959_0002 failed with state FAILED due to"
    )
    assert "subprocess failed with code 3" in str(failed.value)


@pytest.mark.usefixtures("hadoop")
def test_results_that_hadoop_cannot_read_are_one_line() -> None:
    result = on_hadoop(output="/elsewhere").run()

    with pytest.raises(UserError, match=r"^/elsewhere cannot be read: text: No such file"):
        list(result)


def test_killing_a_job_on_hadoop_ends_it_there(hadoop: Path) -> None:
    """Hadoop's own client, when it is ended, leaves its job running."""
    result = on_hadoop("sleep").submit()
    until = time.monotonic() + 60
    while not (hadoop / "runs").exists():
        assert time.monotonic() < until and result.state == "running", result.log
        time.sleep(0.02)

    result.kill()

    assert result.state == "killed"
    assert (hadoop / "asked").read_text() == "job -kill job_1794981628959_0002\n"
    assert processes_with(f"HADOOP_HOME={hadoop}") == []
