"""A journal that several hosts keep: the face of `Journal`, with a group behind it.

`append`, `when_durable`, `durable` and `fork_checkpoint` mean what they mean there; durable is what
is committed (C3), `synced` what our own disk has. Records that others led to come through
`on_committed`, in order, each once; then, if this member leads, `on_leadership`. After `on_restart`
the process must start anew: records that its state machine has applied may be cut (a deposed
leader), or its state is too old (a checkpoint came). No state is ever rolled back in place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from mrstream.cluster.clock import Clock, SystemClock
from mrstream.cluster.consensus import commands as c
from mrstream.cluster.consensus import events as e
from mrstream.cluster.consensus.lease import Timing
from mrstream.cluster.consensus.members import MemberId, Members, member_id
from mrstream.cluster.consensus.records import MARK
from mrstream.cluster.consensus.standing import NotLeader, Standing
from mrstream.cluster.consensus.state import NOBODY
from mrstream.cluster.disk import Disk, OsDisk
from mrstream.cluster.errors import DiskFailed, UserError
from mrstream.cluster.journal import checkpoint
from mrstream.cluster.journal.forked import fork_to_write, has_written
from mrstream.cluster.journal.group_log import GroupLog
from mrstream.cluster.journal.group_member import SILENCE_S_MAX, GroupMember
from mrstream.cluster.journal.waiting import Waiting
from mrstream.cluster.wire.network import Identity

log = logging.getLogger(__name__)

RECORD_BYTES_MAX = 24 * 1024 * 1024
"""A record travels in one message."""
SIGN_OF_LIFE_S = 0.25


class StateMachine(Protocol):
    """What a group's journal tells the program; always on the program's own loop."""

    def on_committed(self, sequence: int, payload: bytes) -> None:
        """Apply a record that somebody else's lead led to."""

    def on_leadership(self, epoch: int) -> None:
        """Everything acknowledged has been applied: decide and answer from now on."""

    def on_parked(self, parked: bool) -> None:
        """Answer nobody and append nothing until told otherwise; or go on."""

    def on_restart(self, reason: str) -> None:
        """Start the process anew; answer nobody before."""


class ReplicatedJournal:
    """One member of a group; for one process at a time.

    Call `recover` first, then `start`. C4: an answer may leave while `lease_left_s()` is above 0.
    """

    def __init__(
        self,
        directory: str,
        identity: Identity,
        addresses: Mapping[str, str],
        *,
        timing: Timing | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
        on_failure: Callable[[DiskFailed], None] | None = None,
        epoch_above: int = 0,
    ) -> None:
        """`epoch_above`: the epochs of a group that is founded here are higher."""
        self.directory = os.path.abspath(directory)
        self.sequence = 0
        """The last sequence given out."""
        self.durable = 0
        """The last sequence that is committed: no loss of a minority loses it."""
        self._identity, self._addresses = identity, dict(addresses)
        self._timing = timing or Timing()
        self._clock = clock or SystemClock()
        self._disk: Disk = OsDisk() if disk is None else disk
        self._on_failure = on_failure
        self._epoch_above = epoch_above
        self._child = 0
        """The process that writes a checkpoint; 0: none does."""
        self._log = GroupLog(directory, identity.cluster_id, self._disk)
        self._changed = threading.Condition()
        """Orders the program's records and the brain's own; guards all that both threads use."""
        self._pending: list[bytes] = []
        """The leader's records that the brain has not seen; `sequence` counts them already, and no
        record of the brain's comes between."""
        self._is_serving = False
        """From `on_leadership` on; a life that leads never follows again."""
        self._is_over = False
        """Deposed, failed or closed: nothing is said any more. Never taken back."""
        self._failure: DiskFailed | None = None
        """Why this member will never know; None where a successor can tell."""
        self._lease_until_s = -math.inf
        """As of the last event: no answer leaves after it (C4)."""
        self._sent_on = 0
        """Records up to here have been passed to the program's loop."""
        self.applied = 0
        """Records up to here have been given to the state machine."""
        self._touched_at_s = 0.0
        """When the program's loop last ran: a leader whose program hangs is to resign."""
        self._waiting = Waiting()
        """Futures of the program's loop, touched there alone."""

    # --- beginning and ending

    def recover(self) -> tuple[int, Iterator[bytes]]:
        """Open what is there; return the newest checkpoint: (its last record, state). What was
        logged after it comes through `on_committed`, once it is known to be committed."""
        found = self._log.open(os.urandom(8).hex().encode())
        for problem in [*found.problems, *([found.torn] if found.torn else [])]:
            log.warning("group log: %s", problem)
        held = self._log.read_checkpoint()
        self.durable = self._sent_on = self.applied = 0 if held is None else held[0]
        self.sequence = self._log.last
        return (0, iter(())) if held is None else (held[0], held[3])

    def look(self) -> tuple[MemberId, Members, int]:
        """Before `recover`, and changing nothing: our own name, the members by our log, and its
        last record."""
        found = self._log.look()
        me = member_id(self._identity.host, found.journal.decode())
        return me, found.members.now, found.shape.last

    def copies(self) -> tuple[dict[MemberId, bool], dict[MemberId, bool]]:
        """As the leader: the other voters, and those that listen; each with whether it has our log
        up to the last beat, and something of this lead."""
        return self._member.replica.copies()

    def start(self, loop: asyncio.AbstractEventLoop, machine: StateMachine) -> None:
        """Begin to listen, follow, stand; everything is told on the loop."""
        self._main, self._machine = loop, machine
        self._touched_at_s = self._clock.now_s()
        self._member = GroupMember(
            self._log,
            self._disk,
            self._identity,
            self._addresses,
            self._timing,
            self._clock,
            self,
            self._epoch_above,
        )
        self._member.start()
        loop.call_soon(self._touch)

    def _touch(self) -> None:
        """The program's loop runs: its sign of life."""
        self._touched_at_s = self._clock.now_s()
        if not self._is_over:
            self._main.call_later(SIGN_OF_LIFE_S, self._touch)

    def close(self) -> None:
        """End this member; what is not committed may still be, by the others."""
        with self._changed:
            self._is_over = True
            self._is_serving = False
            self._changed.notify_all()
        self._member.close()

    def abandon(self) -> None:
        """The process is replaced by its next life: nothing of this one may go on beside it."""
        if self._child:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self._child, signal.SIGKILL)

    # --- records: the face of a journal

    def append(self, payload: bytes) -> int:
        """Take a record of the leader's; return its sequence. It is not durable yet."""
        assert payload and payload[0] != MARK, "a record begins with any byte but 0xC1"
        if len(payload) > RECORD_BYTES_MAX:
            raise UserError(f"a record of {len(payload):,} bytes; at most {RECORD_BYTES_MAX:,}")
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                # Deposed in this moment: the record goes nowhere, and nobody will be told of it.
                return self.sequence + 1
            if not self._is_serving:
                raise self.not_leader()
            self.sequence += 1
            self._pending.append(payload)
            if len(self._pending) == 1:
                self._member.post(None)
            return self.sequence

    def when_durable(self, sequence: int) -> asyncio.Future[None]:
        """Return a future of the program's loop that is done once the sequence is committed; it
        raises `DiskFailed` when this member will never know, and is never done where only a
        successor can tell: the process starts anew then, and its client asks there."""
        future = self._main.create_future()
        if sequence <= self.durable:
            future.set_result(None)
        elif self._failure is not None:
            future.set_exception(self._failure)
        else:
            self._waiting.add(sequence, future)
        return future

    def wait_durable(self, sequence: int, timeout_s: float | None = None) -> bool:
        """Block until the sequence is committed (True), or the time, or this life, is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.durable >= sequence or self._is_over, timeout_s)
            return self.durable >= sequence

    @property
    def synced(self) -> int:
        """How far our own disk has the log."""
        return self._log.synced

    @property
    def blocked(self) -> str:
        """Why our own disk takes nothing at the moment, for people; empty when it does."""
        return self._member.disk.blocked

    @property
    def is_leading(self) -> bool:
        """Has `on_leadership` been said, and nothing that ends it?"""
        return self._is_serving

    def lease_left_s(self) -> float:
        """How long an answer may still leave, as of now (C4)."""
        return self._lease_until_s - self._clock.now_s() if self._is_serving else 0.0

    def standing(self) -> Standing:
        """How this member sees the group."""
        return self._member.standing()

    def not_leader(self) -> NotLeader:
        """What to raise at whoever asks a member that does not lead."""
        return self._member.not_leader()

    async def ask(self, verb: str, member: MemberId = NOBODY) -> int:
        """`found`, `add`, `promote`, `remove` or `transfer`: return the sequence of the record
        that does it, once committed, or raise `UserError` with the reason why not."""
        return await self._member.ask(verb, member)

    # --- checkpoints

    def fork_checkpoint(self, produce: Callable[[], Iterable[bytes]]) -> threading.Thread:
        """Let a forked child write the state as it is at this moment; it gets its name once all
        of it is committed (C7). Join the thread to know the end."""
        with self._changed:
            sequence = self.sequence if self._is_serving else self.applied
        assert sequence > 0, "there is no state before the first record"
        member = self._member
        member.settle()  # what was appended is before this in the disk's queue
        member.disk.in_turn(self._log.rotate)
        with member.disk.lock:
            child = fork_to_write(lambda: self._log.write_checkpoint_part(sequence, produce()))
        self._child = child
        thread = threading.Thread(
            target=self._await_child, args=(child, sequence), name="checkpoint", daemon=True
        )
        thread.start()
        return thread

    def _await_child(self, child: int, sequence: int) -> None:
        is_written = has_written(child)
        self._child = 0
        if not is_written:
            log.error("checkpoint sequence=%d failed: its child could not write it", sequence)
            checkpoint.remove_part(self._disk, self.directory, sequence)
            return
        if not self.wait_durable(sequence):
            return  # this life is over; the next removes what is half done
        bases: list[int] = []
        self._member.disk.in_turn(lambda: bases.append(self._log.publish_checkpoint(sequence)))
        if bases:
            self._member.post(e.Compacted(bases[0]))
            log.info("checkpoint sequence=%d written", sequence)

    # --- for the member's thread

    def decide(self, handle: Callable[[tuple[bytes, ...]], list[c.Command]]) -> list[c.Command]:
        """The program numbers its records while the brain may add its own: one lock orders them."""
        with self._changed:
            pending, self._pending = tuple(self._pending), []
            commands = handle(pending)
            self.sequence = self._member.replica.last
            self._lease_until_s = self._member.replica.lease_until_s()
        return commands

    def is_alive(self) -> bool:
        return self._clock.now_s() - self._touched_at_s < SILENCE_S_MAX

    def committed(self, sequence: int) -> None:
        """Tell whoever waits, and the state machine what it has not led to itself."""
        with self._changed:
            assert self.durable <= sequence <= self.sequence, (self.durable, sequence)
            self.durable = sequence
            self._changed.notify_all()
            is_own = self._is_serving
        while not is_own and self._sent_on < sequence:
            records = self._member.records(self._sent_on + 1, sequence)
            if not records:
                return  # the disk has failed, and this life is over
            self._main.call_soon_threadsafe(self._deliver, self._sent_on + 1, records)
            self._sent_on += len(records)
        self._main.call_soon_threadsafe(self._release)

    def led(self, epoch: int) -> None:
        self._main.call_soon_threadsafe(self._lead, epoch)

    def park(self, parked: bool) -> None:
        self._main.call_soon_threadsafe(self._park, parked)

    def over(self, reason: str, failure: DiskFailed | None) -> None:
        """Nothing is answered from here on."""
        with self._changed:
            self._is_over = True
            self._is_serving = False
            self._lease_until_s = -math.inf
            self._failure = failure
            self._changed.notify_all()
        if failure is None:
            self._main.call_soon_threadsafe(self._machine.on_restart, reason)
        else:
            self._main.call_soon_threadsafe(self._release)
            if self._on_failure is not None:
                self._on_failure(failure)

    # --- on the program's loop

    def _deliver(self, first: int, records: tuple[bytes, ...]) -> None:
        assert first == self.applied + 1, f"record {first} after {self.applied}"
        for at, payload in enumerate(records):
            if payload[0] != MARK:
                self._machine.on_committed(first + at, payload)
            self.applied = first + at

    def _release(self) -> None:
        self._waiting.release(self.durable, self._failure)

    def _lead(self, epoch: int) -> None:
        with self._changed:
            if self._is_over:
                return
            self._is_serving = True
        self._machine.on_leadership(epoch)

    def _park(self, parked: bool) -> None:
        self._machine.on_parked(parked)
        if parked:
            self._member.post(e.Parked())
