"""What comes into the cell's brain and what it wants done.

The first event is `LeadershipBegan`. Order of the shell's duties: take one event, let the brain
decide, make durable every `Log` in the order given, and only then carry out `Reply` and `Refuse`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.messages import Request
from mrstream.lock.cell.records import AnyRecord


@dataclass(frozen=True, slots=True)
class LeadershipBegan:
    """The log is folded in, up to its end, and this member leads from now on: a fail-over."""

    epoch: int
    """Higher than that of every leader before."""


@dataclass(frozen=True, slots=True)
class Called:
    """A request from a client; exactly one `Reply` or `Refuse` answers it."""

    call: int
    request: Request


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed (this comes a few times a second)."""

    late_s: float = 0.0
    """For so long the leader was stopped, starved, or could not make its log durable: clients
    cannot be blamed for that time."""


Event = LeadershipBegan | Called | Tick


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


Command = Log | Reply | Refuse
