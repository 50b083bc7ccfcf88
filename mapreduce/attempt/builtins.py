"""Built-in mappers and reducers at work: records through the twin of a Java class.

Takes an attempt and records as payloads; gives records as payloads and says of which types they
are. Which classes there are, and what each does, is `streaming.builtin.builtin`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

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
from mrstream.streaming.formats.writable import WritableType

Record = tuple[bytes, bytes]
Types = tuple[WritableType, WritableType]


def mapper_of(attempt: Attempt, reader: SplitReader) -> BuiltinMapper:
    """Give the job's built-in mapper; TypeMismatch if its records are not what the job declared."""
    name = attempt.spec.mapper.builtin
    mapper = builtin_mapper(name, attempt.conf, reader.key_type, reader.value_type)
    if attempt.spec.reduces:
        check_map_output(attempt.conf, mapper.key_type, mapper.value_type)
    return mapper


def mapped(mapper: BuiltinMapper, reader: SplitReader) -> Iterator[Record]:
    """Give what a built-in mapper makes of a split."""
    for key, value in reader.records_iter():
        yield from mapper.map(key, value)


def reducer_of(attempt: Attempt, types: Types) -> BuiltinReducer:
    """Give the job's built-in reducer for intermediate records of these types."""
    program = attempt.spec.reducer
    name = program.builtin if program is not None else classes.IDENTITY_REDUCER
    return builtin_reducer(name, attempt.conf, *types)


def combiner_for(attempt: Attempt, program: Program, types: Types) -> BuiltinReducer:
    """Give a built-in combiner for intermediate records of these types."""
    return builtin_reducer(program.builtin, attempt.conf, *types)


def reduced(reducer: BuiltinReducer, records: Iterator[Record]) -> Iterator[Record]:
    """Give what a built-in reducer makes of sorted records; groups have one whole key (5.4)."""
    for key, group in groupby(records, key=lambda record: record[0]):
        yield from reducer.reduce(key, (value for _, value in group))
