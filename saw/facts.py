"""What must be known of a whole program before its first statement is translated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mrstream.saw import tree

RETURNING = (tree.While, tree.DoWhile, tree.For, tree.When, tree.Switch)


@dataclass(slots=True)
class Facts:
    """Names by what the program does with them, in any scope."""

    assigned: set[str] = field(default_factory=set)
    """Set again behind their declaration."""
    has_mutation: bool = False
    """Some element or field is set: values must be copied."""
    asked: set[str] = field(default_factory=set)
    """def() is asked of them."""
    used: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    """Read otherwise than by a field of theirs."""
    fields: dict[str, set[str]] = field(default_factory=dict)
    """Variable → the fields of it that are read."""
    partial: list[tree.TypeNode] = field(default_factory=list)
    """Types whose fields a record may lack."""
    calls: set[str] = field(default_factory=set)
    leaves_loops: bool = False
    """A record ends by return inside of a loop."""


def facts_of(program: tree.Block) -> Facts:
    facts = Facts()
    _look(program, facts, in_function=False, in_loop=False)
    return facts


def root_name(node: tree.Expression) -> str:
    """Return the variable that an assignment to this would change."""
    while isinstance(node, tree.Index | tree.FieldOf | tree.Slice):
        node = node.base
    return node.name if isinstance(node, tree.Name) else ""


def _look(node: tree.Node, facts: Facts, *, in_function: bool, in_loop: bool) -> None:
    match node:
        case tree.Assign():
            facts.assigned.add(root_name(node.target))
            facts.has_mutation |= not isinstance(node.target, tree.Name)
        case tree.Def():
            facts.asked.add(root_name(node.operand))
            if isinstance(node.operand, tree.Name):
                facts.used.add(node.operand.name)
                return
        case tree.Call():
            facts.calls.add(node.name)
            if node.type is not None and node.name in ("jsonof", "csvof"):
                facts.partial.append(node.type)
        case tree.Name():
            facts.used.add(node.name)
            facts.whole.add(node.name)
        case tree.FieldOf(base=tree.Name(name=name)):
            facts.used.add(name)
            facts.fields.setdefault(name, set()).add(node.name)
            return
        case tree.Return():
            facts.leaves_loops |= in_loop and not in_function
        case tree.Function():
            in_function = True
    in_loop = in_loop or isinstance(node, RETURNING)
    for child in children(node):
        _look(child, facts, in_function=in_function, in_loop=in_loop)


def children(node: tree.Node) -> Iterator[tree.Node]:
    for name in node.__struct_fields__:
        yield from _nodes(getattr(node, name))


def _nodes(value: object) -> Iterator[tree.Node]:
    if isinstance(value, tree.Node):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _nodes(item)
