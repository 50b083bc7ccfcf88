"""A member of a group around its brain: checkpoints that come, a disk that lags, tasks that end."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mrstream.cluster.clock import SystemClock
from mrstream.cluster.consensus import commands as c
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId
from mrstream.cluster.consensus.records import EpochBegan, MembersSet, encode_own
from mrstream.cluster.errors import DiskFailed, Unavailable
from mrstream.cluster.journal import group_member, peers, tail
from mrstream.cluster.journal.copying import Copying
from mrstream.cluster.journal.group_disk import GroupDisk
from mrstream.cluster.journal.group_log import GroupLog
from mrstream.cluster.journal.replicated import ReplicatedJournal
from mrstream.cluster.wire.network import Identity
from tests.support.forgetful_disk import ForgetfulDisk

JOURNAL = b"0123456789abcdef"
ME = MemberId("h/0123456789abcdef")
OTHERS = (MemberId("g/g"), MemberId("i/i"))


class Receiver:
    """A member that a checkpoint is sent to."""

    def __init__(self) -> None:
        self.files = ForgetfulDisk()
        self.log = GroupLog("/log", "cell", self.files)
        self.log.open(JOURNAL)
        self.failures: list[DiskFailed] = []
        self.installed: list[str] = []
        self.disk = GroupDisk(self.log, lambda sequence, era: None, self.failures.append)
        copying = Copying(self.log, self.disk, ME, lambda sequence: False, self.installed.append)
        self._handlers = copying.handlers

    def ask(self, request: Any, peer: object) -> None:
        self._handlers[type(request)](request, peer)  # type: ignore[arg-type]  # only told apart

    def begin(self, sequence: int, peer: object) -> None:
        self.ask(peers.BeginCheckpoint(ME, sequence, 1, ()), peer)

    def state(self) -> bytes:
        held = GroupLog("/log", "cell", self.files).read_checkpoint()
        assert held is not None
        return b"".join(held[3])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.disk.close()


def test_pieces_of_a_leader_of_the_past_do_not_get_into_a_checkpoint(receiver: Receiver) -> None:
    """C7: it was stopped in the middle of sending, and goes on before it knows that it is over."""
    old, new = object(), object()
    receiver.begin(5, old)
    receiver.ask(peers.CheckpointPiece(b"old-1"), old)
    receiver.begin(9, new)
    receiver.ask(peers.CheckpointPiece(b"new-1"), new)

    with pytest.raises(Unavailable, match="over this connection"):
        receiver.ask(peers.CheckpointPiece(b"old-2"), old)
    with pytest.raises(Unavailable, match="over this connection"):
        receiver.ask(peers.EndCheckpoint(), old)
    receiver.ask(peers.CheckpointPiece(b"new-2"), new)
    receiver.ask(peers.EndCheckpoint(), new)

    assert receiver.state() == b"new-1new-2"
    assert len(receiver.installed) == 1 and receiver.failures == []
    assert not [name for name in receiver.files.list("/log") if name.endswith(".tmp")]


def test_a_full_disk_refuses_a_checkpoint_and_takes_it_when_there_is_room(
    receiver: Receiver,
) -> None:
    """And gives the room back that the half of it took: the log needs it."""
    peer, before = object(), receiver.files.list("/log")
    receiver.files.room_bytes = 300_000
    receiver.begin(9, peer)
    with pytest.raises(Unavailable, match="No space left"):
        for _ in range(100):
            receiver.ask(peers.CheckpointPiece(b"x" * 100_000), peer)
    with pytest.raises(Unavailable, match="over this connection"):
        receiver.ask(peers.EndCheckpoint(), peer)
    assert receiver.files.list("/log") == before
    receiver.files.room_bytes = 1 << 30
    receiver.begin(9, peer)
    receiver.ask(peers.CheckpointPiece(b"whole"), peer)
    receiver.ask(peers.EndCheckpoint(), peer)

    assert receiver.state() == b"whole" and receiver.failures == []


class Machine:
    def __init__(self) -> None:
        self.applied: list[int] = []
        self.reasons: list[str] = []

    def on_committed(self, sequence: int, payload: bytes) -> None:
        self.applied.append(sequence)

    def on_leadership(self, epoch: int) -> None:
        pass

    def on_parked(self, parked: bool) -> None:
        pass

    def on_restart(self, reason: str) -> None:
        self.reasons.append(reason)


class Running:
    """A member on a loop of its own, with nobody at the other ends."""

    def __init__(self, directory: Path) -> None:
        self.failures: list[DiskFailed] = []
        self.machine = Machine()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.journal = ReplicatedJournal(
            str(directory / "log"),
            Identity("cell", b"s" * 32, "test", "h"),
            {"h": "127.0.0.1:0", "g": "127.0.0.1:1", "i": "127.0.0.1:1"},
            timing=Timing(lease_s=3600.0),
            clock=SystemClock(),
            on_failure=self.failures.append,
        )

    def start(self) -> None:
        self.journal.recover()
        started = threading.Event()

        def do() -> None:
            self.journal.start(self.loop, self.machine)
            started.set()

        self.loop.call_soon_threadsafe(do)
        assert started.wait(60)

    @property
    def member(self) -> group_member.GroupMember:
        return self.journal._member

    def close(self) -> None:
        self.journal.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.close()


def until(true: Callable[[], object]) -> None:
    waited = threading.Event()
    for _ in range(1200):
        if true():
            return
        waited.wait(0.05)
    pytest.fail("not within a minute")


def test_what_others_committed_is_applied_though_our_disk_has_not_begun(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A majority without us may be quicker, and memory does not keep everything."""
    monkeypatch.setattr(tail, "BYTES_MAX", 1000)
    running.start()
    may_write, write = threading.Event(), running.member.log.write

    def slow(first: int, records: Any) -> None:
        may_write.wait(60)
        write(first, records)

    monkeypatch.setattr(running.member.log, "write", slow)
    records = (
        encode_own(EpochBegan(1, OTHERS[0])),
        encode_own(MembersSet((running.member.me, *OTHERS))),
        *(b"r%d" % at * 300 for at in range(20)),
    )
    log = peers.AppendLog(1, 0, 0, len(records), 5.0, records)
    ends_at = len(records)
    threading.Timer(0.5, may_write.set).start()
    running.member._loop.call_soon_threadsafe(running.member._heard, OTHERS[0], log)

    until(lambda: len(running.machine.applied) == 20)
    assert running.machine.applied == list(range(3, ends_at + 1))
    assert running.failures == []


def test_a_disk_that_fails_before_it_has_what_is_committed_ends_the_member(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "BYTES_MAX", 1000)
    running.start()

    def fails(first: int, records: Any) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(running.member.log, "write", fails)
    records = (
        encode_own(EpochBegan(1, OTHERS[0])),
        encode_own(MembersSet((running.member.me, *OTHERS))),
        *(b"r%d" % at * 300 for at in range(20)),
    )
    log = peers.AppendLog(1, 0, 0, len(records), 5.0, records)
    running.member._loop.call_soon_threadsafe(running.member._heard, OTHERS[0], log)

    until(lambda: running.failures)
    assert "broken" in str(running.failures[0])
    assert running.machine.applied == []


def test_a_link_that_ends_by_a_bug_ends_the_member(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be deaf to one of the others, and nobody would know until the third is lost."""

    async def breaks(*_: Any, **__: Any) -> None:
        raise RuntimeError("the handler is closed")

    monkeypatch.setattr(peers.Channel, "connect", breaks)
    running.start()

    until(lambda: running.failures)
    assert "the handler is closed" in str(running.failures[0])


def test_a_command_of_no_known_kind_is_a_bug_that_is_heard_of(running: Running) -> None:
    class Strange(c.Command, frozen=True):
        pass

    running.start()
    running.journal._member.replica.state.out.append(Strange())
    running.member.post(None)
    running.member.post(group_member.e.Tick())

    until(lambda: running.failures)
