"""From tokens to types and expressions: the half of the parser that statements rest on.

Recursive descent. Every fault says what was expected and where; nesting is bounded, so that no
text can exhaust the stack.
"""

from __future__ import annotations

from mrstream.saw import tree
from mrstream.saw.scanner import Token, tokens
from mrstream.saw.source import Faulty
from mrstream.saw.tables.kinds import BYTES, FLOAT, INT, STRING, TIME, Type

NESTING_MAX = 50
CHAIN_MAX = 200
TAKE_A_TYPE = frozenset({"new", "convert", "jsonof", "csvof"})
_KEYWORDS = frozenset(
    {
        *("array", "map", "table", "of", "weight", "static", "type", "function", "proto"),
        *("if", "else", "while", "do", "for", "switch", "case", "default"),
        *("break", "continue", "return", "emit", "when", "some", "each", "all", "def", "skip"),
    }
)
_LITERALS: dict[str, Type] = {
    "int": INT,
    "float": FLOAT,
    "string": STRING,
    "bytes": BYTES,
    "time": TIME,
}
_LEVELS: dict[str, int] = {
    "||": 1,
    "or": 1,
    "&&": 2,
    "and": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 3),
    **dict.fromkeys(("+", "-", "|", "^"), 4),
    **dict.fromkeys(("*", "/", "%", "&", "<<", ">>"), 5),
}
_PLAIN = {"or": "||", "and": "&&"}


class Words:
    """The tokens of a text, taken one after the other."""

    def __init__(self, text: str) -> None:
        self._tokens = list(tokens(text))
        self._next = 0
        self._depth = 0

    # --- tokens

    @property
    def token(self) -> Token:
        return self._tokens[self._next]

    def ahead(self, count: int) -> Token:
        return self._tokens[min(self._next + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Take the next token; the end stays."""
        token = self.token
        if token.kind != "end":
            self._next += 1
        return token

    def sees(self, *texts: str) -> bool:
        """Whether the next token is one of these operators or words."""
        return self.token.kind in ("op", "name") and self.token.text in texts

    def takes(self, text: str) -> bool:
        """Take the next token if it is this."""
        if self.sees(text):
            self._next += 1
            return True
        return False

    def expect(self, text: str, behind: str) -> Token:
        """Take this token, or say that it is missing."""
        if not self.sees(text):
            raise Faulty(self.token.at, f"expected {text} {behind}, not {self.token}")
        return self.take()

    def expect_name(self, what: str) -> Token:
        """Take a name that is no keyword."""
        if self.token.kind != "name" or self.token.text in _KEYWORDS:
            raise Faulty(self.token.at, f"expected {what}, not {self.token}")
        return self.take()

    def deeper(self) -> None:
        """Go one level down; `shallower` comes back."""
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise Faulty(self.token.at, f"nested more than {NESTING_MAX} deep; name the parts")

    def shallower(self) -> None:
        """Come back from one level down."""
        self._depth -= 1

    def surface(self) -> None:
        """Come back from all levels, behind a fault."""
        self._depth = 0

    # --- types

    def type(self) -> tree.TypeNode:
        at = self.token.at
        self.deeper()
        try:
            if self.takes("array"):
                self.expect("of", "behind array")
                return tree.ArrayType(at, self.type())
            if self.takes("map"):
                self.expect("[", "behind map")
                _, key = self.field()
                self.expect("]", "behind the type of a map's key")
                self.expect("of", "behind the key of a map")
                return tree.MapType(at, key, self.type())
            if self.takes("{"):
                fields = [self.field()]
                while self.takes(",") and not self.sees("}"):
                    fields.append(self.field())
                self.expect("}", "behind the fields of a tuple")
                return tree.TupleType(at, fields)
            return tree.NamedType(at, self.expect_name("a type").text)
        finally:
            self.shallower()

    def field(self) -> tuple[str, tree.TypeNode]:
        if self.token.kind == "name" and self.ahead(1).text == ":":
            name = self._field_name()
            self.take()
            return name, self.type()
        return "", self.type()

    def _field_name(self) -> str:
        """Take the name of a field; records of others have fields called `type` and `map`."""
        if self.token.kind != "name":
            raise Faulty(self.token.at, f"expected the name of a field, not {self.token}")
        return self.take().text

    def table_type(self) -> tree.TableType:
        """Take what stands behind `table`."""
        at = self.expect("table", "").at
        kind = self.expect_name("the kind of a table, such as sum")
        parameter = None
        if self.takes("("):
            token = self.take()
            if token.kind != "int" or not isinstance(token.value, int):
                raise Faulty(token.at, f"the parameter of {kind.text} is a number, not {token}")
            parameter = token.value
            self.expect(")", f"behind the parameter of {kind.text}")
        indexes = []
        while self.takes("["):
            indexes.append(self.field())
            self.expect("]", "behind the type of an index")
        self.expect("of", f"behind table {kind.text}")
        value = self.field()
        weight = self.field() if self.takes("weight") else None
        return tree.TableType(at, kind.text, kind.at, parameter, indexes, value, weight)

    # --- expressions

    def expression(self, level: int = 1) -> tree.Expression:
        """Take an expression whose operators bind at least this strongly."""
        self.deeper()
        left = self._unary()
        chain = 0
        while self.token.kind in ("op", "name"):
            found = _LEVELS.get(self.token.text, 0)
            if found < level:
                break
            op = self.take()
            chain += 1
            if chain > CHAIN_MAX:
                raise Faulty(op.at, f"more than {CHAIN_MAX} operators in a row; name the parts")
            right = self.expression(found + 1)
            left = tree.Binary(op.at, _PLAIN.get(op.text, op.text), left, right)
        self.shallower()
        return left

    def _unary(self) -> tree.Expression:
        at = self.token.at
        if self.sees("-", "+", "!", "~", "not"):
            op = self.take().text
            self.deeper()
            operand = self._unary()
            self.shallower()
            return tree.Unary(at, "!" if op == "not" else op, operand)
        return self._with_tails(self._primary())

    def _with_tails(self, base: tree.Expression) -> tree.Expression:
        """Take indexes, slices and fields behind an expression."""
        count = 0
        while self.sees("[", "."):
            count += 1
            if count > NESTING_MAX:
                raise Faulty(self.token.at, f"nested more than {NESTING_MAX} deep; name the parts")
            at = self.take().at
            if self.ahead(-1).text == ".":
                base = tree.FieldOf(at, base, self._field_name())
                continue
            low = self.expression()
            if self.takes(":"):
                base = tree.Slice(at, base, low, self.expression())
            else:
                base = tree.Index(at, base, low)
            self.expect("]", "behind an index")
        return base

    def _primary(self) -> tree.Expression:
        token = self.token
        if token.kind in _LITERALS:
            self.take()
            assert token.value is not None
            return tree.Literal(token.at, token.value, _LITERALS[token.kind])
        if self.takes("("):
            inner = self.expression()
            self.expect(")", "behind an expression in parentheses")
            return inner
        if self.takes("{"):
            return self._composite(token.at)
        if self.takes("def"):
            self.expect("(", "behind def")
            inner = self.expression()
            self.expect(")", "behind the value that def looks at")
            return tree.Def(token.at, inner)
        if token.kind == "name" and token.text not in _KEYWORDS:
            self.take()
            return self._call(token) if self.takes("(") else tree.Name(token.at, token.text)
        raise Faulty(token.at, f"expected an expression, not {token}")

    def _composite(self, at: int) -> tree.Composite:
        items: list[tuple[tree.Expression | None, tree.Expression]] = []
        if self.takes(":"):  # {:} is the map without keys
            self.expect("}", "behind {:")
            return tree.Composite(at, items)
        while not self.sees("}"):
            value = self.expression()
            key = None
            if self.takes(":"):
                key, value = value, self.expression()
            items.append((key, value))
            if not self.takes(","):
                break
        self.expect("}", "behind the elements")
        return tree.Composite(at, items)

    def _call(self, name: Token) -> tree.Call:
        call = tree.Call(name.at, name.text, [])
        if name.text in TAKE_A_TYPE:
            call.type = self.type()
            self.expect(",", f"behind the type of {name.text}")
        while not self.sees(")"):
            if self.sees("skip"):
                at = self.take().at
                call.arguments.append(tree.Skip(at, self.expression()))
            else:
                call.arguments.append(self.expression())
            if not self.takes(","):
                break
        self.expect(")", f"behind the arguments of {name.text}")
        return call
