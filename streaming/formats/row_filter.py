"""Which columns and rows of a table a job reads: `a >= 3 and name = 'x'`, read and applied.

The grammar is small on purpose, so that every part of it can be pushed down to the statistics of a
row group: conditions `COLUMN OP VALUE` joined by `and`, where OP is `= != < <= > >=`, and
`COLUMN is null`, `COLUMN is not null`. A value is a number, 'text', true or false. `pyarrow` is
imported by who has batches to filter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from mrstream.streaming.formats.row_file import BadRowSetting

Value = str | int | float | bool | None
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])
      | (?P<op><=|>=|!=|<>|==|=|<|>)
      | (?P<word>[A-Za-z_][\w.]*)
    )""",
    re.VERBOSE,
)
_SAME = {"==": "=", "<>": "!="}


class Condition(msgspec.Struct, frozen=True):
    """One condition; `op` is one of `= != < <= > >= null notnull`."""

    column: str
    op: str
    value: Value = None


def parse_filter(text: str) -> tuple[Condition, ...]:
    """Read a filter; an empty one has no conditions."""
    tokens = _tokens(text)
    if not tokens:
        return ()
    found = []
    while True:
        found.append(_condition(tokens, text))
        if not tokens:
            return tuple(found)
        if tokens.pop(0) != ("word", "and"):
            raise _bad(text, "conditions are joined by `and`")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise _bad(text, f"{text[at:].strip()[:20]!r} is no word, number, 'text' or comparison")
        kind = match.lastgroup or ""
        word = match[kind]
        if kind == "word" and word.lower() in ("and", "is", "not", "null", "true", "false"):
            word = word.lower()
        tokens.append((kind, word))
        at = match.end()
    return tokens


def _condition(tokens: list[tuple[str, str]], text: str) -> Condition:
    kind, column = tokens.pop(0) if tokens else ("", "")
    if kind == "quoted":
        column = column[1:-1].replace('""', '"')
    elif kind != "word":
        raise _bad(text, "a condition begins with a column")
    if tokens and tokens[0] == ("word", "is"):
        return _null_condition(column, tokens, text)
    kind, op = tokens.pop(0) if tokens else ("", "")
    if kind != "op":
        raise _bad(text, f"behind {column} stands one of = != < <= > >=, is null, is not null")
    return Condition(column, _SAME.get(op, op), _value(tokens, text))


def _null_condition(column: str, tokens: list[tuple[str, str]], text: str) -> Condition:
    tokens.pop(0)
    op = "null"
    if tokens and tokens[0] == ("word", "not"):
        tokens.pop(0)
        op = "notnull"
    if not tokens or tokens.pop(0) != ("word", "null"):
        raise _bad(text, f"behind `{column} is` stands null or not null")
    return Condition(column, op)


def _value(tokens: list[tuple[str, str]], text: str) -> Value:
    kind, word = tokens.pop(0) if tokens else ("", "")
    if kind == "text":
        return word[1:-1].replace("''", "'")
    if kind == "number":
        return int(word) if re.fullmatch(r"[+-]?\d+", word) else float(word)
    if kind == "word" and word in ("true", "false"):
        return word == "true"
    raise _bad(text, "a comparison ends with a number, 'text', true or false")


def _bad(text: str, why: str) -> BadRowSetting:
    return BadRowSetting(f"the row filter is {text!r}: {why}")


# --- applied to tables


class Selection:
    """The columns to give, those to read for the filter too, and the filter, for one file."""

    def __init__(
        self, url: str, names: Sequence[str], wanted: Sequence[str], where: Sequence[Condition]
    ) -> None:
        self.columns = list(wanted or names)
        self.where = where
        for column in (*self.columns, *(condition.column for condition in where)):
            if column not in names:
                known = ", ".join(list(names)[:20]) or "no columns"
                raise BadRowSetting(f"{url} has no column {column!r}; it has {known}")
        needed = [*self.columns, *(condition.column for condition in where)]
        self.read = list(dict.fromkeys(needed))

    def of(self, batch: Any) -> Any:
        """Return the wanted rows and columns of a batch that has all columns of `read`."""
        if self.where:
            import pyarrow.compute as pc

            mask = None
            for condition in self.where:
                one = _mask(pc, batch.column(condition.column), condition)
                mask = one if mask is None else pc.and_kleene(mask, one)
            batch = batch.filter(mask)  # a null of the mask is no
        return batch.select(self.columns)


def _mask(pc: Any, column: Any, condition: Condition) -> Any:
    import pyarrow as pa

    if condition.op == "null":
        return pc.is_null(column)
    if condition.op == "notnull":
        return pc.is_valid(column)
    compare = {
        "=": pc.equal,
        "!=": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }[condition.op]
    value = pa.scalar(condition.value)
    temporal = pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type)
    try:
        if temporal and isinstance(condition.value, str):
            value = value.cast(column.type)
        return compare(column, value)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise BadRowSetting(
            f"column {condition.column} is {column.type}, and cannot be compared with "
            f"{condition.value!r}"
        ) from None


def may_hold(condition: Condition, low: Any, high: Any) -> bool:
    """Whether a part of a file whose values lie in [low, high] may have a row that fits."""
    value = condition.value
    try:
        match condition.op:
            case "=":
                return bool(low <= value <= high)
            case "<":
                return bool(low < value)
            case "<=":
                return bool(low <= value)
            case ">":
                return bool(high > value)
            case ">=":
                return bool(high >= value)
    except TypeError:
        return True  # of another type than the statistics: the rows themselves will tell
    return True
