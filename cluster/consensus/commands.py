"""What a replica wants done. The shell does it in order, and each before the next.

`SaveBallot` and `Cut` return when the disk has them: what follows may rest on it. `Write` need not:
`Synced` tells of it later. A message is sent once, and may be lost.
"""

from __future__ import annotations

import msgspec

from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.messages import Word


class Command(msgspec.Struct, frozen=True):
    """Something to be done."""


class SaveBallot(Command, frozen=True):
    """Make durable, now: the epoch, and whom we voted for in it ("" for nobody)."""

    epoch: int
    voted_for: MemberId


class SavePromise(Command, frozen=True):
    """Write down, without waiting for the disk, until when we vote for nobody."""

    until_s: float


class Write(Command, frozen=True):
    """Append records to the log from sequence `first` on, then say `Synced` with this era."""

    first: int
    records: tuple[bytes, ...]
    era: int


class Cut(Command, frozen=True):
    """Cut off all records after `after`, durably; no `Synced` of before counts any more."""

    after: int


class Send(Command, frozen=True):
    to: MemberId
    word: Word


class SendLog(Command, frozen=True):
    """Send an `AppendLog` with the records after `previous` up to `last`, or as many of them, from
    the first on, as one message holds."""

    to: MemberId
    epoch: int
    previous: int
    previous_epoch: int
    last: int
    committed: int
    sent_at_s: float


class SendCheckpoint(Command, frozen=True):
    """The member needs records that are no longer kept: send the newest checkpoint."""

    to: MemberId


class Committed(Command, frozen=True):
    """Records up to here will never be cut: apply them, and answer what rests on them."""

    sequence: int


class Led(Command, frozen=True):
    """We lead, and all that was ever acknowledged is committed here: begin to serve."""

    epoch: int


class Deposed(Command, frozen=True):
    """We lead no longer: records may be cut that the state machine has applied. Start anew."""

    reason: str


class Park(Command, frozen=True):
    """Stop answering and proposing (then say `Parked`), or go on."""

    parked: bool


class Accepted(Command, frozen=True):
    """What was asked for is done once the log is committed up to here."""

    ask: int
    sequence: int


class Refused(Command, frozen=True):
    """What was asked for will not be done."""

    ask: int
    reason: str
