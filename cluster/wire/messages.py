"""Messages: frozen msgspec structs, packed as MessagePack arrays that begin with their name.

A field may be added at the end of a message if it has a default: an older reader ignores it, a
newer one fills it in. Nothing here does any IO.

`reader_of` and `unpack` are the one door for bytes that another process or machine made: whatever
they are, a value of the type comes out or `msgspec.DecodeError`. Every message says what it holds
down to the last value, so that what comes out is never nested deeper than `DEPTH_MAX`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec

from mrstream.cluster.errors import ClusterError, from_wire, name_chain

DEPTH_MAX = 8
"""Arrays and maps within one another in a message; tests/unit/cluster/test_messages.py counts."""

Plain = bool | int | float | str | None

# What a message may hold is said in its types, and refused where it is read: who handles it never
# meets less than nothing of something.
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62) - 1)]
"""Two of them still add up to what C and files count with."""
Crc = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Anything that crosses a connection; its wire name is its class name."""


class Request(Message, frozen=True, array_like=True, tag=True):
    """A question to a server.

    `reply` is the type of the answer (any type that msgspec knows, `type(None)` for none).
    `mutates` is true where a repeat of the same request must not be carried out twice: the
    server then remembers the answer by (client id, request number) and repeats that instead.
    `diagnosed` is false for requests too frequent and too dull for the diagnostic log.
    """

    reply: ClassVar[Any] = type(None)
    mutates: ClassVar[bool] = False
    diagnosed: ClassVar[bool] = True


class ErrorReply(Message, frozen=True, array_like=True, tag=True):
    """An error on its way back: its names from leaf to branch, what it says, plain details."""

    names: list[str]
    message: str
    details: dict[str, Plain | list[Plain]] = {}

    @staticmethod
    def of(error: ClusterError) -> ErrorReply:
        """Pack an error; a detail that is not plain crosses as its `repr`."""
        details = {
            name: value if _is_plain(value) else repr(value)
            for name, value in error.details.items()
        }
        return ErrorReply(name_chain(error), error.message, details)

    def error(self) -> ClusterError:
        """Unpack it: an exception ready to be raised at the caller."""
        return from_wire(self.names, self.message, self.details)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(item, Plain) for item in value)
    return isinstance(value, Plain)


class Health(Request, frozen=True, array_like=True, tag=True):
    """Are you well, and who are you? Every daemon answers it."""

    reply: ClassVar[Any]
    diagnosed: ClassVar[bool] = False


class GuardReply(Message, frozen=True, array_like=True, tag=True):
    """What the guard of a daemon's host says of itself."""

    pid: int
    restarts: dict[str, int] = {}
    """Role → how often it was started again."""
    left_down: dict[str, str] = {}
    """Role → why it is not started any more."""


class HealthReply(Message, frozen=True, array_like=True, tag=True):
    """A daemon's word about itself; `ready` is false while it recovers or waits for its master."""

    role: str
    host: str
    pid: int
    since_s: float
    version: str
    ready: bool
    detail: str = ""
    guard: GuardReply | None = None
    """None: the host has no guard."""


Health.reply = HealthReply


class Metrics(Request, frozen=True, array_like=True, tag=True):
    """Give me your counters. Every daemon answers it."""

    reply: ClassVar[Any] = dict[str, float]
    diagnosed: ClassVar[bool] = False


class Stop(Request, frozen=True, array_like=True, tag=True):
    """Finish what is acknowledged, then end. The answer comes before the end."""

    reply: ClassVar[Any] = type(None)
    grace_s: float = 10.0


Reader = Callable[[bytes | bytearray | memoryview], Any]
_encoder = msgspec.msgpack.Encoder()
_readers: dict[Any, Reader] = {}
_making = threading.Lock()

# What msgspec raises for bytes from outside besides its own DecodeError (a ValueError, too):
#
# RecursionError: a value that its type does not know is skipped, by a function that calls itself
# for every array in it; a thousand bytes are enough. To catch it is safe: msgspec asks the
# interpreter at every level, which counts C calls with Python's (3.11), by themselves (3.12) or by
# the room on the stack (3.14), so that it is raised long before the stack is full; and when we see
# it all those levels are left, so that we have as much room as we had before. What was skipped is
# nowhere. What is kept is as deep as its type, which DEPTH_MAX bounds: nothing that reads or prints
# it later can meet the limit. Nobody calls us from deep within a stack: readers run at the top of a
# thread or of a loop, so that an honest message (DEPTH_MAX) never meets the limit.
#
# UnicodeDecodeError: a string that is not UTF-8. MemoryError, OverflowError: a length that cannot
# be; none is known to raise them (a length beyond the end of the bytes is a DecodeError before
# anything is allocated), but they would be the bytes' fault, too.
_DAMAGE = (RecursionError, UnicodeDecodeError, MemoryError, OverflowError)


def pack(value: Any) -> bytes:
    """Return the value as MessagePack."""
    return _encoder.encode(value)


def pack_into(value: Any, buffer: bytearray, offset: int) -> None:
    """Write the value into the buffer from `offset` on; the buffer ends where the value ends."""
    _encoder.encode_into(value, buffer, offset)


def reader_of(kind: Any) -> Reader:
    """Return the (cached) function from bytes to a value of the type; see `unpack`."""
    reader = _readers.get(kind)
    if reader is None:
        # While one is being made, msgspec shows the types in it half-finished to other threads
        # that make another: a crash of the process, seen with a hundred threads.
        with _making:
            reader = _readers.get(kind)
            if reader is None:
                reader = _readers[kind] = _reader(msgspec.msgpack.Decoder(kind).decode)
    return reader


def _reader(decode: Reader) -> Reader:
    def read(data: bytes | bytearray | memoryview) -> Any:
        try:
            return decode(data)
        except _DAMAGE as error:
            what = "nested too deep" if isinstance(error, RecursionError) else str(error)
            raise msgspec.DecodeError(what or type(error).__name__) from None

    return read


def make_decoders() -> None:
    """Make the decoders of all messages that are loaded: a fork of this process then has them."""
    waiting: list[type[Message]] = [Message]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        reader_of(kind)
        if issubclass(kind, Request):
            reader_of(kind.reply)


def unpack(data: bytes | bytearray | memoryview, kind: Any) -> Any:
    """Return the value of that type, or raise `msgspec.DecodeError` when the bytes are not one,
    however they are made."""
    return reader_of(kind)(data)


def union_of(kinds: list[type[Message]]) -> Any:
    """Return the type that means "one of these messages"; their names must differ."""
    assert kinds, "a union of no messages"
    union: Any = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    return union
