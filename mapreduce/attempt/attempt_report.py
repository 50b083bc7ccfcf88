"""What an attempt tells whoever started it: messages through a pipe, each a frozen struct.

An attempt says `AttemptNews` and `Said` while it runs and exactly one `Done` or `Failed` at its
end; one that ends without either was killed. A process that says `Ready` waits for the next one.
`Decoder` turns the pipe's bytes back into messages. Never decides anything.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Annotated

import msgspec

from mrstream.cluster.errors import Speechless
from mrstream.cluster.wire.messages import Count, reader_of
from mrstream.mapreduce.attempt.pipe_frames import Cutter, framed
from mrstream.mapreduce.program.flow import InputRange
from mrstream.mapreduce.scheduler.ids import ATTEMPT_PATTERN

# Ids that parse and numbers that count something, or a message is refused where it is read.
AttemptName = Annotated[str, msgspec.Meta(pattern=rf"\A{ATTEMPT_PATTERN}\Z")]
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
KEPT_ORDER, KEPT_FAILURE = "order.msgpack", "failure.msgpack"
KEPT_INPUT, KEPT_SEGMENT = "stdin", "segment"
KEPT_FILES = (KEPT_FAILURE, KEPT_INPUT, KEPT_SEGMENT, KEPT_ORDER)
"""What a failed attempt leaves for `-repeat`: `stdin` is a map's input, `segment` a reduce's. The
order comes last: with it all is there."""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Why an attempt failed, with all that a person needs to act."""

    message: str
    """Hadoop's words where it has any, else ours."""
    stage: str = ""
    """`map`, `combine` or `reduce`: whose program it was; empty if it was none."""
    command: str = ""
    exit_code: int | None = None
    stderr_tail: tuple[str, ...] = ()
    input: InputRange | None = None
    log_directory: str = ""
    is_timeout: bool = False
    trace: str = ""
    """A traceback, if the fault is ours."""


def death_text(status: int) -> str:
    """Say how the process of an attempt ended that has told no end; `status` as `os.waitstatus_to_
    exitcode` has it."""
    if status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory? `dmesg` tells)" if status == -signal.SIGKILL else ""
        return f"the attempt's own process was ended by {name} before it could say why{hint}"
    return f"the attempt's own process ended with status {status} before it could say why"


class AttemptNews(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Signs of life: how far, how much, and the users' counters so far. Heartbeats pass them on."""

    attempt_id: AttemptName
    fraction: Fraction
    records: Count
    bytes: Count
    phase: str = ""
    status: str = ""
    counters: dict[str, dict[str, int]] = {}


class Said(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the program wrote to standard error, for the console; bounded, the log has more."""

    text: bytes


class Noted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A line for the console's log, such as a counter line that makes no sense."""

    level: str
    text: str


class PartitionSize(msgspec.Struct, frozen=True, array_like=True):
    """How much of a map's output is for one reduce."""

    offset: int
    length: int
    records: int
    raw_bytes: int
    hadoop_bytes: int


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The attempt is complete: its segment, or its uncommitted output, is written."""

    counters: dict[str, dict[str, int]]
    partitions: tuple[PartitionSize, ...] = ()
    """Of a map's segment; empty for final output."""
    segment_bytes: int = 0
    output_bytes: int = 0
    largest_key: bytes = b""
    largest_key_records: int = 0
    """Of a reduce: the key with the most records, to blame for skew."""
    skipped: tuple[tuple[int, int], ...] = ()
    """Record ranges that the attempt left out on purpose."""


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    failure: Failure


class Shuffled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A reduce has its partition of every map, and needs no segments any more."""


class Unfetched(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A reduce could not fetch from a map; `gone` if the segment is surely lost or corrupt."""

    map_attempt_id: str
    reason: str
    gone: bool


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """After `Done`: nothing of the attempt is left, and its process takes another order."""


Message = AttemptNews | Said | Noted | Done | Failed | Shuffled | Unfetched | Ready

_encode = msgspec.msgpack.Encoder().encode
_read = reader_of(Message)


def send(descriptor: int, message: Message) -> None:
    """Write one message to a pipe; whole even where writers share it, if they take turns."""
    view = memoryview(framed(_encode(message)))
    while view:
        view = view[os.write(descriptor, view) :]


class Decoder:
    """Cuts the bytes of a pipe into messages."""

    def __init__(self) -> None:
        self._cutter = Cutter()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take some bytes; give the messages that are complete. `Speechless` if they are none: no
        attempt of ours says that, but the user's programs run beside it."""
        for body in self._cutter.feed(data):
            try:
                message: Message = _read(body)
            except msgspec.DecodeError as error:
                raise Speechless(f"an attempt's report cannot be read: {error}") from None
            yield message
