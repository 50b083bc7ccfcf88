"""A job whose attempts are run one by one in the test's own process; its programs are real."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mrstream.mapreduce.attempt.attempt import run_map, run_reduce
from mrstream.mapreduce.attempt.attempt_report import Done
from mrstream.mapreduce.attempt.task_context import Attempt, AttemptOrder
from mrstream.mapreduce.dataflow.files import RoutedFiles
from mrstream.mapreduce.dataflow.split_plan import Split, plan_splits
from mrstream.mapreduce.job.job import spec_from
from mrstream.mapreduce.scheduler.ids import JobId
from mrstream.streaming.command import options
from mrstream.streaming.command.command import command_of

JOB = "local1700000000000_0001"


class Desk:
    """One job; `said` are its options, besides those that cat its input."""

    def __init__(self, directory: Path, **said: str) -> None:
        self.directory = directory
        said = {"input": str(directory / "in"), "mapper": "cat", "reducer": "cat"} | said
        words = [word for name, value in said.items() for word in (f"-{name}", value)]
        spec = spec_from(command_of(options.parse(["-D", "mapreduce.job.maps=3", *words])))
        self.spec = msgspec.structs.replace(spec, job_id=JobId(f"job_{JOB}"))

    def splits(self, text: str) -> Sequence[Split]:
        (self.directory / "in").write_text(text)
        return plan_splits(self.spec.conf(), self.spec.inputs, RoutedFiles("file:///")).splits

    def attempt(self, task: str, maps: int, **more: Any) -> Attempt:
        room = self.directory / task
        (room / "logs").mkdir(parents=True)
        place = AttemptOrder(
            f"attempt_{JOB}_{task}_0", maps, str(room), str(room / "cache"), str(room / "logs")
        )
        return Attempt(self.spec, msgspec.structs.replace(place, **more), lambda message: None)

    def map(self, split: Split, maps: int) -> tuple[Done, str]:
        task = f"m_{split.index:06d}"
        path = str(self.directory / f"{task}.segment") if self.spec.reduces else ""
        out = "" if path else f"file:{self.directory}/out"
        attempt = self.attempt(
            task, maps, split=split, segment_path=path, output_directory=out,
            keep_directory=str(self.directory),
        )  # fmt: skip
        return run_map(attempt), path

    def reduce(self, index: int, segments: list[str]) -> Done:
        out = f"file:{self.directory}/out"
        task = f"r_{index:06d}"
        return run_reduce(
            self.attempt(task, len(segments), segments=tuple(segments), output_directory=out)
        )

    def run(self, text: str) -> list[bytes]:
        """All maps, then all reduces; the parts of the output."""
        splits = self.splits(text)
        segments = [self.map(split, len(splits))[1] for split in splits]
        for index in range(self.spec.reduces):
            self.reduce(index, segments)
        return [path.read_bytes() for path in sorted((self.directory / "out").iterdir())]
