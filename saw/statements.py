"""Statements: checked, and translated to lines of Python.

A statement that may be undefined is guarded where it must not go on (`Context.guarded`). A fault
ends the statement that it is in; the next ones are still looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from mrstream.saw import tree
from mrstream.saw.assignments import Assignments
from mrstream.saw.code import INT_MAX, INT_MIN, NOT, Code
from mrstream.saw.context import Context, Frame, FunctionVar, Loop, Var
from mrstream.saw.emits import Emits
from mrstream.saw.expressions import Expressions
from mrstream.saw.facts import children, root_name
from mrstream.saw.messages import Messages
from mrstream.saw.readers import APACHE_LOG, apache_patterns
from mrstream.saw.source import Faulty
from mrstream.saw.tables.kinds import BOOL, INT, STRING, Type
from mrstream.saw.when import Whens

FUNCTION_LEVEL = 2
"""How deep functions of the program stand in the generated code; static ones stand one less."""


class Statements:
    """Translates statements in a context."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.expressions = Expressions(context)
        self.statics: list[tuple[str, int]] = []
        self.functions: list[tuple[str, int]] = []
        self._messages = Messages(context, self.expressions)
        self._assignments = Assignments(context, self.expressions)
        self.emits = Emits(context, self.expressions)
        self._whens = Whens(context, self.expressions, self.statement)
        self._translate: dict[type, Callable[[Any], None]] = {
            tree.Variable: self._variable,
            tree.TypeName: self._type_name,
            tree.Table: self.emits.declare,
            tree.Proto: self._messages.declare,
            tree.Function: self._function,
            tree.Block: self._block,
            tree.If: self._if,
            tree.While: self._while,
            tree.DoWhile: self._do_while,
            tree.For: self._for,
            tree.When: self._whens.when,
            tree.Switch: self._switch,
            tree.Break: self._break,
            tree.Continue: self._continue,
            tree.Return: self._return,
            tree.Emit: self.emits.emit,
            tree.Assign: self._assignments.assign,
            tree.Do: self._do,
        }

    def all(self, statements: Sequence[tree.Statement]) -> None:
        """Translate statements; those with a fault are noted and left out."""
        for statement in statements:
            try:
                self.statement(statement)
            except Faulty as fault:
                context = self._context
                context.faults.append(context.source.fault(fault.at, fault.message))

    def statement(self, node: tree.Statement) -> None:
        self._translate[type(node)](node)

    # --- declarations

    def _type_name(self, node: tree.TypeName) -> None:
        context = self._context
        kind = context.type(node.type)
        message = context.message(node.type)
        if message is not None:
            context.declare_message(node.at, node.name, message)
            return
        context.declare(node.at, node.name, kind)
        for partial in context.facts.partial:
            if isinstance(partial, tree.NamedType) and partial.name == node.name:
                context.mark_partial(kind)

    def _variable(self, node: tree.Variable) -> None:
        context = self._context
        kind = context.type(node.type)
        var = Var(node.name, context.python_name(node.name), kind, context.frame)
        if node.name in context.facts.asked:
            var.flag = context.python_name(f"{node.name}_is_defined")
        try:
            self._initialise(node, var)
        finally:
            # Known from here on, also with a fault: uses of it are no faults of their own.
            context.declare(node.at, node.name, var)

    def _initialise(self, node: tree.Variable, var: Var) -> None:
        context = self._context
        if not node.static:
            self._set_first(node, var)
            return
        if node.value is None:
            raise Faulty(node.at, f"{node.name} is static, and is made once: it needs a value")
        if context.frame.is_function:
            raise Faulty(node.at, "a static variable stands outside of functions")
        var.static = context.in_static = True
        try:
            with context.apart() as lines, context.level(1):
                self._set_first(node, var)
            self.statics += lines
        finally:
            context.in_static = False

    def _set_first(self, node: tree.Variable, var: Var) -> None:
        context = self._context
        if node.value is None:
            var.maybe = True
            self._unset(var, node.at)
            return
        code = self._messages.parsed(node) or self.expressions.copied(
            self.expressions.initial(node.value, var.type, f"{node.name}")
        )
        if var.type.name == "int" and node.name not in context.facts.assigned:
            var.low, var.high = code.low, code.high
        if code.hint[0] == "log" and code.hint[1] and context.is_only_read_by_fields(node.name):
            self._match_entry(node, var, code.hint[1])
            return
        var.maybe = code.undef
        if not code.undef:
            context.line(f"{var.python} = {code.text}", node.at)
            if var.flag:
                context.line(f"{var.flag} = True")
            return
        with context.indented("try:", node.at, is_block=True):
            context.line(f"{var.python} = {code.text}", node.at)
            if var.flag:
                context.line(f"{var.flag} = True")
        with context.indented("except _UNDEFS:"):
            self._unset(var, node.at)

    def _match_entry(self, node: tree.Variable, var: Var, record: str) -> None:
        """Keep the match of a log entry instead of the entry: fields are read where they are
        used."""
        context = self._context
        var.maybe = True
        fields = frozenset(context.facts.fields.get(node.name, ())) & set(APACHE_LOG.names)
        var.groups = tuple(name for name in APACHE_LOG.names if name in fields)
        tried = [context.constant("match", one.match) for one in apache_patterns(fields)]
        text = " or ".join(f"{match}({record})" for match in tried)
        context.line(f"{var.python} = {text}", node.at)
        if var.flag:
            context.line(f"{var.flag} = {var.python} is not None")
        with context.indented(f"if {var.python} is None:"):
            context.line(f"del {var.python}")

    def _unset(self, var: Var, at: int) -> None:
        """Make a variable undefined: reading what Python does not have raises a NameError."""
        context = self._context
        context.line(f"{var.python} = None", at)
        context.line(f"del {var.python}")
        if var.flag:
            context.line(f"{var.flag} = False")

    def _function(self, node: tree.Function) -> None:
        context = self._context
        result = context.type(node.result) if node.result is not None else None
        kinds = tuple(context.type(kind) for _, _, kind in node.parameters)
        python = context.python_name(node.name)
        context.declare(
            node.at, node.name, FunctionVar(node.name, python, kinds, result, node.static)
        )
        is_outermost = not context.frame.is_function and len(context.scopes) == 2
        if not is_outermost:
            if node.static:
                raise Faulty(node.at, "a static function stands outside of blocks")
            self._define(node, python, kinds, result)
            return
        lines = self.statics if node.static else self.functions
        with context.apart() as own, context.level(FUNCTION_LEVEL - node.static):
            self._define(node, python, kinds, result)
        lines += own

    def _define(
        self, node: tree.Function, python: str, kinds: tuple[Type, ...], result: Type | None
    ) -> None:
        context = self._context
        outer, context.frame = context.frame, Frame(result, is_function=True)
        was_static, context.in_static = context.in_static, node.static
        try:
            with context.scope():
                parameters = []
                for (at, name, _), kind in zip(node.parameters, kinds, strict=True):
                    var = Var(name, context.python_name(name), kind, context.frame)
                    context.declare(at, name, var)
                    var.static = node.static
                    parameters.append(var.python)
                with context.indented(f"def {python}({', '.join(parameters)}):", node.at):
                    with context.apart() as body:
                        self.all(node.body.statements)
                    if context.frame.nonlocals:
                        context.line(f"nonlocal {', '.join(sorted(context.frame.nonlocals))}")
                    context.lines += body
                    if result is not None:
                        context.line(f"raise _Undefined('{node.name} gave no value')", node.at)
                    else:
                        context.line("return None")
        finally:
            context.frame = outer
            context.in_static = was_static

    # --- control

    def _block(self, node: tree.Block) -> None:
        with self._context.scope():
            self.all(node.statements)

    def _inside(self, node: tree.Statement) -> None:
        """Translate the body of a statement in a scope of its own."""
        with self._context.scope():
            self.all([node])

    def _if(self, node: tree.If) -> None:
        context = self._context
        condition = self.expressions.condition(node.condition)
        if not condition.undef or not (context.ignore_undefs or context.frame.is_function):
            self._branches(node, condition.text)
            return
        name = context.python_name("condition")
        with context.indented("try:", node.at, is_block=True):
            context.line(f"{name} = {condition.text}", node.condition.at)
        self._on_undefined(node.condition.at)
        with context.indented("else:"):
            self._branches(node, name)

    def _on_undefined(self, at: int, then: str = "") -> None:
        context = self._context
        line, column = context.source.place(at)
        with context.indented("except _UNDEFS as error:"):
            if context.ignore_undefs:
                context.line(f"_skipped(error, {line}, {column})")
                if then:
                    context.line(then)
            else:
                context.line(f"raise _stop(error, {line}, {column})")

    def _branches(self, node: tree.If, condition: str) -> None:
        context = self._context
        with context.indented(f"if {condition}:", node.condition.at):
            self._inside(node.then)
        if node.otherwise is not None:
            with context.indented("else:"):
                self._inside(node.otherwise)

    def _loop_test(self, node: tree.Expression) -> None:
        """Leave the Python loop if a condition is false, or undefined."""
        context = self._context
        code = self.expressions.condition(node)
        test = f"if not {code.at(NOT)}:"
        if not code.undef or not (context.ignore_undefs or context.frame.is_function):
            with context.indented(test, node.at):
                context.line("break")
            return
        with context.indented("try:", node.at, is_block=True):
            with context.indented(test, node.at):
                context.line("break")
        self._on_undefined(node.at, "break")

    def _while(self, node: tree.While) -> None:
        self._looped(node, Loop("loop"), node.condition, node.body)

    def _looped(
        self, node: tree.Node, loop: Loop, condition: tree.Expression | None, body: tree.Statement
    ) -> None:
        context = self._context
        context.frame.loops.append(loop)
        try:
            head = "while True:"
            if condition is not None:
                code = self.expressions.condition(condition)
                if not code.undef:
                    head, condition = f"while {code.text}:", None
            with context.indented(head, node.at, is_block=True):
                if condition is not None:
                    self._loop_test(condition)
                self._inside(body)
                self._step(loop)
                if loop.until is not None:
                    self._loop_test(loop.until)
        finally:
            context.frame.loops.pop()

    def _step(self, loop: Loop) -> None:
        """Go on to the next round; a step that is undefined ends the loop, as a condition does."""
        with self._context.when_skipped("break"):
            for step in loop.repeat:
                self.statement(step)

    def _do_while(self, node: tree.DoWhile) -> None:
        self._looped(node, Loop("loop", until=node.condition), None, node.body)

    def _for(self, node: tree.For) -> None:
        with self._context.scope():
            begins = ""
            if node.first is not None:
                if self._context.ignore_undefs and not isinstance(node.first, tree.Variable):
                    begins = self._context.python_name("begins")
                    self._context.line(f"{begins} = True")
                with self._context.when_skipped(f"{begins} = False" if begins else ""):
                    self.statement(node.first)
                self._narrow(node)
            steps = [node.step] if node.step is not None else []
            with self._context.indented(f"if {begins}:") if begins else nullcontext():
                self._looped(node, Loop("loop", steps), node.condition, node.body)

    def _narrow(self, node: tree.For) -> None:
        """Know that the variable of `for (i: int = 0; i < …; i++)` stays in between."""
        match node:
            case tree.For(
                first=tree.Variable(name=name, value=tree.Literal(value=int(low))),
                condition=tree.Binary(op="<", left=tree.Name(name=tested)),
                step=tree.Assign(
                    target=tree.Name(name=stepped),
                    value=tree.Binary(
                        op="+", left=tree.Name(name=again), right=tree.Literal(value=1)
                    ),
                ),
            ) if name == tested == stepped == again and not _sets(node.body, name):
                var = self._context.find(name)
                if isinstance(var, Var) and var.type == INT:
                    var.low, var.high = max(low, INT_MIN), INT_MAX - 1

    def _switch(self, node: tree.Switch) -> None:
        context = self._context
        value = self.expressions.whole(self.expressions.value(node.value))
        is_kept = value.undef or not value.is_simple
        name = context.python_name("value") if is_kept else value.text
        cases = [
            [self.expressions.of_type(one, value.type, "this case") for one in values]
            for values, _ in node.cases
        ]
        tests = [" or ".join(f"{name} == {one.at(5)}" for one in case) for case in cases]
        undef = value.undef or any(one.undef for case in cases for one in case)
        if not undef or not (context.ignore_undefs or context.frame.is_function):
            if is_kept:
                context.line(f"{name} = {value.text}", node.at)
            self._cases(node, tests)
            return
        # As `if`: nothing of it is done unless all that decides between the cases is defined.
        number = context.python_name("case")
        with context.indented("try:", node.at, is_block=True):
            if is_kept:
                context.line(f"{name} = {value.text}", node.at)
            context.line(f"{number} = -1")
            for index, test in enumerate(tests):
                context.line(f"{'elif' if index else 'if'} {test}: {number} = {index}", node.at)
        self._on_undefined(node.at)
        with context.indented("else:"):
            self._cases(node, [f"{number} == {index}" for index in range(len(tests))])

    def _cases(self, node: tree.Switch, tests: list[str]) -> None:
        context = self._context
        context.frame.loops.append(Loop("switch"))
        try:
            word = "if"
            for test, (_, block) in zip(tests, node.cases, strict=True):
                with context.indented(f"{word} {test}:", block.at):
                    self._case(block)
                word = "elif"
            if node.default is not None:
                with context.indented("else:" if node.cases else "if True:"):
                    self._case(node.default)
        finally:
            context.frame.loops.pop()

    def _case(self, block: tree.Block) -> None:
        statements = block.statements
        if statements and isinstance(statements[-1], tree.Break):
            statements = statements[:-1]  # a case ends by itself
        self._block(tree.Block(block.at, statements))

    def _break(self, node: tree.Break) -> None:
        loops = self._context.frame.loops
        if not loops:
            raise Faulty(node.at, "break stands inside of loops")
        if loops[-1].kind != "loop":
            raise Faulty(node.at, f"break cannot stand in the middle of a {loops[-1].kind}")
        self._context.line("break", node.at)

    def _continue(self, node: tree.Continue) -> None:
        loops = [loop for loop in self._context.frame.loops if loop.kind != "switch"]
        if not loops:
            raise Faulty(node.at, "continue stands inside of loops")
        if loops[-1].kind != "loop":
            raise Faulty(node.at, f"continue cannot leave a {loops[-1].kind}")
        self._step(loops[-1])
        until = loops[-1].until
        if until is not None:
            self._loop_test(until)
        self._context.line("continue", node.at)

    def _return(self, node: tree.Return) -> None:
        context = self._context
        frame = context.frame
        if not frame.is_function:
            if node.value is not None:
                raise Faulty(node.at, "return outside of functions ends the record: without value")
            context.line("raise _NextRecord" if frame.loops else "continue", node.at)
            return
        if (node.value is None) != (frame.result is None):
            wanted = "no value" if frame.result is None else f"a value of type {frame.result}"
            raise Faulty(node.at, f"this function returns {wanted}")
        if node.value is None or frame.result is None:
            context.line("return None", node.at)
            return
        code = self.expressions.of_type(node.value, frame.result, "what this function returns")
        context.line(f"return {self.expressions.copied(code).text}", node.at)

    # --- calls

    def _do(self, node: tree.Do) -> None:
        context = self._context
        if not isinstance(node.value, tree.Call):
            raise Faulty(node.at, "this value is not used; did you mean to emit or to assign it?")
        if node.value.name == "assert":
            self._assert(node.value)
            return
        code = self.expressions.value(node.value)
        with context.guarded(node.at, code.undef):
            context.line(code.text, node.at)

    def _assert(self, node: tree.Call) -> None:
        if not 1 <= len(node.arguments) <= 2:
            raise Faulty(node.at, "it is called as assert(condition[, words])")
        condition = self.expressions.of_type(node.arguments[0], BOOL, "what is asserted")
        words = Code("'an assertion does not hold'", STRING)
        if len(node.arguments) == 2:
            words = self.expressions.of_type(node.arguments[1], STRING, "the words of assert")
        with self._context.guarded(node.at, condition.undef or words.undef):
            self._context.line(f"_must({condition.text}, {words.text})", node.at)


def _sets(node: tree.Node, name: str) -> bool:
    """Whether a variable of this name is set somewhere in a node."""
    if isinstance(node, tree.Assign) and root_name(node.target) == name:
        return True
    if isinstance(node, tree.Function):
        return True  # too far to look
    return any(_sets(child, name) for child in children(node))
