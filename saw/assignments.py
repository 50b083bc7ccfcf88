"""Assignments to variables, to elements of arrays and maps, and to fields of tuples."""

from __future__ import annotations

from mrstream.saw import tree
from mrstream.saw.context import Context, Var
from mrstream.saw.expressions import Expressions, not_negative
from mrstream.saw.facts import root_name
from mrstream.saw.source import Faulty
from mrstream.saw.tables.kinds import INT


class Assignments:
    """Translates assignments in a context."""

    def __init__(self, context: Context, expressions: Expressions) -> None:
        self._context = context
        self._expressions = expressions

    def assign(self, node: tree.Assign) -> None:
        var = self._root(node)
        target = self._expressions.value(node.target)
        value = self._expressions.copied(
            self._expressions.of_type(node.value, target.type, "what is assigned")
        )
        undef = value.undef or not isinstance(node.target, tree.Name)
        with self._context.guarded(node.at, undef):
            self._store(node.target, value.text, node.at)
            if var.flag and isinstance(node.target, tree.Name):
                self._context.assigns(var, var.flag)
                self._context.line(f"{var.flag} = True")

    def _root(self, node: tree.Assign) -> Var:
        name = root_name(node.target)
        var = self._context.meaning(node.target.at, name) if name else None
        if not isinstance(var, Var):
            raise Faulty(node.at, "only variables, their elements and fields can be assigned to")
        if var.static:
            raise Faulty(node.at, f"{name} is static and never changes")
        if var.name in ("input", "input_key") and var.frame is not self._context.frame:
            raise Faulty(node.at, f"{name} cannot be changed in a function")
        return var

    def _store(self, target: tree.Expression, text: str, at: int) -> None:
        context = self._context
        match target:
            case tree.Name(name=name):
                var = context.meaning(target.at, name)
                assert isinstance(var, Var)
                context.assigns(var, var.python)
                context.line(f"{var.python} = {text}", at)
            case tree.Index():
                base = self._expressions.value(target.base)
                if base.type.name == "map":
                    key = self._expressions.of_type(
                        target.index, base.type.parts[0], "the key of this map"
                    )
                    index = self._expressions.whole(key).text
                elif base.type.name == "array":
                    index = not_negative(self._expressions.of_type(target.index, INT, "an index"))
                else:
                    raise Faulty(target.at, f"the letters of a {base.type} cannot be changed")
                context.line(f"{base.at(12)}[{index}] = {text}", at)
            case tree.FieldOf():
                base = self._expressions.value(target.base)
                number = self._expressions.field_number(target, base.type)
                self._store(target.base, f"_replaced({base.text}, {number}, {text})", at)
            case _:
                raise Faulty(target.at, "only variables, elements and fields can be assigned to")
