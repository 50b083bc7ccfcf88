"""`when` with some, each and all (§11.2): loops over the indexes that the condition uses.

The range of a variable is that of an array or map which it indexes in the condition. An undefined
condition does not hold for some and each, and is no counter-example for all. Variables are bound in
the order of their declaration; `some` takes the first value that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mrstream.saw import tree
from mrstream.saw.code import INT_MAX
from mrstream.saw.context import Context, Loop, Var
from mrstream.saw.expressions import Expressions
from mrstream.saw.facts import children
from mrstream.saw.source import Faulty
from mrstream.saw.tables.kinds import INT


class Whens:
    """Translates `when` in a context."""

    def __init__(
        self,
        context: Context,
        expressions: Expressions,
        statement: Callable[[tree.Statement], None],
    ) -> None:
        self._context = context
        self._expressions = expressions
        self._statement = statement

    def when(self, node: tree.When) -> None:
        context = self._context
        kinds = [quantifier.kind for quantifier in node.quantifiers]
        first_all = kinds.index("all") if "all" in kinds else len(kinds)
        with context.scope():
            if "each" in kinds[:first_all]:
                context.frame.loops.append(Loop("when"))
                try:
                    self._loops(node, 0, first_all, [], runs_body=True)
                finally:
                    context.frame.loops.pop()
                return
            flag = self._loops(node, 0, first_all, [], runs_body=False)
            with context.indented(f"if {flag}:"):
                self._statement(node.body)

    def _loops(
        self, node: tree.When, at: int, first_all: int, hits: list[str], *, runs_body: bool
    ) -> str:
        """Loop over the variables that the body may use; return the flag that says "found"."""
        context = self._context
        if at == first_all:
            flag = self._holds(node, at)
            with context.indented(f"if {flag}:"):
                for hit in hits:
                    context.line(f"{hit} = True")
                if runs_body:
                    self._statement(node.body)
            return flag
        quantifier = node.quantifiers[at]
        hit = context.python_name(f"{quantifier.name}_found")
        context.line(f"{hit} = False", node.at)
        values = self._values(node, at)
        var = self._declare(quantifier)
        with context.indented(f"for {var.python} in {values}:", quantifier.at, is_block=True):
            self._loops(node, at + 1, first_all, [*hits, hit], runs_body=runs_body)
            if quantifier.kind == "some":
                with context.indented(f"if {hit}:"):
                    context.line("break")
        return hit

    def _holds(self, node: tree.When, at: int) -> str:
        """Find out whether the condition holds for the variables from here on; return the flag."""
        context = self._context
        flag = context.python_name("holds")
        if at == len(node.quantifiers):
            self._test(node, flag)
            return flag
        quantifier = node.quantifiers[at]
        is_all = quantifier.kind == "all"
        context.line(f"{flag} = {is_all}", node.at)
        values = self._values(node, at)
        var = self._declare(quantifier)
        with context.indented(f"for {var.python} in {values}:", quantifier.at, is_block=True):
            inner = self._holds(node, at + 1)
            with context.indented(f"if not {inner}:" if is_all else f"if {inner}:"):
                context.line(f"{flag} = {not is_all}")
                context.line("break")
        return flag

    def _test(self, node: tree.When, flag: str) -> None:
        context = self._context
        condition = self._expressions.condition(node.condition)
        if not condition.undef:
            context.line(f"{flag} = {condition.text}", node.condition.at)
            return
        with context.indented("try:", node.condition.at, is_block=True):
            context.line(f"{flag} = {condition.text}", node.condition.at)
        with context.indented("except _UNDEFS:"):
            context.line(f"{flag} = {node.quantifiers[-1].kind == 'all'}")

    def _declare(self, quantifier: tree.Quantifier) -> Var:
        context = self._context
        kind = context.type(quantifier.type)
        var = Var(quantifier.name, context.python_name(quantifier.name), kind, context.frame)
        if kind == INT:
            var.low, var.high = 0, INT_MAX
        context.declare(quantifier.at, quantifier.name, var)
        return var

    # --- ranges

    def _values(self, node: tree.When, at: int) -> str:
        """Add lines that find the range of a variable, and give it."""
        quantifier = node.quantifiers[at]
        later = {one.name for one in node.quantifiers[at:]}
        kind = self._context.type(quantifier.type)
        for base, is_slice in _indexed(node.condition, quantifier.name):
            if _names(base) & later:
                continue
            code = self._expressions.value(base)
            if code.type.name == "map" and code.type.parts[0] == kind and not is_slice:
                return self._safely(f"list({code.text})", undef=code.undef, at=base.at)
            if code.type.name in ("array", "string", "bytes") and kind == INT:
                size = f"len({code.text}){' + 1' if is_slice else ''}"
                return self._safely(f"range({size})", undef=code.undef, at=base.at)
        raise Faulty(
            quantifier.at,
            f"the condition does not say which values {quantifier.name} may have; "
            f"use it as an index, such as a[{quantifier.name}]",
        )

    def _safely(self, text: str, *, undef: bool, at: int) -> str:
        if not undef:
            return text
        context = self._context
        name = context.python_name("range")
        with context.indented("try:", at, is_block=True):
            context.line(f"{name} = {text}", at)
        with context.indented("except _UNDEFS:"):
            context.line(f"{name} = ()")
        return name


def _indexed(node: tree.Node, name: str) -> Iterator[tuple[tree.Expression, bool]]:
    """Yield what a variable indexes, and whether as an end of a slice."""
    match node:
        case tree.Index(base=base, index=tree.Name(name=index)) if index == name:
            yield base, False
        case tree.Slice(base=base, low=low, high=high):
            if any(isinstance(end, tree.Name) and end.name == name for end in (low, high)):
                yield base, True
    for child in children(node):
        yield from _indexed(child, name)


def _names(node: tree.Node) -> set[str]:
    found = {node.name} if isinstance(node, tree.Name) else set()
    return found.union(*(_names(child) for child in children(node)))
