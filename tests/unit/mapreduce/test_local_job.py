"""The shell of local mode and of engines (mapreduce/local/job.py) below the process.

The brain, the tally, the committer and the console are real; attempts are scripts in this process
that say what a test wants, die, or make whoever starts them die.
"""

from __future__ import annotations

import errno
import io
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from mrstream.mapreduce import history
from mrstream.mapreduce.attempt.attempt_report import (
    AttemptNews,
    Done,
    Failed,
    Failure,
    Message,
    send,
)
from mrstream.mapreduce.attempt.task_context import AttemptOrder
from mrstream.mapreduce.attempt.zygote import Ended
from mrstream.mapreduce.console import Console
from mrstream.mapreduce.dataflow.files import RoutedFiles, local_path
from mrstream.mapreduce.interrupts import interruptible
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job.errors import JobFailed, TooManyCounters
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.local.job import LocalJob
from mrstream.mapreduce.local.output import DirectoryOutput
from mrstream.mapreduce.local.place import this_machine
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf

Script = Callable[[AttemptOrder], Iterable[Message | int]]
"""What an attempt says; a number is the status with which its process ends."""


class ScriptedAttempts:
    """The face of a zygote, over scripts."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._ends: list[Ended | None] = []
        self._told, self._tell = os.pipe()
        self.orders: list[AttemptOrder] = []

    def fileno(self) -> int:
        return self._told

    def start(self, order: bytes, mark: str) -> tuple[int, int]:
        _, what = msgspec.msgpack.decode(order, type=tuple[JobSpec, AttemptOrder])
        self.orders.append(what)
        assert mark == what.attempt_id
        report, theirs = os.pipe()
        status = 0
        for said in self._script(what):
            if isinstance(said, int):
                status = said
            else:
                send(theirs, said)
        os.close(theirs)
        token = len(self.orders)
        self._ends.append(Ended(token, status))
        os.write(self._tell, b".")
        return token, report

    def die(self) -> None:
        """The process that starts attempts is gone."""
        self._ends.append(None)
        os.write(self._tell, b".")

    def ended(self) -> Ended:
        os.read(self._told, 1)
        ended = self._ends.pop(0)
        if ended is None:
            raise EOFError
        return ended

    def last_words(self, token: int) -> Iterable[Message]:
        return ()

    def kill(self, token: int) -> None:
        """Scripts have ended by then."""

    def remove_at_end(self, path: str) -> None: ...

    def keep(self, path: str) -> None: ...

    def hold(self, descriptor: int) -> None: ...

    def close(self) -> None:
        os.close(self._told)
        os.close(self._tell)


class FullDisk(DirectoryOutput):
    """An output whose disk has no room for what is to appear in it."""

    def commit_task(self, attempt_id: str, place: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


class Bench:
    """Jobs over a few files, each a map."""

    def __init__(self, directory: Path) -> None:
        self.output = directory / "out"
        self.said = io.StringIO()
        self._input = directory / "in"
        self._input.mkdir()

    def job(
        self,
        script: Script,
        *,
        maps: int = 2,
        reduces: int = 1,
        output: type[DirectoryOutput] = DirectoryOutput,
        **properties: str,
    ) -> tuple[LocalJob, ScriptedAttempts]:
        for index in range(maps):
            (self._input / f"{index}").write_text(f"line {index}\n")
        record = history.begin()
        spec = JobSpec(
            JobId(record.job_id),
            JobConf(properties).to_dict(),
            Program("cat"),
            None,
            Program("cat") if reduces else None,
            reduces,
            (str(self._input),),
            str(self.output),
        )
        attempts, place = ScriptedAttempts(script), this_machine(spec, record)
        files = RoutedFiles(place.filesystem, "/")
        place = replace(place, output=output(spec.conf(), files, str(self.output)))
        console = Console(self.said, is_live=False)
        return LocalJob(spec, record, console, attempts, place=place), attempts

    def run(self, script: Script, **more: object) -> tuple[int, ScriptedAttempts]:
        job, attempts = self.job(script, **more)  # type: ignore[arg-type]
        with interruptible():
            return job.run(), attempts

    @property
    def parts(self) -> list[str]:
        return sorted(name for name in os.listdir(self.output) if not name.startswith("."))

    @property
    def report(self) -> dict[str, object]:
        (path,) = Path(history.home()).glob("jobs/*/report.json")
        found: dict[str, object] = json.loads(path.read_text())
        return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("MRSTREAM_HOME", str(tmp_path / "home"))
    yield Bench(tmp_path)


def well(order: AttemptOrder) -> Iterator[Message]:
    """Do a task: write its part, if it has one, and say so."""
    yield AttemptNews(order.attempt_id, 0.5, 1, 5)
    if order.output_directory:
        part = f"part-{order.task_index:05d}"
        Path(local_path(order.output_directory), part).write_text("x")
    framework = {c.MAP_INPUT_RECORDS: 1} if order.is_map else {c.REDUCE_INPUT_RECORDS: 2}
    yield Done({c.FRAMEWORK: framework, "Mine": {"seen": 1}}, segment_bytes=3)


def test_a_job_runs_its_maps_then_its_reduces_and_leaves_its_parts(bench: Bench) -> None:
    status, attempts = bench.run(well)

    assert status == 0
    assert [order.is_map for order in attempts.orders] == [True, True, False]
    assert attempts.orders[2].segments == tuple(o.segment_path for o in attempts.orders[:2])
    assert bench.parts == ["_SUCCESS", "part-00000"]
    said = bench.said.getvalue()
    assert " map 100% reduce 100%" in said and "completed successfully" in said
    assert "\tLaunched map tasks=2" in said and "\t\tseen=3" in said
    assert bench.report["state"] == "succeeded"


def test_a_process_that_dies_without_a_word_is_a_failure_with_its_signal(bench: Bench) -> None:
    status, _ = bench.run(lambda order: [-signal.SIGKILL], maps=1)

    assert status == 1
    said = bench.said.getvalue()
    assert "was ended by SIGKILL before it could say why (out of memory? `dmesg` tells)" in said
    assert "failedMaps:1 failedReduces:0" in said
    assert not (bench.output / "_SUCCESS").exists()


def test_a_failed_job_names_its_task_and_counts_the_failed(bench: Bench) -> None:
    """In the words of Hadoop's client on a cluster (spec 8.3): a task that was tried again, and
    well, is not among the failed."""

    def fails(order: AttemptOrder) -> Iterable[Message | int]:
        tried = order.attempt_id.rpartition("_")[2]
        if order.task_index == 1 or (order.task_index == 0 and tried == "0"):
            return [Failed(Failure(f"no luck, {tried}"))]
        return well(order)

    status, _ = bench.run(fails, maps=2, reduces=0, **{"mapreduce.map.maxattempts": "2"})

    assert status == 1
    job = str(bench.report["job_id"]).removeprefix("job_")
    why = bench.said.getvalue().partition("failed with state FAILED due to: ")[2]
    assert why.splitlines()[:3] == [
        f"Task failed task_{job}_m_000001",
        "Job failed as tasks failed. failedMaps:1 failedReduces:0 killedMaps:0 killedReduces: 0",
        "The last failure of the task: no luck, 1",
    ]


def test_a_failed_task_is_tried_as_often_as_asked_and_its_last_try_keeps_its_input(
    bench: Bench,
) -> None:
    def fails_twice(order: AttemptOrder) -> Iterable[Message | int]:
        if order.is_map and not order.attempt_id.endswith("_2"):
            return [Failed(Failure("no luck", stage="map"))]
        return well(order)

    status, attempts = bench.run(fails_twice, maps=1, **{"mapreduce.map.maxattempts": "3"})

    assert status == 0
    maps = [order for order in attempts.orders if order.is_map]
    assert [bool(order.keep_directory) for order in maps] == [False, False, True]
    failures = bench.report["failures"]
    assert isinstance(failures, list) and [x["message"] for x in failures] == ["no luck"] * 2
    assert "\tFailed map tasks=2" in bench.said.getvalue()


def test_the_other_parts_of_a_failed_job_stay(bench: Bench) -> None:
    """Hadoop's local mode (spec 8.4, 11): one task without a part, the others leave theirs."""

    def one_fails(order: AttemptOrder) -> Iterable[Message | int]:
        return [Failed(Failure("no"))] if order.task_index == 1 else well(order)

    status, attempts = bench.run(one_fails, maps=3, reduces=0)

    assert status == 1
    assert len(attempts.orders) == 3
    assert bench.parts == ["part-00000", "part-00002"]
    assert "failedMaps:1" in bench.said.getvalue()


def test_a_map_that_fails_its_job_lets_no_reduce_start(bench: Bench) -> None:
    def maps_fail(order: AttemptOrder) -> Iterable[Message | int]:
        return [Failed(Failure("no"))]

    status, attempts = bench.run(maps_fail)

    assert status == 1
    assert all(order.is_map for order in attempts.orders)


def test_an_output_that_cannot_be_committed_fails_its_attempt_not_the_shell(bench: Bench) -> None:
    status, _ = bench.run(well, maps=1, output=FullDisk)

    assert status == 1
    assert "the output cannot be committed" in bench.said.getvalue()


def test_the_end_of_whoever_starts_attempts_stops_the_job(bench: Bench) -> None:
    job, attempts = bench.job(well, maps=1)
    attempts.die()

    with interruptible(), pytest.raises(JobFailed, match="process that starts attempts is gone"):
        job.run()

    assert not (bench.output / "_temporary").exists()


def test_more_counters_than_allowed_fail_the_job(bench: Bench) -> None:
    def counts(order: AttemptOrder) -> Iterable[Message | int]:
        return [Done({"Mine": {f"n{number}": 1 for number in range(9)}}, segment_bytes=1)]

    with pytest.raises(TooManyCounters):
        bench.run(counts, maps=1, **{"mapreduce.job.counters.max": "5"})
