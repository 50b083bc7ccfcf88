"""Expressions: checked, and translated to Python, in one walk down the tree.

Every method gives a `Code` or raises `Faulty` at the place that is wrong. No value is converted
silently (§11): the implicit conversions of initialisers are `initial`'s.
"""

from __future__ import annotations

from dataclasses import replace

from mrstream.saw import library, patterns, tree
from mrstream.saw.calls import Calls
from mrstream.saw.code import ADD, ATOM, COMPARE, INT_MIN, NOT, SIGN, Code, known, wrapped
from mrstream.saw.context import Context, FunctionVar, TableVar, Var
from mrstream.saw.conversions import converted
from mrstream.saw.operators import binary
from mrstream.saw.readers import APACHE_LOG, apache_field
from mrstream.saw.source import Faulty, did_you_mean
from mrstream.saw.tables.kinds import BOOL, BYTES, FLOAT, INT, STRING, TIME, Type, array_of, map_of
from mrstream.saw.values import copier, same


class Expressions:
    """Translates expressions in a context."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._calls = Calls(context, self)

    def value(self, node: tree.Expression, target: Type | None = None) -> Code:
        """Return the code of an expression; `target` is the type that is wanted, if one is
        known."""
        match node:
            case tree.Literal():
                return self._literal(node)
            case tree.Name():
                return self._name(node)
            case tree.Binary():
                return self._binary(node)
            case tree.Unary():
                return self._unary(node)
            case tree.Index():
                return self._index(node)
            case tree.Slice():
                return self._slice(node)
            case tree.FieldOf():
                return self._field(node)
            case tree.Call():
                return self._calls.call(node, target)
            case tree.Composite():
                return self._composite(node, target)
            case tree.Def():
                return self._def(node)
            case tree.Skip():
                raise Faulty(node.at, "skip stands only among the arguments of saw and sawn")

    def of_type(self, node: tree.Expression, wanted: Type, what: str) -> Code:
        """Return the code of an expression that must have a type."""
        code = self.value(node, wanted)
        if not same(code.type, wanted):
            raise Faulty(node.at, f"{what} is {_a(wanted)}, not {_a(code.type)}")
        return code if self._context.may_lack(wanted) else self.whole(code)

    def initial(self, node: tree.Expression, wanted: Type, name: str) -> Code:
        """Return the code of an initialiser: converted to the variable's type if that is
        possible."""
        code = self.value(node, wanted)
        if same(code.type, wanted):
            kept = code if self._context.may_lack(wanted) else self.whole(code)
            return replace(kept, type=wanted)
        other = converted(self._context, self.whole(code), wanted)
        if other is None:
            raise Faulty(node.at, f"{name} is {_a(wanted)}, and {_a(code.type)} is none")
        return replace(other, undef=other.undef or code.undef)

    def condition(self, node: tree.Expression) -> Code:
        return self.of_type(node, BOOL, "a condition")

    def copied(self, code: Code) -> Code:
        """Return a value that its new holder may change without changing another's (§10)."""
        if code.fresh or not code.type.is_mutable or not self._context.facts.has_mutation:
            return code
        copy = self._context.constant("copy", copier(code.type))
        return replace(code, text=f"{copy}({code.text})", prec=ATOM, fresh=True)

    def whole(self, code: Code) -> Code:
        """Return a value that lacks no field: one that does is undefined as a whole."""
        context, kind = self._context, code.type
        if not context.may_lack(kind):
            return code
        is_flat = kind in context.partial and not any(map(context.may_lack, kind.parts))
        text = f"{'_whole' if is_flat else '_whole_inside'}({code.text})"
        return replace(code, text=text, prec=ATOM, undef=True)

    # --- the simplest

    def _literal(self, node: tree.Literal) -> Code:
        if node.type == INT:
            assert isinstance(node.value, int)
            if node.value > 2**63 - 1:
                raise Faulty(node.at, f"{node.value} is larger than an int can be")
            return known(node.value)
        if node.type == TIME:
            return self._calls.constant_time(node.at, str(node.value), self._context.zone)
        if node.type == FLOAT:
            finite = repr(node.value) != "inf"
            return Code(repr(node.value) if finite else "_math.inf", FLOAT)
        constant = node.value if isinstance(node.value, str) else None
        return Code(repr(node.value), node.type, constant=constant)

    def _name(self, node: tree.Name) -> Code:
        found = self._context.find(node.name)
        if found is None and node.name in library.CONSTANTS:
            return library.CONSTANTS[node.name]
        match found:
            case Var():
                return self._variable(node, found)
            case TableVar():
                raise Faulty(node.at, f"{node.name} is a table: values go into it by emit")
            case FunctionVar():
                raise Faulty(node.at, f"{node.name} is a function: call it")
            case Type():
                raise Faulty(node.at, f"{node.name} is a type, not a value")
        known_names = {name for scope in self._context.scopes for name in scope}
        hint = did_you_mean(node.name, {*known_names, *library.CONSTANTS})
        raise Faulty(node.at, f"{node.name} is not declared{hint}")

    def _variable(self, node: tree.Name, var: Var) -> Code:
        if self._context.in_static and not var.static:
            raise Faulty(node.at, f"{node.name} changes with each record; a static value may not")
        return Code(var.python, var.type, undef=var.maybe, fresh=False, low=var.low, high=var.high)

    def _binary(self, node: tree.Binary) -> Code:
        left = self.value(node.left)
        right = self.value(node.right, left.type)
        if node.op in ("==", "!=") or left.type != right.type:
            left, right = self.whole(left), self.whole(right)
        return binary(node, left, right)

    def _unary(self, node: tree.Unary) -> Code:
        match node:
            case tree.Unary(op="-", operand=tree.Literal(value=int(number), type=kind)):
                if kind == INT:
                    return known(-number)
        operand = self.value(node.operand)
        match (node.op, operand.type.name):
            case ("!", "bool"):
                return Code(f"not {operand.at(NOT)}", BOOL, NOT, operand.undef)
            case ("-", "int"):
                text = f"-{operand.at(SIGN)}"
                return wrapped(text, -operand.high, -operand.low, SIGN, undef=operand.undef)
            case ("-", "float"):
                return Code(f"-{operand.at(SIGN)}", FLOAT, SIGN, operand.undef)
            case ("~", "int"):
                return Code(f"~{operand.at(SIGN)}", INT, SIGN, operand.undef)
            case ("+", "int" | "float"):
                return operand
        raise Faulty(node.at, f"{node.op} does not take {_a(operand.type)}")

    # --- parts of values

    def _index(self, node: tree.Index) -> Code:
        base = self.value(node.base)
        match base.type.name:
            case "map":
                key = base.type.parts[0]
                index = self.whole(self.of_type(node.index, key, "the key of this map"))
                text = f"{base.at(ATOM)}[{index.text}]"
                return Code(text, base.type.parts[1], undef=True, fresh=False)
            case "array" | "string" | "bytes":
                index = self.of_type(node.index, INT, "an index")
                text = f"{base.at(ATOM)}[{not_negative(index)}]"
                if base.type.name == "array":
                    return Code(text, base.type.parts[0], undef=True, fresh=False)
                if base.type == BYTES:
                    return Code(text, INT, undef=True, low=0, high=255)
                return Code(f"ord({text})", INT, undef=True, low=0, high=0x10FFFF)
        raise Faulty(node.at, f"{_a(base.type)} has no elements to index")

    def _slice(self, node: tree.Slice) -> Code:
        base = self.value(node.base)
        if base.type.name not in ("array", "string", "bytes"):
            raise Faulty(node.at, f"{_a(base.type)} cannot be sliced")
        low = self.of_type(node.low, INT, "the beginning of a slice")
        high = self.of_type(node.high, INT, "the end of a slice")
        ends = ":".join(end.text if end.low >= 0 else f"max({end.text}, 0)" for end in (low, high))
        undef = base.undef or low.undef or high.undef
        fresh = not base.type.has_mutable_parts
        return Code(f"{base.at(ATOM)}[{ends}]", base.type, undef=undef, fresh=fresh)

    def field_number(self, node: tree.FieldOf, kind: Type) -> int:
        """Return the place of a field in its tuple."""
        if kind.name != "tuple":
            raise Faulty(node.at, f"{_a(kind)} has no fields")
        if node.name not in kind.names:
            hint = did_you_mean(node.name, kind.names)
            raise Faulty(node.at + 1, f"the tuple has no field {node.name}{hint}")
        return kind.names.index(node.name)

    def _field(self, node: tree.FieldOf) -> Code:
        if isinstance(node.base, tree.Name):
            var = self._context.find(node.base.name)
            if isinstance(var, Var) and var.groups:
                return self._log_field(node, var)
        base = self.value(node.base)
        at = self.field_number(node, base.type)
        kind = base.type.parts[at]
        text = f"{base.at(ATOM)}[{at}]"
        if base.type in self._context.partial:
            return Code(f"_given({text})", kind, undef=True, fresh=False)
        return Code(text, kind, undef=base.undef, fresh=False)

    def _log_field(self, node: tree.FieldOf, var: Var) -> Code:
        """Read a field of a log entry only where the program does."""
        kind = APACHE_LOG.parts[self.field_number(node, APACHE_LOG)]
        group = f"{var.python}[{var.groups.index(node.name) + 1}]"
        low = 0 if kind == INT else INT_MIN
        hint = (library.LOG_TIME, group) if kind == TIME else ("", "")
        return Code(apache_field(node.name, group), kind, undef=True, low=low, hint=hint)

    # --- made values

    def _composite(self, node: tree.Composite, target: Type | None) -> Code:
        if target is None or target.name not in ("array", "map", "tuple"):
            target = self._composite_type(node)
        match target.name:
            case "array":
                items = [self._element(key, item, target.parts[0]) for key, item in node.items]
                text = f"[{', '.join(item.text for item in items)}]"
                return Code(text, target, undef=any(item.undef for item in items))
            case "tuple":
                return self._tuple(node, target)
        pairs = [self._pair(key, item, target) for key, item in node.items]
        text = "{" + ", ".join(f"{key.text}: {item.text}" for key, item in pairs) + "}"
        return Code(text, target, undef=any(key.undef or item.undef for key, item in pairs))

    def _composite_type(self, node: tree.Composite) -> Type:
        if not node.items:
            raise Faulty(node.at, "what type this {} is cannot be seen; give it a variable")
        key, first = node.items[0]
        if key is not None:
            return map_of(self.value(key).type, self.value(first).type)
        return array_of(self.value(first).type)

    def _element(self, key: tree.Expression | None, node: tree.Expression, wanted: Type) -> Code:
        if key is not None:
            raise Faulty(key.at, "only maps have keys")
        return self.copied(self.of_type(node, wanted, "this element"))

    def _tuple(self, node: tree.Composite, target: Type) -> Code:
        if len(node.items) != len(target.parts):
            raise Faulty(
                node.at, f"the tuple has {len(target.parts)} fields, and here are {len(node.items)}"
            )
        items = [
            self._element(key, item, kind)
            for (key, item), kind in zip(node.items, target.parts, strict=True)
        ]
        text = "(" + "".join(f"{item.text}, " for item in items).rstrip() + ")"
        return Code(text, target, undef=any(item.undef for item in items))

    def _pair(
        self, key: tree.Expression | None, node: tree.Expression, target: Type
    ) -> tuple[Code, Code]:
        if key is None:
            raise Faulty(node.at, "an element of a map is written key: value")
        value = self.of_type(node, target.parts[1], "a value of this map")
        index = self.of_type(key, target.parts[0], "a key of this map")
        return self.whole(index), self.copied(value)

    # --- def

    def _def(self, node: tree.Def) -> Code:
        code = self.value(node.operand)
        if not code.undef:
            return Code("True", BOOL)
        match node.operand:
            case tree.Name(name=name):
                var = self._context.find(name)
                if isinstance(var, Var) and var.flag:
                    return Code(var.flag, BOOL)
            case tree.Index():
                short = self._index_is_defined(node.operand)
                if short is not None:
                    return short
        return Code(f"_is_defined(lambda: {code.text})", BOOL)

    def _index_is_defined(self, node: tree.Index) -> Code | None:
        base, index = self.value(node.base), self.value(node.index)
        if base.undef or index.undef:
            return None
        if base.type.name == "map":
            return Code(f"{index.at(ADD)} in {base.at(ADD)}", BOOL, COMPARE)
        return Code(f"0 <= {index.at(ADD)} < len({base.text})", BOOL, COMPARE)

    def pattern(self, node: tree.Expression) -> Code:
        """Return the code of a regular expression; one that is written out is checked now."""
        code = self.of_type(node, STRING, "a pattern")
        if isinstance(code.constant, str):
            try:
                patterns.check(code.constant)
            except patterns.BadPattern as error:
                raise Faulty(node.at, str(error)) from None
        return code


def not_negative(index: Code) -> str:
    """Return an index that Python does not count from the end."""
    if index.low >= 0:
        return index.text
    if index.is_simple:
        return f"{index.text} if {index.text} >= 0 else _out()"
    return f"_natural({index.text})"


def _a(kind: Type) -> str:
    return f"{'an' if str(kind)[0] in 'aeiou' else 'a'} {kind}"
