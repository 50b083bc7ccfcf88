"""Values as bytes whose order is the order of the values: keys of tables, and all that states hold.

| type | bytes |
|---|---|
| bool | 0 or 1 |
| int, time | 8, big-endian, sign bit flipped |
| fingerprint | 8, big-endian |
| float | 8, of IEEE 754: all bits flipped below zero, else the sign bit; one zero, one NaN (last) |
| string (as UTF-8), bytes | every 0 followed by 255; ended by 0 1 |
| array | each element behind a 1; ended by 0 |
| map | its pairs in the order of their keys, each behind a 1; ended by 0 |
| tuple | its fields, one behind the other |

No encoding is the beginning of another of its type, so values can stand one behind the other.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from mrstream.saw.tables.kinds import Type, Value
from mrstream.saw.tables.packing import StateCorrupt

Encode = Callable[[Value], bytes]
Decode = Callable[[bytes, int], tuple[Value, int]]

_SIGN = 1 << 63
_MASK = (1 << 64) - 1
_U64 = struct.Struct(">Q")
_F64 = struct.Struct(">d")
_NAN = b"\xff" * 8
_END = b"\x00\x01"


@lru_cache(maxsize=1024)
def encoder(kind: Type) -> Encode:
    if kind.name in _PLAIN:
        return _PLAIN[kind.name][0]
    parts = [encoder(part) for part in kind.parts]
    match kind.name:
        case "array":
            (element,) = parts
            return lambda items: b"".join(b"\x01" + element(item) for item in items) + b"\x00"
        case "map":
            key, value = parts

            def encode_map(items: Value) -> bytes:
                pairs = items.items() if isinstance(items, dict) else items
                encoded = sorted(key(k) + value(v) for k, v in pairs)
                return b"".join(b"\x01" + pair for pair in encoded) + b"\x00"

            return encode_map
        case "tuple":
            return lambda fields: b"".join(
                part(field) for part, field in zip(parts, fields, strict=True)
            )
    raise AssertionError(f"no values of type {kind} are stored")


@lru_cache(maxsize=1024)
def decoder(kind: Type) -> Decode:
    """Return the function (bytes, position) → (value, position behind it) of a type."""
    if kind.name in _PLAIN:
        return _PLAIN[kind.name][1]
    parts = [decoder(part) for part in kind.parts]
    match kind.name:
        case "array":
            return lambda data, at: _items(parts[0], data, at)
        case "map":

            def decode_map(data: bytes, at: int) -> tuple[Value, int]:
                pairs, at = _items(lambda d, a: _fields(parts, d, a), data, at)
                return dict(pairs), at

            return decode_map
        case "tuple":
            return lambda data, at: _fields(parts, data, at)
    raise AssertionError(f"no values of type {kind} are stored")


def encode_all(kinds: Sequence[Type], values: Sequence[Value]) -> bytes:
    return b"".join(encoder(kind)(value) for kind, value in zip(kinds, values, strict=True))


def decode_all(kinds: Sequence[Type], data: bytes, at: int = 0) -> tuple[tuple[Value, ...], int]:
    """Decode what `encode_all` gave; return the values and the position behind them."""
    return _fields([decoder(kind) for kind in kinds], data, at)


def _items(element: Decode, data: bytes, at: int) -> tuple[list[Value], int]:
    items = []
    while data[at : at + 1] == b"\x01":
        item, at = element(data, at + 1)
        items.append(item)
    if data[at : at + 1] != b"\x00":
        raise StateCorrupt(f"byte {at} neither begins an element nor ends the array")
    return items, at + 1


def _fields(parts: Sequence[Decode], data: bytes, at: int) -> tuple[tuple[Value, ...], int]:
    values = []
    for part in parts:
        value, at = part(data, at)
        values.append(value)
    return tuple(values), at


def _eight(data: bytes, at: int) -> int:
    if len(data) < at + 8:
        raise StateCorrupt(f"a number at byte {at} is cut off")
    number: int = _U64.unpack_from(data, at)[0]
    return number


def _encode_bool(value: Value) -> bytes:
    return b"\x01" if value else b"\x00"


def _decode_bool(data: bytes, at: int) -> tuple[Value, int]:
    if data[at : at + 1] not in (b"\x00", b"\x01"):
        raise StateCorrupt(f"byte {at} is no bool")
    return data[at] == 1, at + 1


def _encode_int(value: Value) -> bytes:
    return _U64.pack((value + _SIGN) & _MASK)


def _decode_int(data: bytes, at: int) -> tuple[Value, int]:
    return _eight(data, at) - _SIGN, at + 8


def _encode_fingerprint(value: Value) -> bytes:
    return _U64.pack(value & _MASK)


def _decode_fingerprint(data: bytes, at: int) -> tuple[Value, int]:
    return _eight(data, at), at + 8


def _encode_float(value: Value) -> bytes:
    if value != value:
        return _NAN
    bits: int = _U64.unpack(_F64.pack(value + 0.0))[0]  # -0.0 becomes 0.0
    return _U64.pack(bits ^ _MASK if bits & _SIGN else bits | _SIGN)


def _decode_float(data: bytes, at: int) -> tuple[Value, int]:
    bits = _eight(data, at)
    if bits == _MASK:
        return math.nan, at + 8
    value: float = _F64.unpack(_U64.pack(bits & ~_SIGN if bits & _SIGN else bits ^ _MASK))[0]
    return value, at + 8


def _encode_string(value: Value) -> bytes:
    return _encode_bytes(value.encode("utf-8", "surrogatepass"))


def _decode_string(data: bytes, at: int) -> tuple[Value, int]:
    raw, at = _decode_bytes(data, at)
    try:
        return raw.decode("utf-8", "surrogatepass"), at
    except UnicodeDecodeError as error:
        raise StateCorrupt(f"a string is no UTF-8: {error}") from None


def _encode_bytes(value: Value) -> bytes:
    data: bytes = value.replace(b"\x00", b"\x00\xff") if b"\x00" in value else value
    return data + _END


def _decode_bytes(data: bytes, at: int) -> tuple[Value, int]:
    end = data.find(b"\x00", at)
    while end >= 0 and data[end + 1 : end + 2] == b"\xff":
        end = data.find(b"\x00", end + 2)
    if end < 0 or data[end + 1 : end + 2] != b"\x01":
        raise StateCorrupt(f"a string at byte {at} has no end")
    return data[at:end].replace(b"\x00\xff", b"\x00"), end + 2


_PLAIN: dict[str, tuple[Encode, Decode]] = {
    "bool": (_encode_bool, _decode_bool),
    "int": (_encode_int, _decode_int),
    "time": (_encode_int, _decode_int),
    "fingerprint": (_encode_fingerprint, _decode_fingerprint),
    "float": (_encode_float, _decode_float),
    "string": (_encode_string, _decode_string),
    "bytes": (_encode_bytes, _decode_bytes),
}
