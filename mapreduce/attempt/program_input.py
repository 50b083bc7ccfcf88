"""A split whose records a program gives, as lines on its standard output.

Runs the program in the task's own directory and environment; it must end well, and before the map
does. The lines go to the map command as they come, or to a built-in one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

from mrstream.mapreduce.attempt.final_output import WholeLines
from mrstream.mapreduce.attempt.task_context import Attempt
from mrstream.mapreduce.dataflow import kernel
from mrstream.mapreduce.dataflow.piece_reader import Record
from mrstream.mapreduce.dataflow.split_plan import Split
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.mapreduce.job.program_splits import read_command
from mrstream.mapreduce.program.ending import ExitRule, judge
from mrstream.streaming.command.command import Program
from mrstream.streaming.formats.record_io import record_writer
from mrstream.streaming.formats.writable import LONG, TEXT


class ProgramSplit(SplitReader):
    """One split; as every reader, iterate it for blobs or use `records_iter`."""

    def __init__(self, split: Split, attempt: Attempt) -> None:
        super().__init__(split, attempt.conf, attempt.files)
        self._attempt = attempt
        self._name = split.pieces[0].url
        self._given_records = self._given_bytes = 0

    @property
    def records(self) -> int:
        """Lines given so far."""
        return self._given_records

    @property
    def bytes_read(self) -> int:
        """Bytes that the program has written so far."""
        return self._given_bytes

    def position(self) -> tuple[str, int]:
        """The split, and how much of it was given."""
        return self._name, self._given_bytes

    def __iter__(self) -> Iterator[bytes]:
        conf = self._attempt.conf
        if conf.map_input_identifier == "text" and conf.map_input_ignore_key is not False:
            yield from self._blobs()
            return
        write = record_writer(conf.map_input_identifier, LONG, TEXT, conf.map_input_separator)
        for key, value in self.records_iter():
            yield write(key, value)

    def records_iter(self) -> Iterator[Record]:
        """Yield the lines; the key is a line's number."""
        number = 0
        for blob in self._blobs():
            for line in blob.split(b"\n")[:-1]:
                yield number.to_bytes(8, "big"), line
                number += 1

    def _blobs(self) -> Iterator[bytes]:
        attempt = self._attempt
        command = attempt.command(Program(command=read_command(attempt.conf, self._split)), "read")
        running = command.start(())
        lines = WholeLines()
        try:
            for data in running.output():
                yield from self._counted(lines.feed(data))
            exit_code = running.finish()
        except BaseException:
            running.abandon()
            raise
        yield from self._counted(lines.finish())
        judge(exit_code, running.flow, ExitRule(True), lambda: 0)

    def _counted(self, blob: bytes) -> Iterator[bytes]:
        if blob:
            self._given_records += kernel.count_lines(blob)
            self._given_bytes += len(blob)
            yield blob
