"""What comes into the brain and what it wants done.

Before `LeadershipBegan` the brain is a shadow's: it takes a `Called` with one of `WATCHED`, and
`Tick`, and gives answers and nothing else (F4). Order of the shell's duties: take one event, let
the brain decide, make durable every `Log` in the order given, and only then carry out the `Reply`,
`Refuse` and `Send` commands. A `Halt` stands alone and is carried out at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.messages import Request
from mrstream.dfs.chunk import ServerId
from mrstream.dfs.metadata.operations import AnyRecord, RequestId
from mrstream.dfs.protocol import Command as ServerCommand


@dataclass(frozen=True, slots=True)
class LeadershipBegan:
    """The log is folded in and this master serves from now on: it has just started. Chunkservers
    may still act on leases from before, and nobody has registered here."""

    epoch: int
    """Higher than that of every master before. Commands are numbered below it: chunkservers
    remember those that they carried out, and refuse those of an older epoch."""


@dataclass(frozen=True, slots=True)
class Founded:
    """The log is empty: this is a new file system, and its root belongs to whoever runs it."""

    owner: str
    group: str
    mount: str = ""
    """Of a cell: the directory that all its files lie below."""


@dataclass(frozen=True, slots=True)
class Called:
    """A request from a client or a chunkserver; exactly one `Reply` or `Refuse` answers it."""

    call: int
    request: Request
    request_id: RequestId = (0, 0)


@dataclass(frozen=True, slots=True)
class ServerGone:
    """The connection of this incarnation of a chunkserver ended; it may well be alive."""

    server: ServerId
    incarnation: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed (this comes a few times a second)."""

    late_s: float = 0.0
    """It comes so much later than it was due: for so long the master was stopped, or starved."""


@dataclass(frozen=True, slots=True)
class LogInDoubt:
    """Some copy of the log has not been compared with it since the start, and may go further; or,
    if not `is_in_doubt`, all of them are a part of it."""

    is_in_doubt: bool


@dataclass(frozen=True, slots=True)
class LossAccepted:
    """A person took this log although others, or chunks, may go further: what they have beyond it
    is given up."""


Event = LeadershipBegan | Founded | Called | ServerGone | Tick | LogInDoubt | LossAccepted


@dataclass(frozen=True, slots=True)
class Log:
    """Make this durable before anything that follows it in the list is done."""

    record: AnyRecord


@dataclass(frozen=True, slots=True)
class Reply:
    call: int
    value: Any


@dataclass(frozen=True, slots=True)
class Refuse:
    call: int
    error: ClusterError


@dataclass(frozen=True, slots=True)
class Send:
    """Push a command to this incarnation of a chunkserver; drop it if it is not connected."""

    server: ServerId
    incarnation: int
    message: ServerCommand


@dataclass(frozen=True, slots=True)
class Halt:
    """End, and say nothing more of what was decided, not even before: the log that the state came
    from is not the one that was acknowledged."""

    why: str


@dataclass(frozen=True, slots=True)
class Outrun:
    """A chunkserver has obeyed a master of this later epoch, and obeys us no more."""

    epoch: int


Command = Log | Reply | Refuse | Send | Halt | Outrun
