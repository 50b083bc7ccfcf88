"""The parts of a program as the parser finds them; `at` is where each stands in the text."""

from __future__ import annotations

import msgspec

from mrstream.saw.tables.kinds import Type


class Node(msgspec.Struct):
    """Something at a place."""

    at: int


# --- types


class NamedType(Node):
    name: str


class ArrayType(Node):
    element: TypeNode


class MapType(Node):
    key: TypeNode
    value: TypeNode


class TupleType(Node):
    fields: list[tuple[str, TypeNode]]


class TableType(Node):
    kind: str
    kind_at: int
    parameter: int | None
    indexes: list[tuple[str, TypeNode]]
    value: tuple[str, TypeNode]
    weight: tuple[str, TypeNode] | None


TypeNode = NamedType | ArrayType | MapType | TupleType


# --- expressions


class Name(Node):
    name: str


class Literal(Node):
    value: int | float | str | bytes
    type: Type


class Binary(Node):
    op: str
    left: Expression
    right: Expression


class Unary(Node):
    op: str
    operand: Expression


class Index(Node):
    base: Expression
    index: Expression


class Slice(Node):
    base: Expression
    low: Expression
    high: Expression


class FieldOf(Node):
    base: Expression
    name: str


class Call(Node):
    name: str
    arguments: list[Expression]
    type: TypeNode | None = None
    """Of `new`, `convert`, `jsonof` and `csvof`: the type that comes first."""


class Skip(Node):
    """`skip PATTERN` among the arguments of saw."""

    pattern: Expression


class Composite(Node):
    """`{ a, b }` or `{ k: v }`: an array, a map or a tuple, as its target says."""

    items: list[tuple[Expression | None, Expression]]


class Def(Node):
    operand: Expression


Expression = (
    Name | Literal | Binary | Unary | Index | Slice | FieldOf | Call | Skip | Composite | Def
)


# --- statements


class Variable(Node):
    name: str
    type: TypeNode
    value: Expression | None
    static: bool = False


class TypeName(Node):
    name: str
    type: TypeNode


class Table(Node):
    name: str
    type: TableType


class Proto(Node):
    """`proto "file"`: its messages are types from here on."""

    path: str


class Function(Node):
    name: str
    parameters: list[tuple[int, str, TypeNode]]
    result: TypeNode | None
    body: Block
    static: bool = False


class Block(Node):
    statements: list[Statement] = []


class If(Node):
    condition: Expression
    then: Statement
    otherwise: Statement | None


class While(Node):
    condition: Expression
    body: Statement


class DoWhile(Node):
    body: Statement
    condition: Expression


class For(Node):
    first: Statement | None
    condition: Expression | None
    step: Statement | None
    body: Statement


class Quantifier(Node):
    name: str
    kind: str
    type: TypeNode


class When(Node):
    quantifiers: list[Quantifier]
    condition: Expression
    body: Statement


class Switch(Node):
    value: Expression
    cases: list[tuple[list[Expression], Block]]
    default: Block | None


class Break(Node):
    pass


class Continue(Node):
    pass


class Return(Node):
    value: Expression | None


class Emit(Node):
    table: str
    indexes: list[Expression]
    value: Expression
    weight: Expression | None


class Assign(Node):
    """`target = value`; `++` and `--` are an Assign of one more and one less."""

    target: Expression
    value: Expression


class Do(Node):
    """An expression whose value nobody takes, such as a call."""

    value: Expression


Statement = (
    Variable
    | TypeName
    | Table
    | Proto
    | Function
    | Block
    | If
    | While
    | DoWhile
    | For
    | When
    | Switch
    | Break
    | Continue
    | Return
    | Emit
    | Assign
    | Do
)
