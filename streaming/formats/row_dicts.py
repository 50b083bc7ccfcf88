"""Records that come one by one become lines: JSON, or columns between tabs.

For formats whose library gives records and no tables. Pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from mrstream.streaming.formats.row_file import BadRowSetting
from mrstream.streaming.formats.row_filter import Condition

_TABS = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def _encode_other(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


ENCODER = msgspec.json.Encoder(enc_hook=_encode_other)


def line_writer(
    url: str, names: Sequence[str], columns: Sequence[str], where: Sequence[Condition], form: str
) -> Callable[[Mapping[str, Any]], bytes | None]:
    """Return the function that writes a record as a line, None for one that the filter leaves
    out."""
    for column in (*columns, *(condition.column for condition in where)):
        if column not in names:
            known = ", ".join(list(names)[:20]) or "no fields"
            raise BadRowSetting(f"{url} has no column {column!r}; it has {known}")
    wanted = tuple(columns or names)
    encode = ENCODER.encode

    def write(record: Mapping[str, Any]) -> bytes | None:
        if where and not all(_passes(record.get(one.column), one) for one in where):
            return None
        if form == "tsv":
            return "\t".join([_tab_text(record.get(name)) for name in wanted]).encode() + b"\n"
        return encode({name: record.get(name) for name in wanted} if columns else record) + b"\n"

    return write


def _passes(value: Any, condition: Condition) -> bool:
    if condition.op in ("null", "notnull"):
        return (value is None) == (condition.op == "null")
    if value is None:
        return False
    try:
        return _COMPARE[condition.op](value, condition.value)
    except TypeError:
        raise BadRowSetting(
            f"column {condition.column} holds {value!r}, which cannot be compared with "
            f"{condition.value!r}"
        ) from None


def _tab_text(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.translate(_TABS)
    text = ENCODER.encode(value).decode()
    return text[1:-1] if text.startswith('"') else text.translate(_TABS)
