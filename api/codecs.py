"""How Python values lie in lines between functions: `json`, `text`, `pickle`, `raw`, or your own.

A record is a line: `key TAB value`, or one value alone. Keys are grouped and compared as the bytes
that the codec makes of them. Takes values, gives lines and back; never reads or writes a stream.
"""

from __future__ import annotations

import base64
import json as _json
import pickle as _pickle
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

TAB, LINE_END = b"\t", b"\n"
_SHOWN_CHARS_MAX = 200


class BadRecord(ValueError):
    """A value that its codec cannot put into a line, or a line that it cannot read."""


class Codec:
    """A pair of functions, value to bytes and bytes to value; the bytes hold no tab, no newline.

    >>> hexadecimal = Codec(lambda n: b"%x" % n, lambda data: int(data, 16))
    """

    decode: Callable[[bytes], Any]
    """Make a value of its bytes: an attribute, so that loops call it without a detour."""

    def __init__(
        self, encode: Callable[[Any], bytes | str], decode: Callable[[bytes], Any], name: str = ""
    ) -> None:
        self._encode = encode
        self.decode = decode
        self.name = name

    def __repr__(self) -> str:
        return f"mrstream.{self.name}" if self.name else "mrstream.Codec(…)"

    def encode(self, value: Any) -> bytes:
        """Make the bytes of one value."""
        data = self._encode(value)
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogateescape")
        if TAB in data or LINE_END in data:
            raise BadRecord(f"{self!r} makes a tab or a newline of {shown(value)}")
        return data

    def lines(self, records: Sequence[Any]) -> bytes:
        """Make the lines of many records; a tuple of two is a pair, all else a value alone."""
        encode = self.encode
        return b"".join([line_of(record, encode) for record in records])

    def record(self, line: bytes) -> Any:
        """Make a pair, or a value, of a line without its end."""
        key, tab, value = line.partition(TAB)
        return (self.decode(key), self.decode(value)) if tab else self.decode(key)


def is_pair(record: Any) -> bool:
    """Whether a record is a key and a value."""
    return isinstance(record, tuple) and len(record) == 2


def line_of(record: Any, encode: Callable[[Any], bytes]) -> bytes:
    """Make the line of one record."""
    if is_pair(record):
        return encode(record[0]) + TAB + encode(record[1]) + LINE_END
    return encode(record) + LINE_END


def all_pairs(records: Sequence[Any]) -> bool:
    """Whether all records are plain tuples of two, at the speed of C."""
    return set(map(type, records)) == {tuple} and set(map(len, records)) == {2}


def shown(value: Any) -> str:
    """Return a value as an error shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"


class _Json(Codec):
    """JSON, without blanks, the keys of objects in order: equal values have equal bytes."""

    def __init__(self) -> None:
        self._fast = msgspec.json.Encoder(order="deterministic").encode
        super().__init__(self._fast, msgspec.json.Decoder().decode, "json")

    def encode(self, value: Any) -> bytes:
        try:
            data = self._fast(value)
            if b"null" in data:
                _json.dumps(value, allow_nan=False, default=str)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise BadRecord(
                f"{shown(value)} is no JSON: {error}; another codec, such as "
                "mrstream.pickle, may take it"
            ) from None
        return data

    def lines(self, records: Sequence[Any]) -> bytes:
        encode = self._fast
        try:
            if all_pairs(records):
                parts = [b"%b\t%b\n" % (encode(key), encode(value)) for key, value in records]
                data = b"".join(parts)
                if b"null" not in data:  # what is no number becomes null too, and must not
                    return data
        except (TypeError, ValueError, msgspec.MsgspecError):
            pass  # one by one, so that the error names the value
        return super().lines(records)

    def __reduce__(self) -> str:
        return "json"


class _Text(Codec):
    """Text as it is; what is no text is written with str(), and read as text."""

    def __init__(self) -> None:
        super().__init__(_as_text, _from_text, "text")

    def lines(self, records: Sequence[Any]) -> bytes:
        if all_pairs(records):
            text = "".join([f"{key}\t{value}\n" for key, value in records])
            is_cut_right = text.count("\n") == text.count("\t") == len(records)
            if is_cut_right and "b'" not in text and 'b"' not in text:  # bytes would look so
                return text.encode("utf-8", "surrogateescape")
        return b"".join([self._line(record) for record in records])

    def _line(self, record: Any) -> bytes:
        """Make one line; a value, and a record that is no pair, may hold tabs."""
        if is_pair(record):
            return self.encode(record[0]) + TAB + self._value(record[1])
        return self._value(record)

    def _value(self, value: Any) -> bytes:
        data = _as_text(value).encode("utf-8", "surrogateescape")
        if LINE_END in data:
            raise BadRecord(f"{self!r}: a line ends inside of {shown(value)}")
        return data + LINE_END

    def __reduce__(self) -> str:
        return "text"


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        raise BadRecord(f"{shown(value)} is bytes, not text; decode it, or use mrstream.raw")
    return str(value)


def _from_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


class _Pickle(Codec):
    """Any Python value; as keys only good for being equal, since their order means nothing."""

    def __init__(self) -> None:
        super().__init__(_pickled, _unpickled, "pickle")

    def __reduce__(self) -> str:
        return "pickle"


def _pickled(value: Any) -> bytes:
    return base64.b64encode(_pickle.dumps(value, protocol=4))


def _unpickled(data: bytes) -> Any:
    return _pickle.loads(base64.b64decode(data))


class _Raw(Codec):
    """Bytes as they are; a value may hold tabs."""

    def __init__(self) -> None:
        super().__init__(_the_same, bytes, "raw")

    def lines(self, records: Sequence[Any]) -> bytes:
        data = b"".join([line_of(record, _the_same) for record in records])
        if data.count(LINE_END) != len(records):
            raise BadRecord(f"{self!r}: a newline inside of a record")
        for record in records if data.count(TAB) != len(records) else ():
            if is_pair(record) and TAB in record[0]:
                raise BadRecord(f"{self!r}: a tab inside of the key {shown(record[0])}")
        return data

    def __reduce__(self) -> str:
        return "raw"


def _the_same(data: bytes) -> bytes:
    if not isinstance(data, bytes):
        raise BadRecord(f"{shown(data)} is no bytes; mrstream.raw takes nothing else")
    return data


json: Codec = _Json()
text: Codec = _Text()
pickle: Codec = _Pickle()
raw: Codec = _Raw()


def codec_of(given: Any) -> Codec:
    """Return the codec that a user named: a codec, or a pair of functions."""
    if isinstance(given, Codec):
        return given
    if isinstance(given, tuple) and len(given) == 2 and all(map(callable, given)):
        return Codec(*given)
    raise TypeError(
        f"{shown(given)} is no codec; give mrstream.json, text, pickle, raw, or a pair of "
        "functions (value to bytes, bytes to value)"
    )
