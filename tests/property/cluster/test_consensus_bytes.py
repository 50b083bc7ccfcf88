"""Foreign bytes: whatever they are, a value comes out or the error that callers expect."""

from __future__ import annotations

import contextlib
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.epochs import UNKNOWN, Epochs
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, Members
from mrstream.cluster.consensus.messages import AppendLog, Position, PreVote, Vote, Voted
from mrstream.cluster.consensus.records import EpochBegan, MembersSet, decode_own, encode_own
from mrstream.cluster.consensus.replica import Replica
from mrstream.cluster.consensus.state import Remembered
from mrstream.cluster.errors import JournalCorrupt
from mrstream.cluster.journal.ballot_file import SLOT_BYTES, decode_slot, encode_slot
from mrstream.cluster.journal.group_recovery import encode_members, split_members

names = st.text(min_size=1, max_size=20).map(MemberId)
numbers = st.integers(0, 50)


@given(st.integers(0, 2**64 - 1), names, st.lists(names, max_size=5), st.lists(names, max_size=3))
def test_records_of_the_consensus_come_back(
    epoch: int, leader: MemberId, voters: list[MemberId], learners: list[MemberId]
) -> None:
    for record in (EpochBegan(epoch, leader), MembersSet(tuple(voters), tuple(learners))):
        assert decode_own(encode_own(record)) == record


@given(st.binary(min_size=1, max_size=80))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    assert decode_own(b"\x00" + data) is None
    with contextlib.suppress(msgspec.DecodeError):
        decode_own(b"\xc1" + data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_slot_or_none(data: bytes) -> None:
    decode_slot(data)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 44 * 8 - 1),
)
def test_a_slot_comes_back_and_a_flipped_bit_is_seen(
    counter: int, epoch: int, voted_for: bytes, bit: int
) -> None:
    slot = bytearray(encode_slot(counter, epoch, voted_for))
    assert decode_slot(bytes(slot)) == (counter, epoch, voted_for) and len(slot) == SLOT_BYTES
    slot[bit // 8] ^= 1 << bit % 8
    assert decode_slot(bytes(slot)) is None


@given(st.binary(max_size=100))
def test_any_bytes_begin_a_checkpoint_or_are_corrupt(data: bytes) -> None:
    with contextlib.suppress(JournalCorrupt):
        split_members(iter([data]), "checkpoint")
    rows, rest = split_members(iter([encode_members(((3, Members(())),)) + data]), "checkpoint")
    assert rows == ((3, Members(())),) and b"".join(rest) == data


@given(st.lists(st.booleans(), max_size=30), numbers, numbers, numbers)
def test_the_fork_point_is_never_before_what_two_logs_share(
    steps: list[bool], cut: int, sequence: int, epoch: int
) -> None:
    """Raft §5.3: going back over epochs finds a shared record, and never passes the last one."""
    log = Epochs()
    for begins in steps:
        log.add(log.last_epoch + (1 if begins else 0))
    shared = min(cut, log.last)
    found, found_epoch = log.fork_point(sequence, epoch)

    assert found <= max(sequence, log.base) and log.at(found) == found_epoch
    if log.at(shared) <= epoch and shared <= sequence:
        assert found >= shared
    assert log.at(log.last + 1) == UNKNOWN


words = st.one_of(
    st.builds(PreVote, numbers, numbers, numbers),
    st.builds(Vote, numbers, numbers, numbers),
    st.builds(Voted, numbers, numbers, st.booleans(), st.booleans()),
    st.builds(Position, numbers, numbers, st.floats(0, 9), st.booleans(), numbers, numbers),
    st.builds(
        AppendLog,
        epoch=numbers,
        previous=numbers,
        previous_epoch=numbers,
        committed=st.just(0),
        sent_at_s=st.floats(0, 9),
        records=st.lists(st.binary(max_size=6), max_size=3).map(tuple),
    ),
)


@given(st.lists(st.tuples(st.sampled_from("bcx"), words), max_size=25))
def test_no_message_breaks_a_member_that_leads(said: list[tuple[str, object]]) -> None:
    """Whatever a connection brings: the brain goes on, and its own invariants hold."""
    members = Members((MemberId("a/1"), MemberId("b/1"), MemberId("c/1")))
    found = Remembered(members=((0, members),))
    replica = Replica(MemberId("a/1"), found, Timing(), Random(1), 0.0)
    replica.handle(e.Tick(), 5.0)
    for voter in "bc":
        for pre in (True, False):
            voted = Voted(1 if not pre else 0, 1, True, pre)
            replica.handle(e.Received(MemberId(f"{voter}/1"), voted), 5.0)
    assert replica.is_leading
    for at, (name, word) in enumerate(said):
        if isinstance(word, AppendLog) and word.epoch == replica.epoch and replica.is_leading:
            continue  # a second leader of our epoch is a bug of ours, and ends the process
        replica.handle(e.Received(MemberId(f"{name}/1"), word), 5.0 + at / 10)  # type: ignore[arg-type]
        replica.check_invariants()
