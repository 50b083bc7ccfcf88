"""The two records that the consensus itself writes into the log.

They begin with byte 0xC1, which MessagePack never uses: no record of a state machine can be taken
for one, and a fold passes over them by their first byte.
"""

from __future__ import annotations

from mrstream.cluster.consensus.members import MemberId, Members
from mrstream.cluster.wire.messages import Message, pack, unpack

MARK = 0xC1


class EpochBegan(Message, frozen=True):
    """The first record of every leader: from here on, records are of its epoch."""

    epoch: int
    leader: MemberId


class MembersSet(Message, frozen=True):
    """From here on, these are the members."""

    voters: tuple[MemberId, ...]
    learners: tuple[MemberId, ...] = ()

    @property
    def members(self) -> Members:
        return Members(self.voters, self.learners)


Own = EpochBegan | MembersSet


def encode_own(record: Own) -> bytes:
    return bytes([MARK]) + pack(record)


def decode_own(payload: bytes) -> Own | None:
    """Return what the consensus wrote, None for a record of the state machine.

    Raises `msgspec.DecodeError` where the bytes begin like ours and are not.
    """
    if payload[:1] != bytes([MARK]):
        return None
    record: Own = unpack(payload[1:], Own)
    return record
