"""Where a translation stands: scopes and names, the generated lines, the faults found so far."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from mrstream.saw import tree
from mrstream.saw.code import INT_MAX, INT_MIN
from mrstream.saw.facts import Facts
from mrstream.saw.readers import MessageType
from mrstream.saw.source import Fault, Faulty, Source, did_you_mean
from mrstream.saw.tables.kinds import BOOL, BYTES, FINGERPRINT, FLOAT, INT, STRING, TIME, Type
from mrstream.saw.tables.kinds import Declaration as TableDeclaration

BLOCKS_MAX = 18
"""Loops and guards in each other: Python itself takes 20."""
TYPE_DEPTH_MAX = 20
_PYTHON = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | {"records", "tables", "error"}
_TYPES = {
    "bool": BOOL,
    "int": INT,
    "float": FLOAT,
    "string": STRING,
    "bytes": BYTES,
    "time": TIME,
    "fingerprint": FINGERPRINT,
}


class Var(msgspec.Struct, eq=False):
    """A variable of the program."""

    name: str
    python: str
    type: Type
    frame: Frame
    maybe: bool = False
    """Whether it may be undefined when it is read."""
    static: bool = False
    low: int = INT_MIN
    high: int = INT_MAX
    flag: str = ""
    """The Python variable that says whether it is defined, if someone asks."""
    groups: tuple[str, ...] = ()
    """If it is a match of a log entry: the fields that its groups are, read where used."""


class TableVar(msgspec.Struct, eq=False):
    declaration: TableDeclaration
    number: int
    python: str
    frame: Frame


class FunctionVar(msgspec.Struct, eq=False):
    name: str
    python: str
    parameters: tuple[Type, ...]
    result: Type | None
    static: bool


class Loop(msgspec.Struct, eq=False):
    """What `break` and `continue` would leave or repeat."""

    kind: str
    repeat: list[tree.Statement] = []
    """Statements to do before a `continue`."""
    until: tree.Expression | None = None


class Frame(msgspec.Struct, eq=False):
    """A Python function that is being generated."""

    result: Type | None = None
    is_function: bool = False
    nonlocals: set[str] = msgspec.field(default_factory=set)
    loops: list[Loop] = []


Meaning = Var | TableVar | FunctionVar | Type


class Context:
    """Names, lines and faults of one translation."""

    def __init__(
        self,
        source: Source,
        facts: Facts,
        *,
        ignore_undefs: bool,
        zone: str,
        protos: Mapping[str, bytes],
    ) -> None:
        self.source = source
        self.protos = protos
        """What `proto` files describe: descriptors by the name that the program gives."""
        self._messages: dict[str, MessageType] = {}
        self.facts = facts
        self.ignore_undefs = ignore_undefs
        self.zone = zone
        self.faults: list[Fault] = []
        self.namespace: dict[str, Any] = {}
        self.tables: list[TableVar] = []
        self.partial: set[Type] = set()
        self.in_static = False
        self.frame = Frame()
        self.scopes: list[dict[str, Meaning]] = [dict(_TYPES), {}]
        self.names: dict[str, str] = {}
        self.lines: list[tuple[str, int]] = []
        self._indent = 0
        self._blocks = 0
        self._when_skipped = ""

    # --- names

    def python_name(self, name: str) -> str:
        """Return a Python name that no other variable has."""
        plain = f"u{name}" if name.startswith("_") else name
        wanted = f"{plain}_" if plain in _PYTHON else plain
        count = 1
        while wanted in self.names:
            count += 1
            wanted = f"{plain}_{count}"
        self.names[wanted] = name
        return wanted

    def declare(self, at: int, name: str, meaning: Meaning) -> None:
        if name in self.scopes[-1]:
            raise Faulty(at, f"{name} is declared already")
        self.scopes[-1][name] = meaning

    def meaning(self, at: int, name: str) -> Meaning:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        known = {name for scope in self.scopes for name in scope}
        raise Faulty(at, f"{name} is not declared{did_you_mean(name, known)}")

    def find(self, name: str) -> Meaning | None:
        """Return what a name means here, if it means anything."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names that are declared inside are forgotten behind."""
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    def constant(self, prefix: str, value: Any) -> str:
        """Return a global of the generated code that has this value."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = f"_{prefix}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def assigns(self, var: Var | TableVar, *names: str) -> None:
        """Note that the function in work sets a variable of one around it."""
        if var.frame is not self.frame:
            self.frame.nonlocals.update(names)

    # --- types

    def type(self, node: tree.TypeNode) -> Type:
        found = self._type(node)
        if found.depth() > TYPE_DEPTH_MAX:
            raise Faulty(node.at, f"types are nested more than {TYPE_DEPTH_MAX} deep")
        return found

    def _type(self, node: tree.TypeNode) -> Type:
        match node:
            case tree.ArrayType():
                return Type("array", (self._type(node.element),))
            case tree.MapType():
                key = self._type(node.key)
                if key.is_mutable:
                    raise Faulty(node.at, f"the key of a map cannot be of type {key}")
                return Type("map", (key, self._type(node.value)))
            case tree.TupleType():
                names = tuple(name for name, _ in node.fields)
                if len(set(filter(None, names))) != len(list(filter(None, names))):
                    raise Faulty(node.at, "two fields of the tuple have the same name")
                return Type("tuple", tuple(self._type(part) for _, part in node.fields), names)
        found = self.find(node.name)
        if not isinstance(found, Type):
            known = {n for s in self.scopes for n, m in s.items() if isinstance(m, Type)}
            raise Faulty(node.at, f"there is no type {node.name}{did_you_mean(node.name, known)}")
        return found

    def declare_message(self, at: int, name: str, message: MessageType) -> None:
        """Give a type its name that bytes are parsed as."""
        self.declare(at, name, message.type)
        self._messages[name] = message
        self.mark_partial(message.type)

    def message(self, node: tree.TypeNode) -> MessageType | None:
        """Return the message that a piece of text means, if its type is one's."""
        if not isinstance(node, tree.NamedType):
            return None
        found = self._messages.get(node.name)
        is_meant = found is not None and self.find(node.name) is found.type
        return found if is_meant else None

    def is_only_read_by_fields(self, name: str) -> bool:
        """Whether nobody needs the whole of a record (asking def() of it is fine)."""
        return not self.frame.is_function and name not in self.facts.whole | self.facts.assigned

    def may_lack(self, kind: Type) -> bool:
        """Whether a value of this type may lack a field, its own or one of a part."""
        return bool(self.partial) and (kind in self.partial or any(map(self.may_lack, kind.parts)))

    def mark_partial(self, kind: Type) -> None:
        """Remember that values of this type may lack fields."""
        if kind.name == "tuple":
            self.partial.add(kind)
        for part in kind.parts:
            self.mark_partial(part)

    # --- lines

    def line(self, text: str, at: int = -1) -> None:
        """Add a line of Python; `at` is what it comes from."""
        self.lines.append(("    " * self._indent + text, at))

    @contextmanager
    def indented(self, head: str = "", at: int = -1, *, is_block: bool = False) -> Iterator[None]:
        """Add a line that ends with a colon, and what is added inside below it."""
        if head:
            self.line(head, at)
        self._indent += 1
        self._blocks += is_block
        if self._blocks > BLOCKS_MAX:
            raise Faulty(max(at, 0), "loops are nested too deep; make a function of the inner ones")
        before = len(self.lines)
        try:
            yield
        finally:
            if len(self.lines) == before:
                self.line("pass")
            self._indent -= 1
            self._blocks -= is_block

    @contextmanager
    def guarded(self, at: int, undef: bool) -> Iterator[None]:
        """What is added inside may be undefined: then it is skipped, or stops the program.

        Outside of functions a stop needs no guard: the line that raised tells the place.
        """
        if not undef or not (self.ignore_undefs or self.frame.is_function):
            yield
            return
        with self.indented("try:", at, is_block=True):
            yield
        line, column = self.source.place(at)
        with self.indented("except _UNDEFS as error:"):
            if self.ignore_undefs:
                self.line(f"_skipped(error, {line}, {column})")
                if self._when_skipped:
                    self.line(self._when_skipped)
            else:
                self.line(f"raise _stop(error, {line}, {column})")

    @contextmanager
    def when_skipped(self, then: str) -> Iterator[None]:
        """Behind a statement inside that is skipped, this line comes too."""
        self._when_skipped = then
        try:
            yield
        finally:
            self._when_skipped = ""

    @contextmanager
    def apart(self) -> Iterator[list[tuple[str, int]]]:
        """Collect the lines that are added inside apart from the others."""
        kept, self.lines = self.lines, []
        try:
            yield self.lines
        finally:
            self.lines = kept

    @contextmanager
    def level(self, indent: int) -> Iterator[None]:
        """Lines added inside stand at this level, whatever is around."""
        before = self._indent, self._blocks
        self._indent = indent
        try:
            yield
        finally:
            self._indent, self._blocks = before
