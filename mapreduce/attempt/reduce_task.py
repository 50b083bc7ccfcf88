"""A reduce: its partition of every map's segment, merged, through the reduce program, into output.

Puts stages 8 and 9 together for one attempt and counts what passes (spec 8.1). Takes segment files,
or what the attempt's shuffle brings; never commits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from mrstream.mapreduce.attempt.attempt_report import KEPT_SEGMENT, Done
from mrstream.mapreduce.attempt.builtins import reduced, reducer_of
from mrstream.mapreduce.attempt.combine import framed_records
from mrstream.mapreduce.attempt.final_output import CommandOutput, FinalOutput
from mrstream.mapreduce.attempt.narrow import RecordIndex
from mrstream.mapreduce.attempt.skipping import Silence, Skipping, dump, groups_in, key_group
from mrstream.mapreduce.attempt.task_context import (
    Attempt,
    Source,
    count_file_bytes,
    count_output,
    count_resources,
)
from mrstream.mapreduce.dataflow import merger, segment
from mrstream.mapreduce.dataflow.merger import Merge
from mrstream.mapreduce.dataflow.record_form import FRAMED_FORM, WireForm, text_form
from mrstream.mapreduce.dataflow.reducer import run_reducer
from mrstream.mapreduce.job import counters as c
from mrstream.mapreduce.job.record_forms import (
    command_form,
    framed_shape,
    map_output_types,
    reduce_input_writer,
    segment_codec,
)
from mrstream.mapreduce.program.ending import ExitRule
from mrstream.mapreduce.program.flow import Flow, InputRange
from mrstream.streaming import classes

MERGE_WIDTH = 64
_BLOB_BYTES = 1 << 20


class ReduceTask:
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        order = attempt.order
        self._partition = (
            order.task_index if order.segment_partition is None else order.segment_partition
        )
        self._readers: list[segment.Reader] = []
        self._sources: list[Source] | None = None
        self._types = map_output_types(attempt.conf)
        self._merge: Merge | None = None
        attempt.progress = self._progress
        attempt.keep_input = self._keep_input

    def run(self) -> Done:
        try:
            self._gather()
            if self._attempt.spec.reducer is not None and self._attempt.spec.reducer.command:
                return self._run_command()
            return self._run_builtin()
        finally:
            self._close()

    def _run_command(self) -> Done:
        attempt, conf = self._attempt, self._attempt.conf
        assert attempt.spec.reducer is not None
        command = attempt.command(attempt.spec.reducer, "reduce")
        attempt.input_range = lambda: self._input_range(command.flow)
        stream = self._stream()
        if attempt.skips(conf.reduce_skip_groups_max):
            stream = self._without_bad_groups(stream)
        output = CommandOutput(attempt, conf.reduce_output_identifier, conf.reduce_output_rule)
        try:
            had_input = run_reducer(
                command,
                stream,
                attempt.overheard(output.feed),
                ExitRule(conf.nonzero_exit_is_failure),
            )
            output.finish()
        except BaseException:
            output.abandon()
            raise
        return self._done(output, keep_user_counters=had_input)

    def _without_bad_groups(self, stream: Merge | _Written | _Without) -> _Without:
        attempt, conf = self._attempt, self._attempt.conf
        assert attempt.spec.reducer is not None
        separator = conf.reduce_input_separator
        path = dump(attempt, (blob for _, blob in stream.blobs()))
        index = RecordIndex(path, conf.reduce_input_identifier)
        command = attempt.command(attempt.spec.reducer, "reduce", Silence)
        skipping = Skipping(attempt, index, command, ExitRule(conf.nonzero_exit_is_failure))
        groups_max = conf.reduce_skip_groups_max
        skipping.find(
            lambda place: key_group(index, separator, place),
            lambda place: groups_in(index, separator, place) <= groups_max,
        )
        skipping.keep()
        groups = sum(groups_in(index, separator, place) for place in skipping.ranges)
        attempt.counters.framework(c.REDUCE_SKIPPED_GROUPS, groups)
        attempt.counters.framework(c.REDUCE_SKIPPED_RECORDS, skipping.records)
        return _Without(skipping, len(index))

    def input_blobs(self) -> Iterator[bytes]:
        """Yield what the reduce command reads, without running it."""
        try:
            self._gather()
            for _, blob in self._stream().blobs():
                yield blob
        finally:
            self._close()

    def _gather(self) -> None:
        """Have the input here: the order's segments, or what the shuffle brings."""
        if self._attempt.shuffle is not None:
            self._attempt.phase = "shuffle"
            self._sources = self._attempt.shuffle.gather()
            self._attempt.phase = "reduce"
            return
        self._readers = [segment.Reader(path) for path in self._attempt.order.segments]
        self._sources = [_source_of(reader, self._partition) for reader in self._readers]

    def _close(self) -> None:
        for reader in self._readers:
            reader.close()
        self._readers = []

    def _total(self, figure: Callable[[Source], int]) -> int:
        return sum(map(figure, self._sources or ()))

    def _stream(self) -> Merge | _Written | _Without:
        conf = self._attempt.conf
        form = command_form(conf.reduce_input_identifier, conf.reduce_input_separator, *self._types)
        if form is not None:
            return self._merged(form)
        return _Written(self._merged(FRAMED_FORM), reduce_input_writer(conf, *self._types))

    def _run_builtin(self) -> Done:
        attempt, conf = self._attempt, self._attempt.conf
        reducer = reducer_of(attempt, self._types)
        output = FinalOutput(attempt, reducer.key_type, reducer.value_type)
        try:
            if self._is_plain_copy(output):
                # The identity of text to text: the merge writes the lines of the file itself.
                for records, blob in self._merged(text_form(conf.output_separator)).blobs():
                    output.write(blob, records)
                    attempt.watch.touch()
            else:
                merged = self._merged(FRAMED_FORM)
                output.add(reduced(reducer, self._touching(framed_records(merged))))
            output.finish()
        except BaseException:
            output.abandon()
            raise
        return self._done(output, keep_user_counters=True)

    def _touching(self, records: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        touch = self._attempt.watch.touch
        for record in records:
            touch()
            yield record

    def _is_plain_copy(self, output: FinalOutput) -> bool:
        program = self._attempt.spec.reducer
        is_identity = program is None or program.builtin == classes.IDENTITY_REDUCER
        is_text = all(kind.class_name == classes.TEXT for kind in self._types)
        return is_identity and is_text and output.takes_text

    def _merged(self, form: WireForm) -> Merge:
        conf = self._attempt.conf
        self._merge = merger.merge(
            [source.run for source in self._sources or ()],
            conf.comparator_spec,
            form,
            shape=framed_shape(*self._types),
            width_max=max(MERGE_WIDTH, conf.io_sort_factor),
            scratch=self._attempt.scratch,
            codec=segment_codec(conf),
        )
        return self._merge

    # --- what is told about it

    def _progress(self) -> tuple[float, int, int]:
        # As on Hadoop: a third is the shuffle, a third the sort, which here the merge does.
        if self._sources is None:
            shuffle = self._attempt.shuffle
            fraction, records, fetched_bytes = shuffle.progress() if shuffle else (0.0, 0, 0)
            return fraction / 3, records, fetched_bytes
        records = self._merge.records if self._merge is not None else 0
        records_total = self._total(lambda source: source.records)
        fraction = records / records_total if records_total else 1.0
        raw_bytes = self._total(lambda source: source.raw_bytes)
        return 2 / 3 + fraction / 3, records, int(raw_bytes * fraction)

    def _input_range(self, flow: Flow | None) -> InputRange | None:
        if flow is None:
            return None
        maps = self._total(lambda source: source.maps)
        source = f"partition {self._partition} of {maps} maps"
        total = max(flow.given_bytes, self._total(lambda source: source.raw_bytes))
        return InputRange(source, 0, flow.read_bytes, flow.given_bytes, total)

    def _done(self, output: FinalOutput, *, keep_user_counters: bool) -> Done:
        attempt, counters, merge = self._attempt, self._attempt.counters, self._merge
        assert merge is not None, "the input has been merged"
        maps = self._total(lambda source: source.maps)
        shuffled_bytes = self._total(lambda source: source.hadoop_bytes) + 6 * maps
        counters.framework(c.COMBINE_INPUT_RECORDS, 0)
        counters.framework(c.COMBINE_OUTPUT_RECORDS, 0)
        counters.framework(c.REDUCE_INPUT_GROUPS, merge.groups)
        counters.framework(c.REDUCE_SHUFFLE_BYTES, shuffled_bytes)
        counters.framework(c.REDUCE_INPUT_RECORDS, merge.records)
        counters.framework(c.REDUCE_OUTPUT_RECORDS, output.records)
        counters.framework(c.SPILLED_RECORDS, merge.records)
        counters.framework(c.SHUFFLED_MAPS, maps)
        counters.framework(c.FAILED_SHUFFLES, 0)
        counters.framework(c.MERGED_MAP_OUTPUTS, maps)
        read_bytes = self._total(lambda source: source.length)
        count_file_bytes(counters, "file:", read_bytes=read_bytes)
        for name in ("BAD_ID", "CONNECTION", "IO_ERROR", "WRONG_LENGTH", "WRONG_MAP"):
            counters.add(c.SHUFFLE_ERRORS, name, 0)
        counters.add(c.SHUFFLE_ERRORS, "WRONG_REDUCE", 0)
        count_output(attempt, output.bytes_written)
        count_resources(attempt)
        key, key_records = merge.largest_group if merge.records else (b"", 0)
        return Done(
            attempt.all_counters() if keep_user_counters else counters.as_dict(),
            output_bytes=output.bytes_written,
            largest_key=key[:200],
            largest_key_records=key_records,
        )

    # --- what is kept of it

    def _keep_input(self, directory: str) -> None:
        """Write the merged partition as a segment of its own."""
        writer = segment.Writer(
            os.path.join(directory, KEPT_SEGMENT), 1, segment_codec(self._attempt.conf)
        )
        if self._attempt.shuffle is None:
            self._gather()
        try:
            merge = merger.merge(
                [source.run for source in self._sources or ()],
                self._attempt.conf.comparator_spec,
                FRAMED_FORM,
                shape=framed_shape(*self._types),
                width_max=MERGE_WIDTH,
                scratch=self._attempt.scratch,
            )
            for block in merger.merged_blocks(0, merge):
                writer.append(block)
            writer.finish()
        finally:
            self._close()


class _Written:
    """A merge whose records are of types that only Python can write for a command."""

    def __init__(self, merge: Merge, write: Callable[[bytes, bytes], bytes]) -> None:
        self._merge = merge
        self._write = write

    @property
    def records(self) -> int:
        return self._merge.records

    def blobs(self) -> Iterator[tuple[int, bytes]]:
        held: list[bytes] = []
        held_bytes = 0
        for key, value in framed_records(self._merge):
            held.append(self._write(key, value))
            held_bytes += len(held[-1])
            if held_bytes >= _BLOB_BYTES:
                yield len(held), b"".join(held)
                held, held_bytes = [], 0
        if held:
            yield len(held), b"".join(held)


class _Without:
    """The stream of a reduce without the groups that its program cannot take."""

    def __init__(self, skipping: Skipping, records: int) -> None:
        self._skipping = skipping
        self.records = records - skipping.records

    def blobs(self) -> Iterator[tuple[int, bytes]]:
        for blob in self._skipping.blobs():
            yield 0, blob


def _source_of(reader: segment.Reader, partition: int) -> Source:
    entry = reader.entries[partition]
    return Source(
        lambda: reader.run(partition),
        1,
        entry.records,
        entry.length,
        entry.raw_bytes,
        entry.hadoop_bytes,
    )
