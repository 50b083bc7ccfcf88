"""Bytes that no honest peer sends: any message of any type, then damaged in one way or several.

Everything is drawn from the generator that is passed in. Never does IO.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import inspect

from mrstream.cluster.wire.frames import HEADER

FLOATS = (0.0, -1.5, 1e308, float("inf"), float("nan"))
INTS = (0, 1, -1, 127, 2**31, 2**32, 2**63 - 1, 2**64 - 1, -(2**63))
TEXTS = (
    "", "h1", "h9", "/", "/a/b", "/words", "../..", "a\0b", "ü" * 40, "x" * 5000, "127.0.0.1:1",
    "job_1_0001", "attempt_1_0001_m_000000_0", "attempt_1_0001_r_000001_1",
    "attempt_1_0001_r_999999999999_7", "attempt__m_0_0",
)  # fmt: skip
HEADS = (b"\xc6", b"\xdb", b"\xdd", b"\xdf", b"\xc9")
"""Of 32-bit lengths: binary, string, array, map, extension."""


def frame(kind: int, number: int, body: bytes) -> bytes:
    """Return a frame, its header as it should be."""
    return HEADER.pack(len(body), kind, number) + body


def nested(depth: int, opening: bytes = b"\x91") -> bytes:
    """Return so many arrays, or whatever else opens, within one another."""
    return opening * depth + b"\xc0"


def value_of(kind: inspect.Type, rng: random.Random, texts: Sequence[str] = TEXTS) -> Any:
    """Return a value of the type, as plain lists and dicts that MessagePack knows."""

    def inner(kind: inspect.Type) -> Any:
        return value_of(kind, rng, texts)

    match kind:
        case inspect.NoneType():
            return None
        case inspect.BoolType():
            return rng.random() < 0.5
        case inspect.IntType(ge=least, le=most):
            fit = [n for n in INTS if (least is None or n >= least) and (most is None or n <= most)]
            return rng.choice(fit if rng.random() < 0.9 else INTS)
        case inspect.FloatType():
            return rng.choice(FLOATS)
        case inspect.StrType(pattern=pattern) if pattern is not None and rng.random() < 0.9:
            return rng.choice([text for text in texts if re.search(pattern, text)])
        case inspect.StrType():
            return rng.choice(texts)
        case inspect.BytesType():
            return rng.randbytes(rng.choice((0, 1, 16, 20, 300)))
        case inspect.EnumType(cls=cls):
            return rng.choice(list(cls)).value
        case inspect.LiteralType(values=values):
            return rng.choice(values)
        case inspect.UnionType(types=types):
            return inner(rng.choice(types))
        case inspect.StructType(array_like=True, tag=tag, fields=fields):
            values = [inner(field.type) for field in fields]
            return values if tag is None else [tag, *values]
        case inspect.NamedTupleType(fields=fields):
            return [inner(field.type) for field in fields]
        case inspect.StructType(fields=fields) | inspect.DataclassType(fields=fields):
            return {field.encode_name: inner(field.type) for field in fields}
        case inspect.TupleType(item_types=types):
            return [inner(each) for each in types]
        case inspect.DictType(key_type=key, value_type=value):
            return {inner(key): inner(value) for _ in range(rng.randrange(3))}
        case inspect.CollectionType(item_type=item):
            return [inner(item) for _ in range(rng.randrange(3))]
    raise AssertionError(f"no value of {kind} is known here")


def damaged_value(rng: random.Random, size_max: int) -> bytes:
    """Return the MessagePack of something that should not be where it is put."""
    match rng.randrange(10):
        case 0:
            return nested(rng.choice((3, 100, 900, 990, min(5000, size_max), size_max)))
        case 1:
            return nested(min(1500, size_max // 3), b"\x81\xa1k")
        case 2:
            return nested(min(1500, size_max), b"\x81")  # maps as keys of maps
        case 3:
            return rng.choice(HEADS) + struct.pack(">I", rng.choice((2**32 - 1, 2**31, 70_000)))
        case 4:
            return b"\xa4" + rng.choice((b"\xff\xfe\x00\x01", b"\xed\xa0\x80a", b"\xc0\x80ab"))
        case 5:
            return b"\xc7\x05" + rng.randbytes(6)  # an extension of any type
        case 6:
            return rng.choice((b"\xd6", b"\xd7")) + b"\xff" + b"\xff" * 8  # timestamps
        case 7:
            return b"\x82\xa1k\x01\xa1k\x02"  # a key twice
        case 8:
            return rng.choice((b"\xc1", b"\xc0", b"\xc3", b"\xcb\x7f\xf8" + bytes(6), b"\x80", b""))
    return rng.randbytes(rng.randrange(1, 12))


def damaged(value: Any, rng: random.Random, size_max: int) -> bytes:
    """Return the MessagePack of the value, damaged somewhere within, or after it was packed."""
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        value = _replaced(value, msgspec.Raw(damaged_value(rng, size_max)), rng)
    packed = bytearray(msgspec.msgpack.encode(value))
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        at = rng.randrange(len(packed) + 1)
        match rng.randrange(4):
            case 0:
                del packed[at:]
            case 1:
                packed[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 2:
                packed[at : at + 1] = rng.randbytes(1)
            case 3:
                packed += packed[at:]
    return bytes(packed[:size_max])


def _replaced(value: Any, by: Any, rng: random.Random) -> Any:
    """Return the value with something else at some place within, or one field too many or few."""
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        match rng.randrange(6):
            case 0:
                return [*value, by]
            case 1:
                return [*value[:at], *value[at + 1 :]]
        return [*value[:at], _replaced(value[at], by, rng), *value[at + 1 :]]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        return {**value, key: _replaced(value[key], by, rng)}
    return by


def damaged_frames(body: bytes, kind: int, rng: random.Random) -> bytes:
    """Return the body as a frame whose header may be wrong, with more behind it or less."""
    number = rng.choice((0, 1, 2, 2**63, 2**64 - 1))
    if rng.random() < 0.15:
        kind = rng.choice((0, 1, 2, 3, 4, 5, 6, 255))
    length = len(body)
    if rng.random() < 0.15:
        length = rng.choice((0, 1, length + 1, 1024, 1025, 4 << 20, 33 << 20, 2**32 - 1))
    data = HEADER.pack(length, kind, number) + body
    match rng.randrange(10):
        case 0:
            return data[: rng.randrange(len(data) + 1)]
        case 1:
            return data * rng.randrange(2, 30)
        case 2:
            return rng.randbytes(rng.randrange(1, 2000))
    return data
