"""A program, checked and compiled: the door of this package.

`compiled` takes text and gives a `Program` or raises `Refused` with every fault. A `Run` takes
blocks of records and gives packed states for the tables that they changed. Opens no file.
"""

from __future__ import annotations

import hashlib
import math
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mrstream.cluster.errors import UserError
from mrstream.saw import patterns, readers, runtime, times, tree
from mrstream.saw.context import Context, Var
from mrstream.saw.facts import facts_of
from mrstream.saw.parser import parsed
from mrstream.saw.readers import APACHE_LOG
from mrstream.saw.source import SOURCE_BYTES_MAX, Faulty, Refused, Source
from mrstream.saw.statements import Statements
from mrstream.saw.tables import keys
from mrstream.saw.tables.kinds import BYTES, INT, STRING, Declaration, Field
from mrstream.saw.tables.registry import KEYED_BY_VALUE, table_of
from mrstream.saw.tables.table import VALUE_BYTES, Chance, Table

FILE = "<sawzall>"
RECURSION_MAX = 5000
"""How deep functions of a program may call each other."""
UNDEF_COUNT = Declaration("_undef_cnt", "sum", Field(INT))
UNDEF_DETAILS = Declaration("_undef_details", "collection", Field(STRING))


class ProgramStopped(UserError):
    """A program met an undefined value, or its own assert, at a record."""


class Program:
    def __init__(self, source: Source, context: Context, lines: list[tuple[str, int]]) -> None:
        self.source = source
        self.tables = tuple(table.declaration for table in context.tables)
        self.uses_key = "input_key" in context.facts.used
        self.python = "\n".join(line for line, _ in lines) + "\n"
        self.digest = hashlib.sha256(source.text.encode()).hexdigest()
        self._places = {number: at for number, (_, at) in enumerate(lines, 1) if at >= 0}
        self._names = context.names
        self._namespace = {**_runtime(), **context.namespace}
        self._code = _python_compiled(source, self.python)

    def run(self, chance: Chance) -> Run:
        """Return a run of the program, with empty tables."""
        return Run(self, chance)

    def made(self, run: Run) -> Any:
        """Return the generated function, its static values made."""
        namespace = dict(self._namespace)
        exec(self._code, namespace)  # our own translation, in which every name and value is ours
        return namespace["make"](run.skipped, self._stop)

    def _stop(self, error: BaseException, line: int, column: int) -> BaseException:
        if isinstance(error, runtime.Stop):
            return error
        return runtime.Stop(line, column, runtime.reason(error, self._names))

    def stopped(self, error: BaseException, records: Sequence[Any]) -> ProgramStopped | None:
        """Return what to say about an error that ended a run; None if it is a bug of ours."""
        if isinstance(error, runtime.Stop):
            line, column, message = error.line, error.column, error.message
        elif isinstance(error, (*runtime.UNDEFS, runtime.AssertionFailed, RecursionError)):
            line, column = self.source.place(self._where(error.__traceback__))
            message = runtime.reason(error, self._names)
            if isinstance(error, RecursionError):
                message = f"functions call each other more than {RECURSION_MAX} deep"
        else:
            return None
        at, record = _record_of(error.__traceback__, records)
        fault = self.source.shown(runtime_fault(line, column, message))
        return ProgramStopped(f"{fault}\n  record: {_excerpt(record)}", record=at)

    def why(self, error: BaseException) -> str:
        """Say in words why a value is undefined."""
        return runtime.reason(error, self._names)

    def _where(self, traceback: types.TracebackType | None) -> int:
        found = 0
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == FILE:
                found = self._places.get(traceback.tb_lineno, found)
            traceback = traceback.tb_next
        return found


class TableStates:
    """One table of a run: the states of its indexes."""

    __slots__ = ("add", "declaration", "held_bytes", "new", "number", "pack", "states")

    def __init__(self, number: int, declaration: Declaration, table: Table) -> None:
        self.number = number
        self.declaration = declaration
        self.states: dict[Any, Any] = {}
        self.add = table.add
        self.new = table.new
        self.pack = table.pack
        self.held_bytes = table.held_bytes

    @property
    def is_plain(self) -> bool:
        """Whether a state is a number, and takes no more than its index."""
        kind = self.declaration.kind
        is_sum = kind in ("sum", "mrcounter") and self.declaration.value.type.is_number
        return is_sum or kind in KEYED_BY_VALUE

    def packed(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and packed state of each index."""
        parts = len(keys.key_types(self.declaration))
        for index, state in self.states.items():
            whole = (index,) if parts == 1 else index
            yield keys.key_of(self.number, self.declaration, whole), self.pack(state)


class Run:
    """A program at work on some records, one block after the other."""

    def __init__(self, program: Program, chance: Chance) -> None:
        self._program = program
        self._tables = [
            TableStates(number, declaration, table_of(declaration, chance))
            for number, declaration in enumerate(program.tables)
        ]
        self._growing = [table for table in self._tables if not table.is_plain]
        self._measured_bytes = self._fed_since = 0
        self._function = program.made(self)

    def feed(self, records: Sequence[Any]) -> None:
        """Run the program on each record (a pair of key and value if it reads `input_key`)."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(RECURSION_MAX)
        self._fed_since += len(records)
        try:
            self._function(records, self._tables)
        except Exception as error:
            stopped = self._program.stopped(error, records)
            if stopped is None:
                raise
            raise stopped from None
        finally:
            sys.setrecursionlimit(limit)

    def held_bytes(self, record_bytes: int) -> int:
        """Estimate what all tables take; an index may be as long as a record.

        States that grow are looked at when as many records were read as there are of them: that
        costs no more than one look a record, and until then they may have doubled.
        """
        entries = sum(len(table.states) for table in self._tables)
        if self._fed_since >= sum(len(table.states) for table in self._growing):
            self._fed_since = 0
            self._measured_bytes = sum(
                table.held_bytes(state)
                for table in self._growing
                for state in table.states.values()
            )
        return entries * (VALUE_BYTES + record_bytes) + self._measured_bytes

    def drain(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and packed state of all that was emitted since the last time, and forget it."""
        for table in self._tables:
            if table.declaration.kind != "mrcounter":
                yield from table.packed()
                table.states.clear()
        self._measured_bytes = self._fed_since = 0

    def counters(self) -> dict[str, int]:
        """Return what was emitted to tables of kind mrcounter."""
        return {
            table.declaration.name: table.states[()]
            for table in self._tables
            if table.declaration.kind == "mrcounter" and table.states
        }

    def skipped(self, error: BaseException, line: int, column: int) -> None:
        """Note a statement that was skipped because it read an undefined value (§11.1)."""
        count, details = self._tables[-2].states, self._tables[-1].states
        count[()] = count.get((), 0) + 1
        words = f"{line}:{column}: {self._program.why(error)}"
        details[words] = details.get(words, 0) + 1


def proto_files(text: str, name: str = "program.szl") -> list[str]:
    """Return the files that a program's `proto` statements name; `Refused` if it cannot be read."""
    source = Source(text, name)
    block, faults = parsed(source)
    if faults:
        raise source.refusal(faults)
    found = (one.path for one in block.statements if isinstance(one, tree.Proto))
    return list(dict.fromkeys(found))


def compiled(
    text: str,
    name: str = "program.szl",
    *,
    ignore_undefs: bool = False,
    zone: str = "UTC",
    protos: Mapping[str, bytes] | None = None,
) -> Program:
    """Return the program of a text; `Refused` with every fault if it has any.

    `protos` has, for each of `proto_files`, the descriptors that protoc makes of it.
    """
    source = Source(text, name)
    if len(text) > SOURCE_BYTES_MAX:
        raise Refused(f"{name} has {len(text):,} characters; {SOURCE_BYTES_MAX:,} are the most")
    block, faults = parsed(source)
    if faults:
        raise source.refusal(faults)
    try:
        context = Context(
            source, facts_of(block), ignore_undefs=ignore_undefs, zone=zone, protos=protos or {}
        )
        lines = _translated(block, context)
    except RecursionError:
        raise Refused(f"{name} is nested too deep") from None
    if context.faults:
        raise source.refusal(context.faults)
    return Program(source, context, lines)


def _translated(block: tree.Block, context: Context) -> list[tuple[str, int]]:
    statements = Statements(context)
    facts = context.facts
    context.scopes[0]["ApacheLog"] = APACHE_LOG
    if "apachelog" in facts.calls:
        context.mark_partial(APACHE_LOG)
    record = Var("input", context.python_name("input"), BYTES, context.frame)
    context.scopes[0]["input"] = record
    target = record.python
    if "input_key" in facts.used:
        key = Var("input_key", context.python_name("input_key"), BYTES, context.frame)
        context.scopes[0]["input_key"] = key
        target = f"{key.python}, {target}"
    with context.apart() as body, context.level(3 + facts.leaves_loops):
        statements.all(block.statements)
        if not body:
            context.line("pass")
    if context.ignore_undefs and not context.faults:
        for declaration in (UNDEF_COUNT, UNDEF_DETAILS):
            try:
                statements.emits.add_table(0, declaration)
            except Faulty as fault:
                context.faults.append(context.source.fault(fault.at, fault.message))
    with context.indented("def make(_skipped, _stop):"):
        context.lines += statements.statics
        with context.indented("def run(records, tables):"):
            statements.emits.begin()
            context.lines += statements.functions
            with context.indented(f"for {target} in records:"):
                if facts.leaves_loops:
                    context.line("try:")
                context.lines += body
                if facts.leaves_loops:
                    with context.indented("except _NextRecord:"):
                        context.line("pass")
            statements.emits.end()
        context.line("return run")
    return context.lines


def _python_compiled(source: Source, python: str) -> types.CodeType:
    try:
        return compile(python, FILE, "exec")
    except (RecursionError, MemoryError, SyntaxError) as error:
        message = error.msg if isinstance(error, SyntaxError) else "nested too deep"
        if isinstance(error, SyntaxError) and "too many" not in str(error.msg):
            raise AssertionError(f"the generated Python is wrong: {error}\n{python}") from error
        raise Refused(f"{source.name} is nested too deep for Python ({message})") from None


def _runtime() -> dict[str, Any]:
    """Return the globals of generated code: what the language needs, each behind an underscore."""
    shared: dict[str, Any] = {"_math": math}
    for module in (runtime, times, patterns, readers):
        for name, value in vars(module).items():
            if isinstance(value, types.FunctionType) or name in ("Undefined", "NextRecord"):
                shared[f"_{name}"] = value
    shared["_UNDEFS"] = runtime.UNDEFS
    shared["_apache_time"] = readers.apache_time
    return shared


def runtime_fault(line: int, column: int, message: str) -> Any:
    from mrstream.saw.source import Fault

    return Fault(line, column, message)


def _record_of(traceback: types.TracebackType | None, records: Sequence[Any]) -> tuple[int, Any]:
    """Return the number of the record that a run was at, and the record."""
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code.co_filename == FILE and frame.f_code.co_name == "run":
            record = frame.f_locals.get("input_", b"")
            for number, one in enumerate(records):
                if one is record or (isinstance(one, tuple) and one[1] is record):
                    return number, record
            return 0, record
        traceback = traceback.tb_next
    return 0, b""


def _excerpt(record: Any) -> str:
    data = bytes(record[:120]) if isinstance(record, bytes | bytearray | memoryview) else b""
    text = data.decode("utf-8", "backslashreplace")
    shown = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)
    return shown + ("…" if len(record) > 120 else "")
