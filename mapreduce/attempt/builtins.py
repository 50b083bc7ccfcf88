"""Built-in mappers and reducers at work: records through the twin of a Java class.

Takes an attempt and records as payloads; gives records as payloads and says of which types they
are. Which classes there are, and what each does, is `streaming.builtin.builtin`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

import msgspec

from mrstream.mapreduce.attempt.task_context import Attempt
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.streaming import classes
from mrstream.streaming.builtin.builtin import (
    BuiltinMapper,
    BuiltinReducer,
    builtin_mapper,
    builtin_reducer,
    check_map_output,
)
from mrstream.streaming.command.command import Program
from mrstream.streaming.formats.writable import BYTES, TEXT, WritableType

Record = tuple[bytes, bytes]
Types = tuple[WritableType, WritableType]


class BuiltinBlockMapper(msgspec.Struct, frozen=True):
    """Maps a whole split to any number of records, as it likes to read it."""

    run: Callable[[SplitReader], Iterator[Record]]
    key_type: WritableType
    value_type: WritableType


def mapper_of(attempt: Attempt, reader: SplitReader) -> BuiltinMapper | BuiltinBlockMapper:
    """Return the job's built-in mapper; TypeMismatch if its records are not what the job
    declared."""
    name = attempt.spec.mapper.builtin
    if name == classes.SAW:
        from mrstream.mapreduce.attempt import saw_stage  # nothing of it loads for other jobs
        from mrstream.mapreduce.job.saw_program import gives_states

        if gives_states(attempt.spec):
            return BuiltinBlockMapper(partial(saw_stage.mapped, attempt), BYTES, BYTES)
        return BuiltinBlockMapper(partial(saw_stage.mapped_lines, attempt), TEXT, TEXT)
    split = attempt.order.split
    input_file = split.pieces[0].url if split and len(split.pieces) == 1 else None
    mapper = builtin_mapper(name, attempt.conf, reader.key_type, reader.value_type, input_file)
    if attempt.spec.reduces:
        check_map_output(attempt.conf, mapper.key_type, mapper.value_type)
    return mapper


def mapped(mapper: BuiltinMapper | BuiltinBlockMapper, reader: SplitReader) -> Iterator[Record]:
    """Yield what a built-in mapper makes of a split."""
    if isinstance(mapper, BuiltinBlockMapper):
        yield from mapper.run(reader)
        return
    for key, value in reader.records_iter():
        yield from mapper.map(key, value)


def reducer_of(attempt: Attempt, types: Types) -> BuiltinReducer:
    """Return the job's built-in reducer for intermediate records of these types."""
    program = attempt.spec.reducer
    name = program.builtin if program is not None else classes.IDENTITY_REDUCER
    if name == classes.SAW:
        from mrstream.mapreduce.attempt import saw_stage

        return saw_stage.reducer(attempt, is_final=True)
    return builtin_reducer(name, attempt.conf, *types)


def combiner_for(attempt: Attempt, program: Program, types: Types) -> BuiltinReducer:
    """Return a built-in combiner for intermediate records of these types."""
    if program.builtin == classes.SAW:
        from mrstream.mapreduce.attempt import saw_stage

        return saw_stage.reducer(attempt, is_final=False)
    return builtin_reducer(program.builtin, attempt.conf, *types)


def reduced(reducer: BuiltinReducer, records: Iterator[Record]) -> Iterator[Record]:
    """Yield what a built-in reducer makes of sorted records; groups have one whole key (5.4)."""
    for key, group in groupby(records, key=lambda record: record[0]):
        yield from reducer.reduce(key, (value for _, value in group))
