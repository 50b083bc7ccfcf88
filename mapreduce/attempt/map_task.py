"""A map: its split through the map program, into a segment for the reduces or into final output.

Puts stages 2 to 5 together for one attempt, counts what passes (spec 8.1), and can keep the
program's input for a repetition. Never commits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from mrstream.mapreduce.attempt.attempt_report import KEPT_INPUT, Done, PartitionSize
from mrstream.mapreduce.attempt.builtins import mapped, mapper_of
from mrstream.mapreduce.attempt.combine import combiner_of
from mrstream.mapreduce.attempt.final_output import CommandOutput, FinalOutput
from mrstream.mapreduce.attempt.narrow import RecordIndex
from mrstream.mapreduce.attempt.skipping import Silence, Skipping, dump
from mrstream.mapreduce.attempt.task_context import (
    Attempt,
    count_file_bytes,
    count_output,
    count_resources,
)
from mrstream.mapreduce.dataflow.mapper import Trail
from mrstream.mapreduce.dataflow.sort_buffer import SortPlan
from mrstream.mapreduce.dataflow.spill import MapOutput, MapOutputCounts, SpillPlan
from mrstream.mapreduce.dataflow.split_plan import Split
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job.record_forms import (
    framed_shape,
    map_output_types,
    output_shape,
    segment_codec,
)
from mrstream.mapreduce.job.total_order import partitioner_of
from mrstream.mapreduce.program.ending import ExitRule
from mrstream.mapreduce.program.flow import Flow, InputRange
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.formats.writable import write_vlong

# How Hadoop names a split's class in front of it, with its length: part of `Input split bytes`.
_SPLIT_CLASS_BYTES = 1 + len("org.apache.hadoop.mapred.FileSplit")
KEPT_INPUT_BYTES_MAX = 5 * 10**9


class MapTask:
    def __init__(self, attempt: Attempt) -> None:
        assert attempt.order.split is not None, "a map is ordered with its split"
        self._attempt = attempt
        self._split: Split = attempt.order.split
        self._reader = reader_of(attempt, self._split)
        if attempt.order.replay:
            self._reader = Replay(self._split, attempt)
        first = self._split.pieces[0]
        self._trail = Trail(self._reader, (first.url, first.start))
        self._skipping: Skipping | None = None
        attempt.progress = self._progress
        attempt.keep_input = self._keep_input

    def run(self) -> Done:
        try:
            if self._attempt.skips(self._attempt.conf.map_skip_records_max):
                self._find_bad_records()
            if self._attempt.order.segment_path:
                return self._run_into_segment()
            return self._run_into_output()
        finally:
            self._reader.close()

    def _run_into_segment(self) -> Done:
        attempt = self._attempt
        output = MapOutput(self._spill_plan())
        try:
            if attempt.spec.mapper.command:
                self._run_command(output.feed, lambda: output.records)
            else:
                for key, value in mapped(mapper_of(attempt, self._reader), self._reader):
                    output.add(key, value)
            entries, counts = output.finish()
        except BaseException:
            output.abort()
            raise
        self._count_input()
        self._count_segment(counts)
        count_resources(attempt)
        return Done(
            attempt.all_counters(),
            tuple(
                PartitionSize(e.offset, e.length, e.records, e.raw_bytes, e.hadoop_bytes)
                for e in entries
            ),
            segment_bytes=counts.segment_bytes,
        )

    def _run_into_output(self) -> Done:
        attempt = self._attempt
        output: FinalOutput
        if attempt.spec.mapper.command:
            conf = attempt.conf
            output = lines = CommandOutput(
                attempt, conf.map_output_identifier, conf.map_output_rule
            )
        else:
            mapper = mapper_of(attempt, self._reader)
            output = FinalOutput(attempt, mapper.key_type, mapper.value_type)
        try:
            if attempt.spec.mapper.command:
                self._run_command(lines.feed, lambda: lines.records)
            else:
                output.add(mapped(mapper, self._reader))
            output.finish()
        except BaseException:
            output.abandon()
            raise
        self._count_input()
        counters = attempt.counters
        counters.framework(c.MAP_OUTPUT_RECORDS, output.records)
        counters.framework(c.SPILLED_RECORDS, 0)
        counters.framework(c.MERGED_MAP_OUTPUTS, 0)
        count_output(attempt, output.bytes_written)
        count_resources(attempt)
        return Done(attempt.all_counters(), output_bytes=output.bytes_written)

    def _run_command(self, feed: Callable[[memoryview], None], records: Callable[[], int]) -> None:
        attempt, conf = self._attempt, self._attempt.conf
        command = attempt.command(attempt.spec.mapper, "map")
        attempt.input_range = lambda: self._input_range(command.flow)
        rule = ExitRule(conf.nonzero_exit_is_failure, conf.skip_after_records)
        source = self._trail if self._skipping is None else self._skipping.blobs()
        if conf.map_concurrency > 1:
            from mrstream.mapreduce.attempt.concurrent import run_copies  # few jobs want it

            attempt.workplace.surroundings()  # made once, before several want it
            others = range(conf.map_concurrency - 1)
            copies = [command, *(attempt.command(attempt.spec.mapper, "map") for _ in others)]
            run_copies(copies, source, attempt.overheard(feed), rule, records)
            return
        command.run(source, attempt.overheard(feed), rule, records)

    def _find_bad_records(self) -> None:
        attempt, conf = self._attempt, self._attempt.conf
        if not attempt.spec.mapper.command:
            return
        index = RecordIndex(dump(attempt, self._reader), conf.map_input_identifier)
        command = attempt.command(attempt.spec.mapper, "map", Silence)
        rule = ExitRule(conf.nonzero_exit_is_failure, conf.skip_after_records)
        self._skipping = Skipping(attempt, index, command, rule)
        records_max = conf.map_skip_records_max
        self._skipping.find(lambda place: place, lambda place: place[1] - place[0] <= records_max)
        self._skipping.keep()

    def _spill_plan(self) -> SpillPlan:
        attempt, conf = self._attempt, self._attempt.conf
        spec = attempt.spec
        if spec.mapper.command:
            shape = output_shape(conf.map_output_identifier, conf.map_output_rule)
        else:
            shape = framed_shape(*map_output_types(conf))
        return SpillPlan(
            sort=SortPlan(
                partitions=spec.reduces,
                shape=shape,
                partitioner=partitioner_of(conf, attempt.files, spec.reduces, spec.shipped),
                order=conf.comparator_spec,
            ),
            path=attempt.order.segment_path,
            capacity_bytes=attempt.order.sort_bytes or conf.io_sort_bytes,
            width_max=max(2, conf.io_sort_factor),
            codec=segment_codec(conf),
            combiner=combiner_of(attempt),
            combine_spills_min=conf.combine_spills_min,
            on_progress=attempt.watch.touch,
        )

    # --- what is told about it

    def _progress(self) -> tuple[float, int, int]:
        return self._reader.progress(), self._reader.records, self._reader.bytes_read

    def _input_range(self, flow: Flow | None) -> InputRange | None:
        last = self._split.pieces[-1]
        return self._trail.range(flow, last.start + last.length) if flow is not None else None

    def _count_input(self) -> None:
        counters, reader = self._attempt.counters, self._reader
        skipped = self._skipping.records if self._skipping is not None else 0
        counters.framework(c.MAP_INPUT_RECORDS, reader.records - skipped)
        if skipped:
            counters.framework(c.MAP_SKIPPED_RECORDS, skipped)
        counters.framework(c.INPUT_SPLIT_BYTES, _split_bytes(self._split))
        counters.framework(c.FAILED_SHUFFLES, 0)
        counters.add(c.FILE_INPUT, c.BYTES_READ, reader.bytes_read)
        count_file_bytes(counters, self._split.pieces[0].url, read_bytes=reader.bytes_read)

    def _count_segment(self, counts: MapOutputCounts) -> None:
        counters = self._attempt.counters
        counters.framework(c.MAP_OUTPUT_RECORDS, counts.records)
        counters.framework(c.MAP_OUTPUT_BYTES, counts.bytes)
        counters.framework(c.MAP_OUTPUT_MATERIALIZED_BYTES, counts.materialized_bytes)
        counters.framework(c.COMBINE_INPUT_RECORDS, counts.combine_input_records)
        counters.framework(c.COMBINE_OUTPUT_RECORDS, counts.combine_output_records)
        counters.framework(c.SPILLED_RECORDS, counts.spilled_records)
        counters.framework(c.MERGED_MAP_OUTPUTS, 0)
        count_file_bytes(counters, "file:", written_bytes=counts.segment_bytes)

    # --- what is kept of it

    def _keep_input(self, directory: str) -> None:
        """Write what the map command was, or would have been, given."""
        if not self._attempt.spec.mapper.command:
            return  # a built-in reads records: the split itself is its input
        if self._split.length > KEPT_INPUT_BYTES_MAX:
            return
        reader = reader_of(self._attempt, self._split)
        try:
            with open(os.path.join(directory, KEPT_INPUT), "wb") as kept:
                kept.writelines(reader)
        finally:
            reader.close()


def reader_of(attempt: Attempt, split: Split) -> SplitReader:
    """Open a split as its format asks; the modules of two rare ones load with them."""
    match split.input_format:
        case InputFormat.PROGRAM:
            from mrstream.mapreduce.attempt.program_input import ProgramSplit

            return ProgramSplit(split, attempt)
        case InputFormat.SAW:
            from mrstream.mapreduce.attempt.saw_input import TableSplit

            return TableSplit(split, attempt)
    return SplitReader(split, attempt.conf, attempt.files)


class Replay(SplitReader):
    """A split whose bytes were kept as its command was given them."""

    def __init__(self, split: Split, attempt: Attempt) -> None:
        super().__init__(split, attempt.conf, attempt.files)
        self._path = attempt.order.replay
        self._given_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        with open(self._path, "rb") as kept:
            while blob := kept.read(1 << 20):
                self._given_bytes += len(blob)
                yield blob

    def position(self) -> tuple[str, int]:
        """Return the kept file and how far it was read."""
        return self._path, self._given_bytes


def _split_bytes(split: Split) -> int:
    """Return the size of the split's description as Hadoop serialises it."""
    return sum(
        _SPLIT_CLASS_BYTES
        + len(write_vlong(len(piece.url.encode())))
        + len(piece.url.encode())
        + 16
        for piece in split.pieces
    )
