"""Tables: declared, and emitted to, with the local aggregation of a block of records.

A table is a dict from index to state. Sums of numbers are added in place: without an index in a
local variable that is put into the dict at the block's end. All others go through the table's own
`add`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrstream.saw import tree
from mrstream.saw.code import Code
from mrstream.saw.context import Context, TableVar
from mrstream.saw.expressions import Expressions
from mrstream.saw.source import Faulty
from mrstream.saw.tables import table as tables
from mrstream.saw.tables.keys import TABLES_MAX
from mrstream.saw.tables.kinds import Declaration, Field, Type
from mrstream.saw.tables.registry import KEYED_BY_VALUE
from mrstream.saw.values import freezer


@dataclass(slots=True)
class Local:
    """The Python variables of a table in the generated code."""

    table: str
    get: str
    add: str = ""
    new: str = ""
    total: str = ""
    seen: str = ""


class Emits:
    def __init__(self, context: Context, expressions: Expressions) -> None:
        self._context = context
        self._expressions = expressions
        self._locals: dict[int, Local] = {}

    def declare(self, node: tree.Table) -> None:
        context = self._context
        if context.frame.is_function or len(context.scopes) > 2:
            raise Faulty(node.at, "a table is declared outside of functions and blocks")
        kind = node.type
        declaration = Declaration(
            name=node.name,
            kind=kind.kind,
            value=self._field(kind.value),
            parameter=kind.parameter,
            indexes=tuple(map(self._field, kind.indexes)),
            weight=None if kind.weight is None else self._field(kind.weight),
        )
        self.add_table(node.at, declaration)
        wrong = tables.check(declaration)
        if wrong is not None:
            raise Faulty(kind.kind_at if "there is no table" in wrong else kind.at, wrong)

    def _field(self, field: tuple[str, tree.TypeNode]) -> Field:
        return Field(self._context.type(field[1]), field[0])

    def add_table(self, at: int, declaration: Declaration) -> None:
        """Give a table its number and its variables."""
        context = self._context
        if len(context.tables) >= TABLES_MAX:
            raise Faulty(at, f"a program has at most {TABLES_MAX} tables")
        name = declaration.name
        python = context.python_name(name)
        number = len(context.tables)
        table = TableVar(declaration, number, python, context.frame)
        context.declare(at, name, table)
        context.tables.append(table)
        local = Local(python, context.python_name(f"{name}_get"))
        if is_total(declaration):
            local.total = context.python_name(f"{name}_total")
            local.seen = context.python_name(f"{name}_seen")
        elif not is_number(declaration):
            local.add = context.python_name(f"{name}_add")
            local.new = context.python_name(f"{name}_new")
        self._locals[number] = local

    # --- emit

    def emit(self, node: tree.Emit) -> None:
        context = self._context
        table = context.meaning(node.at, node.table)
        if not isinstance(table, TableVar):
            raise Faulty(node.at, f"{node.table} is no table")
        if context.in_static:
            raise Faulty(node.at, "a static function cannot emit")
        declaration = table.declaration
        indexes = self._indexes(node, declaration)
        value = self._value(node.value, declaration.value.type, f"the value of {node.table}")
        weight = self._weight(node, declaration)
        undef = any(code.undef for code in (*indexes, value, weight) if code is not None)
        with context.guarded(node.at, undef):
            self._add(node.at, table, indexes, value, weight)

    def _indexes(self, node: tree.Emit, declaration: Declaration) -> list[Code]:
        if len(node.indexes) != len(declaration.indexes):
            raise Faulty(
                node.at,
                f"{node.table} has {len(declaration.indexes)} indexes, "
                f"and here are {len(node.indexes)}",
            )
        return [
            self._value(index, kind, f"an index of {node.table}")
            for index, kind in zip(node.indexes, declaration.index_types, strict=True)
        ]

    def _value(self, node: tree.Expression, kind: Type, what: str) -> Code:
        code = self._expressions.of_type(node, kind, what)
        return self._expressions.whole(self._expressions.copied(code))

    def _weight(self, node: tree.Emit, declaration: Declaration) -> Code | None:
        if declaration.weight is None:
            if node.weight is not None:
                raise Faulty(node.weight.at, f"{node.table} has no weight")
            return None
        if node.weight is None:
            raise Faulty(node.at, f"{node.table} needs a weight: emit … <- … weight …")
        kind = declaration.weight.type
        return self._expressions.of_type(node.weight, kind, f"the weight of {node.table}")

    def _add(
        self, at: int, table: TableVar, indexes: list[Code], value: Code, weight: Code | None
    ) -> None:
        context, local, declaration = self._context, self._locals[table.number], table.declaration
        if local.total:
            context.assigns(table, local.total, local.seen)
            context.line(f"{local.total} += {value.text}", at)
            context.line(f"{local.seen} = True")
            return
        parts = [self._hashable(index) for index in indexes]
        amount = value.text
        if declaration.kind in KEYED_BY_VALUE:
            parts.append(self._hashable(value))
            amount = "1"
        key = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
        if not key.isidentifier():
            name = context.python_name("index")
            context.line(f"{name} = {key}", at)
            key = name
        if is_number(declaration):
            context.line(f"{local.table}[{key}] = {local.get}({key}, 0) + {amount}", at)
            return
        heavy = "None" if weight is None else weight.text
        if declaration.kind == "sum":  # its new state is None
            state = f"{local.get}({key})"
            context.line(f"{local.table}[{key}] = {local.add}({state}, {amount}, {heavy})", at)
            return
        state = context.python_name("state")
        context.line(f"{state} = {local.get}({key})", at)
        with context.indented(f"if {state} is None:"):
            context.line(f"{state} = {local.table}[{key}] = {local.new}()")
        context.line(f"{local.table}[{key}] = {local.add}({state}, {amount}, {heavy})", at)

    def _hashable(self, code: Code) -> str:
        if not code.type.is_mutable:
            return code.text
        return f"{self._context.constant('frozen', freezer(code.type))}({code.text})"

    # --- around the loop

    def begin(self) -> None:
        """Add the lines before the loop over a block's records."""
        context = self._context
        for table in context.tables:
            local = self._locals[table.number]
            context.line(f"{local.table} = tables[{table.number}].states")
            context.line(f"{local.get} = {local.table}.get")
            if local.total:
                context.line(f"{local.total} = 0")
                context.line(f"{local.seen} = False")
            if local.add:
                context.line(f"{local.add} = tables[{table.number}].add")
                context.line(f"{local.new} = tables[{table.number}].new")

    def end(self) -> None:
        """Add the lines behind that loop."""
        for local in self._locals.values():
            if local.total:
                with self._context.indented(f"if {local.seen}:"):
                    text = f"{local.table}[()] = {local.get}((), 0) + {local.total}"
                    self._context.line(text)


def is_total(declaration: Declaration) -> bool:
    """Whether a table is one number, kept in a local variable while a block is read."""
    is_sum = declaration.kind in ("sum", "mrcounter") and declaration.value.type.is_number
    return is_sum and not declaration.indexes


def is_number(declaration: Declaration) -> bool:
    """Whether the states of a table are plain numbers, added in place."""
    if declaration.kind in KEYED_BY_VALUE:
        return True
    return declaration.kind in ("sum", "mrcounter") and declaration.value.type.is_number
