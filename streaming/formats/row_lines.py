"""Rows of a table become lines, a whole batch at a time: JSON, or columns between tabs.

Every column becomes a column of text by vector calls, and all of them are joined by one more, so
that the bytes of a batch's lines lie in one buffer. Only what has no vector call (bytes in base64,
nested values, text with control characters) goes through Python, a column at a time.
"""

from __future__ import annotations

import base64
import datetime
import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

BATCH_BYTES_MAX = 32 << 20
BATCH_ROWS = 1 << 16
NULL_OF_TABS = "\\N"
_TEXT = pa.string()


def json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield a batch as JSON lines."""
    names = [msgspec.json.encode(name).decode() for name in batch.schema.names]
    for part in _parts(batch):
        pieces: list[Any] = []
        for index, name in enumerate(names):
            pieces += ["," + name + ":" if index else "{" + name + ":", _json(part.column(index))]
        yield _joined(part.num_rows, pieces or ["{"], "}\n", "null")


def tab_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield a batch as lines of columns between tabs.

    A tab, line end or backslash in a value becomes `\\t`, `\\n`, `\\r`, `\\\\`; null is `\\N`.
    """
    for part in _parts(batch):
        pieces: list[Any] = []
        for index in range(part.num_columns):
            pieces += ["\t"] if index else []
            pieces.append(_plain(part.column(index)))
        yield _joined(part.num_rows, pieces, "\n", NULL_OF_TABS)


LINES_OF: dict[str, Callable[[pa.RecordBatch], Iterator[bytes]]] = {
    "json": json_lines,
    "tsv": tab_lines,
}


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch whose text might not fit the 2 GiB of one buffer."""
    pieces = max(1, min(batch.num_rows, -(-batch.nbytes // BATCH_BYTES_MAX)))
    rows = -(-batch.num_rows // pieces)
    for start in range(0, batch.num_rows, rows or 1):
        yield batch.slice(start, rows)


def _joined(rows: int, pieces: list[Any], end: str, null: str) -> bytes:
    if not any(isinstance(piece, pa.Array) for piece in pieces):
        return "".join([*pieces, end]).encode() * rows
    lines = pc.binary_join_element_wise(
        *pieces, end, "", null_handling="replace", null_replacement=null
    )
    _, offsets, data = lines.buffers()
    first, last = lines.offset, lines.offset + len(lines)
    (start,) = struct.unpack_from("<i", offsets, 4 * first)
    (stop,) = struct.unpack_from("<i", offsets, 4 * last)
    return memoryview(data)[start:stop].tobytes() if data is not None else b""


# --- one column


def _json(column: Any) -> Any:
    """Return a column as JSON values; null stays null."""
    column = _unpacked(column)
    kind = column.type
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(_TEXT)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _json_text(column.cast(_TEXT))
    if pa.types.is_null(kind):
        return column.cast(_TEXT)
    text = _text_of_other(column)
    if text is not None:
        return pc.binary_join_element_wise('"', text, '"', "")
    return _by_python(column, lambda value: _ENCODER.encode(value).decode())


def _plain(column: Any) -> Any:
    """Return a column as text for a field between tabs; null stays null."""
    column = _unpacked(column)
    kind = column.type
    if pa.types.is_floating(kind):
        return column.cast(_TEXT)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return column.cast(_TEXT)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _tab_text(column.cast(_TEXT))
    text = _text_of_other(column)
    if text is not None:
        return text
    return _tab_text(_by_python(column, lambda value: _ENCODER.encode(value).decode()))


def _unpacked(column: Any) -> Any:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type in (pa.string_view(), pa.binary_view()):
        column = column.cast(_TEXT if column.type == pa.string_view() else pa.binary())
    return column


def _floats(column: Any) -> Any:
    """Numbers as JSON has them: a whole one keeps its point, so that it stays a double; what is
    not finite is null."""
    text = column.cast(_TEXT)
    whole = pc.match_substring_regex(text, "^-?[0-9]+$")
    text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    wide = column if column.type != pa.float16() else column.cast(pa.float32())
    return pc.if_else(pc.is_finite(wide), text, pa.scalar(None, _TEXT))


def _text_of_other(column: Any) -> Any:
    """Return the text of types whose text needs no escapes; None: it is not one of them."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.replace_substring(column.cast(_TEXT), " ", "T", max_replacements=1)
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_decimal(kind):
        return column.cast(_TEXT)
    if pa.types.is_duration(kind):
        return column.cast(pa.int64()).cast(_TEXT)
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return _by_python(column, lambda value: base64.b64encode(value).decode())
    return None


def _json_text(column: Any) -> Any:
    if not _any_match(column, r'[\x00-\x1f"\\]'):
        return pc.binary_join_element_wise('"', column, '"', "")
    if _any_match(column, r"[\x00-\x1f]"):
        return _by_python(column, lambda value: msgspec.json.encode(value).decode())
    column = pc.replace_substring(column, "\\", "\\\\")
    column = pc.replace_substring(column, '"', '\\"')
    return pc.binary_join_element_wise('"', column, '"', "")


def _tab_text(column: Any) -> Any:
    if _any_match(column, r"[\t\n\r\\]"):
        for raw, written in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
            column = pc.replace_substring(column, raw, written)
    return column


def _any_match(column: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def _by_python(column: Any, write: Callable[[Any], str]) -> Any:
    values = [None if value is None else write(value) for value in column.to_pylist()]
    return pa.array(values, _TEXT)


def _encode_other(value: Any) -> Any:
    """What msgspec has no words for: a moment of a table that is finer than Python's."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return str(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_other)
