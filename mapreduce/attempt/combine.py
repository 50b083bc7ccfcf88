"""The combiner of a map: joins values of equal keys before they are stored and fetched (spec 6.1).

Takes sorted runs of one partition; gives what the combine program makes of them. A command gets a
fresh process for each run; a built-in is a function. Never changes which partition a record is in.
"""

from __future__ import annotations

from collections.abc import Iterator

from mrstream.mapreduce.attempt.builtins import Types, combiner_for, reduced
from mrstream.mapreduce.attempt.task_context import Attempt
from mrstream.mapreduce.dataflow import kernel
from mrstream.mapreduce.dataflow.merger import Merge
from mrstream.mapreduce.dataflow.record_form import FRAMED_FORM, RecordShape, WireForm
from mrstream.mapreduce.dataflow.spill import Combiner, Payload
from mrstream.mapreduce.job.record_forms import (
    command_form,
    framed_shape,
    map_output_types,
    output_shape,
)
from mrstream.mapreduce.program.ending import ExitRule, judge
from mrstream.mapreduce.program.errors import TaskFailed
from mrstream.streaming.command.command import Program
from mrstream.streaming.formats.record_io import record_types

_RECORDS_HELD_MAX = 10_000


def combiner_of(attempt: Attempt) -> Combiner | None:
    """Return the job's combiner, ready to run in this attempt."""
    program = attempt.spec.combiner
    if program is None:
        return None
    if program.command:
        return CommandCombiner(attempt, program)
    return BuiltinCombiner(attempt, program)


class CommandCombiner:
    """A combine command: one process for each run."""

    def __init__(self, attempt: Attempt, program: Program) -> None:
        conf = attempt.conf
        key_type, value_type = map_output_types(conf)
        form = command_form(
            conf.reduce_input_identifier, conf.reduce_input_separator, key_type, value_type
        )
        if form is None:
            raise TaskFailed(
                f"a combine command cannot read {key_type.class_name} and {value_type.class_name}"
            )
        self._attempt = attempt
        self._types = (key_type, value_type)
        self._command = attempt.command(program, "combine")
        self._rule = ExitRule(conf.nonzero_exit_is_failure)
        self.reads = form
        self._writes = output_shape(conf.reduce_output_identifier, conf.reduce_output_rule)

    @property
    def writes(self) -> RecordShape:
        """How what it writes is cut: by the reducer's rule (spec 6.1)."""
        return self._writes

    def __call__(self, partition: int, blobs: Iterator[Payload]) -> Iterator[bytes]:
        """Yield what the command makes of one run."""
        _check_types(record_types(self._attempt.conf.reduce_output_identifier), self._types)
        workplace = self._attempt.workplace
        before = workplace.stage
        running = self._command.start(blobs)
        try:
            for blob in running.output():
                yield bytes(blob)
            exit_code = running.finish()
        except BaseException:
            running.abandon()
            raise
        judge(exit_code, running.flow, self._rule)
        workplace.stage = before


class BuiltinCombiner:
    """A built-in combiner, such as aggregate's: a function of sorted records."""

    def __init__(self, attempt: Attempt, program: Program) -> None:
        self._types = map_output_types(attempt.conf)
        self._reducer = combiner_for(attempt, program, self._types)

    @property
    def reads(self) -> WireForm:
        """Frames."""
        return FRAMED_FORM

    @property
    def writes(self) -> RecordShape:
        """Frames of the same types."""
        return framed_shape(*self._types)

    def __call__(self, partition: int, blobs: Iterator[Payload]) -> Iterator[bytes]:
        """Yield the combined records of one run."""
        _check_types((self._reducer.key_type, self._reducer.value_type), self._types)
        records = (record for blob in blobs for record in kernel.decode_records(blob))
        held: list[tuple[bytes, bytes]] = []
        for record in reduced(self._reducer, records):
            held.append(record)
            if len(held) >= _RECORDS_HELD_MAX:
                yield kernel.encode_records(held)
                held = []
        yield kernel.encode_records(held)


def _check_types(given: Types, declared: Types) -> None:
    """Refuse, in Hadoop's words, what a combiner makes of other types than maps do."""
    for word, own, wanted in zip(("key", "value"), given, declared, strict=True):
        if own.class_name != wanted.class_name:
            raise TaskFailed(
                f"wrong {word} class: class {own.class_name} is not class {wanted.class_name} "
                "(a combiner gives what the maps give)"
            )


def framed_records(merge: Merge) -> Iterator[tuple[bytes, bytes]]:
    for _, blob in merge.blobs():
        yield from kernel.decode_records(blob)
