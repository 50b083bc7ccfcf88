"""The operators between two values: which types they take, and the Python of each.

Ints wrap at 64 bits as C's do, and only where their interval says that they may.
"""

from __future__ import annotations

from mrstream.saw import tree
from mrstream.saw.code import (
    ADD,
    AND,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    COMPARE,
    MULTIPLY,
    OR,
    Code,
    difference_interval,
    product_interval,
    sum_interval,
    wrapped,
)
from mrstream.saw.source import Faulty
from mrstream.saw.tables.kinds import BOOL, FLOAT, INT, TIME, Type

_VERBS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_BITS = {"&": BIT_AND, "|": BIT_OR, "^": BIT_XOR}


def binary(node: tree.Binary, left: Code, right: Code) -> Code:
    undef = left.undef or right.undef
    if node.op in ("&&", "||"):
        if left.type != BOOL or right.type != BOOL:
            raise _refused(node, left.type, right.type)
        word, level = ("and", AND) if node.op == "&&" else ("or", OR)
        return Code(f"{left.at(level)} {word} {right.at(level + 1)}", BOOL, level, undef)
    if _shape(left.type) != _shape(right.type):
        raise _refused(node, left.type, right.type)
    if node.op in ("==", "!=", "<", "<=", ">", ">="):
        if node.op not in ("==", "!=") and not left.type.is_ordered:
            raise _refused(node, left.type, right.type)
        text = f"{left.at(COMPARE + 1)} {node.op} {right.at(COMPARE + 1)}"
        return Code(text, BOOL, COMPARE, undef)
    match left.type.name:
        case "int":
            return _int(node, left, right, undef=undef)
        case "float" if node.op in "+-*/":
            return _float(node, left, right, undef=undef)
        case "time" if node.op in "+-":
            code = _int(node, left, right, undef=undef)
            return Code(code.text, TIME, code.prec, undef, low=code.low, high=code.high)
        case "string" | "bytes" | "array" if node.op == "+":
            text, fresh = f"{left.at(ADD)} + {right.at(ADD + 1)}", not left.type.has_mutable_parts
            return Code(text, left.type, ADD, undef, fresh=fresh)
    raise _refused(node, left.type, right.type)


def _shape(kind: Type) -> Type:
    """Return a type without the names of fields."""
    return Type(kind.name, tuple(map(_shape, kind.parts)))


def _refused(node: tree.Binary, left: Type, right: Type) -> Faulty:
    verb = _VERBS.get(node.op, "compare" if node.op[0] in "=!<>" else f"use {node.op} between")
    hint = ""
    if {left, right} == {INT, FLOAT}:
        hint = "; write float(…) around the int"
    return Faulty(node.at, f"cannot {verb} {left} and {right}{hint}")


def _float(node: tree.Binary, left: Code, right: Code, *, undef: bool) -> Code:
    level = ADD if node.op in "+-" else MULTIPLY
    text = f"{left.at(level)} {node.op} {right.at(level + 1)}"
    return Code(text, FLOAT, level, undef or node.op == "/")


def _int(node: tree.Binary, left: Code, right: Code, *, undef: bool) -> Code:
    plain = f"{left.at(ADD)} {node.op} {right.at(ADD + 1)}"
    match node.op:
        case "+":
            return wrapped(plain, *sum_interval(left, right), ADD, undef=undef)
        case "-":
            return wrapped(plain, *difference_interval(left, right), ADD, undef=undef)
        case "*":
            text = f"{left.at(MULTIPLY)} * {right.at(MULTIPLY + 1)}"
            return wrapped(text, *product_interval(left, right), MULTIPLY, undef=undef)
        case "/" | "%":
            return _division(node, left, right, undef=undef)
        case "<<" | ">>":
            name = "_shift_left" if node.op == "<<" else "_shift_right"
            return Code(f"{name}({left.text}, {right.text})", INT, undef=True)
    level = _BITS[node.op]
    text = f"{left.at(level)} {node.op} {right.at(level + 1)}"
    if node.op == "&" and right.low >= 0:
        return Code(text, INT, level, undef, low=0, high=right.high)
    return Code(text, INT, level, undef)


def _division(node: tree.Binary, left: Code, right: Code, *, undef: bool) -> Code:
    undef = undef or right.low <= 0 <= right.high
    if left.low >= 0 and right.low >= 0:  # Python's and C's agree
        op = "//" if node.op == "/" else "%"
        text = f"{left.at(MULTIPLY)} {op} {right.at(MULTIPLY + 1)}"
        high = left.high if node.op == "/" else min(left.high, max(right.high - 1, 0))
        return Code(text, INT, MULTIPLY, undef, low=0, high=high)
    name = "_div" if node.op == "/" else "_mod"
    text = f"{name}({left.text}, {right.text})"
    if node.op == "%" and right.low > 0:
        low = 0 if left.low >= 0 else -(right.high - 1)
        return Code(text, INT, undef=undef, low=low, high=right.high - 1)
    return Code(text, INT, undef=undef)
