#!/usr/bin/env python3
"""The path of a record on one page: the ten stages of mrstream.mapreduce.dataflow, in order.

    examples/ten_stages.py INPUT OUTPUT MAPPER REDUCER [REDUCES]

Runs a whole job with the product's own stages and nothing around them: no scheduler, no attempts,
no retries, one thing after the other. What comes out is what `mrstream` writes, byte for byte.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

from mrstream.cluster.wire.identity import Identity
from mrstream.cluster.wire.network import BulkServer
from mrstream.mapreduce.dataflow.committer import Committer
from mrstream.mapreduce.dataflow.fetched_runs import FetchedRun, MergeRule
from mrstream.mapreduce.dataflow.fetcher import Fetcher
from mrstream.mapreduce.dataflow.segment_place import SegmentAt
from mrstream.mapreduce.dataflow.files import RoutedFiles, join
from mrstream.mapreduce.dataflow.merger import Merge, merge
from mrstream.mapreduce.dataflow.record_form import text_form
from mrstream.mapreduce.dataflow.reducer import run_reducer
from mrstream.mapreduce.dataflow.segment_server import SegmentServer
from mrstream.mapreduce.dataflow.sort_buffer import SortPlan
from mrstream.mapreduce.dataflow.spill import MapOutput, SpillPlan
from mrstream.mapreduce.dataflow.split_plan import Split, plan_splits
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.mapreduce.job.record_forms import framed_shape
from mrstream.mapreduce.program.command import Command, Workplace
from mrstream.mapreduce.program.ending import ExitRule
from mrstream.mapreduce.program.pump import RunningCommand
from mrstream.streaming.command.command import Program
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.writable import TEXT
from mrstream.streaming.records.comparator import BYTE_ORDER

WHO = Identity("ten-stages", os.urandom(32), "mapreduce.worker", "here")
MEMORY_BYTES = 64 << 20


class Bystander:
    """Hears what programs say on stderr, and watches them: here it does neither."""

    def feed(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def touch(self) -> None: ...
    def guard(self, running: RunningCommand) -> None: ...
    def release(self, running: RunningCommand) -> None: ...
    def fetched(self, length_bytes: int) -> None: ...

    def failed(self, place: SegmentAt, reason: str, *, gone: bool) -> None:
        raise SystemExit(f"{place.attempt_id}: {reason}")


class Job:
    """One job: what its stages need to know, and where they leave things for each other."""

    def __init__(self, scratch: str, mapper: str, reducer: str, reduces: int) -> None:
        self.scratch = scratch
        self.mapper, self.reducer, self.reduces = mapper, reducer, reduces
        self.conf = JobConf({})
        self.files = RoutedFiles("file:///")
        self.rule = ExitRule(True)
        self.shape = framed_shape(TEXT, TEXT)

    def run(self, source: str, output: str) -> None:
        """All ten, in order."""
        splits = plan_splits(self.conf, [source], self.files).splits  # stage 1
        segments = [self.map(split) for split in splits]  # stages 2 to 5
        server = SegmentServer(dict(segments).get)  # stage 6
        door = BulkServer(server.serve, WHO)
        address = door.start("127.0.0.1:0")
        committer = Committer(self.conf, output, self.files)
        committer.check_output()
        committer.setup_job()
        for partition in range(self.reduces):
            attempt = f"attempt_1_0001_r_{partition:06}_0"
            runs = self.fetch(partition, [name for name, _ in segments], address)  # stage 7
            self.reduce(partition, self.merged(runs), committer.setup_task(attempt))  # 8 and 9
            committer.commit_task(attempt)  # stage 10
        committer.commit_job()
        door.close()

    def map(self, split: Split) -> tuple[str, str]:
        """Stages 2 to 5: read a split, run the program, sort what it writes, leave a segment."""
        attempt = f"attempt_1_0001_m_{split.index:06}_0"
        path = os.path.join(self.scratch, attempt)
        reader = SplitReader(split, self.conf, self.files)  # stage 2
        segment = MapOutput(SpillPlan(SortPlan(self.reduces), path, MEMORY_BYTES))  # stages 4 and 5
        self.command(self.mapper, "map").run(  # stage 3
            reader, segment.feed, self.rule, lambda: segment.records
        )
        segment.finish()
        reader.close()
        return attempt, path

    def fetch(self, partition: int, attempts: list[str], address: str) -> list[FetchedRun]:
        """Stage 7: one partition of every map's segment."""
        rule = MergeRule(BYTE_ORDER, self.shape, MEMORY_BYTES, self.scratch)
        fetcher = Fetcher(partition, len(attempts), rule, Bystander(), WHO)
        for index, attempt in enumerate(attempts):
            fetcher.add(SegmentAt(index, attempt, "here", address))
        return fetcher.run()

    def merged(self, runs: list[FetchedRun]) -> Merge:
        """Stage 8: one sorted stream of lines."""
        return merge(
            [fetched.run for fetched in runs],
            BYTE_ORDER,
            text_form(self.conf.reduce_input_separator),
            shape=self.shape,
            scratch=self.scratch,
        )

    def reduce(self, partition: int, stream: Merge, directory: str) -> None:
        """Stage 9: the reduce program, into a file of the attempt's own."""
        with self.files.create(join(directory, f"part-{partition:05}")) as part:
            run_reducer(self.command(self.reducer, "reduce"), stream, part.write, self.rule)

    def command(self, line: str, stage: str) -> Command:
        def nothing_to_fetch(url: str, path: str) -> None:
            raise AssertionError(f"{url}: nothing travels with this job")

        work = Workplace(
            os.path.join(self.scratch, stage), self.conf, (), {}, os.environ,
            cache=self.scratch, fetch=nothing_to_fetch,
        )  # fmt: skip
        return Command(Program(line), stage, work, ear=Bystander, watch=Bystander())


def main(words: list[str]) -> Iterator[str]:
    if len(words) not in (4, 5):
        raise SystemExit(__doc__)
    source, output, mapper, reducer, *reduces = words
    with tempfile.TemporaryDirectory() as scratch:
        job = Job(scratch, mapper, reducer, int(reduces[0]) if reduces else 1)
        job.run(os.path.abspath(source), os.path.abspath(output))
    yield from sorted(os.listdir(output))


if __name__ == "__main__":
    print(*main(sys.argv[1:]), sep="\n")
