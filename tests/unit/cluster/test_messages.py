"""The one door for bytes from outside: a value of the type, or `msgspec.DecodeError`."""

from __future__ import annotations

import importlib
import pkgutil
import struct
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from mrstream import cluster, dfs, mapreduce
from mrstream.cluster.errors import ClusterError, NotTrusted
from mrstream.cluster.wire.handshake import Hello
from mrstream.cluster.wire.messages import DEPTH_MAX, ErrorReply, Message, Request, pack, unpack
from mrstream.mapreduce.attempt.attempt_report import Message as Report
from mrstream.mapreduce.job.job import JobSpec
from mrstream.mapreduce.protocol import SegmentNews
from mrstream.mapreduce.worker.attempt_process import WorkOrder

HELLO = Hello(1, "c", "client", "h", "", 7, b"n" * 16)
NESTED = b"\x91" * 900 + b"\xc0"


def longer(message: Message, *more: bytes) -> bytes:
    """A message with fields that its reader does not know."""
    packed = bytearray(pack(message))
    assert 0x90 <= packed[0] < 0x9F - len(more)
    packed[0] += len(more)
    return bytes(packed) + b"".join(more)


def hello_with(**fields: bytes) -> bytes:
    """A Hello with other bytes in the place of some fields."""
    packed = [fields.get(name, pack(getattr(HELLO, name))) for name in Hello.__struct_fields__]
    return bytes([0x91 + len(packed)]) + pack("Hello") + b"".join(packed)


@pytest.mark.parametrize(
    "body",
    [
        longer(HELLO, b"\x91" * 1000 + b"\xc0"),
        longer(HELLO, b"\x81\xa1k" * 100_000 + b"\xc0"),
        longer(HELLO, b"\x91" * 2_000_000),
        longer(HELLO, b"\xdd\xff\xff\xff\xff"),
        longer(HELLO, b"\xdf\xff\xff\xff\xff\x01"),
        longer(HELLO, b"\xc6\xff\xff\xff\xff"),
        longer(HELLO, b"\xc9\xff\xff\xff\xff\x01"),
        longer(HELLO, b"\xc1"),
        hello_with(host=b"\xa2\xff\xfe"),
        hello_with(host=b"\xa3\xed\xa0\x80"),
        hello_with(nonce=b"\xc6\xff\xff\xff\xff"),
        hello_with(version=b"\xcb\x7f\xf8" + bytes(6)),
        hello_with(version=b"\xc7\x01\x05a"),
        hello_with(version=b"\xd7\xff" + b"\xff" * 8),
        hello_with(version=b"\xdd\xff\xff\xff\xff"),
        pack(HELLO)[:-1],
        pack(HELLO) + b"\xc0",
        b"\x91" * 1024,
        b"\xdd\xff\xff\xff\xff\xa5Hello",
        b"",
    ],
    ids=lambda body: f"{body[:12].hex()}-{len(body)}",
)
def test_bytes_that_are_no_message_are_refused_in_one_way_only(body: bytes) -> None:
    """The first of these ended every daemon of a cluster: nobody caught a RecursionError."""
    with pytest.raises(msgspec.DecodeError) as refused:
        unpack(body, Hello)

    assert str(refused.value)


def test_what_a_reader_does_not_know_it_skips() -> None:
    """A newer version may add fields at the end."""
    assert unpack(longer(HELLO, b"\x93\x01\x91\x02\x81\xa1k\xc0"), Hello) == HELLO


@pytest.mark.parametrize("name", ["self", "message", "details", "args", "__class__"])
def test_a_detail_of_an_error_may_have_any_name(name: str) -> None:
    """Details were passed on as keywords: one called `message` was a TypeError at the caller."""
    reply = unpack(pack(ErrorReply(["NotTrusted"], "no", {name: 1})), ErrorReply)

    error = reply.error()

    assert type(error) is NotTrusted
    assert (str(error), error.details) == ("no", {name: 1})


def test_details_of_an_error_are_plain() -> None:
    """What is nested deep would be sent on, logged and printed, each a way to the same end."""
    odd = ClusterError("x", servers=["a", "b"], code=3, raw=b"\0", deep={"a": [1]})
    got = unpack(pack(ErrorReply.of(odd)), ErrorReply).error()
    assert got.details == {
        "servers": ["a", "b"],
        "code": 3,
        "raw": r"b'\x00'",
        "deep": "{'a': [1]}",
    }

    deep = b"\x94\xaaErrorReply\x90\xa0\x81\xa1k" + NESTED
    with pytest.raises(msgspec.DecodeError):
        unpack(deep, ErrorReply)


def test_every_message_says_what_it_holds_down_to_the_last_value() -> None:
    """So that nothing is read that is nested deeper than `DEPTH_MAX`: no Any, no type in itself."""
    for package in (cluster, dfs, mapreduce):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    kinds: list[Any] = [JobSpec, WorkOrder, SegmentNews, Report]
    waiting: list[type[Message]] = [Message]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        kinds += [kind, kind.reply] if issubclass(kind, Request) else [kind]
    assert len(kinds) > 150

    deepest = {kind: _depth(inspect.type_info(kind), ()) for kind in kinds}

    assert max(deepest.values()) <= DEPTH_MAX, max(deepest, key=lambda kind: deepest[kind])


def _depth(kind: inspect.Type, within: tuple[Any, ...]) -> int:
    """How many arrays and maps are within one another in a value of that type, itself included."""
    match kind:
        case inspect.AnyType() | inspect.RawType() | inspect.ExtType():
            raise AssertionError(f"anything may be in {within}")
        case inspect.UnionType(types=types):
            return max(_depth(inner, within) for inner in types)
        case (
            inspect.StructType(cls=cls, fields=fields)
            | inspect.DataclassType(cls=cls, fields=fields)
            | inspect.NamedTupleType(cls=cls, fields=fields)
            | inspect.TypedDictType(cls=cls, fields=fields)
        ):
            assert cls not in within, f"{cls} may be within itself"
            return 1 + max((_depth(field.type, (*within, cls)) for field in fields), default=0)
        case inspect.TupleType(item_types=types):
            return 1 + max((_depth(inner, within) for inner in types), default=0)
        case inspect.DictType(key_type=key, value_type=value):
            return 1 + max(_depth(key, within), _depth(value, within))
        case inspect.CollectionType(item_type=item):
            return 1 + _depth(item, within)
    return 0


def test_numbers_end_at_64_bits() -> None:
    for packed, number in (
        (b"\xcf" + b"\xff" * 8, 2**64 - 1),
        (b"\xd3" + struct.pack(">q", -(2**63)), -(2**63)),
    ):
        assert unpack(packed, int) == number
    with pytest.raises(msgspec.DecodeError):
        unpack(b"\xcb" + struct.pack(">d", 1e300), int)
