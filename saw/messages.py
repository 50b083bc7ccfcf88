"""`proto`: a file's messages declared as types, and bytes parsed as one where a variable begins
with them (§7)."""

from __future__ import annotations

from mrstream.saw import tree
from mrstream.saw.code import Code
from mrstream.saw.context import Context, Var
from mrstream.saw.expressions import Expressions
from mrstream.saw.source import Faulty
from mrstream.saw.tables.kinds import BYTES, INT


class Messages:
    """Translates what has to do with protocol buffers."""

    def __init__(self, context: Context, expressions: Expressions) -> None:
        self._context = context
        self._expressions = expressions

    def declare(self, node: tree.Proto) -> None:
        """Declare the messages of a file, and the values of its enums."""
        from mrstream.saw import protos  # brings the library with it

        context = self._context
        if context.frame.is_function or len(context.scopes) > 2:
            raise Faulty(node.at, "proto stands outside of functions and blocks")
        if node.path not in context.protos:
            raise Faulty(node.at, f"what {node.path} describes did not come with the program")
        try:
            found = protos.described(context.protos[node.path])
        except protos.BadDescriptors as error:
            raise Faulty(node.at, f"{node.path}: {error}") from None
        for name, message in found.messages.items():
            context.declare_message(node.at, name, message)
        for name, number in found.numbers.items():
            var = Var(name, str(number), INT, context.frame, static=True, low=number, high=number)
            context.declare(node.at, name, var)

    def parsed(self, node: tree.Variable) -> Code | None:
        """Return bytes parsed as a message, if that is what a variable begins with; of one that is
        only read by fields, these alone."""
        context = self._context
        message = context.message(node.type)
        if message is None or node.value is None:
            return None
        record = self._expressions.value(node.value, message.type)
        if record.type != BYTES:
            return None
        only = context.is_only_read_by_fields(node.name)
        fields = frozenset(context.facts.fields.get(node.name, ())) if only else None
        read = context.constant("message", message.reader(fields))
        return Code(f"{read}({record.text})", message.type, undef=True)
