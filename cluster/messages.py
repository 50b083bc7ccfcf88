"""Messages: frozen msgspec structs, packed as MessagePack arrays that begin with their name.

A field may be added at the end of a message if it has a default: an older reader ignores it, a
newer one fills it in. Nothing here does any IO.
"""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import msgspec

from cluster.errors import ClusterError, from_wire, name_chain


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
    details: dict[str, Any] = {}

    @staticmethod
    def of(error: ClusterError) -> ErrorReply:
        """Pack an error."""
        return ErrorReply(name_chain(error), error.message, error.details)

    def error(self) -> ClusterError:
        """Unpack it: an exception ready to be raised at the caller."""
        return from_wire(self.names, self.message, self.details)


class Health(Request, frozen=True, array_like=True, tag=True):
    """Are you well, and who are you? Every daemon answers it."""

    reply: ClassVar[Any]
    diagnosed: ClassVar[bool] = False


class HealthReply(Message, frozen=True, array_like=True, tag=True):
    """A daemon's word about itself; `ready` is false while it recovers or waits for its master."""

    role: str
    host: str
    pid: int
    since_s: float
    version: str
    ready: bool
    detail: str = ""


Health.reply = HealthReply


class Metrics(Request, frozen=True, array_like=True, tag=True):
    """Give me your counters. Every daemon answers it."""

    reply: ClassVar[Any] = dict[str, float]
    diagnosed: ClassVar[bool] = False


class Stop(Request, frozen=True, array_like=True, tag=True):
    """Finish what is acknowledged, then end. The answer comes before the end."""

    reply: ClassVar[Any] = type(None)
    grace_s: float = 10.0


_encoder = msgspec.msgpack.Encoder()
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}
_making = threading.Lock()


def pack(value: Any) -> bytes:
    """Return the value as MessagePack."""
    return _encoder.encode(value)


def pack_into(value: Any, buffer: bytearray, offset: int) -> None:
    """Write the value into the buffer from `offset` on; the buffer ends where the value ends."""
    _encoder.encode_into(value, buffer, offset)


def decoder_of(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the (cached) decoder for a type."""
    decoder = _decoders.get(kind)
    if decoder is None:
        # While one is being made, msgspec shows the types in it half-finished to other threads
        # that make another: a crash of the process, seen with a hundred threads.
        with _making:
            decoder = _decoders.get(kind)
            if decoder is None:
                decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    return decoder


def make_decoders() -> None:
    """Make the decoders of all messages that are loaded: a fork of this process then has them."""
    waiting: list[type[Message]] = [Message]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        decoder_of(kind)
        if issubclass(kind, Request):
            decoder_of(kind.reply)


def unpack(data: bytes | memoryview, kind: Any) -> Any:
    """Return the value of that type, or raise `msgspec.DecodeError` when the bytes are not one."""
    return decoder_of(kind).decode(data)


def union_of(kinds: list[type[Message]]) -> Any:
    """Return the type that means "one of these messages"; their names must differ."""
    assert kinds, "a union of no messages"
    union: Any = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    return union
