"""A Sawzall program at work in a map or a reduce: blocks of records in, packed states out.

The program's text is in the job's settings; what it is and does is `mrstream.saw`'s. A map keeps
its tables in memory and gives them away when they have many entries and at its end (§8); combiner
and reduce merge states of one key. Reduce 0 also writes the list of tables.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from mrstream.mapreduce.attempt.task_context import Attempt
from mrstream.mapreduce.dataflow.split_reader import SplitReader
from mrstream.mapreduce.job.saw_program import program_of
from mrstream.mapreduce.scheduler.ids import parse_attempt_id
from mrstream.saw import report
from mrstream.saw.program import ProgramStopped
from mrstream.saw.tables import keys
from mrstream.saw.tables.packing import StateCorrupt
from mrstream.saw.tables.registry import table_of
from mrstream.saw.tables.table import Table
from mrstream.streaming.builtin.builtin import BuiltinReducer
from mrstream.streaming.conf.jobconf import JobConf
from mrstream.streaming.formats.input_format import InputFormat
from mrstream.streaming.formats.writable import BYTES

Record = tuple[bytes, bytes]
MANIFEST = "_saw.json"
MANIFEST_BYTES_MAX = 16 << 20
HELD_BYTES_MAX = 100 << 20
"""How much a map's tables may hold, as `Run.held_bytes` estimates it."""
RECORDS_A_BLOCK = 4096
COUNTER_GROUP = "Sawzall"
_ESCAPED = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\\": "\\\\"})


def task_chance(attempt_id: str) -> random.Random:
    """Return chance that is the same for every attempt at a task."""
    return random.Random(str(parse_attempt_id(attempt_id).task_id))


# --- map


def mapped(attempt: Attempt, reader: SplitReader) -> Iterator[Record]:
    """Yield the states that a split's records make of the tables."""
    program = program_of(attempt.conf)
    run = program.run(task_chance(attempt.order.attempt_id))
    for block in _blocks(reader, attempt.conf, with_key=program.uses_key):
        try:
            run.feed(block)
        except ProgramStopped as stop:
            raise _placed(stop, reader, len(block)) from None
        attempt.watch.touch()
        if run.held_bytes(reader.bytes_read // max(1, reader.records)) > HELD_BYTES_MAX:
            yield from run.drain()
    yield from run.drain()
    for name, count in run.counters().items():
        attempt.counters.add(COUNTER_GROUP, name, count)


def mapped_lines(attempt: Attempt, reader: SplitReader) -> Iterator[Record]:
    """Yield what a split's records make of the tables as text, for a reducer of any kind: the key
    is table and index, the value is value and weight, with tabs between."""
    tables = program_of(attempt.conf).tables
    names = report.chosen(tables, ())
    states = mapped(attempt, reader)
    for row in report.rows(tables, states, names, task_chance(attempt.order.attempt_id)):
        index, value = report.text_cells(row)
        yield _tabbed(index), _tabbed(value)


def _tabbed(cells: list[str]) -> bytes:
    text = "\t".join(cell.translate(_ESCAPED) for cell in cells)
    return text.encode("utf-8", "surrogateescape")


def _blocks(reader: SplitReader, conf: JobConf, *, with_key: bool) -> Iterator[list[Any]]:
    is_lines = conf.input_format_class == InputFormat.TEXT.value
    if is_lines and conf.record_delimiter is None and not with_key:
        return _lines(reader)
    return _pairs(reader, with_key=with_key)


def _lines(reader: SplitReader) -> Iterator[list[bytes]]:
    """Cut whole blobs into lines: no line is touched by Python before the program sees it."""
    held: list[bytes] = []
    for blob in reader:
        head, newline, tail = blob.rpartition(b"\n")
        if newline:
            yield b"".join((*held, head)).split(b"\n")
            held = []
        if tail:
            held.append(tail)
    if held:
        yield [b"".join(held)]


def _pairs(reader: SplitReader, *, with_key: bool) -> Iterator[list[Any]]:
    block: list[Any] = []
    for record in reader.records_iter():
        block.append(record if with_key else record[1])
        if len(block) == RECORDS_A_BLOCK:
            yield block
            block = []
    if block:
        yield block


def _placed(stop: ProgramStopped, reader: SplitReader, block: int) -> ProgramStopped:
    """Say also where the record lies."""
    url, _ = reader.position()
    number = reader.records - block + stop.details.get("record", 0) + 1
    return ProgramStopped(f"{stop}\n  which is record {number:,} of the map's input, in {url}")


# --- combine and reduce


class _Merging:
    """Merges packed states of one key."""

    def __init__(self, attempt: Attempt) -> None:
        self._declarations = program_of(attempt.conf).tables
        self._chance = task_chance(attempt.order.attempt_id)
        self._tables: dict[int, Table] = {}

    def reduce(self, key: bytes, values: Iterable[bytes]) -> Iterable[Record]:
        """Return one state for all of a key."""
        rest = iter(values)
        first = next(rest)
        second = next(rest, None)
        if second is None:
            return [(key, first)]
        table = self._table(keys.table_number(key))
        state = table.merge(table.merge(table.new(), first), second)
        for value in rest:
            state = table.merge(state, value)
        return [(key, table.pack(state))]

    def _table(self, number: int) -> Table:
        if number not in self._tables:
            if number >= len(self._declarations):
                raise StateCorrupt(f"table {number} of {len(self._declarations)} in a segment")
            self._tables[number] = table_of(self._declarations[number], self._chance)
        return self._tables[number]


def reducer(attempt: Attempt, *, is_final: bool) -> BuiltinReducer:
    """Return the combiner, or the reducer; the first one of these writes the list of tables."""
    if is_final and attempt.order.task_index == 0:
        program = program_of(attempt.conf)
        with attempt.create_output(MANIFEST) as file:
            file.write(report.manifest_bytes(program.source.name, program.digest, program.tables))
    return BuiltinReducer(_Merging(attempt).reduce, BYTES, BYTES)
