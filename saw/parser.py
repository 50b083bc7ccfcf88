"""From text to a tree of statements. A statement with a fault is left out and reading goes on
behind it, so that one run tells of several faults."""

from __future__ import annotations

from collections.abc import Callable

from mrstream.saw import tree
from mrstream.saw.source import Fault, Faulty, Source
from mrstream.saw.tables.kinds import INT
from mrstream.saw.words import Words


def parsed(source: Source) -> tuple[tree.Block, list[Fault]]:
    """Return the statements of a program and the faults of those that cannot be read."""
    try:
        parser = _Parser(source)
    except Faulty as fault:
        return tree.Block(0), [source.fault(fault.at, fault.message)]
    return parser.program(), parser.faults


class _Parser:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._words = Words(source.text)
        self.faults: list[Fault] = []
        self._by_word: dict[str, Callable[[], tree.Statement]] = {
            "if": self._if,
            "while": self._while,
            "do": self._do_while,
            "for": self._for,
            "when": self._when,
            "switch": self._switch,
            "break": self._break,
            "continue": self._continue,
            "return": self._return,
            "emit": self._emit,
            "static": self._static,
            "type": self._type_name,
            "proto": self._proto,
        }

    def program(self) -> tree.Block:
        block = tree.Block(0)
        while self._words.token.kind != "end":
            try:
                block.statements.append(self.statement())
            except Faulty as fault:
                self.faults.append(self._source.fault(fault.at, fault.message))
                self._words.surface()
                self._skip()
        return block

    def _skip(self) -> None:
        """Go behind the end of a statement that cannot be read."""
        while self._words.token.kind != "end" and self._words.take().text not in (";", "}"):
            pass

    def statement(self) -> tree.Statement:
        words = self._words
        words.deeper()
        try:
            if words.sees("{"):
                return self._block()
            if words.sees(";"):
                return tree.Block(words.take().at)
            if words.token.kind == "name" and words.token.text in self._by_word:
                return self._by_word[words.token.text]()
            if words.token.kind == "name" and words.ahead(1).text == ":":
                return self._declaration(static=False)
            simple = self._simple()
            self._end("a statement")
            return simple
        finally:
            words.shallower()

    def _end(self, behind: str) -> None:
        self._words.expect(";", f"behind {behind}")

    def _block(self) -> tree.Block:
        block = tree.Block(self._words.expect("{", "").at)
        while not self._words.sees("}"):
            if self._words.token.kind == "end":
                raise Faulty(block.at, "this { has no }")
            block.statements.append(self.statement())
        self._words.take()
        return block

    # --- declarations

    def _static(self) -> tree.Statement:
        self._words.take()
        return self._declaration(static=True)

    def _declaration(self, *, static: bool) -> tree.Statement:
        words = self._words
        name = words.expect_name("the name of what is declared")
        words.expect(":", "behind the name of a declaration")
        static = words.takes("static") or static
        if words.sees("table"):
            table = tree.Table(name.at, name.text, words.table_type())
            self._end("the declaration of a table")
            return table
        if words.sees("function"):
            return self._function(name.at, name.text, static=static)
        kind = words.type()
        value = words.expression() if words.takes("=") else None
        self._end(f"the declaration of {name.text}")
        return tree.Variable(name.at, name.text, kind, value, static)

    def _function(self, at: int, name: str, *, static: bool) -> tree.Function:
        words = self._words
        words.take()
        words.expect("(", "behind function")
        parameters = []
        while not words.sees(")"):
            parameter = words.expect_name("the name of a parameter")
            words.expect(":", "behind the name of a parameter")
            parameters.append((parameter.at, parameter.text, words.type()))
            if not words.takes(","):
                break
        words.expect(")", "behind the parameters")
        result = words.type() if words.takes(":") else None
        body = self._block()
        words.takes(";")
        return tree.Function(at, name, parameters, result, body, static)

    def _type_name(self) -> tree.TypeName:
        words = self._words
        at = words.take().at
        name = words.expect_name("the name of a type").text
        words.expect("=", "behind the name of a type")
        kind = words.type()
        self._end("the declaration of a type")
        return tree.TypeName(at, name, kind)

    def _proto(self) -> tree.Proto:
        at = self._words.take().at
        token = self._words.token
        if token.kind != "string" or not token.value:
            raise Faulty(token.at, f'expected the name of a file, such as "log.proto", not {token}')
        self._words.take()
        self._words.takes(";")
        return tree.Proto(at, str(token.value))

    # --- control

    def _condition(self, word: str) -> tree.Expression:
        self._words.expect("(", f"behind {word}")
        condition = self._words.expression()
        self._words.expect(")", f"behind the condition of {word}")
        return condition

    def _if(self) -> tree.If:
        at = self._words.take().at
        condition = self._condition("if")
        then = self.statement()
        otherwise = self.statement() if self._words.takes("else") else None
        return tree.If(at, condition, then, otherwise)

    def _while(self) -> tree.While:
        at = self._words.take().at
        return tree.While(at, self._condition("while"), self.statement())

    def _do_while(self) -> tree.DoWhile:
        at = self._words.take().at
        body = self.statement()
        self._words.expect("while", "behind the body of do")
        condition = self._condition("while")
        self._end("do … while")
        return tree.DoWhile(at, body, condition)

    def _for(self) -> tree.For:
        words = self._words
        at = words.take().at
        words.expect("(", "behind for")
        first: tree.Statement | None = None
        if words.token.kind == "name" and words.ahead(1).text == ":":
            first = self._declaration(static=False)
        elif not words.takes(";"):
            first = self._simple()
            self._end("the beginning of for")
        condition = None if words.sees(";") else words.expression()
        self._end("the condition of for")
        step = None if words.sees(")") else self._simple()
        words.expect(")", "behind the step of for")
        return tree.For(at, first, condition, step, self.statement())

    def _when(self) -> tree.When:
        words = self._words
        at = words.take().at
        words.expect("(", "behind when")
        quantifiers: list[tree.Quantifier] = []
        while words.token.kind == "name" and words.ahead(1).text in (":", ","):
            quantifiers += self._quantifiers()
        if not quantifiers:
            raise Faulty(words.token.at, "expected a variable, such as i: some int")
        condition = words.expression()
        words.expect(")", "behind the condition of when")
        return tree.When(at, quantifiers, condition, self.statement())

    def _quantifiers(self) -> list[tree.Quantifier]:
        words = self._words
        names = [words.expect_name("the name of a variable")]
        while words.takes(","):
            names.append(words.expect_name("the name of a variable"))
        words.expect(":", "behind the variables of when")
        if not words.sees("some", "each", "all"):
            raise Faulty(words.token.at, f"expected some, each or all, not {words.token}")
        kind = words.take().text
        type_node = words.type()
        self._end("the variables of when")
        return [tree.Quantifier(name.at, name.text, kind, type_node) for name in names]

    def _switch(self) -> tree.Switch:
        words = self._words
        switch = tree.Switch(words.take().at, self._condition("switch"), [], None)
        words.expect("{", "behind switch")
        while not words.takes("}"):
            at = words.token.at
            values: list[tree.Expression] = []
            if words.takes("default"):
                if switch.default is not None:
                    raise Faulty(at, "there is one default already")
            else:
                words.expect("case", "in switch")
                values.append(words.expression())
                while words.takes(","):
                    values.append(words.expression())
            words.expect(":", "behind case")
            block = tree.Block(at)
            while not words.sees("case", "default", "}") and words.token.kind != "end":
                block.statements.append(self.statement())
            if values:
                switch.cases.append((values, block))
            else:
                switch.default = block
        return switch

    def _break(self) -> tree.Break:
        at = self._words.take().at
        self._end("break")
        return tree.Break(at)

    def _continue(self) -> tree.Continue:
        at = self._words.take().at
        self._end("continue")
        return tree.Continue(at)

    def _return(self) -> tree.Return:
        at = self._words.take().at
        value = None if self._words.sees(";") else self._words.expression()
        self._end("return")
        return tree.Return(at, value)

    # --- simple statements

    def _emit(self) -> tree.Emit:
        words = self._words
        words.take()
        name = words.expect_name("the name of a table")
        indexes = []
        while words.takes("["):
            indexes.append(words.expression())
            words.expect("]", "behind an index")
        words.expect("<-", "behind the table of emit")
        value = words.expression()
        weight = words.expression() if words.takes("weight") else None
        self._end("emit")
        return tree.Emit(name.at, name.text, indexes, value, weight)

    def _simple(self) -> tree.Statement:
        """Take an assignment, `x++`, `x--` or a call, without its end."""
        words = self._words
        value = words.expression()
        token = words.token
        if words.takes("="):
            return tree.Assign(value.at, value, words.expression())
        if words.takes("++") or words.takes("--"):
            one = tree.Literal(token.at, 1, INT)
            return tree.Assign(value.at, value, tree.Binary(token.at, token.text[0], value, one))
        return tree.Do(value.at, value)
